use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};
use tracing::{debug, info, warn};
use zookeeper_client as zk;

use super::{Config, attempt::node_gone, backoff::Backoff, io::Io, session::Session, witness};
use crate::{
    clock::Tick,
    error::{Error, LostReason},
};

/// The session that is used just now.
#[derive(Clone, Debug)]
pub(super) enum Current {
    Live(Arc<Session>),
    /// The last one is over, and why there is no new one yet.
    None(Option<Error>),
    Closed,
}

/// How long a closed session is waited for: the server answers in a millisecond, if it is there.
const CLOSING: Duration = Duration::from_secs(2);

/// Keeps a session: beats for it, ends its holds when it is lost or may be, and builds the next one.
pub(super) async fn supervise(
    config: Arc<Config>,
    first: (Arc<Session>, zk::StateWatcher),
    io: Io,
    current: watch::Sender<Current>,
    closing: watch::Receiver<bool>,
) {
    keep(&config, first, &io, &current, closing).await;
    if timeout(CLOSING, io.end()).await.is_err() {
        debug!(target: "zklock", "the thread that speaks with the server has not ended in time");
    }
    // Whoever closes waits until this end is dropped.
    drop(current);
}

async fn keep(
    config: &Arc<Config>,
    first: (Arc<Session>, zk::StateWatcher),
    io: &Io,
    current: &watch::Sender<Current>,
    mut closing: watch::Receiver<bool>,
) {
    let (mut session, mut states) = first;
    loop {
        current.send_replace(Current::Live(session.clone()));
        let reason = tokio::select! {
            reason = Pulse::new(&session).run(&mut states) => reason,
            _ = closing.wait_for(|closing| *closing) => LostReason::Closed,
        };
        if reason == LostReason::Closed {
            // Before the holds end, so that nobody starts anew.
            current.send_replace(Current::Closed);
            session.end(reason);
            let closed = async { while !states.changed().await.is_terminated() {} };
            if timeout(CLOSING, closed).await.is_err() {
                debug!(target: "zklock", "the session was not closed in time; the server ends it when it times out");
            }
            return;
        }
        warn!(target: "zklock", session = %format_args!("{:#x}", session.id()), %reason, "session over, building a new one");
        current.send_replace(Current::None(None));
        session.end(reason);
        let next = tokio::select! {
            next = reopen(config, io, current, session.timeout) => next,
            _ = closing.wait_for(|closing| *closing) => {
                current.send_replace(Current::Closed);
                return;
            }
        };
        (session, states) = next;
        info!(target: "zklock", session = %format_args!("{:#x}", session.id()), "new session");
    }
}

async fn reopen(
    config: &Arc<Config>,
    io: &Io,
    current: &watch::Sender<Current>,
    negotiated: Duration,
) -> (Arc<Session>, zk::StateWatcher) {
    let (patience, longest_pause) = bounds(negotiated);
    let mut backoff = Backoff::new(Duration::from_millis(100), longest_pause);
    loop {
        // Many clients lose their sessions together: they must not come back together.
        backoff.pause().await;
        let opened = timeout(patience, Session::open(config, io.tasks())).await;
        let error = match opened {
            Ok(Ok(session)) => return session,
            Ok(Err(error)) => error,
            Err(_) => config.unavailable(None),
        };
        warn!(target: "zklock", %error, "no new session yet");
        current.send_replace(Current::None(Some(error)));
    }
}

/// How long one try to open a session may take, and the longest pause between two, given the timeout that the last
/// session had. Not the one that was asked for: the server raises what is too short for it, so that what suits the
/// server may take longer than that.
fn bounds(negotiated: Duration) -> (Duration, Duration) {
    let (short, long) = (Duration::from_secs(1), Duration::from_secs(5));
    (2 * negotiated.max(long), negotiated.clamp(short, long))
}

/// What happens to a session while it lives.
struct Pulse<'a> {
    session: &'a Arc<Session>,
    link: Link,
    /// The validity ran out, and the holds were ended for it.
    lapsed: bool,
    /// Numbers the connections: what was asked on an earlier one says nothing about this one.
    connection: u64,
    beats: JoinSet<(u64, Beat)>,
    next_beat: Instant,
    next_sweep: Instant,
}

/// The connection below a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Down,
    /// Connected again; not known yet whether it is still the session that has our nodes.
    Unproven,
    Up,
}

enum Beat {
    Answered(Tick),
    /// It is the session that it was, and this was asked after the connection came back.
    Proven(Tick),
    Failed,
    /// Connected, but not, or not provably, to the session that has our nodes.
    Changed,
}

