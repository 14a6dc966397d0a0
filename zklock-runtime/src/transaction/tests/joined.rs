//! Transactions that are a part of another one.

use std::{future::poll_fn, sync::Arc, task::Poll, time::Duration};

use sqlx::Connection;

use super::{
    bench::Bench,
    lab::{FENCED, GRACE, Lab, connection, soon},
    on_each_database,
};
use crate::{
    error::Error,
    hold::Hold,
    transaction::{Origin, Tx},
};

on_each_database!(
    it_takes_effect_with_the_outer_one,
    its_rollback_leaves_the_outer_one,
    dropped_in_its_body_it_leaves_the_outer_one,
    dropped_while_it_begins_it_leaves_the_outer_one,
    its_swallowed_error_is_told,
    a_commit_of_its_own_is_told,
    a_rollback_of_what_its_body_ended_is_not_known,
    its_fence_holds_until_the_outer_one_commits,
    it_is_fenced_off_alone,
    outside_of_a_transaction_it_is_refused,
);

async fn join<'a, DB: Bench>(
    lab: &Lab<DB>,
    outer: &'a mut DB::Connection,
    hold: &Arc<Hold>,
) -> Result<Tx<'a, DB>, Error> {
    soon(Tx::begin(Origin::Outer(outer), hold, FENCED, &lab.engine, &lab.fence, GRACE)).await
}

/// The table and the row are there: neither can be created in somebody else's transaction everywhere.
async fn prepared<DB: Bench>() -> Lab<DB> {
    let lab = Lab::<DB>::new().await;
    for path in ["/outer", "/inner"] {
        let (hold, _) = lab.hold(path);
        lab.begin(&hold).await.unwrap().commit().await.unwrap();
    }
    lab
}

async fn it_takes_effect_with_the_outer_one<DB: Bench>() {
    let lab = prepared::<DB>().await;
    for (id, path, commit) in [(1, "/inner", true), (2, "/never-seen", true), (3, "/inner", false)] {
        let (outer_hold, _) = lab.hold("/outer");
        let (hold, _) = lab.hold(path);
        let mut outer = lab.begin(&outer_hold).await.unwrap();
        let mut tx = join(&lab, connection(&mut outer), &hold).await.unwrap();
        assert!(tx.is_joined());
        DB::insert(connection(&mut tx), id).await.unwrap();
        soon(tx.commit()).await.unwrap();
        assert!(!lab.ids().await.contains(&id));
        if commit { soon(outer.commit()).await.unwrap() } else { assert!(soon(outer.rollback()).await) }
    }
    assert_eq!(lab.ids().await, [1, 2]);
    lab.assert_clean(4).await;
}

async fn its_rollback_leaves_the_outer_one<DB: Bench>() {
    let lab = prepared::<DB>().await;
    // An outer transaction of sqlx's own.
    let mut pooled = lab.pool.acquire().await.unwrap();
    let mut outer = pooled.begin().await.unwrap();
    DB::insert(&mut outer, 1).await.unwrap();
    let (hold, _) = lab.hold("/inner");
    let mut tx = join(&lab, &mut outer, &hold).await.unwrap();
    DB::insert(connection(&mut tx), 2).await.unwrap();
    assert!(soon(tx.rollback()).await, "its work is undone, and it does not know");
    DB::insert(&mut outer, 3).await.unwrap();
    outer.commit().await.unwrap();
    drop(pooled);
    assert_eq!(lab.ids().await, [1, 3]);
    lab.assert_clean(4).await;
}

async fn dropped_in_its_body_it_leaves_the_outer_one<DB: Bench>() {
    let lab = prepared::<DB>().await;
    let (outer_hold, _) = lab.hold("/outer");
    let (hold, _) = lab.hold("/inner");
    let mut outer = lab.begin(&outer_hold).await.unwrap();
    DB::insert(connection(&mut outer), 1).await.unwrap();
    {
        let mut tx = join(&lab, connection(&mut outer), &hold).await.unwrap();
        DB::insert(connection(&mut tx), 2).await.unwrap();
        let mut deeper = connection(&mut tx).begin().await.unwrap();
        DB::insert(&mut deeper, 3).await.unwrap();
    }
    DB::insert(connection(&mut outer), 4).await.unwrap();
    soon(outer.commit()).await.unwrap();
    assert_eq!(lab.ids().await, [1, 4]);
    lab.assert_clean(5).await;
}

