use std::{sync::mpsc, time::Duration};

use tokio::sync::oneshot;
use zklock::{Error, LostReason};

use crate::support::{DropAt, Outcome, World, poll_times, queued, soon};

pub(crate) async fn closing_stops_bodies_and_waiters(world: World) -> Outcome {
    let locks = world.locks().await?;
    let guard = locks.mutex("/a").timeout(None).acquire().await?;
    let kept = locks.mutex("/b").timeout(None).acquire().await?;
    let waiter = tokio::spawn({
        let locks = locks.clone();
        async move { locks.mutex("/a").acquire().await.map(drop) }
    });
    let (alive, dropped) = oneshot::channel::<()>();
    let body = tokio::spawn(async move {
        let body = async move {
            let _alive = alive;
            std::future::pending::<()>().await;
        };
        guard.run(body).await
    });
    queued(&locks, "/a", 2).await?;
    soon("closing", locks.close()).await;
    assert!(soon("the end of the body", dropped).await.is_err());
    let result = soon("the waiter", waiter).await?;
    assert!(matches!(result, Err(Error::Closed)), "{result:?}");
    let result = soon("the body", body).await?;
    assert!(matches!(result, Err(Error::Lost { reason: LostReason::Closed, .. })), "{result:?}");
    assert!(!kept.is_held());
    assert_eq!(soon("the loss", kept.lost()).await, LostReason::Closed);
    let snapshot = locks.snapshot();
    assert!(snapshot.held.is_empty() && snapshot.waiting.is_empty(), "{snapshot:?}");
    if world.is_shared_by_processes() {
        let other = world.locks().await?;
        for path in ["/a", "/b"] {
            other.mutex(path).try_acquire().await?.expect("free as soon as it is closed").release().await?;
        }
    }
    Ok(())
}

pub(crate) async fn closing_twice_and_at_the_same_time_is_fine(world: World) -> Outcome {
    let locks = world.locks().await?;
    let guard = locks.mutex("/a").timeout(None).acquire().await?;
    let both = async { tokio::join!(locks.close(), locks.close()) };
    soon("closing twice at a time", both).await;
    soon("closing once more", locks.close()).await;
    assert!(locks.is_closed());
    drop(guard);
    drop(locks);
    Ok(())
}

pub(crate) async fn closing_may_be_cancelled_and_called_again(world: World) -> Outcome {
    let [locks, other] = [world.locks().await?, world.locks().await?];
    let guard = locks.mutex("/a").timeout(None).acquire().await?;
    for polls in 1..4 {
        let _ = poll_times(polls, DropAt::Once, locks.close()).await;
        assert!(locks.is_closed());
    }
    soon("closing", locks.close()).await;
    assert!(!guard.is_held());
    if world.is_shared_by_processes() {
        // Closed means that the session is over, whichever call began it.
        other.mutex("/a").try_acquire().await?.expect("free").release().await?;
    }
    Ok(())
}

pub(crate) async fn closing_waits_for_a_body_that_blocks_no_longer_than_the_grace_time(
    world: World,
) -> Outcome {
    let locks = world.locks().await?;
    let (unblock, blocked) = mpsc::channel::<()>();
    let (running, runs) = oneshot::channel();
    let call = tokio::spawn({
        let lock = locks.mutex("/a").timeout(None);
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
    // The body is let go on only afterwards.
    soon("closing over a blocked body", locks.close()).await;
    if world.is_shared_by_processes() {
        world.locks().await?.mutex("/a").try_acquire().await?.expect("free").release().await?;
    }
    unblock.send(())?;
    let result = soon("the blocked call", call).await?;
    assert!(matches!(result, Err(Error::Lost { reason: LostReason::Closed, .. })), "{result:?}");
    Ok(())
}

pub(crate) async fn a_closed_handle_grants_nothing(world: World) -> Outcome {
    let locks = world.locks().await?;
    locks.mutex("/a").acquire().await?.release().await?;
    soon("closing", locks.close()).await;
    for fair in [true, false] {
        let result = soon("a refusal", locks.mutex("/a").fair(fair).acquire()).await.map(drop);
        assert!(matches!(result, Err(Error::Closed)), "{result:?}");
        let result = locks.mutex("/b").fair(fair).wait(Duration::from_secs(1)).try_acquire().await.map(drop);
        assert!(matches!(result, Err(Error::Closed)), "{result:?}");
    }
    Ok(())
}

/// Whatever it falls together with: an extension must not put off what `close` has ended.
pub(crate) async fn closing_while_limits_are_moved_does_not_hang(world: World) -> Outcome {
    for _ in 0..5 {
        let locks = if world.is_shared_by_processes() {
            world.locks().await?
        } else {
            World::memory().await?.locks().await?
        };
        let mut guards = Vec::new();
        for number in 0..50 {
            let path = format!("/{number}");
            guards.push(locks.mutex(path.as_str()).timeout(None).acquire().await?);
        }
        let extending = tokio::task::spawn_blocking(move || {
            // Until the last of them is closed, and kept afterwards: nobody lets go of them but the grace time.
            while guards.iter().any(|guard| guard.extend(Duration::from_hours(1)).is_ok()) {}
            guards
        });
        soon("closing", locks.close()).await;
        drop(soon("the end of the extensions", extending).await?);
    }
    Ok(())
}
