//! Links that fail under BEGIN, the fence and COMMIT.

use std::time::{Duration, Instant};

use sqlx::ConnectOptions;
use zklock_testkit::{Direction, Proxy};

use super::{
    bench::Bench,
    lab::{FENCED, GRACE, Lab, UNFENCED, connection, soon, until},
    on_each_server,
};
use crate::{
    error::Error,
    hold::Hold,
    transaction::{Inner, Origin, Tx, open},
};

on_each_server!(
    a_commit_whose_answer_is_lost_is_known,
    a_commit_that_did_not_arrive_is_known,
    without_a_fence_it_is_unknown,
    a_commit_without_an_answer_is_bounded,
    a_commit_that_hangs_before_the_server_is_bounded,
    what_is_not_found_may_still_commit,
    with_the_server_out_of_reach_it_is_unknown_and_the_lock_kept,
    a_newer_grant_hides_the_trace,
    a_second_transaction_of_one_grant_hides_the_trace,
    an_answer_lost_before_commit_is_told,
    a_begin_over_a_failing_link_leaves_nothing,
    a_begin_dropped_at_any_time_over_a_slow_link,
    a_link_that_falls_silent_in_the_body,
    a_link_that_falls_silent_before_the_body,
    a_link_that_falls_silent_under_a_joined_transaction,
    no_commit_after_the_deadline_of_what_has_joined,
);

/// The pool's connections and those that stop and look go by way of the proxy; what is looked at from outside does not.
async fn behind<DB: Bench>() -> (Lab<DB>, Lab<DB>, Proxy) {
    let direct = Lab::<DB>::new().await;
    let proxy = Proxy::start(direct.options.to_url_lossy().as_str()).await.unwrap();
    let lab = Lab::on(DB::by_way_of(&direct.options, proxy.addr().port()));
    // Connected, and the fence row there: what follows is about what comes after.
    let (hold, _) = lab.hold("/a");
    lab.begin(&hold).await.unwrap().commit().await.unwrap();
    (lab, direct, proxy)
}

async fn a_commit_whose_answer_is_lost_is_known<DB: Bench>() {
    let (lab, direct, proxy) = behind::<DB>().await;
    let (hold, mut released) = lab.hold("/a");
    let mut tx = lab.begin(&hold).await.unwrap();
    DB::insert(connection(&mut tx), 1).await.unwrap();
    let lost = proxy.swallow_reply("COMMIT", 1);
    soon(tx.commit()).await.unwrap();
    assert!(lost.has_fired());
    assert_eq!(direct.ids().await, [1]);
    hold.release();
    released.released().await;
    lab.assert_clean(2).await;
}

async fn a_commit_that_did_not_arrive_is_known<DB: Bench>() {
    let (lab, direct, proxy) = behind::<DB>().await;
    let (hold, mut released) = lab.hold("/a");
    let mut tx = lab.begin(&hold).await.unwrap();
    DB::insert(connection(&mut tx), 1).await.unwrap();
    let lost = proxy.drop_request("COMMIT", 1);
    let error = soon(tx.commit()).await.unwrap_err();
    assert!(lost.has_fired());
    assert!(matches!(error, Error::NotCommitted { .. }), "{error}");
    assert!(direct.ids().await.is_empty());
    hold.release();
    released.released().await;
    lab.assert_clean(2).await;
}

async fn without_a_fence_it_is_unknown<DB: Bench>() {
    let (lab, direct, proxy) = behind::<DB>().await;
    for (id, arrives) in [(1, true), (2, false)] {
        let (hold, mut released) = lab.hold("/a");
        let mut tx = lab.begin_as(&hold, UNFENCED).await.unwrap();
        DB::insert(connection(&mut tx), id).await.unwrap();
        DB::touch(connection(&mut tx)).await.unwrap();
        let _lost = if arrives { proxy.swallow_reply("COMMIT", 1) } else { proxy.drop_request("COMMIT", 1) };
        let error = soon(tx.commit()).await.unwrap_err();
        assert!(matches!(error, Error::CommitUnknown { .. }), "{error}");
        hold.release();
        released.released().await;
        assert!(direct.is_free().await);
        assert_eq!(direct.ids().await, [1]);
    }
}

