//! What the fence lets pass, and what it does not.

use std::time::Duration;

use super::{
    bench::Bench,
    lab::{FENCED, Lab, connection, soon},
    on_each_database,
};
use crate::{
    error::Error,
    hold::{Hold, Validity},
    token::Ensemble,
    transaction::{Isolation, TxSpec, adopt, clean_up},
};

on_each_database!(
    an_older_grant_is_fenced,
    an_older_grant_is_fenced_however_late_it_wakes,
    the_same_grant_passes_twice,
    another_grant_with_the_same_token_is_fenced,
    a_row_of_another_ensemble_is_foreign_until_adopted,
    adoption_of_one_path_leaves_the_others,
    rows_adopted_away_and_back_take_no_stale_token,
    a_row_that_vanished_is_created_again,
    a_cleaned_up_path_takes_no_stale_token,
    a_clean_up_leaves_young_rows_and_other_ensembles,
    without_migration_the_table_is_asked_for,
    a_long_key_is_hashed,
    a_newer_grant_waits_for_an_older_transaction,
    a_newer_grant_waits_at_every_isolation,
    many_paths_at_once,
    one_path_by_many,
);

async fn pass<DB: Bench>(lab: &Lab<DB>, path: &str) -> i64 {
    static IDS: std::sync::atomic::AtomicI64 = std::sync::atomic::AtomicI64::new(1);
    let id = IDS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let (hold, _) = lab.hold(path);
    let mut tx = lab.begin(&hold).await.unwrap();
    DB::insert(connection(&mut tx), id).await.unwrap();
    soon(tx.commit()).await.unwrap();
    id
}

async fn an_older_grant_is_fenced<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    let (old, mut released) = lab.hold("/a");
    pass(&lab, "/a").await;
    let error = lab.begin(&old).await.unwrap_err();
    assert!(matches!(error, Error::Fenced { .. }), "{error}");
    old.release();
    released.released().await;
    // Another path is another matter.
    pass(&lab, "/b").await;
    lab.assert_clean(1000).await;
}

async fn an_older_grant_is_fenced_however_late_it_wakes<DB: Bench>() {
    const STRICT: TxSpec =
        TxSpec { isolation: Some(Isolation::Serializable), unfenced: false, requires_new: false };
    let lab = Lab::<DB>::new().await;
    let (old, _) = lab.hold("/a");
    for spec in [FENCED, STRICT] {
        pass(&lab, "/a").await;
        let error = lab.begin_as(&old, spec).await.unwrap_err();
        assert!(matches!(error, Error::Fenced { .. }), "{error}");
    }
    lab.assert_clean(1000).await;
}

async fn the_same_grant_passes_twice<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    let (hold, _) = lab.hold("/a");
    for id in [1, 2] {
        // The same grant, entered again: a hold of its own, with the token and the attempt of the outer one.
        let options =
            crate::options::LockOptions { fair: true, timeout: None, wait: None, function: "tests::inner" };
        let again = Hold::nested(&hold, options);
        let mut tx = lab.begin(&again).await.unwrap();
        DB::insert(connection(&mut tx), id).await.unwrap();
        soon(tx.commit()).await.unwrap();
    }
    assert_eq!(lab.ids().await, [1, 2]);
}

async fn another_grant_with_the_same_token_is_fenced<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    // As after a restart of locks in memory whose clock was set back.
    let other = Lab::<DB>::on(lab.options.clone());
    pass(&lab, "/a").await;
    let (hold, _) = other.hold("/a");
    let error = other.begin(&hold).await.unwrap_err();
    assert!(matches!(error, Error::Fenced { .. }), "{error}");
}

fn ensemble(name: u8) -> Ensemble {
    Ensemble::new(uuid::Uuid::from_bytes([name; 16]))
}

