use std::sync::atomic::AtomicUsize;

use super::*;
use crate::token::Ensemble;

/// Counts how often it was told to go.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Contender for Counted {
    fn release(self: Box<Self>, done: Done) {
        self.0.fetch_add(1, Ordering::SeqCst);
        drop(done);
    }
}

/// A transaction that nobody has to stop.
struct Quiet;

impl Stop for Quiet {
    fn stop(&self) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

fn options() -> LockOptions {
    LockOptions { fair: true, timeout: None, wait: None, function: "test" }
}

fn hold(path: &str) -> (Arc<Hold>, Arc<AtomicUsize>) {
    let released = Arc::new(AtomicUsize::new(0));
    let grant = Grant {
        path: LockPath::new(path).unwrap(),
        options: options(),
        token: FencingToken::new(Ensemble::MEMORY, 1, 0, 0),
        attempt: Uuid::new_v4(),
        validity: Validity::unlimited(),
    };
    (Hold::new(grant, Box::new(Counted(released.clone()))), released)
}

fn attach(hold: &Arc<Hold>) -> Attached {
    let transaction: Arc<dyn Stop> = Arc::new(Quiet);
    hold.attach(&transaction)
}

#[test]
fn g07_no_hold_is_taken_while_a_commit_nested_in_it_is_on_its_way() {
    let (outer, released) = hold("/a");
    let middle = Hold::nested(&outer, options());
    let inner = Hold::nested(&middle, options());
    let transaction = attach(&inner);
    inner.start_commit().unwrap();
    for each in [&outer, &middle, &inner] {
        assert_eq!(each.state(), State::Committing);
        assert!(!each.end(LostReason::NodeGone), "taken with a COMMIT on its way");
    }
    // The guard goes with its caller; the COMMIT is still on its way.
    inner.release();
    assert!(!outer.end(LostReason::NodeGone), "taken with a COMMIT on its way");
    drop(transaction);
    // What was to happen meanwhile happens now.
    assert_eq!(outer.state(), State::Ended(LostReason::NodeGone));
    assert_eq!(middle.state(), State::Ended(LostReason::NodeGone));
    outer.release();
    assert_eq!(released.load(Ordering::SeqCst), 1);
}

#[test]
fn g07_no_nested_commit_starts_when_the_outer_hold_has_ended() {
    let (outer, _) = hold("/a");
    let middle = Hold::nested(&outer, options());
    let inner = Hold::nested(&middle, options());
    assert!(outer.end(LostReason::Closed));
    assert_eq!(inner.start_commit(), Err(LostReason::Closed));
    assert_eq!(middle.state(), State::Held, "the steps that were taken on the way are taken back");
}

#[test]
fn g04_a_joined_lock_is_kept_until_the_outer_transaction_has_ended() {
    let (outer, outer_released) = hold("/outer");
    let (joined, released) = hold("/joined");
    let entered_again = Hold::nested(&joined, options());
    let transaction = attach(&outer);
    outer.keep(&entered_again);
    for each in [&entered_again, &joined, &outer] {
        each.release();
    }
    let counts = || (released.load(Ordering::SeqCst), outer_released.load(Ordering::SeqCst));
    assert_eq!(counts(), (0, 0), "free before the transaction has ended");
    drop(transaction);
    assert_eq!(counts(), (1, 1));
    assert!(joined.is_gone() && entered_again.is_gone());
}

#[test]
fn g07_what_has_joined_twice_or_was_released_meanwhile_may_commit() {
    let (outer, _) = hold("/outer");
    let (joined, released) = hold("/joined");
    let again = Hold::nested(&joined, options());
    let (around, _) = hold("/around");
    let below = Hold::nested(&around, options());
    let transaction = attach(&outer);
    for each in [&joined, &again, &below] {
        outer.keep(each);
    }
    around.release();
    for each in [&joined, &again, &below] {
        each.start_joined_commit().unwrap();
    }
    assert!(!joined.end(LostReason::NodeGone), "taken with a COMMIT on its way");
    for each in [&again, &joined, &below] {
        each.release();
    }
    assert_eq!(released.load(Ordering::SeqCst), 0, "free before the transaction has ended");
    drop(transaction);
    for each in [&joined, &around] {
        assert!(each.is_gone() && each.state() == State::Released);
    }
}

#[test]
fn g07_no_commit_starts_when_what_has_joined_is_over() {
    let (outer, _) = hold("/outer");
    let (joined, _) = hold("/joined");
    let _transaction = attach(&outer);
    outer.keep(&joined);
    joined.end(LostReason::NodeGone);
    assert_eq!(joined.start_joined_commit(), Err(LostReason::NodeGone));
    let lapsed: Vec<_> = outer.under_commit().iter().filter_map(|hold| hold.lapsed()).collect();
    assert_eq!(lapsed, [LostReason::NodeGone]);
}