async fn dropped_while_it_begins_it_leaves_the_outer_one<DB: Bench>() {
    let lab = prepared::<DB>().await;
    let mut expected = Vec::new();
    let mut finished = 0;
    for step in 0..400 {
        let (outer_hold, _) = lab.hold("/outer");
        let (hold, _) = lab.hold("/inner");
        let mut outer = lab.begin(&outer_hold).await.unwrap();
        DB::insert(connection(&mut outer), 2 * step + 1).await.unwrap();
        {
            let origin: Origin<'_, DB> = Origin::Outer(connection(&mut outer));
            let mut begin = Tx::begin(origin, &hold, FENCED, &lab.engine, &lab.fence, GRACE);
            for _ in 0..step {
                if poll_fn(|context| Poll::Ready(begin.as_mut().poll(context).is_ready())).await {
                    finished += 1;
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        DB::insert(connection(&mut outer), 2 * step + 2).await.unwrap();
        let committed = soon(outer.commit()).await;
        committed.unwrap_or_else(|error| panic!("dropped after {step} steps: {error}"));
        expected.extend([2 * step + 1, 2 * step + 2]);
        if finished > 2 {
            break;
        }
    }
    assert!(finished > 2);
    assert_eq!(lab.ids().await, expected);
}

async fn its_swallowed_error_is_told<DB: Bench>() {
    let lab = prepared::<DB>().await;
    let (outer_hold, _) = lab.hold("/outer");
    let (hold, _) = lab.hold("/inner");
    let mut outer = lab.begin(&outer_hold).await.unwrap();
    let mut tx = join(&lab, connection(&mut outer), &hold).await.unwrap();
    DB::insert(connection(&mut tx), 1).await.unwrap();
    DB::fail(connection(&mut tx)).await.unwrap_err();
    let error = soon(tx.commit()).await.unwrap_err();
    match &error {
        Error::TransactionEnded { .. } => assert!(DB::ENDS_SILENTLY),
        Error::NotCommitted { .. } => assert!(!DB::ENDS_SILENTLY),
        error => panic!("{error}"),
    }
    // Where the failure was the savepoint's alone, the outer transaction goes on without it; else it fails as well.
    let _ = DB::insert(connection(&mut outer), 2).await;
    let committed = soon(outer.commit()).await;
    let ids = lab.ids().await;
    assert!(!ids.contains(&1));
    assert!(committed.is_err() || ids == [2], "{ids:?}");
    lab.assert_clean(3).await;
}

async fn a_commit_of_its_own_is_told<DB: Bench>() {
    let lab = prepared::<DB>().await;
    let (outer_hold, _) = lab.hold("/outer");
    let (hold, _) = lab.hold("/inner");
    let mut outer = lab.begin(&outer_hold).await.unwrap();
    let mut tx = join(&lab, connection(&mut outer), &hold).await.unwrap();
    DB::insert(connection(&mut tx), 1).await.unwrap();
    DB::run(connection(&mut tx), "COMMIT").await.unwrap();
    let error = soon(tx.commit()).await.unwrap_err();
    assert!(matches!(error, Error::TransactionEnded { .. }), "{error}");
    let error = soon(outer.commit()).await.unwrap_err();
    assert!(matches!(error, Error::TransactionEnded { .. }), "{error}");
    assert_eq!(lab.ids().await, [1]);
    lab.assert_clean(3).await;
}

async fn a_rollback_of_what_its_body_ended_is_not_known<DB: Bench>() {
    let lab = prepared::<DB>().await;
    for (id, text) in [(1, "COMMIT"), (2, "ROLLBACK")] {
        let (outer_hold, _) = lab.hold("/outer");
        let (hold, _) = lab.hold("/inner");
        let mut outer = lab.begin(&outer_hold).await.unwrap();
        let mut tx = join(&lab, connection(&mut outer), &hold).await.unwrap();
        DB::run(connection(&mut tx), text).await.unwrap();
        DB::insert(connection(&mut tx), id).await.unwrap();
        assert!(!soon(tx.rollback()).await, "what stands after {text} was told as undone");
        assert!(!soon(outer.rollback()).await, "what stands after {text} was told as undone");
        assert!(lab.ids().await.contains(&id));
    }
    lab.assert_clean(3).await;
}

/// On PostgreSQL the outer transaction has failed, and must stay so: else what its owner writes next would stand.
#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_failed_outer_transaction_is_left_as_it_is() {
    type Db = sqlx::Postgres;
    let lab = prepared::<Db>().await;
    let (hold, _) = lab.hold("/inner");
    let mut pooled = lab.pool.acquire().await.unwrap();
    let mut outer = pooled.begin().await.unwrap();
    Db::insert(&mut outer, 1).await.unwrap();
    Db::fail(&mut outer).await.unwrap_err();
    let error = join(&lab, &mut outer, &hold).await.unwrap_err();
    assert!(matches!(error, Error::Database { .. }), "{error}");
    assert!(error.to_string().contains("aborted"), "{error}");
    Db::insert(&mut outer, 2).await.unwrap_err();
    outer.rollback().await.unwrap();
    drop(pooled);
    assert!(lab.ids().await.is_empty());
    lab.assert_clean(3).await;
}

/// A conflict fails the outer transaction too: what comes after would only say that it has failed.
#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_conflict_is_told_as_what_it_is() {
    type Db = sqlx::Postgres;
    let lab = prepared::<Db>().await;
    let mut beside = lab.beside.acquire().await.unwrap();
    let conflict = "CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS \
                    $$ BEGIN RAISE EXCEPTION 'in dispute' USING ERRCODE = '40001'; END $$; \
                    CREATE TRIGGER conflict BEFORE INSERT ON zklock_fence \
                    FOR EACH ROW EXECUTE FUNCTION conflict()";
    Db::run(&mut beside, conflict).await.unwrap();
    let mut pooled = lab.pool.acquire().await.unwrap();
    let mut outer = pooled.begin().await.unwrap();
    let (hold, _) = lab.hold("/never-seen");
    let error = join(&lab, &mut outer, &hold).await.unwrap_err();
    assert!(error.to_string().contains("in dispute"), "{error}");
}

async fn its_fence_holds_until_the_outer_one_commits<DB: Bench>() {
    let lab = prepared::<DB>().await;
    let (outer_hold, _) = lab.hold("/outer");
    let (hold, _) = lab.hold("/inner");
    let mut outer = lab.begin(&outer_hold).await.unwrap();
    let tx = join(&lab, connection(&mut outer), &hold).await.unwrap();
    soon(tx.commit()).await.unwrap();
    let (next, _) = lab.hold("/inner");
    let begin = lab.begin_on(&lab.beside, &next, FENCED);
    let mut begin = std::pin::pin!(begin);
    let early = tokio::time::timeout(Duration::from_millis(200), &mut begin).await;
    assert!(early.is_err(), "it does not wait");
    soon(outer.commit()).await.unwrap();
    soon(begin.await.unwrap().commit()).await.unwrap();
}

async fn it_is_fenced_off_alone<DB: Bench>() {
    let lab = prepared::<DB>().await;
    let (stale, _) = lab.hold("/inner");
    let (newer, _) = lab.hold("/inner");
    lab.begin(&newer).await.unwrap().commit().await.unwrap();
    let (outer_hold, _) = lab.hold("/outer");
    let mut outer = lab.begin(&outer_hold).await.unwrap();
    DB::insert(connection(&mut outer), 1).await.unwrap();
    let error = join(&lab, connection(&mut outer), &stale).await.unwrap_err();
    assert!(matches!(error, Error::Fenced { .. }), "{error}");
    soon(outer.commit()).await.unwrap();
    assert_eq!(lab.ids().await, [1]);
}

async fn outside_of_a_transaction_it_is_refused<DB: Bench>() {
    let lab = prepared::<DB>().await;
    let (hold, _) = lab.hold("/inner");
    let mut pooled = lab.pool.acquire().await.unwrap();
    let error = join(&lab, &mut pooled, &hold).await.unwrap_err();
    assert!(error.to_string().contains("in no transaction"), "{error}");
}
