use std::{
    sync::mpsc,
    time::{Duration, SystemTime},
};

use tokio::sync::oneshot;
use zklock::HoldPhase;

use crate::support::{Outcome, World, queued, soon, until};

pub(crate) async fn a_snapshot_shows_what_is_held_and_waited_for(world: World) -> Outcome {
    let locks = world.locks().await?;
    let hour = Duration::from_hours(1);
    let later = locks.mutex("/later").function("later").timeout(2 * hour).acquire().await?;
    let sooner = locks.mutex("/sooner").function("sooner").timeout(hour).acquire().await?;
    let endless = locks.mutex("/endless").timeout(None).acquire().await?;
    let waiter = tokio::spawn({
        let lock = locks.mutex("/later").function("waits");
        async move { lock.acquire().await }
    });
    queued(&locks, "/later", 2).await?;
    let snapshot = locks.snapshot();
    let held: Vec<_> = snapshot.held.iter().map(|held| (held.path.as_str(), held.function)).collect();
    assert_eq!(held, [("/sooner", "sooner"), ("/later", "later"), ("/endless", "mutex")]);
    for held in &snapshot.held {
        assert_eq!(held.phase, HoldPhase::Held);
        assert!(held.since <= SystemTime::now());
    }
    assert_eq!(snapshot.held[0].token, sooner.fencing_token());
    assert!(snapshot.held[0].remaining.is_some_and(|remaining| remaining <= hour));
    assert_eq!(snapshot.held[2].remaining, None);
    let waiting: Vec<_> =
        snapshot.waiting.iter().map(|waits| (waits.path.as_str(), waits.function)).collect();
    assert_eq!(waiting, [("/later", "waits")]);
    later.release().await?;
    let granted = soon("the grant", waiter).await??;
    assert!(locks.snapshot().waiting.is_empty());
    for guard in [sooner, endless, granted] {
        guard.release().await?;
    }
    assert!(locks.snapshot().held.is_empty());
    Ok(())
}

pub(crate) async fn a_snapshot_shows_what_is_ending(world: World) -> Outcome {
    let locks = world.locks().await?;
    let (unblock, blocked) = mpsc::channel::<()>();
    let (running, runs) = oneshot::channel();
    let call = tokio::spawn({
        let lock = locks.mutex("/a").timeout(Duration::from_millis(20));
        async move {
            let guard = lock.acquire().await?;
            let body = async move {
                let _ = running.send(());
                let _ = blocked.recv();
            };
            guard.run(body).await
        }
    });
    soon("the body", runs).await?;
    // The grace time is longer than the machine takes to look; should it be missed, it is gone at the next look.
    until("an ending hold, or none", async || {
        locks.snapshot().held.iter().all(|held| held.phase == HoldPhase::Ending)
    })
    .await?;
    until("an empty snapshot", async || locks.snapshot().held.is_empty()).await?;
    unblock.send(())?;
    assert!(soon("the blocked call", call).await?.is_err());
    Ok(())
}

pub(crate) async fn inspect_shows_the_queue_of_all_handles(world: World) -> Outcome {
    let handles = world.handles(2).await?;
    assert!(handles[0].inspect("/a").await?.is_empty());
    let started = SystemTime::now();
    let guard = handles[0].mutex("/a").function("holds").timeout(None).acquire().await?;
    let mut waiters = Vec::new();
    for (number, function) in ["first", "second", "third"].into_iter().enumerate() {
        let lock = handles[(number + 1) % 2].mutex("/a").function(function).timeout(None);
        waiters.push(tokio::spawn(async move { lock.acquire().await?.release().await }));
        queued(&handles[0], "/a", number + 2).await?;
    }
    for locks in &handles {
        let queue = locks.inspect("/a").await?;
        let functions: Vec<_> = queue.iter().map(|entry| entry.function.as_deref()).collect();
        assert_eq!(functions, [Some("holds"), Some("first"), Some("second"), Some("third")]);
        let holders: Vec<_> = queue.iter().map(|entry| entry.is_holder).collect();
        assert_eq!(holders, [true, false, false, false]);
        for entry in &queue {
            assert_eq!(entry.identity.as_deref(), Some("a tester"));
            let since = entry.since.expect("ours say since when");
            // Servers keep milliseconds.
            assert!(
                since + Duration::from_secs(1) >= started
                    && since <= SystemTime::now() + Duration::from_secs(1)
            );
        }
    }
    guard.release().await?;
    for waiter in waiters {
        soon("a turn", waiter).await??;
    }
    queued(&handles[1], "/a", 0).await
}

pub(crate) async fn g08_nothing_is_left_of_locks_that_were_used(world: World) -> Outcome {
    let locks = world.locks().await?;
    for number in 0..60 {
        for fair in [true, false] {
            let path = format!("/many/{fair}/{number}");
            locks.mutex(path.as_str()).fair(fair).acquire().await?.release().await?;
            assert!(locks.inspect(path.as_str()).await?.is_empty());
        }
    }
    #[cfg(feature = "zookeeper")]
    if let Some(chroot) = world.chroot() {
        let zookeeper = zklock_testkit::ZooKeeper::shared().await?;
        for fair in [true, false] {
            let folder = format!("{}/many/{fair}", chroot.path());
            let mut last = Vec::new();
            let clean = until("no node per key", async || {
                last = zookeeper.children(&folder).await.unwrap_or_default();
                last.is_empty()
            });
            clean.await.map_err(|error| format!("{error}: {last:?}"))?;
        }
    }
    Ok(())
}