async fn a_row_of_another_ensemble_is_foreign_until_adopted<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    pass(&lab, "/a").await;
    let under =
        |ensemble| lab.granted("/a", Some(Duration::from_secs(10)), ensemble, Validity::unlimited()).0;
    let hold = under(ensemble(7));
    let error = lab.begin(&hold).await.unwrap_err();
    let Error::ForeignFence { theirs, ours, .. } = &error else { panic!("{error}") };
    assert_eq!(theirs, "memory");
    assert_eq!(ours, "07070707-0707-0707-0707-070707070707");
    assert_eq!(soon(adopt(&lab.pool, ensemble(7), None)).await.unwrap(), 1);
    let tx = lab.begin(&hold).await.unwrap();
    soon(tx.commit()).await.unwrap();
    // And now the other way round.
    let (hold, _) = lab.hold("/a");
    let error = lab.begin(&hold).await.unwrap_err();
    assert!(matches!(error, Error::ForeignFence { .. }), "{error}");
    lab.assert_clean(1000).await;
}

async fn rows_adopted_away_and_back_take_no_stale_token<DB: Bench>() {
    for key in [None, Some("/a")] {
        let lab = Lab::<DB>::new().await;
        let (paused, _) = lab.hold("/a");
        for _ in 0..4 {
            pass(&lab, "/a").await;
        }
        for ensemble in [ensemble(7), Ensemble::MEMORY, ensemble(7), Ensemble::MEMORY] {
            assert_eq!(soon(adopt(&lab.pool, ensemble, key)).await.unwrap(), 1);
        }
        let error = lab.begin(&paused).await.unwrap_err();
        assert!(matches!(error, Error::Fenced { .. }), "{error}");
        pass(&lab, "/a").await;
        lab.assert_clean(1000).await;
    }
}

async fn adoption_of_one_path_leaves_the_others<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    pass(&lab, "/a").await;
    pass(&lab, "/b").await;
    assert_eq!(soon(adopt(&lab.pool, ensemble(7), Some("/a"))).await.unwrap(), 1);
    for (path, passes) in [("/a", true), ("/b", false)] {
        let (hold, _) = lab.granted(path, None, ensemble(7), Validity::unlimited());
        assert_eq!(lab.begin(&hold).await.is_ok(), passes, "{path}");
    }
}

async fn a_row_that_vanished_is_created_again<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    let (old, _) = lab.hold("/a");
    pass(&lab, "/a").await;
    let mut beside = lab.beside.acquire().await.unwrap();
    DB::run(&mut beside, "DELETE FROM zklock_fence").await.unwrap();
    pass(&lab, "/a").await;
    let error = lab.begin(&old).await.unwrap_err();
    assert!(matches!(error, Error::Fenced { .. }), "{error}");
    DB::run(&mut beside, "DROP TABLE zklock_fence").await.unwrap();
    pass(&lab, "/a").await;
    lab.assert_clean(1000).await;
}

async fn a_cleaned_up_path_takes_no_stale_token<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    let (stale, _) = lab.hold("/a");
    let (stale_elsewhere, _) = lab.hold("/never-written");
    pass(&lab, "/a").await;
    assert_eq!(soon(clean_up(&lab.pool, Ensemble::MEMORY, Duration::ZERO)).await.unwrap(), 1);
    for hold in [&stale, &stale_elsewhere] {
        let error = lab.begin(hold).await.unwrap_err();
        assert!(matches!(error, Error::Fenced { .. }), "{error}");
    }
    // The floor stays where it is when there is nothing above it to clean up.
    assert_eq!(soon(clean_up(&lab.pool, Ensemble::MEMORY, Duration::ZERO)).await.unwrap(), 2);
    let error = lab.begin(&stale).await.unwrap_err();
    assert!(matches!(error, Error::Fenced { .. }), "{error}");
    pass(&lab, "/a").await;
    pass(&lab, "/b").await;
    lab.assert_clean(1000).await;
}