async fn a_commit_without_an_answer_is_bounded<DB: Bench>() {
    let (lab, direct, proxy) = behind::<DB>().await;
    let (hold, mut released) = lab.hold_for("/a", Some(Duration::from_secs(1)));
    let mut tx = lab.begin(&hold).await.unwrap();
    DB::insert(connection(&mut tx), 1).await.unwrap();
    let _held = proxy.hold_reply("COMMIT", 1);
    soon(tx.commit()).await.unwrap();
    assert!(hold.held_for() >= Duration::from_secs(1) + GRACE, "it did not wait for the answer");
    assert!(hold.held_for() < Duration::from_secs(5));
    assert_eq!(direct.ids().await, [1]);
    hold.release();
    released.released().await;
}

async fn a_commit_that_hangs_before_the_server_is_bounded<DB: Bench>() {
    let (lab, direct, proxy) = behind::<DB>().await;
    let (hold, mut released) = lab.hold_for("/a", Some(Duration::from_secs(1)));
    let mut tx = lab.begin(&hold).await.unwrap();
    DB::insert(connection(&mut tx), 1).await.unwrap();
    DB::touch(connection(&mut tx)).await.unwrap();
    let rule = proxy.hold_request("COMMIT", 1);
    let error = soon(tx.commit()).await.unwrap_err();
    assert!(matches!(error, Error::NotCommitted { .. }), "{error}");
    assert!(hold.held_for() < Duration::from_secs(8), "{:?}", hold.held_for());
    assert!(direct.is_free().await);
    rule.release();
    hold.release();
    released.released().await;
    assert!(direct.ids().await.is_empty());
}

/// Connections of the pool find the fence table elsewhere than fresh ones do: what those do not find tells nothing.
async fn what_is_not_found_may_still_commit<DB: Bench>() {
    let lab = Lab::<DB>::new().await;
    let (hold, _) = lab.hold("/a");
    lab.begin(&hold).await.unwrap().commit().await.unwrap();
    let pool = sqlx::pool::PoolOptions::<DB>::new()
        .max_connections(1)
        .after_connect(|connection, _| {
            let own = DB::FENCE_TABLE.replace("CREATE TABLE", "CREATE TEMPORARY TABLE");
            Box::pin(async move { DB::run(connection, own.leak()).await })
        })
        .connect_lazy_with(lab.options.clone());
    let (hold, _) = lab.hold("/elsewhere");
    let tx = lab.begin_on(&pool, &hold, FENCED).await.unwrap();
    {
        let Inner::Own(Some(session)) = &tx.0 else { panic!("{tx:?}") };
        let running = session.running();
        let verdict = DB::resolve(&running.options, &running.mark, running.row.as_ref().unwrap());
        assert_eq!(soon(verdict).await.unwrap(), None);
    }
    soon(tx.commit()).await.unwrap();
}

async fn with_the_server_out_of_reach_it_is_unknown_and_the_lock_kept<DB: Bench>() {
    let (lab, direct, proxy) = behind::<DB>().await;
    let (hold, mut released) = lab.hold("/a");
    let mut tx = lab.begin(&hold).await.unwrap();
    DB::insert(connection(&mut tx), 1).await.unwrap();
    let _lost = proxy.swallow_reply("COMMIT", 1);
    proxy.refuse();
    let error = soon(tx.commit()).await.unwrap_err();
    assert!(matches!(error, Error::CommitUnknown { .. }), "{error}");
    hold.release();
    assert!(!released.is_released(), "for all that is known the transaction is open");
    proxy.heal().unwrap();
    released.released().await;
    assert_eq!(direct.ids().await, [1]);
}

