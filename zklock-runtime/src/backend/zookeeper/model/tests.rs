use std::env;

use super::{
    check::{Promise, explore},
    setup::{Faults, Mutation, Proof, Setup},
};

const NONE: Faults = Faults { breaks: 0, lapses: 0, cancels: 0, changes: 0, crashes: 0, lags: 0 };

/// The last number that names can order by; the next one is given again and again.
const NEAR_THE_END: i32 = i32::MAX - 1;

#[test]
fn strangers_lose_answers_and_sessions() {
    keeps(&Setup::strangers("strangers", Faults { breaks: 1, lapses: 1, ..NONE }));
}

#[test]
fn strangers_withdraw_and_die() {
    keeps(&Setup::strangers("strangers", Faults { cancels: 1, breaks: 1, ..NONE }));
    keeps(&Setup::strangers("strangers", Faults { crashes: 1, breaks: 1, ..NONE }));
}

#[test]
fn a_follower_lags() {
    keeps(&Setup::strangers("lag", Faults { lags: 1, breaks: 1, ..NONE }));
    keeps(&Setup::neighbours("lag, hand-over", Faults { lags: 1, breaks: 1, ..NONE }).handing_over());
}

#[test]
fn the_counter_of_the_server_ends() {
    let at_the_end = |faults| Setup::strangers("end of the counter", faults).starting_at(NEAR_THE_END);
    keeps(&at_the_end(Faults { cancels: 1, breaks: 1, ..NONE }));
    keeps(&at_the_end(Faults { lapses: 1, ..NONE }).of_two());
    keeps(&at_the_end(Faults { breaks: 1, ..NONE }).starting_at(i32::MAX));
    keeps(
        &Setup::neighbours("end, hand-over", Faults { cancels: 1, ..NONE })
            .starting_at(i32::MAX - 2)
            .handing_over(),
    );
}

#[test]
fn neighbours_queue_like_strangers() {
    keeps(&Setup::neighbours("neighbours", Faults { cancels: 1, breaks: 1, ..NONE }));
    keeps(&Setup::neighbours("neighbours", Faults { lapses: 1, ..NONE }));
}

#[test]
fn neighbours_hand_over() {
    keeps(&Setup::neighbours("hand-over", Faults { breaks: 1, lapses: 1, ..NONE }).handing_over());
    keeps(&Setup::neighbours("hand-over", Faults { cancels: 1, breaks: 1, ..NONE }).handing_over());
}

#[test]
fn neighbours_hand_over_while_one_withdraws_and_the_session_lapses() {
    keeps(&Setup::neighbours("hand-over", Faults { cancels: 1, lapses: 1, ..NONE }).handing_over());
}

#[test]
fn a_session_changes_unsaid() {
    let change = Faults { changes: 1, ..NONE };
    keeps(&Setup::strangers("change", change).of_two());
    keeps(&Setup::neighbours("change", change).of_two().handing_over());
    keeps(&Setup::neighbours("change", Faults { breaks: 1, ..change }).of_two());
    let by_owner = Setup::neighbours("change, by owner", change).of_two().proving(Proof::Owner);
    keeps(&by_owner);
    keeps(&by_owner.handing_over());
    keeps(&Setup { faults: Faults { breaks: 1, ..change }, ..by_owner });
    keeps(&Setup::neighbours("change, by every node", change).of_two().proving(Proof::EveryNode));
}

/// Several faults together: minutes, and gigabytes. With `ZKLOCK_MODEL=deep`.
#[test]
fn deep() {
    if env::var_os("ZKLOCK_MODEL").is_none_or(|depth| depth != "deep") {
        return;
    }
    let three = Faults { breaks: 1, lapses: 1, cancels: 1, ..NONE };
    keeps(&Setup::strangers("strangers", three));
    keeps(&Setup::neighbours("hand-over", three).handing_over());
    keeps(&Setup::strangers("strangers", Faults { breaks: 2, cancels: 1, crashes: 1, ..NONE }));
    keeps(&Setup::strangers("lag", Faults { lags: 1, breaks: 2, cancels: 1, ..NONE }));
    keeps(
        &Setup::neighbours("lag, hand-over", Faults { lags: 1, breaks: 1, cancels: 1, ..NONE })
            .handing_over(),
    );
    keeps(&Setup::strangers("end of the counter", Faults { lapses: 1, ..NONE }).starting_at(NEAR_THE_END));
    let change = Faults { changes: 1, breaks: 1, ..NONE };
    keeps(&Setup::neighbours("change, by owner", change).of_two().proving(Proof::Owner));
    keeps(&Setup::neighbours("change", Faults { lapses: 1, ..change }).of_two().handing_over());
}