async fn a_clean_up_leaves_young_rows_and_other_ensembles<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    pass(&lab, "/a").await;
    assert_eq!(soon(clean_up(&lab.pool, Ensemble::MEMORY, Duration::from_hours(1))).await.unwrap(), 0);
    assert_eq!(soon(clean_up(&lab.pool, ensemble(7), Duration::ZERO)).await.unwrap(), 0);
    assert_eq!(soon(clean_up(&lab.pool, Ensemble::MEMORY, Duration::ZERO)).await.unwrap(), 1);
}

async fn without_migration_the_table_is_asked_for<DB: Bench>() {
    let mut lab = Lab::<DB>::new().await;
    lab.fence = std::sync::Arc::new(crate::transaction::Fence::new(false));
    let (hold, mut released) = lab.hold("/a");
    let error = lab.begin(&hold).await.unwrap_err();
    assert!(matches!(error, Error::Database { .. }), "{error}");
    let text = error.to_string();
    let (_, sql) = text.split_once("create it once with: ").unwrap();
    hold.release();
    released.released().await;
    let mut beside = lab.beside.acquire().await.unwrap();
    DB::run(&mut beside, sql.to_owned().leak()).await.unwrap();
    pass(&lab, "/a").await;
    lab.assert_clean(1000).await;
}

async fn a_long_key_is_hashed<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    let path = "/long".repeat(240);
    let (old, _) = lab.hold(&path);
    pass(&lab, &path).await;
    let error = lab.begin(&old).await.unwrap_err();
    assert!(matches!(error, Error::Fenced { .. }), "{error}");
    pass(&lab, &format!("{path}er")).await;
}

async fn a_newer_grant_waits_for_an_older_transaction<DB: Bench>() {
    waits::<DB>(FENCED).await;
}

async fn a_newer_grant_waits_at_every_isolation<DB: Bench>() {
    const SPECS: [TxSpec; 4] = [
        TxSpec { isolation: Some(Isolation::ReadUncommitted), unfenced: false, requires_new: false },
        TxSpec { isolation: Some(Isolation::ReadCommitted), unfenced: false, requires_new: false },
        TxSpec { isolation: Some(Isolation::RepeatableRead), unfenced: false, requires_new: false },
        TxSpec { isolation: Some(Isolation::Serializable), unfenced: false, requires_new: false },
    ];
    for spec in SPECS {
        waits::<DB>(spec).await;
    }
}

/// An older transaction is open when a newer one begins: it comes after it, and sees what it has written.
async fn waits<DB: Bench>(spec: TxSpec) {
    let lab = Lab::<DB>::new().await;
    pass(&lab, "/a").await;
    let (older, _) = lab.hold("/a");
    let mut first = lab.begin_as(&older, spec).await.unwrap();
    DB::insert(connection(&mut first), -1).await.unwrap();
    let (newer, _) = lab.hold("/a");
    let second = lab.begin_on(&lab.beside, &newer, spec);
    let mut second = std::pin::pin!(second);
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut second).await.is_err(), "it does not wait");
    soon(first.commit()).await.unwrap();
    let mut second = soon(second).await.unwrap();
    assert!(DB::ids(connection(&mut second)).await.unwrap().contains(&-1), "its snapshot is too old");
    DB::insert(connection(&mut second), -2).await.unwrap();
    soon(second.commit()).await.unwrap();
    // And now the older one is stale, at any isolation.
    let error = lab.begin_as(&older, spec).await.unwrap_err();
    assert!(matches!(error, Error::Fenced { .. } | Error::Lost { .. }), "{error}");
}

