//! Callers that go away, bodies that do not, runtimes that end.

use std::{
    future::poll_fn,
    pin::pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use super::{
    bench::Bench,
    lab::{FENCED, GRACE, Lab, UNFENCED, connection, soon, until},
    on_each_database,
};
use crate::{
    error::{Error, LostReason},
    transaction::{
        Origin, Tx,
        session::{PATIENCE, PATIENCE_AFTER_CANCEL},
    },
};

on_each_database!(
    a_begin_dropped_at_any_step_leaves_the_pool_clean,
    a_commit_dropped_at_any_step_commits_or_does_not,
    a_rollback_dropped_at_any_step_goes_on,
    a_dropped_body_with_a_long_statement_is_stopped,
    a_dropped_body_without_a_fence_is_stopped,
    a_rollback_over_a_running_statement_is_known,
    a_panic_rolls_back,
    a_statement_ends_with_its_stop_from_outside,
    a_stop_after_the_end_is_no_error,
    a_begin_that_waits_for_the_fence_ends_with_its_hold,
    a_runtime_that_ends_takes_its_transactions_with_it,
    a_runtime_that_ends_takes_its_statements_with_it,
);

// Where there is one writer at a time, nobody gets as far.
mod waiting {
    use super::{super::on_each_server, a_wait_for_the_fence_ends_with_its_stop_from_outside};

    on_each_server!(a_wait_for_the_fence_ends_with_its_stop_from_outside);
}

async fn a_begin_dropped_at_any_step_leaves_the_pool_clean<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    let mut finished = 0;
    for step in 0.. {
        let (hold, mut released) = lab.hold("/a");
        let origin = Origin::Pool(lab.pool.clone());
        let mut begin = Tx::begin(origin, &hold, FENCED, &lab.engine, &lab.fence, GRACE);
        let mut done = false;
        for _ in 0..step {
            if poll_fn(|context| Poll::Ready(begin.as_mut().poll(context).is_ready())).await {
                done = true;
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(begin);
        hold.release();
        released.released().await;
        let mut connection = soon(lab.pool.acquire()).await.unwrap();
        DB::insert(&mut connection, 1 + i64::try_from(step).unwrap()).await.unwrap();
        drop(connection);
        assert_eq!(lab.ids().await.len(), step + 1, "dropped after {step} steps");
        // A few that came to their end: they are dropped with the answer in them.
        finished += usize::from(done);
        if finished > 3 || step > 3000 {
            break;
        }
    }
    assert!(finished > 3);
}

async fn a_commit_dropped_at_any_step_commits_or_does_not<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    for step in 0..40 {
        let (hold, mut released) = lab.hold("/a");
        let mut tx = lab.begin(&hold).await.unwrap();
        DB::insert(connection(&mut tx), step + 1).await.unwrap();
        let mut commit = tx.commit();
        for _ in 0..step {
            if poll_fn(|context| Poll::Ready(commit.as_mut().poll(context).is_ready())).await {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(commit);
        hold.release();
        released.released().await;
        // Once asked for it is seen through; never asked for, it does not happen.
        assert_eq!(lab.ids().await.contains(&(step + 1)), step > 0, "dropped after {step} steps");
    }
    lab.assert_clean(1000).await;
}

async fn a_rollback_dropped_at_any_step_goes_on<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    for step in 0..20 {
        let (hold, mut released) = lab.hold("/a");
        let mut tx = lab.begin(&hold).await.unwrap();
        DB::touch(connection(&mut tx)).await.unwrap();
        let mut rollback = tx.rollback();
        for _ in 0..step {
            if poll_fn(|context| Poll::Ready(rollback.as_mut().poll(context).is_ready())).await {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(rollback);
        hold.release();
        released.released().await;
        assert!(lab.is_free().await);
    }
    lab.assert_clean(1).await;
}

async fn a_dropped_body_with_a_long_statement_is_stopped<DB: Bench>() {
    dropped_with_a_statement::<DB>(FENCED).await;
}

async fn a_dropped_body_without_a_fence_is_stopped<DB: Bench>() {
    dropped_with_a_statement::<DB>(UNFENCED).await;
}

async fn dropped_with_a_statement<DB: Bench>(spec: crate::transaction::TxSpec) {
    let lab = Lab::<DB>::new().await;
    let (hold, mut released) = lab.hold_for("/a", Some(Duration::from_secs(100)));
    let mut tx = lab.begin_as(&hold, spec).await.unwrap();
    DB::insert(connection(&mut tx), 1).await.unwrap();
    DB::touch(connection(&mut tx)).await.unwrap();
    // Dropped while it runs.
    tokio::time::timeout(Duration::from_millis(50), DB::minute(connection(&mut tx))).await.unwrap_err();
    let dropped = Instant::now();
    drop(tx);
    hold.release();
    assert!(!released.is_released(), "the lock is given back while the transaction is open");
    released.released().await;
    assert!(lab.is_free().await, "the lock was given back before the transaction had ended");
    assert!(dropped.elapsed() < Duration::from_secs(5), "{:?}", dropped.elapsed());
    assert!(lab.ids().await.is_empty());
    lab.assert_clean(2).await;
}

/// Ended from outside, a transaction could not say any more whether it was still the one that was begun.
async fn a_rollback_over_a_running_statement_is_known<DB: Bench>() {
    let mut cases = vec![(FENCED, false), (UNFENCED, false), (FENCED, true)];
    let mut tries = 20;
    while let Some((spec, ends)) = cases.pop() {
        let lab = Lab::<DB>::new().await;
        let (hold, mut released) = lab.hold_for("/a", Some(Duration::from_secs(100)));
        let mut tx = lab.begin_as(&hold, spec).await.unwrap();
        DB::insert(connection(&mut tx), 1).await.unwrap();
        DB::touch(connection(&mut tx)).await.unwrap();
        if ends {
            DB::run(connection(&mut tx), "COMMIT").await.unwrap();
        }
        tokio::time::timeout(Duration::from_millis(50), DB::minute(connection(&mut tx))).await.unwrap_err();
        let asked = Instant::now();
        let is_known = soon(tx.rollback()).await;
        assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
        if is_known == ends && asked.elapsed() > PATIENCE + PATIENCE_AFTER_CANCEL && tries > 0 {
            // A server that has no time to cancel it is not waited for: it was ended from outside after all.
            assert!(!is_known);
            tries -= 1;
            cases.push((spec, ends));
        } else {
            assert_eq!(is_known, !ends);
        }
        assert!(lab.is_free().await);
        assert_eq!(lab.ids().await.is_empty(), !ends);
        hold.release();
        released.released().await;
        lab.assert_clean(2).await;
    }
}

async fn a_panic_rolls_back<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    let (hold, mut released) = lab.hold("/a");
    let mut tx = lab.begin(&hold).await.unwrap();
    let body = tokio::spawn(async move {
        DB::insert(connection(&mut tx), 1).await.unwrap();
        DB::touch(connection(&mut tx)).await.unwrap();
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    body.await.unwrap_err();
    hold.release();
    released.released().await;
    assert!(lab.is_free().await);
    assert!(lab.ids().await.is_empty());
    lab.assert_clean(2).await;
}

async fn a_statement_ends_with_its_stop_from_outside<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    let (hold, mut released) = lab.hold_for("/a", Some(Duration::from_secs(100)));
    let mut tx = lab.begin(&hold).await.unwrap();
    DB::insert(connection(&mut tx), 1).await.unwrap();
    DB::touch(connection(&mut tx)).await.unwrap();
    // A body that is not dropped.
    let body = tokio::spawn(async move {
        let ended = DB::minute(connection(&mut tx)).await;
        drop(tx);
        ended
    });
    tokio::task::yield_now().await;
    let stop = hold.transaction().unwrap();
    let (first, second) = soon(async { tokio::join!(stop.stop(), stop.stop()) }).await;
    first.unwrap();
    second.unwrap();
    assert!(lab.is_free().await);
    soon(body).await.unwrap().unwrap_err();
    hold.release();
    released.released().await;
    assert!(lab.ids().await.is_empty());
    lab.assert_clean(2).await;
}

async fn a_stop_after_the_end_is_no_error<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    let (hold, _) = lab.hold("/a");
    let tx = lab.begin(&hold).await.unwrap();
    let stop = hold.transaction().unwrap();
    soon(tx.commit()).await.unwrap();
    soon(stop.stop()).await.unwrap();
    lab.assert_clean(1).await;
}

/// The row is locked by a transaction that does not end; nobody must wait for that longer than his own hold lasts.
async fn a_begin_that_waits_for_the_fence_ends_with_its_hold<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    let (first, _) = lab.hold_for("/a", Some(Duration::from_secs(100)));
    let mut open = lab.begin(&first).await.unwrap();
    DB::insert(connection(&mut open), 1).await.unwrap();

    // Lost meanwhile.
    let (hold, mut released) = lab.hold_for("/a", Some(Duration::from_secs(100)));
    let begin = lab.begin_on(&lab.beside, &hold, FENCED);
    let mut begin = pin!(begin);
    assert!(tokio::time::timeout(Duration::from_millis(300), &mut begin).await.is_err(), "it does not wait");
    hold.end(LostReason::SessionExpired);
    let error = soon(begin).await.unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    hold.release();
    released.released().await;

    // Dropped.
    let (hold, mut released) = lab.hold_for("/a", Some(Duration::from_secs(100)));
    let begin = Box::pin(lab.begin_on(&lab.beside, &hold, FENCED));
    assert!(tokio::time::timeout(Duration::from_millis(300), begin).await.is_err(), "it does not wait");
    hold.release();
    released.released().await;

    // Past its limit.
    let (hold, mut released) = lab.hold_for("/a", Some(Duration::from_millis(700)));
    let error = lab.begin_on(&lab.beside, &hold, FENCED).await.unwrap_err();
    assert!(matches!(error, Error::Overrun { .. }), "{error}");
    hold.release();
    released.released().await;

    // What it waited for is not harmed, and the next one comes through.
    soon(open.commit()).await.unwrap();
    let (hold, _) = lab.hold("/a");
    let mut tx = lab.begin(&hold).await.unwrap();
    DB::insert(connection(&mut tx), 2).await.unwrap();
    soon(tx.commit()).await.unwrap();
    assert_eq!(lab.ids().await, [1, 2]);
    lab.assert_clean(3).await;
}

/// It is found before the database has answered its first statement, which waits for somebody who goes on undisturbed.
async fn a_wait_for_the_fence_ends_with_its_stop_from_outside<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    // Else its first statement of all would be to create the row, for which it would wait as well.
    let (before, _) = lab.hold("/a");
    soon(lab.begin_on(&lab.beside, &before, FENCED).await.unwrap().commit()).await.unwrap();
    let (first, _) = lab.hold_for("/a", Some(Duration::from_secs(100)));
    let mut open = lab.begin(&first).await.unwrap();
    DB::insert(connection(&mut open), 1).await.unwrap();
    let (hold, mut released) = lab.hold_for("/a", Some(Duration::from_secs(100)));
    let stop = async {
        until(|| lab.waits_for_the_fence()).await;
        soon(hold.transaction().unwrap().stop()).await.unwrap();
        assert!(!lab.waits_for_the_fence().await, "it is not over");
        soon(open.commit()).await.unwrap();
    };
    let (begun, ()) = tokio::join!(lab.begin_on(&lab.beside, &hold, FENCED), stop);
    let error = begun.unwrap_err();
    assert!(matches!(error, Error::Database { .. }), "{error}");
    hold.release();
    released.released().await;
    assert_eq!(lab.ids().await, [1]);
    lab.assert_clean(2).await;
}

async fn a_runtime_that_ends_takes_its_transactions_with_it<DB: Bench>() {
    runtime_ends::<DB>(false).await;
}

async fn a_runtime_that_ends_takes_its_statements_with_it<DB: Bench>() {
    runtime_ends::<DB>(true).await;
}

async fn runtime_ends<DB: Bench>(in_a_statement: bool) {
    let lab = Arc::new(Lab::<DB>::new().await);
    let (hold, mut released) = lab.hold_for("/a", Some(Duration::from_secs(100)));
    let (begun, ready) = tokio::sync::oneshot::channel();
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let thread = std::thread::spawn({
        let (lab, hold) = (lab.clone(), hold.clone());
        move || {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            runtime.spawn(async move {
                let mut tx = lab.begin(&hold).await.unwrap();
                DB::insert(connection(&mut tx), 1).await.unwrap();
                DB::touch(connection(&mut tx)).await.unwrap();
                begun.send(()).unwrap();
                if in_a_statement {
                    DB::minute(connection(&mut tx)).await.unwrap();
                }
                std::future::pending::<()>().await;
            });
            let _ = ended.blocking_recv();
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
    });
    ready.await.unwrap();
    assert!(!lab.is_free().await);
    drop(end);
    until(|| {
        // Dropped with the runtime; from then on nobody is there to release it but its guard.
        let ended = thread.is_finished();
        async move { ended }
    })
    .await;
    hold.release();
    released.released().await;
    assert!(lab.is_free().await, "the lock was given back before the transaction had ended");
    assert!(lab.ids().await.is_empty());
    until(|| async { lab.pool.num_idle() == 0 || lab.pool.size() == 0 }).await;
}

/// A body that blocks its thread between two statements: its connection is idle, and it will ask for COMMIT.
#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_body_that_does_not_yield_is_stopped_on_postgres() {
    does_not_yield::<sqlx::Postgres>(FENCED).await;
    does_not_yield::<sqlx::Postgres>(UNFENCED).await;
}

#[cfg(feature = "mysql")]
#[tokio::test]
async fn a_body_that_does_not_yield_is_stopped_on_mariadb() {
    does_not_yield::<sqlx::MySql>(FENCED).await;
    does_not_yield::<sqlx::MySql>(UNFENCED).await;
}

async fn does_not_yield<DB: Bench>(spec: crate::transaction::TxSpec) {
    let lab = Lab::<DB>::new().await;
    let (hold, _) = lab.hold("/a");
    let mut tx = lab.begin_as(&hold, spec).await.unwrap();
    DB::insert(connection(&mut tx), 1).await.unwrap();
    DB::touch(connection(&mut tx)).await.unwrap();
    let stop = hold.transaction().unwrap();
    soon(stop.stop()).await.unwrap();
    assert!(lab.is_free().await);
    // Its hold is still good, so that nothing but the database refuses; the fence row shows that nothing stands.
    match soon(tx.commit()).await.unwrap_err() {
        Error::NotCommitted { .. } if !DB::ENDS_SILENTLY && !spec.unfenced => {}
        Error::TransactionEnded { .. } if DB::ENDS_SILENTLY || spec.unfenced => {}
        error => panic!("{error}"),
    }
    assert!(lab.ids().await.is_empty());
    lab.assert_clean(2).await;
}

/// What KILL undoes takes a while, after it has returned.
#[cfg(feature = "mysql")]
#[tokio::test]
async fn the_lock_waits_for_what_is_undone_on_mariadb() {
    let lab = Lab::<sqlx::MySql>::new().await;
    let (hold, mut released) = lab.hold_for("/a", Some(Duration::from_secs(100)));
    let mut tx = lab.begin_as(&hold, UNFENCED).await.unwrap();
    sqlx::MySql::touch(connection(&mut tx)).await.unwrap();
    let many = "INSERT INTO t SELECT seq, 0 FROM seq_1_to_400000";
    sqlx::MySql::run(connection(&mut tx), many).await.unwrap();
    drop(tx);
    hold.release();
    released.released().await;
    assert!(lab.is_free().await, "the lock was given back before all was undone");
    assert!(lab.ids().await.is_empty());
    lab.assert_clean(1).await;
}

/// A database in memory ends with its last connection, so that connection must be kept whatever happens.
#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_database_in_memory_is_not_lost() {
    use sqlx::Sqlite;
    let lab = Lab::<Sqlite>::on("sqlite::memory:".parse().unwrap());
    let mut setup = lab.pool.acquire().await.unwrap();
    Sqlite::run(&mut setup, "CREATE TABLE t (id integer PRIMARY KEY, v integer)").await.unwrap();
    Sqlite::run(&mut setup, "INSERT INTO t VALUES (0, 0)").await.unwrap();
    drop(setup);
    let mut kept = Vec::new();
    // As many steps as it takes to get through, which depends on what else the machine does.
    for step in 0..1000 {
        if step >= 60 && kept.len() > 2 {
            break;
        }
        let (hold, mut released) = lab.hold("/a");
        let mut begin =
            Tx::begin(Origin::Pool(lab.pool.clone()), &hold, FENCED, &lab.engine, &lab.fence, GRACE);
        let mut made = None;
        for _ in 0..step {
            if let Poll::Ready(done) = poll_fn(|context| Poll::Ready(begin.as_mut().poll(context))).await {
                made = Some(done.unwrap());
                break;
            }
            tokio::task::yield_now().await;
        }
        if step % 4 == 0 && made.is_none() {
            made = Some(soon(begin).await.unwrap());
        } else {
            drop(begin);
        }
        if let Some(mut tx) = made {
            Sqlite::insert(connection(&mut tx), step + 1).await.unwrap();
            match step % 3 {
                0 => drop(tx),
                1 => {
                    let statement = Sqlite::minute(connection(&mut tx));
                    tokio::time::timeout(Duration::from_millis(20), statement).await.unwrap_err();
                    drop(hold.transaction().unwrap().stop());
                }
                _ => {
                    soon(tx.commit()).await.unwrap();
                    kept.push(step + 1);
                }
            }
        }
        hold.release();
        released.released().await;
    }
    let mut connection = soon(lab.pool.acquire()).await.unwrap();
    let ids = Sqlite::ids(&mut connection).await.unwrap();
    assert!(!kept.is_empty());
    assert_eq!(ids[1..], kept);
}

/// Nobody but its owner can end a transaction on SQLite; it must then not be said to have ended.
#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_body_that_does_not_yield_is_not_said_to_be_stopped_on_sqlite() {
    let lab = Lab::<sqlx::Sqlite>::new().await;
    let (hold, _) = lab.hold("/a");
    let mut tx = lab.begin(&hold).await.unwrap();
    sqlx::Sqlite::insert(connection(&mut tx), 1).await.unwrap();
    let stop = hold.transaction().unwrap();
    soon(stop.stop()).await.unwrap_err();
    // Told to stop, it cannot commit.
    hold.end(LostReason::Overrun);
    soon(tx.commit()).await.unwrap_err();
    soon(stop.stop()).await.unwrap();
    assert!(lab.ids().await.is_empty());
    lab.assert_clean(2).await;
}
