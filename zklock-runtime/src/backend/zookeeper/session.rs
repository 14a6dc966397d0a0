use std::{
    collections::HashMap,
    fmt,
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, watch};
use tracing::warn;
use zookeeper_client as zk;

use super::{
    Config,
    answer::{Kind, Setback, kind, refused},
    backoff::Backoff,
    contender::OwnNode,
    directories::Directories,
    ensemble,
    group::{Created, Group},
    io::Tasks,
    janitor::Janitor,
    local::LocalQueues,
    looks::Looks,
    nodes::Name,
    witness::{self, Identity},
};
use crate::{
    clock::Tick,
    error::{Error, LostReason},
    hold::{Grant, Hold, Validity},
};

/// One session with the ensemble, from its connection to its end. All nodes of ours belong to one, and go with it.
pub(super) struct Session {
    pub(super) config: Arc<Config>,
    /// Those that speak with the server.
    pub(super) tasks: Tasks,
    pub(super) identity: Identity,
    /// As negotiated.
    pub(super) timeout: Duration,
    pub(super) home: ensemble::Home,
    pub(super) validity: Arc<Validity>,
    pub(super) directories: Arc<Directories>,
    /// Those of this session who want plain nodes.
    pub(super) local: Arc<LocalQueues>,
    pub(super) looks: Looks,
    /// What is to be written.
    pub(super) group: Group,
    pub(super) janitor: Janitor,
    /// Taken away at the end: the library closes a session when its last client is dropped.
    client: Mutex<Option<Arc<zk::Client>>>,
    /// When the heartbeat was sent that was answered last.
    confirmed: watch::Sender<Tick>,
    nodes: Mutex<Nodes>,
    /// Wakes all when it ends.
    ended: Notify,
}

/// The nodes of this session, each by its key.
#[derive(Default)]
struct Nodes {
    /// Nothing is granted any more.
    over: bool,
    live: HashMap<usize, Live>,
}

/// What is kept of each.
pub(super) struct Live {
    node: Arc<Node>,
    /// None of a node that waits.
    hold: Option<Weak<Hold>>,
}

/// A node that this session created.
#[derive(Debug)]
pub(super) struct Node {
    /// Below the chroot: its own, or that of the directory that it is in.
    path: Arc<str>,
    /// That of a contender, in its directory.
    name: Option<Name>,
    pub(super) czxid: i64,
    /// Which one of those made in that transaction.
    pub(super) place: u16,
    /// Seen to be gone.
    gone: AtomicBool,
    /// Somebody waits for it to be gone, whoever of ours has it when that comes.
    is_watched: AtomicBool,
}

impl Session {
    /// Connects, makes the chroot where it is missing, and has the session confirmed once.
    pub(super) async fn open(
        config: &Arc<Config>,
        tasks: &Tasks,
    ) -> Result<(Arc<Self>, zk::StateWatcher), Error> {
        let servers = config.address.servers();
        let mut connector = zk::Client::connector().with_session_timeout(config.session_timeout);
        for (scheme, auth) in &config.auth {
            connector = connector.with_auth(scheme, auth);
        }
        let client = tasks.run(async move { connector.connect(&servers).await }).await;
        // None: the library has panicked.
        let client = client.ok_or_else(|| config.unavailable(None))?.map_err(|error| match error {
            zk::Error::AuthFailed => Error::Refused {
                path: None,
                reason: "the credentials (`auth`) were not taken; check scheme and password".into(),
            },
            zk::Error::BadArguments(reason) => Error::Config { reason: (*reason).to_string() },
            error => config.unavailable(Some(error)),
        })?;
        let root = client.clone();
        let client = enter_chroot(config, client).await?;
        let sent = Tick::now();
        client.sync("/").await.map_err(|error| config.unavailable(Some(error)))?;
        let timeout = client.session_timeout();
        let home = ensemble::read(&root, config).await?;
        let identity =
            witness::call(&root, config, &home).await.map_err(|error| config.unavailable(Some(error)))?;
        // Whoever keeps a client keeps the session from being closed.
        drop(root);
        let states = client.state_watcher();
        let session = Self {
            config: config.clone(),
            tasks: tasks.clone(),
            identity,
            timeout,
            home,
            validity: Validity::until(valid_until(sent, timeout), config.address.chroot()),
            directories: Arc::default(),
            local: LocalQueues::new(config.share),
            looks: Looks::default(),
            group: Group::default(),
            janitor: Janitor::default(),
            client: Mutex::new(Some(Arc::new(client))),
            confirmed: watch::Sender::new(sent),
            nodes: Mutex::default(),
            ended: Notify::new(),
        };
        Ok((Arc::new(session), states))
    }