#[test]
fn without_the_margin_two_hold() {
    let lapse = Faults { lapses: 1, ..NONE };
    breaks(&[Promise::OneHolder], &Setup::strangers("margin", lapse).broken(Mutation::NoMargin));
}

#[test]
fn a_grant_that_does_not_look_at_the_clock_is_found() {
    let lapse = Faults { lapses: 1, ..NONE };
    // That such a hold is not held after all is seen by `is_held`; that it was granted, by its token.
    breaks(
        &[Promise::RisingTokens],
        &Setup::strangers("clock", lapse).broken(Mutation::GrantWithoutValidity),
    );
}

#[test]
fn a_lost_answer_taken_lightly_is_found() {
    let lost = Faults { breaks: 1, ..NONE };
    for mutation in [Mutation::LostCreateForgotten, Mutation::DeleteOnce] {
        breaks(&[Promise::NoOrphan], &Setup::strangers("lost answer", lost).broken(mutation));
    }
    let lag = Setup::strangers("lost answer", Faults { lags: 1, ..lost });
    breaks(&[Promise::NoOrphan], &lag.broken(Mutation::NotThereWithoutSync));
}

#[test]
fn a_create_whose_caller_is_gone_and_nobody_undoes_is_found() {
    let cancel = Faults { cancels: 1, ..NONE };
    breaks(
        &[Promise::NoOrphan],
        &Setup::strangers("cancel", cancel).broken(Mutation::CancelledCreateForgotten),
    );
}

#[test]
fn a_wrong_order_at_the_end_of_the_counter_is_found() {
    let end = Setup::strangers("end of the counter", NONE).starting_at(NEAR_THE_END);
    for mutation in [Mutation::SequencesAsText, Mutation::NamesAtTheEnd] {
        breaks(&[Promise::OneHolder, Promise::Order], &end.broken(mutation));
    }
}

#[test]
fn a_watch_set_too_late_is_found() {
    breaks(&[Promise::Progress], &Setup::strangers("watch", NONE).broken(Mutation::WatchUnread));
}

#[test]
fn a_wrong_hand_over_is_found() {
    let promises = [Promise::OneHolder, Promise::Order, Promise::RisingTokens];
    for (mutation, faults) in [
        (Mutation::HandOverByRevoked, Faults { lapses: 1, ..NONE }),
        (Mutation::HandOverUnchecked, Faults { lapses: 1, ..NONE }),
        (Mutation::HandOverByWaiter, Faults { cancels: 1, ..NONE }),
        (Mutation::HandOverOverForeign, NONE),
    ] {
        breaks(&promises, &Setup::neighbours("hand-over", faults).handing_over().broken(mutation));
    }
}

#[test]
fn a_session_that_changed_needs_more_than_one_node_to_be_seen() {
    let change = Setup::neighbours("change", Faults { changes: 1, ..NONE }).of_two();
    // What was created since the change speaks for the new session, and what is held rests on the old one.
    breaks(&[Promise::OneHolder], &change.proving(Proof::SomeNode));
    // All that are known are not all: one that is found after the proof may be the old session's.
    for mutation in [Mutation::AdoptWithoutOwner, Mutation::AdoptForRecordedSession] {
        breaks(&[Promise::OneHolder], &change.proving(Proof::EveryNode).broken(mutation));
    }
    // The delete of the old session's node takes the next one, which has the same name in a directory made anew.
    let again = change.proving(Proof::EveryNode).broken(Mutation::StrayKeepsUuid);
    breaks(&[Promise::OneHolder], &again);
}

/// Every promise holds in every state.
fn keeps(setup: &Setup) {
    let report = explore(setup);
    if let Err(found) = report.outcome {
        panic!("{setup:?}: {found:?}");
    }
    assert!(report.states > 1000, "{setup:?}: only {} states", report.states);
}

/// What is broken on purpose breaks one of these promises.
fn breaks(promises: &[Promise], setup: &Setup) {
    let found = explore(setup).outcome.expect_err("nothing was found");
    assert!(promises.contains(&found.broken), "{setup:?}: {found:?}");
}
