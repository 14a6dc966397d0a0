//! Histories that must be caught, and such that must not.

use super::*;

/// A history under construction, of one fair path.
#[derive(Default)]
struct Story(History);

const PATH: &str = "/a";

impl Story {
    fn says(mut self, at: u64, op: &str, what: What) -> Self {
        self.0.events.push(Event { at, op: op.into(), what });
        self
    }

    fn asks(self, op: &str, increments: bool) -> Self {
        self.says(0, op, What::Asked { path: PATH.into(), fair: true, increments })
    }

    fn unfair(mut self) -> Self {
        for event in &mut self.0.events {
            if let What::Asked { fair, .. } = &mut event.what {
                *fair = false;
            }
        }
        self
    }

    fn holds(self, op: &str, token: &str, begin: u64, end: u64) -> Self {
        self.says(begin, op, What::Granted { token: token.into() }).says(begin, op, What::Held).says(
            end,
            op,
            What::Held,
        )
    }

    fn ends(self, at: u64, op: &str, outcome: Outcome) -> Self {
        self.says(at, op, What::End { outcome, detail: String::new() })
    }

    fn commits(mut self, op: &str, token: &str, value: i64) -> Self {
        self.0.increments.push(Increment { path: PATH.into(), value, token: token.into(), op: op.into() });
        let counter = self.0.counters.entry(PATH.into()).or_default();
        *counter = value.max(*counter);
        self
    }

    fn with(mut self, begin: u64, end: u64, excuse: Excuse) -> Self {
        let reach = Reach::NOTHING;
        self.0.faults.push(FaultWindow { fault: String::new(), begin, end, excuse, reach });
        self
    }

    fn reached(mut self, begin: u64, end: u64, reach: Reach) -> Self {
        let excuse = Excuse::None;
        self.0.faults.push(FaultWindow { fault: String::new(), begin, end, excuse, reach });
        self
    }

    fn is(self, expected: &[&str]) {
        let found = check(&self.0);
        assert_eq!(found.iter().map(Violation::name).collect::<Vec<_>>(), expected, "{found:#?}");
    }
}

/// Two increments, one after the other.
fn good() -> Story {
    Story::default()
        .asks("p0-0-1", true)
        .asks("p1-0-1", true)
        .holds("p0-0-1", "01", 10, 20)
        .commits("p0-0-1", "01", 1)
        .ends(25, "p0-0-1", Outcome::Ok)
        .holds("p1-0-1", "02", 30, 40)
        .commits("p1-0-1", "02", 2)
        .ends(45, "p1-0-1", Outcome::Ok)
}

#[test]
fn nothing_is_wrong_with_a_good_one() {
    good().is(&[]);
}

#[test]
fn lines_come_in_any_order() {
    let mut story = good();
    story.0.events.reverse();
    story.is(&[]);
}

#[test]
fn two_hold_at_one_time() {
    let story = || {
        let story = Story::default().asks("p0-0-1", false).asks("p1-0-1", false);
        story.holds("p0-0-1", "01", 10, 20).holds("p1-0-1", "02", 19, 30)
    };
    story().is(&["overlap"]);
    // Its session was ended behind its back, at that time or not.
    story().with(18, 25, Excuse::Expired("p0".into())).is(&[]);
    story().with(18, 25, Excuse::Expired("p2".into())).is(&["overlap"]);
    story().with(21, 25, Excuse::Expired("p0".into())).is(&["overlap"]);
    story().with(0, 99, Excuse::LateCommit).is(&["overlap"]);
}

#[test]
fn a_long_hold_overlaps_more_than_its_neighbour() {
    let story = ["p0-0-1", "p1-0-1", "p2-0-1"].into_iter().fold(Story::default(), |s, op| s.asks(op, false));
    story
        .holds("p0-0-1", "01", 10, 100)
        .holds("p1-0-1", "02", 20, 30)
        .holds("p2-0-1", "03", 40, 50)
        .is(&["overlap", "overlap"]);
}

#[test]
fn a_hold_that_nobody_confirmed_is_none() {
    let story = Story::default().asks("p0-0-1", false).asks("p1-0-1", false);
    let story = story.says(10, "p0-0-1", What::Granted { token: "01".into() });
    story.holds("p1-0-1", "02", 10, 30).is(&[]);
}