impl<'a> Pulse<'a> {
    fn new(session: &'a Arc<Session>) -> Self {
        let now = Instant::now();
        Self {
            session,
            link: Link::Up,
            lapsed: false,
            connection: 0,
            beats: JoinSet::new(),
            next_beat: now,
            next_sweep: now + Duration::from_secs(1),
        }
    }

    /// Resolves when the session is over.
    async fn run(mut self, states: &mut zk::StateWatcher) -> LostReason {
        let session = self.session;
        loop {
            let valid_until = session.validity.valid_until();
            tokio::select! {
                // The state first: an answer that came with a new connection says nothing before that is looked at.
                biased;
                state = states.changed() => match state {
                    zk::SessionState::SyncConnected => self.reconnected(),
                    zk::SessionState::Disconnected | zk::SessionState::ConnectedReadOnly => self.disconnected(),
                    _ => return LostReason::SessionExpired,
                },
                Some(beat) = self.beats.join_next(), if !self.beats.is_empty() => {
                    let (connection, beat) = beat.unwrap_or((self.connection, Beat::Failed));
                    let is_current = connection == self.connection;
                    match beat {
                        Beat::Proven(sent) if is_current => {
                            self.link = Link::Up;
                            self.confirmed(sent);
                        }
                        Beat::Answered(sent) if is_current && self.link == Link::Up => self.confirmed(sent),
                        Beat::Proven(_) | Beat::Answered(_) | Beat::Failed => {}
                        Beat::Changed => {
                            warn!(target: "zklock", "connected to another session than before");
                            return LostReason::SessionExpired;
                        }
                    }
                }
                () = sleep(valid_until.remaining()), if !self.lapsed => {
                    if session.validity.verdict(Tick::now()).is_some() {
                        self.lapsed = true;
                        session.revoke(LostReason::Unconfirmed);
                    }
                }
                () = sleep_until(self.next_beat) => {
                    // The library gives up after seven fifths of the timeout; if it does not, it is broken.
                    if session.last_confirmed().elapsed() > 2 * session.timeout {
                        warn!(target: "zklock", "no heartbeat answered for two session timeouts");
                        return LostReason::SessionExpired;
                    }
                    self.beat();
                }
                () = sleep_until(self.next_sweep) => self.sweep(),
            }
        }
    }

    fn confirmed(&mut self, sent: Tick) {
        self.session.confirm(sent);
        if self.lapsed && self.session.validity.verdict(Tick::now()).is_none() {
            self.lapsed = false;
            info!(target: "zklock", "session confirmed again");
        }
    }

    fn disconnected(&mut self) {
        debug!(target: "zklock", "disconnected");
        self.link = Link::Down;
        self.connection += 1;
        self.session.validity.connected(false);
    }

    /// Also when the loss of the connection was not seen: states are not queued.
    fn reconnected(&mut self) {
        debug!(target: "zklock", "connected again");
        self.link = Link::Unproven;
        self.connection += 1;
        self.session.validity.connected(false);
        self.beat();
    }

    fn beat(&mut self) {
        self.next_beat = Instant::now() + self.session.timeout / 6;
        // Unanswered ones fail when the connection does; this many is a library that does not answer at all.
        if self.link == Link::Down || self.beats.len() > 16 {
            return;
        }
        let (session, connection, unproven) =
            (self.session.clone(), self.connection, self.link == Link::Unproven);
        self.beats.spawn(async move { (connection, beat(session, unproven).await) });
    }

    fn sweep(&mut self) {
        self.next_sweep = Instant::now() + Duration::from_secs(1);
        for node in self.session.unwatched() {
            let session = self.session.clone();
            // Ends with the node, or with the session.
            self.session.tasks.spawn(async move {
                if node_gone(&session, &node).await.is_ok() {
                    session.is_gone(&node);
                }
            });
        }
    }
}

/// A `sync`, which the leader answers; a follower that is cut off from it answers reads for seconds after the leader
/// has ended the session.
async fn beat(session: Arc<Session>, unproven: bool) -> Beat {
    let sent = Tick::now();
    let Ok(client) = session.client() else { return Beat::Failed };
    match client.sync("/").await {
        Ok(()) if !unproven => Beat::Answered(sent),
        Ok(()) => match witness::is_same(&session, &client).await {
            Ok(true) => Beat::Proven(sent),
            Ok(false) => Beat::Changed,
            Err(_) => Beat::Failed,
        },
        Err(_) => Beat::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_timeout_does_not_keep_a_session_from_being_opened() {
        let ms = Duration::from_millis;
        assert_eq!(bounds(ms(0)), (ms(10_000), ms(1000)));
        assert_eq!(bounds(ms(4000)), (ms(10_000), ms(4000)));
        assert_eq!(bounds(ms(40_000)), (ms(80_000), ms(5000)));
    }
}
