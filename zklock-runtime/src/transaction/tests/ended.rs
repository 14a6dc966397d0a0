//! The ways on which a transaction ends when nothing goes wrong around it.

use std::time::Duration;

use sqlx::{Connection, Transaction};

use super::{
    bench::Bench,
    lab::{FENCED, Lab, UNFENCED, connection, soon},
    on_each_database,
};
use crate::{
    error::{Error, LostReason},
    hold::Hold,
    transaction::{Isolation, TxParam, TxSpec, close, open, param},
};

on_each_database!(
    a_commit_is_seen,
    a_commit_without_a_fence_is_seen,
    a_rollback_leaves_nothing,
    a_swallowed_error_is_not_committed,
    a_body_that_commits_by_itself_is_told,
    a_parameter_whose_body_commits_by_itself_is_told,
    a_rollback_of_what_the_body_ended_is_not_known,
    a_failed_transaction_is_rolled_back_as_far_as_is_known,
    what_is_begun_inside_is_a_savepoint,
    what_is_begun_inside_and_forgotten_is_not_committed,
    a_query_cut_off_inside_does_no_harm,
    a_begin_cut_off_inside_is_told,
    a_parameter_that_is_a_connection,
    a_parameter_that_is_a_transaction,
    the_lock_outlasts_the_transaction,
    a_nested_hold_keeps_the_outer_lock,
    no_commit_after_the_deadline,
    no_commit_after_the_loss,
    every_isolation_begins_and_commits,
    limits_are_those_of_the_hold,
    no_limits_without_a_limit,
    an_exhausted_pool_ends_at_the_deadline,
);

async fn a_commit_is_seen<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    let (hold, _) = lab.hold("/a");
    let mut tx = lab.begin(&hold).await.unwrap();
    DB::insert(connection(&mut tx), 1).await.unwrap();
    assert!(lab.ids().await.is_empty());
    soon(tx.commit()).await.unwrap();
    assert_eq!(lab.ids().await, [1]);
    lab.assert_clean(2).await;
}

async fn a_commit_without_a_fence_is_seen<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    let (hold, _) = lab.hold("/a");
    let mut tx = lab.begin_as(&hold, UNFENCED).await.unwrap();
    DB::insert(connection(&mut tx), 1).await.unwrap();
    soon(tx.commit()).await.unwrap();
    assert_eq!(lab.ids().await, [1]);
    lab.assert_clean(2).await;
}

async fn a_rollback_leaves_nothing<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    let (hold, _) = lab.hold("/a");
    let mut tx = lab.begin(&hold).await.unwrap();
    DB::insert(connection(&mut tx), 1).await.unwrap();
    DB::touch(connection(&mut tx)).await.unwrap();
    assert!(!lab.is_free().await);
    assert!(soon(tx.rollback()).await, "nothing stands, and it does not know");
    assert!(lab.is_free().await);
    assert!(lab.ids().await.is_empty());
    lab.assert_clean(2).await;
}

async fn a_swallowed_error_is_not_committed<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    let (hold, _) = lab.hold("/a");
    let mut tx = lab.begin(&hold).await.unwrap();
    DB::insert(connection(&mut tx), 1).await.unwrap();
    DB::fail(connection(&mut tx)).await.unwrap_err();
    // Where the transaction is over this commits by itself, which nobody can take back: but it is told.
    let _ = DB::insert(connection(&mut tx), 2).await;
    let error = soon(tx.commit()).await.unwrap_err();
    assert_ended::<DB>(&error);
    let ids = lab.ids().await;
    assert_eq!(ids, if DB::ENDS_SILENTLY { &[2][..] } else { &[] });
    lab.assert_clean(3).await;
}

/// After a statement that ends the transaction where the database does so.
fn assert_ended<DB: Bench>(error: &Error) {
    match error {
        Error::TransactionEnded { .. } if DB::ENDS_SILENTLY => assert!(!error.is_retryable()),
        Error::NotCommitted { .. } if !DB::ENDS_SILENTLY => {}
        error => panic!("{error}"),
    }
}