#[test]
fn tokens_go_back() {
    let story = || {
        let story = Story::default().asks("p0-0-1", false).asks("p1-0-1", false);
        story.holds("p0-0-1", "02", 10, 20).holds("p1-0-1", "01", 30, 40)
    };
    story().is(&["out of order"]);
    story().unfair().is(&["token regression"]);
    let same = Story::default().asks("p0-0-1", false).asks("p1-0-1", false).unfair();
    same.holds("p0-0-1", "01", 10, 20).holds("p1-0-1", "01", 30, 40).is(&["token regression"]);
}

#[test]
fn one_is_granted_past_another() {
    let story = || {
        Story::default()
            .asks("p0-0-1", false)
            .asks("p1-0-1", false)
            .says(11, "p1-0-1", What::Queue { ahead: vec!["p0-0-1".into(), "unknown".into()] })
            .holds("p1-0-1", "02", 10, 20)
    };
    story().is(&["overtaken"]);
    story().ends(30, "p0-0-1", Outcome::Busy).is(&["overtaken"]);
    // It had gone, or it had had it, and its node was still to be deleted.
    story().ends(9, "p0-0-1", Outcome::Busy).is(&[]);
    story().says(9, "p0-0-1", What::Leaving).is(&[]);
    story().holds("p0-0-1", "01", 5, 6).is(&[]);
}

#[test]
fn an_update_is_lost() {
    let story = good().asks("p2-0-1", true).holds("p2-0-1", "03", 50, 60);
    story.commits("p2-0-1", "03", 2).ends(65, "p2-0-1", Outcome::Ok).is(&["lost update", "wrong count"]);
    let mut story = good();
    story.0.counters.insert(PATH.into(), 3);
    story.is(&["wrong count"]);
}

#[test]
fn a_stale_holder_commits() {
    Story::default()
        .asks("p0-0-1", true)
        .asks("p1-0-1", true)
        .holds("p0-0-1", "01", 10, 20)
        .holds("p1-0-1", "02", 30, 40)
        .commits("p1-0-1", "02", 1)
        .ends(41, "p1-0-1", Outcome::Ok)
        .commits("p0-0-1", "01", 2)
        .ends(99, "p0-0-1", Outcome::Ok)
        .is(&["stale commit"]);
}

#[test]
fn the_lock_is_released_before_the_commit() {
    let story = |value| {
        good()
            .asks("p2-0-1", false)
            .holds("p2-0-1", "03", 50, 60)
            .says(55, "p2-0-1", What::Read { value })
            .ends(65, "p2-0-1", Outcome::Ok)
    };
    story(2).is(&[]);
    story(1).is(&["commit after release"]);
    story(0).is(&["commit after release", "commit after release"]);
    story(1).with(35, 45, Excuse::LateCommit).is(&[]);
    story(1).with(1, 5, Excuse::LateCommit).is(&["commit after release"]);
    story(1).with(0, 99, Excuse::None).is(&["commit after release"]);
}

#[test]
fn a_commit_without_a_grant() {
    good().commits("p2-0-1", "03", 3).is(&["commit without grant"]);
    let other = good().asks("p2-0-1", true).holds("p2-0-1", "03", 50, 60);
    other.commits("p2-0-1", "04", 3).is(&["commit without grant"]);
}

#[test]
fn a_commit_twice() {
    good().commits("p1-0-1", "02", 3).is(&["committed twice"]);
}

#[test]
fn a_dishonest_outcome() {
    let story = |outcome| {
        let story = good().asks("p2-0-1", true).holds("p2-0-1", "03", 50, 60);
        story.ends(65, "p2-0-1", outcome).reached(50, 60, Reach::ENSEMBLE)
    };
    let not = [
        Outcome::RolledBack,
        Outcome::Panicked,
        Outcome::Busy,
        Outcome::Unavailable,
        Outcome::Overrun,
        Outcome::Lost,
        Outcome::Fenced,
        Outcome::ForeignFence,
        Outcome::NotCommitted,
        Outcome::TransactionEnded,
        Outcome::Database,
        Outcome::Backend,
    ];
    for outcome in not {
        story(outcome).is(&[]);
        story(outcome).commits("p2-0-1", "03", 3).is(&["dishonest outcome"]);
    }
    story(Outcome::Ok).is(&["dishonest outcome"]);
    for unknown in [Outcome::CommitUnknown, Outcome::Cancelled] {
        story(unknown).is(&[]);
        story(unknown).commits("p2-0-1", "03", 3).is(&[]);
    }
}

#[test]
fn a_killed_one_may_have_committed_or_not() {
    let story = || good().asks("p2-0-1", true).holds("p2-0-1", "03", 50, 60);
    story().is(&[]);
    story().commits("p2-0-1", "03", 3).is(&[]);
}

