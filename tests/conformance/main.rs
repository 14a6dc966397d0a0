//! One list of cases, run on every backend there is: what a test shows on a laptop with `Locks::memory()` is what
//! the servers do.

#[path = "../support/mod.rs"]
mod support;

mod cancellation;
mod closing;
mod fairness;
mod granting;
#[cfg(feature = "zookeeper")]
mod herd;
mod inspection;
mod keys;
mod limits;
mod order;
mod overrun;
mod reentrancy;
mod release;
mod tokens;

/// The list. A case is a function of its module that takes a `World`; two workers, so that one may be blocked.
macro_rules! cases {
    ($world:ident) => {
        cases! { $world
            granting {
                g03_a_free_lock_is_granted
                g03_a_held_lock_is_busy_when_the_wait_is_over
                g03_a_try_on_a_held_lock_gives_none_and_leaves_no_contender
                g03_a_waiter_is_granted_what_is_freed
                g13_the_wait_is_bounded_for_every_waiter
                different_paths_do_not_wait_for_each_other
                g01_one_holder_at_a_time_fair
                g01_one_holder_at_a_time_unfair
            }
            order {
                g09_first_come_first_served_across_handles
                g09_cancelled_waiters_do_not_block_the_living
                g09_waiters_that_gave_up_do_not_block_the_living
                g09_waiters_whose_locks_are_closed_do_not_block_the_living
                g09_a_late_try_does_not_overtake
            }
            release {
                g05_releasing_lets_the_next_one_in_at_once
                g05_a_dropped_guard_lets_the_next_one_in
                g05_ok_releases
                g05_an_error_releases
                g05_an_early_return_releases
                g05_a_panic_releases
                g05_a_dropped_future_releases
                g05_the_end_of_the_runtime_releases
                g05_a_guard_is_released_on_a_thread_without_a_runtime
                g05_a_late_guard_does_not_free_the_next_holder
                g05_a_late_release_does_not_free_the_next_holder
            }
            overrun {
                g06_an_awaiting_body_is_stopped_before_the_next_holder_comes
                g06_a_blocking_body_is_released_over_its_head
                g06_a_forgotten_child_task_does_not_keep_the_lock
                g06_a_guard_that_nobody_runs_is_taken_back
                g06_the_limit_is_not_cut_short
                g06_the_limit_runs_from_the_grant_not_from_the_call
                g06_no_limit_is_no_limit
                g06_an_overrun_wakes_only_its_own_path
                g06_a_body_that_ended_past_its_limit_did_not_end_well
                g06_a_waker_that_panics_does_not_end_the_watch
            }
            reentrancy {
                g10_the_same_chain_enters_again
                g10_a_path_is_entered_again_below_another
                g10_an_inner_release_keeps_the_outer
                g10_an_inner_guard_does_not_outlive_the_outer
                g10_the_earlier_deadline_counts
                g10_an_inner_limit_does_not_end_the_outer
                g10_another_task_is_not_the_same_chain
                g10_siblings_wait_for_each_other
                g10_opposite_orders_do_not_stall
                g10_a_circle_of_three_does_not_stall
                g10_a_try_never_deadlocks
                g10_entering_again_as_another_kind_is_wrong
            }
            keys {
                g11_every_path_has_one_verdict
                g11_different_paths_are_different_locks
                g11_a_path_below_a_held_one_is_a_lock_of_its_own
                g11_a_path_above_a_held_one_is_a_lock_of_its_own
                nothing_is_locked_below_a_held_unfair_path
                an_unfair_path_is_not_locked_above_a_held_one
            }
            fairness {
                unfair_locks_exclude_and_hand_over
                unfair_waiters_all_get_it_in_the_end
                unfair_waiters_may_be_cancelled
                an_unfair_try_does_not_wait_for_the_waiters_beside_it
                fair_and_unfair_do_not_mix_on_one_path
                a_path_may_change_its_kind_when_it_is_free
            }
            closing {
                closing_stops_bodies_and_waiters
                closing_twice_and_at_the_same_time_is_fine
                closing_may_be_cancelled_and_called_again
                closing_waits_for_a_body_that_blocks_no_longer_than_the_grace_time
                a_closed_handle_grants_nothing
                closing_while_limits_are_moved_does_not_hang
            }
            limits {
                extending_moves_the_limit_later
                extending_moves_the_limit_earlier
                extending_is_refused_when_it_is_over
                extending_sets_a_limit_where_there_was_none
                g06_extending_does_not_put_off_a_force_release
                lost_tells_why
                remaining_runs_down
            }
            inspection {
                a_snapshot_shows_what_is_held_and_waited_for
                a_snapshot_shows_what_is_ending
                inspect_shows_the_queue_of_all_handles
                g08_nothing_is_left_of_locks_that_were_used
            }
            tokens {
                g02_tokens_grow_with_every_grant
                g02_tokens_grow_across_kinds_and_force_releases
                tokens_sort_alike_as_values_bytes_and_text
            }
            cancellation {
                g08_a_wait_dropped_at_any_poll_leaves_nothing
                g08_an_acquire_dropped_at_any_poll_leaves_nothing
                g08_a_release_dropped_at_any_poll_still_releases
                g05_a_race_of_cancel_and_grant_has_one_outcome_fair
                g05_a_race_of_cancel_and_grant_has_one_outcome_unfair
                g05_a_race_of_release_and_limit_has_one_outcome
                g05_many_releases_race_their_limits
            }
        }
    };
    ($world:ident $($concept:ident { $($case:ident)+ })+) => {
        mod $world {
            $(mod $concept {
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() -> crate::support::Outcome {
                    crate::$concept::$case(crate::support::World::$world().await?).await
                })+
            })+
        }
    };
}

cases!(memory);
#[cfg(feature = "zookeeper")]
cases!(zookeeper);