async fn a_body_that_commits_by_itself_is_told<DB: Bench>() {
    for (outcome, then) in [(vec![1, 2], ""), (vec![1], "BEGIN")] {
        let lab = Lab::<DB>::new().await;
        let (hold, _) = lab.hold("/a");
        let mut tx = lab.begin(&hold).await.unwrap();
        DB::insert(connection(&mut tx), 1).await.unwrap();
        DB::run(connection(&mut tx), "COMMIT").await.unwrap();
        if !then.is_empty() {
            // Another transaction, and one that fails: what is asked of it is answered as if it were the first.
            DB::run(connection(&mut tx), then).await.unwrap();
        }
        DB::insert(connection(&mut tx), 2).await.unwrap();
        if !then.is_empty() {
            DB::run(connection(&mut tx), "SELECT nothing FROM nowhere").await.unwrap_err();
        }
        let error = soon(tx.commit()).await.unwrap_err();
        assert!(matches!(error, Error::TransactionEnded { .. }), "{error}");
        assert!(!error.is_retryable());
        assert_eq!(lab.ids().await, outcome);
        lab.assert_clean(3).await;
    }
}

async fn a_parameter_whose_body_commits_by_itself_is_told<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    let (hold, _) = lab.hold("/a");
    let mut tx = lab.begin(&hold).await.unwrap();
    let mut slot = open::<Transaction<'_, DB>>(&mut tx).await.unwrap();
    DB::insert(param::<Transaction<'_, DB>>(&mut slot), 1).await.unwrap();
    DB::run(param::<Transaction<'_, DB>>(&mut slot), "COMMIT").await.unwrap();
    let error = soon(close::<Transaction<'_, DB>>(slot, true)).await.unwrap_err();
    assert!(matches!(error, Error::TransactionEnded { .. }), "{error}");
    soon(tx.rollback()).await;
    assert_eq!(lab.ids().await, [1]);
    lab.assert_clean(2).await;
}

async fn a_rollback_of_what_the_body_ended_is_not_known<DB: Bench>() {
    for (text, then_begins) in [("COMMIT", false), ("COMMIT", true), ("ROLLBACK", false), ("ROLLBACK", true)]
    {
        let lab = Lab::<DB>::new().await;
        let (hold, _) = lab.hold("/a");
        let mut tx = lab.begin(&hold).await.unwrap();
        DB::insert(connection(&mut tx), 1).await.unwrap();
        DB::run(connection(&mut tx), text).await.unwrap();
        DB::insert(connection(&mut tx), 2).await.unwrap();
        if then_begins {
            DB::run(connection(&mut tx), "BEGIN").await.unwrap();
        }
        assert!(!soon(tx.rollback()).await, "what stands after {text} was told as undone");
        assert!(lab.ids().await.contains(&2));
        lab.assert_clean(3).await;
    }
}

/// Where it ended with the failure, something may have followed.
async fn a_failed_transaction_is_rolled_back_as_far_as_is_known<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    let (hold, _) = lab.hold("/a");
    let mut tx = lab.begin(&hold).await.unwrap();
    DB::insert(connection(&mut tx), 1).await.unwrap();
    DB::fail(connection(&mut tx)).await.unwrap_err();
    let _ = DB::insert(connection(&mut tx), 2).await;
    let is_undone = soon(tx.rollback()).await;
    assert_eq!(is_undone, !DB::ENDS_SILENTLY);
    assert_eq!(is_undone, lab.ids().await.is_empty());
    lab.assert_clean(3).await;
}

#[cfg(feature = "mysql")]
#[tokio::test]
async fn ddl_is_told() {
    type Db = sqlx::MySql;
    let lab = Lab::<Db>::new().await;
    let (hold, _) = lab.hold("/a");
    let mut tx = lab.begin(&hold).await.unwrap();
    Db::insert(connection(&mut tx), 1).await.unwrap();
    Db::run(connection(&mut tx), "CREATE TABLE u (id int)").await.unwrap();
    let error = soon(tx.commit()).await.unwrap_err();
    assert!(matches!(error, Error::TransactionEnded { .. }), "{error}");
    assert_eq!(lab.ids().await, [1]);
}

async fn what_is_begun_inside_is_a_savepoint<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    let (hold, _) = lab.hold("/a");
    let mut tx = lab.begin(&hold).await.unwrap();
    DB::insert(connection(&mut tx), 1).await.unwrap();
    {
        let mut inner = connection(&mut tx).begin().await.unwrap();
        DB::insert(&mut inner, 2).await.unwrap();
        inner.commit().await.unwrap();
    }
    {
        let mut inner = connection(&mut tx).begin().await.unwrap();
        DB::insert(&mut inner, 3).await.unwrap();
        inner.rollback().await.unwrap();
    }
    {
        let mut inner = connection(&mut tx).begin().await.unwrap();
        DB::insert(&mut inner, 4).await.unwrap();
        // Dropped: its rollback is only queued when COMMIT is asked for.
    }
    soon(tx.commit()).await.unwrap();
    assert_eq!(lab.ids().await, [1, 2]);
    lab.assert_clean(5).await;
}

