use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::request::{Request, Seen};
use crate::error::Error;

/// What a [`Proxy`](super::Proxy) does to one request, set by [`swallow_reply`](super::Proxy::swallow_reply)
/// and its like.
///
/// A handle to it, cheap to clone; dropping it changes nothing.
#[derive(Debug, Clone)]
pub struct Rule(Arc<State>);

#[derive(Debug)]
struct State {
    request: Request,
    nth: u64,
    action: Action,
    seen: AtomicU64,
    fired: watch::Sender<bool>,
    released: watch::Sender<bool>,
}

/// What is done, and to which of the two messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// The request does not reach the server, the connection is cut.
    DropRequest,
    /// The request waits in the proxy, and all that follows it.
    HoldRequest,
    /// The server has acted, its answer does not reach the client, the connection is cut.
    SwallowReply,
    /// The server has acted, its answer waits in the proxy, and all that follows it.
    HoldReply,
    /// Nothing; it is counted.
    Count,
}

impl Rule {
    /// Waits until it has happened: the connection is cut, or the message is held. A rule that
    /// happened before answers at once.
    ///
    /// # Errors
    ///
    /// [`Error::Deadline`] after 30 s, saying what never came by.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop at any point.
    pub async fn fired(&self) -> Result<(), Error> {
        const DEADLINE: Duration = Duration::from_secs(30);

        let mut fired = self.0.fired.subscribe();
        match tokio::time::timeout(DEADLINE, fired.wait_for(|fired| *fired)).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::Deadline { waited_for: self.describe(), waited: DEADLINE }),
        }
    }

    /// Whether it has happened.
    pub fn has_fired(&self) -> bool {
        *self.0.fired.borrow()
    }

    /// How many requests of this kind came by since the rule was set, this one included.
    pub fn seen(&self) -> u64 {
        self.0.seen.load(Ordering::SeqCst)
    }

    /// Lets a held message go on its way, or not be held when it comes.
    pub fn release(&self) {
        self.0.released.send_replace(true);
    }

    pub(crate) fn action(&self) -> Action {
        self.0.action
    }

    pub(crate) fn fire(&self) {
        self.0.fired.send_replace(true);
    }

    pub(crate) async fn released(&self) {
        // The sender lives in this very handle.
        let _ = self.0.released.subscribe().wait_for(|released| *released).await;
    }

    fn describe(&self) -> String {
        let State { request, nth, action, .. } = &*self.0;
        format!("{action:?} on request number {nth} of {request:?}, of which {} came by", self.seen())
    }
}

/// The rules of a proxy, which count over all its connections.
#[derive(Debug, Default)]
pub(crate) struct Rules(Mutex<Vec<Rule>>);

impl Rules {
    pub(crate) fn add(&self, request: Request, nth: u64, action: Action) -> Rule {
        let rule = Rule(Arc::new(State {
            request,
            nth,
            action,
            seen: AtomicU64::new(0),
            fired: watch::Sender::new(false),
            released: watch::Sender::new(false),
        }));
        self.lock().push(rule.clone());
        rule
    }

    /// Counts a request and gives the rule that it is up to, if there is one.
    pub(crate) fn meet(&self, request: &Seen<'_>) -> Option<Rule> {
        let mut chosen = None;
        for rule in self.lock().iter().filter(|rule| rule.0.request.covers(request)) {
            let number = rule.0.seen.fetch_add(1, Ordering::SeqCst) + 1;
            if number == rule.0.nth && rule.0.action != Action::Count && chosen.is_none() {
                chosen = Some(rule.clone());
            }
        }
        chosen
    }

    /// Forgets what has not happened yet and lets go what is held; counting goes on.
    pub(crate) fn clear(&self) {
        self.lock().retain(|rule| {
            rule.release();
            rule.0.action == Action::Count
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Rule>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::Op;
    use super::*;

    #[test]
    fn the_nth_request_of_its_kind_is_chosen_once() {
        let rules = Rules::default();
        let rule = rules.add(Op::Create.into(), 2, Action::SwallowReply);
        let all = rules.add(Request::Any, 1, Action::Count);
        let chosen: Vec<_> = [Op::Create, Op::Delete, Op::Create, Op::Create]
            .map(|op| rules.meet(&Seen::Op(op)).is_some())
            .into();
        assert_eq!(chosen, [false, false, true, false]);
        assert_eq!((rule.seen(), all.seen()), (3, 4));
        rules.clear();
        assert!(rules.meet(&Seen::Op(Op::Create)).is_none());
        assert_eq!((rule.seen(), all.seen()), (3, 5));
    }
}
