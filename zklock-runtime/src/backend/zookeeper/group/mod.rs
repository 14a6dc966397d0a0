//! Group commit on the client: what the tasks of a session want written while requests are on their way is gathered
//! and sent as one.
//!
//! A single wish is sent at once and alone. Under load the round trip and the server's sync to disk are shared by all
//! that came in meanwhile, without timers. A multi is all or nothing: the wish that fails is taken out and answered, the rest
//! is sent again, and what has failed to travel in company twice goes alone.

mod plan;

use std::{
    collections::VecDeque,
    fmt,
    panic::{self, AssertUnwindSafe},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use zookeeper_client as zk;

use self::plan::{Op, Plan};
use super::{
    answer::{Kind, kind},
    session::Session,
};
use crate::clock::Tick;

/// Something to be written, all of it or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// An ephemeral sequential node, whose name starts with `prefix`.
    Contender { directory: Arc<str>, prefix: String, tag: Vec<u8>, way: Way },
    /// An ephemeral node of this very path.
    Plain { path: Arc<str>, tag: Vec<u8> },
    /// No node any more.
    Delete {
        path: Arc<str>,
        /// The transaction that made the directory of a contender, where known: with the node in it, it is still that one.
        made_in: Option<i64>,
    },
    /// Nor the directory that it was the last one in.
    DeleteLast { path: Arc<str>, directory: Arc<str> },
}

/// How a contender comes into its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The directory is made with it.
    Founds,
    /// It is there.
    Joins,
}

/// What was written.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Written {
    Contender {
        path: String,
        created: Created,
        /// The transaction that made the directory.
        directory: i64,
        /// How many children the directory had with this one, if that was asked.
        children: Option<i32>,
    },
    Plain(Created),
    Gone,
}

/// When a node came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Created {
    pub(super) czxid: i64,
    /// Which one of its transaction.
    pub(super) place: u16,
}

/// Why something was not written, or may not have been.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) step: Step,
    pub(super) error: zk::Error,
    /// Where it would stand among what was made in the transaction, if that took place after all.
    pub(super) place: u16,
}

/// The part of it that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Directory,
    Node,
    /// Writing to the directory, which tells how many are in it.
    Count,
}

/// Told of the outcome, on the thread that speaks with the server.
type Then = Box<dyn FnOnce(Result<Written, Failure>) + Send + Sync>;

struct Wish {
    write: Write,
    then: Then,
    /// Likely to fail, and the company with it.
    is_risky: bool,
    /// How often it went down with others.
    failures: u8,
}

/// What is to be written on one session.
#[derive(Default)]
pub(super) struct Group(Mutex<State>);

#[derive(Default)]
struct State {
    waiting: VecDeque<Wish>,
    /// How many senders there are.
    senders: usize,
    /// One of them has not looked yet.
    starting: bool,
    /// How many risky wishes go alone from here on, since one has spoiled a request.
    caution: u32,
    patience: Patience,
    /// Nothing is written any more.
    is_over: bool,
}

/// So many requests on their way: while the server prepares one and writes another to its disk, the next one travels.
const SENDERS: usize = 3;
/// Well below what a server takes (`jute.maxbuffer`, 1 MiB): the names in the answer count too.
const MOST_BYTES: usize = 128 * 1024;
const MOST_WISHES: usize = 256;
/// After how many failures in company a wish goes alone.
const PATIENCE: u8 = 2;
const CAUTION: u32 = 64;