async fn what_is_begun_inside_and_forgotten_is_not_committed<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    let (hold, _) = lab.hold("/a");
    let mut tx = lab.begin(&hold).await.unwrap();
    let mut inner = connection(&mut tx).begin().await.unwrap();
    DB::insert(&mut inner, 1).await.unwrap();
    std::mem::forget(inner);
    let error = soon(tx.commit()).await.unwrap_err();
    assert!(matches!(error, Error::NotCommitted { .. }), "{error}");
    assert!(lab.ids().await.is_empty());
    lab.assert_clean(2).await;
}

async fn a_query_cut_off_inside_does_no_harm<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    let (hold, _) = lab.hold("/a");
    let mut tx = lab.begin(&hold).await.unwrap();
    {
        let insert = DB::insert(connection(&mut tx), 1);
        tokio::pin!(insert);
        // Sent, and its answer not waited for.
        let _ = std::future::poll_fn(|context| std::task::Poll::Ready(insert.as_mut().poll(context))).await;
    }
    DB::insert(connection(&mut tx), 2).await.unwrap();
    soon(tx.commit()).await.unwrap();
    assert!(lab.ids().await.contains(&2));
    lab.assert_clean(3).await;
}

/// On PostgreSQL the driver rolls back the outer transaction then, and what follows commits by itself, one by one: nobody
/// can take that back, but it is not called a success.
async fn a_begin_cut_off_inside_is_told<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    let (hold, _) = lab.hold("/a");
    let mut tx = lab.begin(&hold).await.unwrap();
    DB::insert(connection(&mut tx), 1).await.unwrap();
    {
        let mut begin = std::pin::pin!(connection(&mut tx).begin());
        let poll = |context: &mut std::task::Context<'_>| {
            std::task::Poll::Ready(begin.as_mut().poll(context).is_ready())
        };
        std::future::poll_fn(poll).await;
    }
    let _ = DB::insert(connection(&mut tx), 2).await;
    match soon(tx.commit()).await {
        Ok(()) => assert_eq!(lab.ids().await, [1, 2]),
        Err(Error::TransactionEnded { .. }) => assert_eq!(lab.ids().await, [2]),
        Err(error) => panic!("{error}"),
    }
    lab.assert_clean(3).await;
}

async fn a_parameter_that_is_a_connection<DB: Bench>()
where
    DB::Connection: for<'t> TxParam<Database = DB, Param<'t> = DB::Connection>,
{
    let lab = Lab::<DB>::new().await;
    for (id, keep) in [(1, true), (2, false)] {
        let (hold, _) = lab.hold("/a");
        let mut tx = lab.begin(&hold).await.unwrap();
        let mut slot = open::<DB::Connection>(&mut tx).await.unwrap();
        DB::insert(param::<DB::Connection>(&mut slot), id).await.unwrap();
        close::<DB::Connection>(slot, keep).await.unwrap();
        if keep { soon(tx.commit()).await.unwrap() } else { assert!(soon(tx.rollback()).await) }
    }
    assert_eq!(lab.ids().await, [1]);
}