    /// Its number on the server.
    pub(super) fn id(&self) -> i64 {
        self.identity.id
    }

    /// The client, for one request: whoever keeps it longer keeps the session from being closed.
    pub(super) fn client(&self) -> Result<Arc<zk::Client>, Setback> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or(Setback::SessionOver)
    }

    /// Puts a question, which may be put more than once, until there is an answer. Cancel-safe.
    pub(super) async fn ask<T, F>(
        &self,
        question: impl Fn(Arc<zk::Client>) -> F,
    ) -> Result<Result<T, zk::Error>, Setback>
    where
        F: Future<Output = Result<T, zk::Error>>,
    {
        let mut backoff = Backoff::of_request();
        loop {
            match question(self.client()?).await {
                Ok(answer) => return Ok(Ok(answer)),
                Err(error) => match kind(&error) {
                    Kind::SessionOver => return Err(Setback::SessionOver),
                    Kind::Refusal if error != zk::Error::Throttled => return Ok(Err(error)),
                    Kind::Refusal | Kind::Unknown => backoff.pause().await,
                },
            }
        }
    }

    /// A node of ours came to be.
    pub(super) fn note(&self, node: &Arc<Node>) {
        self.nodes().live.insert(node.key(), Live { node: node.clone(), hold: None });
    }

    /// A node of ours is being taken away.
    pub(super) fn forget(&self, node: &Node) {
        self.nodes().live.remove(&node.key());
    }

    /// Gives the lock that rests on `own`, if the session is valid at this very moment and the node not seen to be gone;
    /// else gives `own` back.
    pub(super) fn grant(&self, own: OwnNode, grant: Grant) -> Result<Arc<Hold>, OwnNode> {
        let mut nodes = self.nodes();
        // Under the same lock as revocation: a hold that is granted here is seen by the next one.
        if nodes.over || own.node().is_gone() || self.validity.verdict(Tick::now()).is_some() {
            return Err(own);
        }
        let node = own.node().clone();
        let hold = Hold::new(grant, Box::new(own));
        nodes.live.insert(node.key(), Live { node, hold: Some(Arc::downgrade(&hold)) });
        Ok(hold)
    }

    /// A heartbeat that was sent at `sent` has been answered.
    pub(super) fn confirm(&self, sent: Tick) {
        self.validity.confirm(valid_until(sent, self.timeout));
        self.validity.connected(true);
        self.confirmed.send_if_modified(|last| {
            let later = sent > *last;
            *last = sent.max(*last);
            later
        });
    }

    /// When the last heartbeat that was answered had been sent.
    pub(super) fn last_confirmed(&self) -> Tick {
        *self.confirmed.borrow()
    }

    /// Resolves when the session stands confirmed, which may be at once.
    pub(super) async fn stands(&self) -> Result<(), Setback> {
        let mut confirmed = self.confirmed.subscribe();
        loop {
            confirmed.borrow_and_update();
            if self.is_over() {
                return Err(Setback::SessionOver);
            }
            if self.validity.verdict(Tick::now()).is_none() {
                return Ok(());
            }
            if confirmed.changed().await.is_err() {
                return Err(Setback::SessionOver);
            }
        }
    }

    /// Ends all holds; the session itself may recover.
    pub(super) fn revoke(&self, reason: LostReason) {
        let live: Vec<_> = self.nodes().live.values().filter_map(Live::hold).collect();
        let ended = live.iter().filter(|hold| hold.end(reason)).count();
        if ended > 0 {
            warn!(target: "zklock", session = %format_args!("{:#x}", self.id()), holds = ended, %reason, "locks lost");
        }
    }

    /// Ends the session: all holds with it, and everything that still asks.
    pub(super) fn end(&self, reason: LostReason) {
        self.nodes().over = true;
        self.validity.connected(false);
        self.revoke(reason);
        self.validity.end();
        self.nodes().live.clear();
        drop(self.client.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.group.end();
        // Wakes who waits for a confirmation, or for anything else.
        self.confirmed.send_modify(|_| {});
        self.ended.notify_waiters();
        // Those that wait without a task.
        self.directories.lines().iter().for_each(|line| line.stir());
        self.local.stir();
    }

    pub(super) fn is_over(&self) -> bool {
        self.nodes().over
    }

    /// Resolves when the session is over. Cancel-safe.
    pub(super) async fn ended(&self) {
        let ended = self.ended.notified();
        tokio::pin!(ended);
        // Registered before the look, else an end in between would be missed.
        ended.as_mut().enable();
        if !self.is_over() {
            ended.await;
        }
    }

    /// A node of ours is seen to be gone: whoever holds it now holds it no more.
    pub(super) fn is_gone(&self, node: &Node) {
        // First, so that a grant after the look sees it.
        node.gone.store(true, Ordering::Release);
        let hold = self.nodes().live.get(&node.key()).and_then(Live::hold);
        if let Some(hold) = hold.filter(|hold| hold.end(LostReason::NodeGone)) {
            warn!(target: "zklock", path = %hold.path(), "the node of a held lock was deleted by somebody else");
        }
    }

    /// The nodes of holds that have lasted for longer than a second, if nobody watches them yet.
    pub(super) fn unwatched(&self) -> Vec<Arc<Node>> {
        let holds: Vec<_> = {
            let nodes = self.nodes();
            let unwatched = nodes.live.values().filter(|live| !live.node.is_watched());
            unwatched.filter_map(|live| Some((live.node.clone(), live.hold()?))).collect()
        };
        let mut found = Vec::new();
        for (node, hold) in holds {
            if hold.held_for() > Duration::from_secs(1) {
                node.is_watched.store(true, Ordering::Relaxed);
                found.push(node);
            }
        }
        found
    }

    /// How many holds are watched.
    #[cfg(test)]
    pub(super) fn watched(&self) -> usize {
        self.nodes().live.values().filter(|live| live.node.is_watched() && live.hold.is_some()).count()
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Live {
    /// Not to be dropped with the nodes locked: it may be the last to let go of the hold, which looks for its node.
    fn hold(&self) -> Option<Arc<Hold>> {
        self.hold.as_ref()?.upgrade()
    }
}

impl Node {
    /// One that is the lock itself.
    pub(super) fn plain(path: Arc<str>, created: Created) -> Arc<Self> {
        Self::new(path, None, created)
    }

    pub(super) fn contender(directory: Arc<str>, name: Name, created: Created) -> Arc<Self> {
        Self::new(directory, Some(name), created)
    }

    fn new(path: Arc<str>, name: Option<Name>, created: Created) -> Arc<Self> {
        Arc::new(Self {
            path,
            name,
            czxid: created.czxid,
            place: created.place,
            gone: AtomicBool::new(false),
            is_watched: AtomicBool::new(false),
        })
    }

    /// Its address, which nobody else has for as long as the table keeps it.
    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Below the chroot.
    pub(super) fn path(&self) -> Arc<str> {
        match self.name {
            Some(name) => format!("{}/{name}", self.path).into(),
            None => self.path.clone(),
        }
    }

    /// Its name as a contender.
    pub(super) fn name(&self) -> Option<Name> {
        self.name
    }

    pub(super) fn is_named(&self, name: &str) -> bool {
        self.name.is_some() && self.name == Name::read(name)
    }

    fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Relaxed)
    }

    pub(super) fn is_seen_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &format_args!("{:#x}", self.id()))
            .field("timeout", &self.timeout)
            .field("validity", &self.validity)
            .finish_non_exhaustive()
    }
}