impl Group {
    /// The session is over, and its thread may be about to end: who still waits for an answer gets it here.
    pub(super) fn end(&self) {
        let waiting = {
            let mut state = self.state();
            state.is_over = true;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Wish::fails_too_late);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has it written, from any thread. `then` is told of the outcome on the thread that speaks with the server, or at once when
/// the session is over; it is dropped with that thread.
pub(super) fn write(
    session: &Arc<Session>,
    write: Write,
    is_risky: bool,
    then: impl FnOnce(Result<Written, Failure>) + Send + Sync + 'static,
) {
    let wish = Wish { write, then: Box::new(then), is_risky, failures: 0 };
    let mut state = session.group.state();
    if state.is_over {
        drop(state);
        return wish.fails_too_late();
    }
    state.waiting.push_back(wish);
    if state.starting || state.senders == SENDERS {
        return;
    }
    state.starting = true;
    state.senders += 1;
    drop(state);
    session.tasks.spawn(send_all(session.clone()));
}

/// One sender: as long as there is something to be written.
async fn send_all(session: Arc<Session>) {
    let is_patient = {
        let mut state = session.group.state();
        let is_worth_it = state.patience.is_worth_it();
        if !is_worth_it {
            state.patience.passes();
        }
        is_worth_it && state.waiting.iter().all(|wish| wish.write.is_delete())
    };
    if is_patient {
        let is_joined = is_joined(&session).await;
        session.group.state().patience.learns(is_joined);
    }
    loop {
        let (company, alone) = {
            let mut state = session.group.state();
            state.starting = false;
            if state.waiting.is_empty() {
                state.senders -= 1;
                return;
            }
            state.take()
        };
        for wish in alone {
            let session = session.clone();
            session.tasks.clone().spawn(async move { send(&session, vec![wish]).await });
        }
        if !company.is_empty() {
            send(&session, company).await;
        }
    }
}

/// Whether something that is waited for comes to the deletes that are about to be sent.
async fn is_joined(session: &Session) -> bool {
    let until = Tick::now() + Patience::LONGEST;
    loop {
        if session.group.state().waiting.iter().any(|wish| !wish.write.is_delete()) {
            return true;
        }
        if Tick::now() >= until {
            return false;
        }
        tokio::task::yield_now().await;
    }
}

/// Whether it pays to keep a delete back for a moment.
///
/// Nobody waits for a delete, and whoever released a lock often takes the next one at once, which can then travel with
/// it. A request of its own, right after that of the delete, would be held back by the kernel until the first is
/// acknowledged (the client library does not set `TCP_NODELAY`). Where nobody comes, the next holder elsewhere waits for
/// nothing: so it is done only where it has worked of late, and tried now and then.
#[derive(Clone, Copy, Debug, Default)]
struct Patience {
    hopes: u8,
    since_tried: u8,
}

impl Patience {
    const LONGEST: Duration = Duration::from_micros(50);
    const MOST: u8 = 8;
    const TRIES: u8 = 16;

    fn is_worth_it(self) -> bool {
        self.hopes > 0 || self.since_tried == 0
    }

    fn learns(&mut self, is_joined: bool) {
        self.hopes = if is_joined { (self.hopes + 2).min(Self::MOST) } else { self.hopes.saturating_sub(1) };
        self.since_tried = 1;
    }

    /// It was not tried.
    fn passes(&mut self) {
        self.since_tried = (self.since_tried + 1) % Self::TRIES;
    }
}

impl State {
    /// What goes into the next request, and what is sent alone besides it.
    fn take(&mut self) -> (Vec<Wish>, Vec<Wish>) {
        let (mut company, mut alone) = (Vec::new(), Vec::new());
        let (mut bytes, mut taken) = (0, 0);
        while let Some(wish) = self.waiting.front() {
            bytes += wish.write.size();
            taken += 1;
            if taken > 1 && (bytes > MOST_BYTES || taken > MOST_WISHES) {
                break;
            }
            let Some(wish) = self.waiting.pop_front() else { break };
            let is_cautious = wish.is_risky && self.caution > 0;
            if is_cautious {
                self.caution -= 1;
            }
            if wish.failures >= PATIENCE || is_cautious { alone.push(wish) } else { company.push(wish) }
        }
        (company, alone)
    }
}

impl Write {
    fn is_delete(&self) -> bool {
        matches!(self, Self::Delete { .. } | Self::DeleteLast { .. })
    }

    /// About how long it is in a request and its answer.
    fn size(&self) -> usize {
        100 + match self {
            Self::Contender { directory, prefix, tag, .. } => {
                2 * directory.len() + 2 * prefix.len() + tag.len()
            }
            Self::Plain { path, tag } => 3 * path.len() + tag.len(),
            Self::Delete { path, .. } => path.len(),
            Self::DeleteLast { path, directory } => path.len() + directory.len(),
        }
    }
}

/// Sends wishes as one request, and sees to what comes of it.
async fn send(session: &Arc<Session>, wishes: Vec<Wish>) {
    let plan = Plan::of(&wishes.iter().map(|wish| &wish.write).collect::<Vec<_>>(), &session.directories);
    match ask(session, &wishes, &plan).await {
        Ok(written) => {
            wishes.into_iter().zip(written).for_each(|(wish, written)| wish.answer(Ok(written)));
        }
        Err((op, error)) => fail(session, wishes, &plan, op, &error),
    }
}

/// The outcomes of all of them, or what failed: an operation, or the request as a whole.
async fn ask(
    session: &Session,
    wishes: &[Wish],
    plan: &Plan,
) -> Result<Vec<Written>, (Option<Op>, zk::Error)> {
    let client = session.client().map_err(|_| (None, zk::Error::SessionExpired))?;
    let acls = session.config.acl.acls();
    match wishes {
        [Wish { write: Write::Plain { path, tag }, .. }] => {
            let options = zk::CreateMode::Ephemeral.with_acls(acls);
            let (stat, _) = client.create(path, tag, &options).await.map_err(|error| (None, error))?;
            Ok(vec![Written::Plain(Created { czxid: stat.czxid, place: 0 })])
        }
        [Wish { write: Write::Delete { path, .. }, .. }] => {
            client.delete(path, None).await.map_err(|error| (None, error))?;
            Ok(vec![Written::Gone])
        }
        _ => {
            let mut writer = client.new_multi_writer();
            for op in plan.ops() {
                op.add(wishes, plan, &mut writer, acls).map_err(|error| (Some(*op), error))?;
            }
            let results = writer.commit().await.map_err(|error| match error {
                zk::MultiWriteError::OperationFailed { index, source } => {
                    (plan.ops().get(index).copied(), source)
                }
                zk::MultiWriteError::RequestFailed { source } => (None, source),
            })?;
            // If it is done, but not as it was asked for, each must look for its own.
            plan.read(results).ok_or((None, zk::Error::RuntimeInconsistent))
        }
    }
}

/// Answers those that failed, and has the others sent again.
fn fail(session: &Session, wishes: Vec<Wish>, plan: &Plan, op: Option<Op>, error: &zk::Error) {
    // A refusal of the request as a whole is for each to hear alone; a lost answer is everybody's, and a server that is
    // too busy for one request is not helped by many.
    let is_refused = kind(error) == Kind::Refusal && *error != zk::Error::Throttled;
    let is_for_all = wishes.len() == 1 || (op.is_none() && !is_refused);
    let step = op.map_or(Step::Node, Op::step);
    let mut again = Vec::new();
    let mut has_spoiled = false;
    for (index, mut wish) in wishes.into_iter().enumerate() {
        let place = plan.place(index);
        if is_for_all || op.is_some_and(|op| plan.fails_with(index, op, &wish.write, error)) {
            has_spoiled |= !is_for_all && wish.is_risky;
            wish.fails(step, error.clone(), place);
        } else {
            wish.failures = if op.is_none() { PATIENCE } else { wish.failures + 1 };
            again.push(wish);
        }
    }
    let mut state = session.group.state();
    if has_spoiled {
        state.caution = CAUTION;
    }
    if state.is_over {
        drop(state);
        return again.into_iter().for_each(Wish::fails_too_late);
    }
    for wish in again.into_iter().rev() {
        state.waiting.push_front(wish);
    }
}

impl Wish {
    /// Whoever is told may wake a caller whose waker panics: the others must be told, and the sender go on, all the same.
    fn answer(self, answer: Result<Written, Failure>) {
        let then = self.then;
        let _ = panic::catch_unwind(AssertUnwindSafe(move || then(answer)));
    }

    fn fails_too_late(self) {
        self.fails(Step::Node, zk::Error::SessionExpired, 0);
    }

    fn fails(self, step: Step, error: zk::Error, place: u16) {
        self.answer(Err(Failure { step, error, place }));
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Group")
            .field("waiting", &state.waiting.len())
            .field("senders", &state.senders)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_panics_when_told_does_not_stop_the_sender() {
        let write = Write::Delete { path: "/a".into(), made_in: None };
        let then = Box::new(|_| panic!("a waker that panics"));
        Wish { write, then, is_risky: false, failures: 0 }.answer(Ok(Written::Gone));
    }
}