async fn a_parameter_that_is_a_transaction<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    for (id, keep) in [(1, true), (2, false)] {
        let (hold, _) = lab.hold("/a");
        let mut tx = lab.begin(&hold).await.unwrap();
        let mut slot = open::<Transaction<'_, DB>>(&mut tx).await.unwrap();
        let transaction: &mut Transaction<'_, DB> = param::<Transaction<'_, DB>>(&mut slot);
        DB::insert(transaction, id).await.unwrap();
        close::<Transaction<'_, DB>>(slot, keep).await.unwrap();
        if keep { soon(tx.commit()).await.unwrap() } else { assert!(soon(tx.rollback()).await) }
    }
    assert_eq!(lab.ids().await, [1]);
    // An error that the body swallowed shows when its part is closed, or else at COMMIT.
    let (hold, _) = lab.hold("/a");
    let mut tx = lab.begin(&hold).await.unwrap();
    let mut slot = open::<Transaction<'_, DB>>(&mut tx).await.unwrap();
    DB::insert(param::<Transaction<'_, DB>>(&mut slot), 3).await.unwrap();
    DB::fail(param::<Transaction<'_, DB>>(&mut slot)).await.unwrap_err();
    let error = close::<Transaction<'_, DB>>(slot, true).await.unwrap_err();
    assert_ended::<DB>(&error);
    soon(tx.rollback()).await;
    assert_eq!(lab.ids().await, [1]);
    lab.assert_clean(4).await;
}

async fn the_lock_outlasts_the_transaction<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    for commit in [true, false] {
        let (hold, mut released) = lab.hold("/a");
        let mut tx = lab.begin(&hold).await.unwrap();
        DB::touch(connection(&mut tx)).await.unwrap();
        if !commit {
            hold.release();
            assert!(!released.is_released());
        }
        if commit {
            soon(tx.commit()).await.unwrap();
        } else {
            soon(tx.rollback()).await;
        }
        hold.release();
        released.released().await;
    }
}

async fn a_nested_hold_keeps_the_outer_lock<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    let (outer, mut released) = lab.hold("/a");
    let hold = Hold::nested(&outer, options());
    let mut tx = lab.begin(&hold).await.unwrap();
    DB::touch(connection(&mut tx)).await.unwrap();
    assert!(outer.transaction().is_some());
    outer.release();
    assert!(!released.is_released());
    soon(tx.rollback()).await;
    released.released().await;
}

fn options() -> crate::options::LockOptions {
    crate::options::LockOptions {
        fair: true,
        timeout: Some(Duration::from_secs(10)),
        wait: None,
        function: "tests::inner",
    }
}

async fn no_commit_after_the_deadline<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    // Warm, so that the deadline falls into the body.
    let (hold, _) = lab.hold("/a");
    lab.begin(&hold).await.unwrap().commit().await.unwrap();
    let (hold, _) = lab.hold_for("/a", Some(Duration::from_millis(500)));
    let mut tx = lab.begin(&hold).await.unwrap();
    DB::insert(connection(&mut tx), 1).await.unwrap();
    std::thread::sleep(hold.deadline().remaining());
    let error = soon(tx.commit()).await.unwrap_err();
    assert!(matches!(error, Error::Overrun { .. }), "{error}");
    assert!(lab.ids().await.is_empty());
    lab.assert_clean(2).await;
}