/// Until when the server surely keeps a session that was alive when it answered what was sent at `sent`.
///
/// Followers tell the leader only about every half tick which sessions live, and a tick is at most half a session
/// timeout: hence the quarter. The rest is for clocks that do not run at quite the same rate.
fn valid_until(sent: Tick, timeout: Duration) -> Tick {
    let slack = (timeout / 100).max(Duration::from_millis(20));
    sent + (timeout * 3 / 4).saturating_sub(slack)
}

async fn enter_chroot(config: &Config, client: zk::Client) -> Result<zk::Client, Error> {
    let chroot = config.address.chroot();
    if chroot.is_empty() {
        return Ok(client);
    }
    let failed = |error: zk::Error| {
        if kind(&error) == Kind::Refusal {
            let above =
                chroot.rsplit_once('/').map_or("/", |(above, _)| if above.is_empty() { "/" } else { above });
            refused(None, "CREATE", above, error)
        } else {
            config.unavailable(Some(error))
        }
    };
    if client.check_stat(chroot).await.map_err(failed)?.is_none() {
        let options = zk::CreateMode::Persistent.with_acls(config.acl.acls());
        client.mkdir(chroot, &options).await.map_err(failed)?;
    }
    client.chroot(chroot).map_err(|_| Error::Config { reason: format!("\"{chroot}\" cannot be a chroot") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validity_ends_well_before_the_session_can() {
        let sent = Tick::from_nanos(1_000_000_000);
        let valid = valid_until(sent, Duration::from_secs(4)).since(sent);
        assert_eq!(valid, Duration::from_millis(2960));
        assert!(valid_until(sent, Duration::from_millis(10)) == sent);
    }
}
