use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::connection;
use super::conversation::Conversation;
use super::faults::Faults;
use super::rule::{Rule, Rules};

/// What the owner of a proxy, its listener and its connections share.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) target: String,
    speaks: Protocol,
    pub(crate) faults: watch::Sender<Faults>,
    /// Counts the cuts; connections from before the last one end.
    cuts: watch::Sender<u64>,
    pub(crate) rules: Rules,
    status: Mutex<Status>,
    changed: Condvar,
}

/// What goes through a link.
#[derive(Debug, Clone)]
pub(crate) enum Protocol {
    /// Whatever a client of a server speaks: found out from its first bytes.
    Clients,
    /// Replication among ZooKeeper servers, which rules do not look into.
    Replication,
    /// Elections among ZooKeeper servers: the caller's own address is replaced.
    Election { address: String, instead: String },
}

#[derive(Debug, Default)]
struct Status {
    listening: bool,
    /// For each connection, how many cuts there had been when it came.
    connections: Vec<u64>,
    last_error: Option<io::Error>,
}

impl Link {
    pub(crate) fn new(target: String, speaks: Protocol) -> Self {
        Self {
            target,
            speaks,
            faults: watch::Sender::default(),
            cuts: watch::Sender::default(),
            rules: Rules::default(),
            status: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Accepts connections, but while they are to be refused.
    pub(crate) async fn listen(self: Arc<Self>, port: u16) {
        let mut faults = self.faults.subscribe();
        loop {
            if faults.wait_for(|faults| !faults.refuse).await.is_err() {
                return;
            }
            let listener = match TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await {
                Ok(listener) => listener,
                Err(error) => {
                    self.set(|status| status.last_error = Some(error));
                    return;
                }
            };
            self.set(|status| status.listening = true);
            tokio::select! {
                _ = faults.wait_for(|faults| faults.refuse) => {}
                () = self.accept(&listener) => {}
            }
            drop(listener);
            self.set(|status| status.listening = false);
        }
    }

    async fn accept(self: &Arc<Self>, listener: &TcpListener) {
        loop {
            // An error concerns one connection, or passes when there are file handles again.
            let Ok((client, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            // From here on, and not only when the task is first polled.
            let mut cuts = self.cuts.subscribe();
            let came_at = *cuts.borrow_and_update();
            self.set(|status| status.connections.push(came_at));
            let link = Arc::clone(self);
            tokio::spawn(async move {
                let cut_by = link.serve(client, cuts).await;
                link.set(|status| {
                    let own = status.connections.iter().position(|other| *other == came_at);
                    own.map(|own| status.connections.swap_remove(own));
                });
                if let Some(rule) = cut_by {
                    rule.fire();
                }
            });
        }
    }

    /// Serves one client to the end, and says which rule ended it, if one did.
    async fn serve(&self, client: TcpStream, mut cuts: watch::Receiver<u64>) -> Option<Rule> {
        let conversation = Mutex::new(match &self.speaks {
            Protocol::Clients => Conversation::new(),
            Protocol::Replication => Conversation::Raw,
            Protocol::Election { address, instead } => Conversation::Election {
                introduction: Vec::new(),
                address: address.clone(),
                instead: instead.clone(),
            },
        });
        tokio::select! {
            _ = cuts.changed() => None,
            rule = connection::carry(self, client, &conversation) => rule,
        }
    }

    pub(crate) fn is_between_servers(&self) -> bool {
        !matches!(self.speaks, Protocol::Clients)
    }

    pub(crate) fn connections(&self) -> usize {
        self.status().connections.len()
    }

    /// Blocks until the proxy's thread has done it, which takes well under a millisecond.
    ///
    /// Blocking is right here: the thread does not depend on the caller's runtime, and a test may
    /// rely on it that the fault is there when the call returns.
    pub(crate) fn wait_until_listening(&self, listening: bool) -> io::Result<()> {
        let status = self.wait(|status| status.listening != listening && status.last_error.is_none())?;
        match &status.last_error {
            Some(error) => Err(io::Error::new(error.kind(), error.to_string())),
            None => Ok(()),
        }
    }

    /// Ends all connections, but not those that clients make right after.
    pub(crate) fn cut(&self) -> io::Result<()> {
        let mut now = 0;
        self.cuts.send_modify(|cuts| {
            *cuts += 1;
            now = *cuts;
        });
        self.wait(|status| status.connections.iter().any(|came_at| *came_at < now)).map(drop)
    }

    fn wait(&self, mut not_yet: impl FnMut(&Status) -> bool) -> io::Result<MutexGuard<'_, Status>> {
        const DEADLINE: Duration = Duration::from_secs(30);

        let waited = self.changed.wait_timeout_while(self.status(), DEADLINE, |status| not_yet(status));
        let (status, result) = waited.unwrap_or_else(PoisonError::into_inner);
        if result.timed_out() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(status) }
    }

    fn set(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.status());
        self.changed.notify_all();
    }

    fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