async fn no_commit_after_the_loss<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    let (hold, _) = lab.hold("/a");
    let mut tx = lab.begin(&hold).await.unwrap();
    DB::insert(connection(&mut tx), 1).await.unwrap();
    hold.end(LostReason::SessionExpired);
    let error = soon(tx.commit()).await.unwrap_err();
    assert!(matches!(error, Error::Lost { reason: LostReason::SessionExpired, .. }), "{error}");
    assert!(lab.ids().await.is_empty());
    lab.assert_clean(2).await;
}

async fn every_isolation_begins_and_commits<DB: Bench>() {
    const SPECS: [TxSpec; 4] = [
        TxSpec { isolation: Some(Isolation::ReadUncommitted), ..FENCED_ },
        TxSpec { isolation: Some(Isolation::ReadCommitted), ..FENCED_ },
        TxSpec { isolation: Some(Isolation::RepeatableRead), ..FENCED_ },
        TxSpec { isolation: Some(Isolation::Serializable), ..FENCED_ },
    ];
    const FENCED_: TxSpec = TxSpec { isolation: None, unfenced: false, requires_new: false };
    let lab = Lab::<DB>::new().await;
    for (id, spec) in (1..).zip(SPECS) {
        let (hold, _) = lab.hold("/a");
        let mut tx = lab.begin_as(&hold, spec).await.unwrap();
        DB::insert(connection(&mut tx), id).await.unwrap();
        soon(tx.commit()).await.unwrap();
    }
    assert_eq!(lab.ids().await, [1, 2, 3, 4]);
    lab.assert_clean(5).await;
}

async fn limits_are_those_of_the_hold<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    let (hold, _) = lab.hold_for("/a", Some(Duration::from_secs(7)));
    let mut tx = lab.begin(&hold).await.unwrap();
    let settings = DB::settings(connection(&mut tx)).await.unwrap();
    let numbers: Vec<f64> = settings
        .split(' ')
        .take(3)
        .map(|value| {
            let number: f64 = value.trim_end_matches("ms").trim_end_matches('s').parse().unwrap();
            if number > 100.0 { number / 1000.0 } else { number }
        })
        .collect();
    assert!(numbers.iter().all(|seconds| (6.0..=7.01).contains(seconds)), "{settings}");
    soon(tx.rollback()).await;
    lab.assert_clean(1).await;
}

async fn no_limits_without_a_limit<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    let (hold, _) = lab.hold_for("/a", None);
    let mut tx = lab.begin(&hold).await.unwrap();
    let mut fresh = lab.beside.acquire().await.unwrap();
    let before = DB::settings(&mut fresh).await.unwrap();
    let inside = DB::settings(connection(&mut tx)).await.unwrap();
    // The watch over the client is kept: it is no limit.
    assert_eq!(inside.replace(" 50ms", " 0"), before);
    soon(tx.commit()).await.unwrap();
    lab.assert_clean(1).await;
}

async fn an_exhausted_pool_ends_at_the_deadline<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    let taken = lab.pool.acquire().await.unwrap();
    let (hold, mut released) = lab.hold_for("/a", Some(Duration::from_millis(300)));
    let error = lab.begin(&hold).await.unwrap_err();
    assert!(matches!(error, Error::Overrun { .. }), "{error}");
    assert!(hold.held_for() < Duration::from_secs(5));
    assert!(hold.transaction().is_none());
    hold.release();
    released.released().await;
    drop(taken);
    lab.assert_clean(1).await;
}

#[cfg(feature = "sqlite")]
#[test]
fn without_a_runtime_it_says_so() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let lab = runtime.block_on(Lab::<sqlx::Sqlite>::new());
    let (hold, _) = lab.hold("/a");
    let begin = crate::transaction::Tx::begin(
        crate::transaction::Origin::Pool(lab.pool.clone()),
        &hold,
        FENCED,
        &lab.engine,
        &lab.fence,
        super::lab::GRACE,
    );
    let mut begin = std::pin::pin!(begin);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(outcome) = begin.as_mut().poll(&mut context) else { panic!("it waits") };
    let error = outcome.unwrap_err();
    assert!(error.to_string().contains("Tokio runtime"), "{error}");
}