async fn a_newer_grant_hides_the_trace<DB: Bench>() {
    let (lab, direct, proxy) = behind::<DB>().await;
    let (hold, _) = lab.hold("/a");
    let mut tx = lab.begin(&hold).await.unwrap();
    DB::insert(connection(&mut tx), 1).await.unwrap();
    let rule = proxy.hold_reply("COMMIT", 1);
    let commit = tokio::spawn(tx.commit());
    rule.fired().await.unwrap();
    // Committed, and not answered yet.
    for _ in 0..3 {
        drop(direct.hold("/a"));
    }
    let (newer, _) = direct.hold("/a");
    direct.begin(&newer).await.unwrap().commit().await.unwrap();
    proxy.cut();
    let outcome = soon(commit).await.unwrap();
    match outcome {
        Ok(()) if DB::REMEMBERS => {}
        Err(Error::CommitUnknown { .. }) if !DB::REMEMBERS => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(direct.ids().await, [1]);
}

async fn a_second_transaction_of_one_grant_hides_the_trace<DB: Bench>() {
    let (lab, direct, proxy) = behind::<DB>().await;
    let (outer, _) = lab.hold("/a");
    let options =
        crate::options::LockOptions { fair: true, timeout: None, wait: None, function: "tests::inner" };
    let hold = Hold::nested(&outer, options);
    let mut tx = lab.begin(&hold).await.unwrap();
    DB::insert(connection(&mut tx), 1).await.unwrap();
    soon(tx.commit()).await.unwrap();
    let hold = Hold::nested(&outer, options);
    let mut tx = lab.begin(&hold).await.unwrap();
    DB::insert(connection(&mut tx), 2).await.unwrap();
    let _lost = proxy.drop_request("COMMIT", 1);
    match soon(tx.commit()).await {
        Err(Error::NotCommitted { .. }) if DB::REMEMBERS => {}
        Err(Error::CommitUnknown { .. }) if !DB::REMEMBERS => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(direct.ids().await, [1]);
}

/// Undone as a whole where nothing but the body can have ended it before; else something may have followed.
async fn an_answer_lost_before_commit_is_told<DB: Bench>() {
    let (lab, direct, proxy) = behind::<DB>().await;
    let (hold, mut released) = lab.hold("/a");
    let mut tx = lab.begin(&hold).await.unwrap();
    DB::insert(connection(&mut tx), 1).await.unwrap();
    let _lost = proxy.swallow_reply("RELEASE SAVEPOINT zklock_guard", 1);
    match soon(tx.commit()).await.unwrap_err() {
        Error::NotCommitted { .. } if !DB::ENDS_SILENTLY => {}
        Error::TransactionEnded { .. } if DB::ENDS_SILENTLY => {}
        error => panic!("{error}"),
    }
    assert!(direct.ids().await.is_empty());
    hold.release();
    released.released().await;
    lab.assert_clean(2).await;
}

async fn a_begin_over_a_failing_link_leaves_nothing<DB: Bench>() {
    for statement in ["zklock_guard", "UPDATE zklock_fence"] {
        for arrives in [true, false] {
            let (lab, direct, proxy) = behind::<DB>().await;
            let (hold, mut released) = lab.hold("/a");
            let _lost =
                if arrives { proxy.swallow_reply(statement, 1) } else { proxy.drop_request(statement, 1) };
            let error = lab.begin(&hold).await.unwrap_err();
            assert!(matches!(error, Error::Database { .. }), "{error}");
            hold.release();
            released.released().await;
            lab.assert_clean(1).await;
            let (newer, _) = lab.hold("/a");
            lab.begin(&newer).await.unwrap().commit().await.unwrap();
            assert_eq!(direct.ids().await, [1]);
        }
    }
}

async fn a_begin_dropped_at_any_time_over_a_slow_link<DB: Bench>() {
    let (lab, direct, proxy) = behind::<DB>().await;
    proxy.delay(Duration::from_millis(10), Direction::Both);
    let mut id = 0;
    for after in (0..160).step_by(8) {
        let (hold, mut released) = lab.hold("/a");
        let origin = Origin::Pool(lab.pool.clone());
        let begin = Tx::begin(origin, &hold, FENCED, &lab.engine, &lab.fence, GRACE);
        drop(tokio::time::timeout(Duration::from_millis(after), begin).await);
        hold.release();
        released.released().await;
        id += 1;
        let mut connection = soon(lab.pool.acquire()).await.unwrap();
        DB::insert(&mut connection, id).await.unwrap();
        assert_eq!(direct.ids().await.len(), usize::try_from(id).unwrap(), "dropped after {after} ms");
    }
}

async fn a_link_that_falls_silent_in_the_body<DB: Bench>() {
    let (lab, direct, proxy) = behind::<DB>().await;
    let (hold, mut released) = lab.hold_for("/a", Some(Duration::from_secs(2)));
    let mut tx = lab.begin(&hold).await.unwrap();
    DB::insert(connection(&mut tx), 1).await.unwrap();
    DB::touch(connection(&mut tx)).await.unwrap();
    proxy.black_hole(Direction::Both);
    let asked = Instant::now();
    let error = soon(tx.commit()).await.unwrap_err();
    assert!(matches!(error, Error::Overrun { .. }), "{error}");
    assert!(asked.elapsed() < Duration::from_secs(9), "{:?}", asked.elapsed());
    hold.release();
    // The database's own limits are those of the lock: it ends the transaction though nobody can reach it.
    until(|| direct.is_free()).await;
    assert!(hold.held_for() < Duration::from_secs(15), "{:?}", hold.held_for());
    proxy.heal().unwrap();
    released.released().await;
    assert!(direct.ids().await.is_empty());
}

async fn a_link_that_falls_silent_before_the_body<DB: Bench>() {
    let (lab, direct, proxy) = behind::<DB>().await;
    let (hold, mut released) = lab.hold_for("/a", Some(Duration::from_secs(1)));
    let mut tx = lab.begin(&hold).await.unwrap();
    let silence = proxy.hold_reply("SAVEPOINT _sqlx_savepoint_1", 1);
    let error = soon(open::<sqlx::Transaction<'_, DB>>(&mut tx)).await.unwrap_err();
    assert!(matches!(error, Error::Overrun { .. }), "{error}");
    assert!(hold.held_for() < Duration::from_secs(5), "{:?}", hold.held_for());
    silence.release();
    soon(tx.rollback()).await;
    hold.release();
    released.released().await;
    assert!(direct.is_free().await);
}

async fn a_link_that_falls_silent_under_a_joined_transaction<DB: Bench>() {
    for statement in ["SAVEPOINT _sqlx_savepoint_1", "RELEASE SAVEPOINT _sqlx_savepoint_1"] {
        let (lab, _direct, proxy) = behind::<DB>().await;
        let (outer_hold, _) = lab.hold("/outer");
        let mut outer = lab.begin(&outer_hold).await.unwrap();
        let (hold, _) = lab.hold_for("/a", Some(Duration::from_secs(1)));
        let silence = proxy.hold_reply(statement, 1);
        let origin: Origin<'_, DB> = Origin::Outer(connection(&mut outer));
        let outcome = soon(async {
            Tx::begin(origin, &hold, FENCED, &lab.engine, &lab.fence, GRACE).await?.commit().await
        })
        .await;
        let error = outcome.unwrap_err();
        assert!(matches!(error, Error::Overrun { .. }), "{error}");
        assert!(hold.held_for() < Duration::from_secs(5), "{:?}", hold.held_for());
        silence.release();
        soon(outer.rollback()).await;
    }
}

/// It passes while the savepoint is released: the caller waits, or its process is stopped.
async fn no_commit_after_the_deadline_of_what_has_joined<DB: Bench>() {
    for (spec, stopped) in [(FENCED, false), (UNFENCED, false), (UNFENCED, true)] {
        let (lab, direct, proxy) = behind::<DB>().await;
        let (outer_hold, _) = lab.hold_for("/outer", Some(Duration::from_secs(100)));
        let mut outer = lab.begin_as(&outer_hold, spec).await.unwrap();
        let (hold, mut released) = lab.hold_for("/a", Some(Duration::from_secs(2)));
        let origin: Origin<'_, DB> = Origin::Outer(connection(&mut outer));
        let joins = Tx::begin(origin, &hold, spec, &lab.engine, &lab.fence, GRACE);
        let mut tx = soon(joins).await.unwrap();
        DB::insert(connection(&mut tx), 1).await.unwrap();
        soon(tx.commit()).await.unwrap();
        outer_hold.keep(&hold);
        hold.start_joined_commit().unwrap();
        let release = proxy.hold_reply("RELEASE SAVEPOINT zklock_guard", 1);
        let commit = tokio::spawn(outer.commit());
        release.fired().await.unwrap();
        if stopped {
            // The answer is there, and so is the end of the limit, when it goes on.
            release.release();
            std::thread::sleep(hold.deadline().remaining() + Duration::from_millis(100));
        }
        let error = soon(commit).await.unwrap().unwrap_err();
        assert!(matches!(&error, Error::Overrun { path, .. } if path.as_str() == "/a"), "{error}");
        release.release();
        hold.release();
        outer_hold.release();
        released.released().await;
        assert!(direct.ids().await.is_empty());
        lab.assert_clean(2).await;
    }
}