/// A table of a few rows is read as a whole where the planner has its way, and whoever reads all rows depends on all.
#[cfg(feature = "postgres")]
#[tokio::test]
async fn paths_do_not_depend_on_each_other_at_the_strictest_isolation() {
    type Db = sqlx::Postgres;
    const STRICT: TxSpec =
        TxSpec { isolation: Some(Isolation::Serializable), unfenced: false, requires_new: false };
    let lab = Lab::<Db>::new().await;
    for path in ["/a", "/b"] {
        pass(&lab, path).await;
    }
    let mut beside = lab.beside.acquire().await.unwrap();
    Db::run(&mut beside, "ANALYZE zklock_fence").await.unwrap();
    drop(beside);
    // Often enough for the server to settle on one plan for all.
    for id in 0..8 {
        let (a, b) = (lab.hold("/a").0, lab.hold("/b").0);
        let mut first = lab.begin_as(&a, STRICT).await.unwrap();
        let mut second = lab.begin_on(&lab.beside, &b, STRICT).await.unwrap();
        Db::insert(connection(&mut first), -2 * id - 10).await.unwrap();
        Db::insert(connection(&mut second), -2 * id - 11).await.unwrap();
        let settings = sqlx::query_scalar::<_, String>("SHOW enable_seqscan");
        assert_eq!(settings.fetch_one(connection(&mut second)).await.unwrap(), "on", "for the body");
        soon(first.commit()).await.unwrap();
        soon(second.commit()).await.unwrap();
    }
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn conflicts_without_end_are_told() {
    type Db = sqlx::Postgres;
    let lab = Lab::<Db>::new().await;
    pass(&lab, "/a").await;
    let mut beside = lab.beside.acquire().await.unwrap();
    let conflict = "CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS \
                    $$ BEGIN RAISE EXCEPTION 'in dispute' USING ERRCODE = '40001'; END $$; \
                    CREATE TRIGGER conflict BEFORE UPDATE ON zklock_fence \
                    FOR EACH ROW EXECUTE FUNCTION conflict()";
    Db::run(&mut beside, conflict).await.unwrap();
    // Not even with a hold that never ends.
    let (hold, _) = lab.hold_for("/a", None);
    let error = lab.begin(&hold).await.unwrap_err();
    assert!(matches!(error, Error::Database { .. }), "{error}");
    assert!(error.to_string().contains("in dispute"), "{error}");
    Db::run(&mut beside, "DROP TRIGGER conflict ON zklock_fence").await.unwrap();
    pass(&lab, "/a").await;
    lab.assert_clean(1000).await;
}

async fn many_paths_at_once<DB: Bench>() {
    let lab = std::sync::Arc::new(Lab::<DB>::new().await);
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..8 {
        let lab = lab.clone();
        tasks.spawn(async move {
            for round in 0..10 {
                let (hold, _) = lab.hold_for(&format!("/many/{task}/{round}"), Some(Duration::from_secs(20)));
                let mut tx = lab.begin_on(&lab.beside, &hold, FENCED).await.unwrap();
                DB::insert(connection(&mut tx), 1 + task * 100 + round).await.unwrap();
                soon(tx.commit()).await.unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(lab.ids().await.len(), 80);
}

/// All under one path and with no lock at all: the fence alone lets each through once or not at all, never two at a
/// time.
async fn one_path_by_many<DB: Bench>() {
    let lab = std::sync::Arc::new(Lab::<DB>::new().await);
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..6 {
        let lab = lab.clone();
        tasks.spawn(async move {
            let mut passed = 0;
            for round in 0..10 {
                let (hold, _) = lab.hold_for("/one", Some(Duration::from_secs(20)));
                match lab.begin_on(&lab.beside, &hold, FENCED).await {
                    Ok(mut tx) => {
                        DB::touch(connection(&mut tx)).await.unwrap();
                        DB::insert(connection(&mut tx), 1 + task * 100 + round).await.unwrap();
                        soon(tx.commit()).await.unwrap();
                        passed += 1;
                    }
                    Err(Error::Fenced { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            passed
        });
    }
    let mut passed = 0;
    while let Some(done) = tasks.join_next().await {
        passed += done.unwrap();
    }
    assert!(passed > 0);
    assert_eq!(lab.ids().await.len(), passed);
}