/// Each failure that only a fault may cause, with one that may and such that may not.
#[test]
fn a_failure_without_a_cause() {
    let elsewhere =
        || Reach { transactions: Whose::Of("p1".into()), locks: Whose::Of("p1".into()), ensembles: false };
    let cases = [
        (Outcome::Lost, Reach::process("p0"), vec![Reach::DATABASE, elsewhere()]),
        (Outcome::Unavailable, Reach::LOCKS, vec![Reach::DATABASE, elsewhere()]),
        (Outcome::Backend, Reach::LOCKS, vec![Reach::DATABASE, elsewhere()]),
        (Outcome::Fenced, Reach::process("p1"), vec![Reach::NOTHING, elsewhere()]),
        (Outcome::NotCommitted, Reach::DATABASE, vec![Reach::NOTHING, elsewhere()]),
        (Outcome::TransactionEnded, Reach::DATABASE, vec![Reach::NOTHING, elsewhere()]),
        (Outcome::CommitUnknown, Reach::DATABASE, vec![Reach::NOTHING, elsewhere()]),
        (Outcome::Database, Reach::LOCKS, vec![Reach::NOTHING, elsewhere()]),
        (Outcome::ForeignFence, Reach::ENSEMBLE, vec![Reach::LOCKS, Reach::DATABASE]),
    ];
    for (outcome, may, may_not) in cases {
        let story = || Story::default().says(10, "p0-0-1", asked()).ends(20, "p0-0-1", outcome);
        let name = ["failure without a cause"];
        story().is(&name);
        story().reached(15, 30, may.clone()).is(&[]);
        // Too early, or too late.
        story().reached(0, 9, may.clone()).reached(21, 30, may).is(&name);
        for reach in may_not {
            story().reached(0, 99, reach).is(&name);
        }
    }
    for outcome in
        [Outcome::Busy, Outcome::Overrun, Outcome::Panicked, Outcome::Cancelled, Outcome::RolledBack]
    {
        Story::default().says(10, "p0-0-1", asked()).ends(20, "p0-0-1", outcome).is(&[]);
    }
    let statement = What::End { outcome: Outcome::RolledBack, detail: "cut".into() };
    let story = || Story::default().says(10, "p0-0-1", asked()).says(20, "p0-0-1", statement.clone());
    story().is(&["failure without a cause"]);
    story().reached(0, 99, Reach::DATABASE).is(&[]);
}

fn asked() -> What {
    What::Asked { path: PATH.into(), fair: true, increments: false }
}

/// Tokens of two ensembles do not compare, but the earlier ensemble does not come back.
#[test]
fn an_ensemble_follows_another() {
    let story = |third: &str, fourth: &str| {
        ["p0-0-1", "p1-0-1", "p2-0-1", "p3-0-1"]
            .into_iter()
            .fold(Story::default(), |story, op| story.asks(op, true))
            .holds("p0-0-1", "old/08", 10, 20)
            .commits("p0-0-1", "old/08", 1)
            .ends(25, "p0-0-1", Outcome::Ok)
            .holds("p1-0-1", "new/01", 30, 40)
            .commits("p1-0-1", "new/01", 2)
            .ends(45, "p1-0-1", Outcome::Ok)
            .holds("p2-0-1", third, 50, 60)
            .commits("p2-0-1", third, 3)
            .ends(65, "p2-0-1", Outcome::Ok)
            .holds("p3-0-1", fourth, 70, 80)
            .commits("p3-0-1", fourth, 4)
            .ends(85, "p3-0-1", Outcome::Ok)
    };
    story("new/02", "new/03").is(&[]);
    story("new/02", "new/01").is(&["out of order", "stale commit"]);
    story("old/09", "old/10").is(&["old ensemble", "stale commit"]);
}

#[test]
fn an_error_that_nothing_accounts_for() {
    Story::default().asks("p0-0-1", true).ends(5, "p0-0-1", Outcome::Unexpected).is(&["unexpected error"]);
}

#[test]
fn lines_are_read_as_they_were_written() {
    let story = good()
        .says(1, "p", What::Queue { ahead: vec!["a".into()] })
        .says(2, "p", What::Leaving)
        .says(3, "p", What::Read { value: -1 })
        .says(4, "p", What::End { outcome: Outcome::CommitUnknown, detail: "why".into() });
    for event in story.0.events {
        let line = serde_json::to_string(&event).unwrap();
        assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event, "{line}");
    }
}
