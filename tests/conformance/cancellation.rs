use std::{
    hint::spin_loop,
    time::{Duration, Instant},
};

use zklock::{Error, Guard, Locks};

use crate::support::{DropAt, Outcome, Random, World, poll_times, queued, soon};

/// More polls than any of these futures takes.
const POLLS: usize = 12;

pub(crate) async fn g08_a_wait_dropped_at_any_poll_leaves_nothing(world: World) -> Outcome {
    let [locks, other] = [world.locks().await?, world.locks().await?];
    for fair in [true, false] {
        for polls in 1..POLLS {
            for drop_at in [DropAt::Once, DropAt::Wake] {
                let guard = other.mutex(path(fair)).fair(fair).timeout(None).acquire().await?;
                let wait = poll_times(polls, drop_at, locks.mutex(path(fair)).fair(fair).acquire());
                // The release is what wakes the one that is dropped then.
                let release = async {
                    if matches!(drop_at, DropAt::Wake) {
                        tokio::task::yield_now().await;
                    } else {
                        queued(&other, path(fair), 1).await?;
                    }
                    guard.release().await?;
                    Outcome::Ok(())
                };
                let (granted, released) = match drop_at {
                    DropAt::Once => (poll_or_time_out(wait).await, release.await),
                    DropAt::Wake => soon("the drop", async { tokio::join!(wait, release) }).await,
                };
                released?;
                if let Some(granted) = granted {
                    granted?.release().await?;
                }
                free(&other, fair)
                    .await
                    .map_err(|error| format!("{error} after {polls} polls, {drop_at:?}"))?;
            }
        }
    }
    Ok(())
}

/// A wait behind a holder who does not go is never polled that often: then it is dropped after a while.
async fn poll_or_time_out(
    wait: impl Future<Output = Option<Result<Guard, Error>>>,
) -> Option<Result<Guard, Error>> {
    tokio::time::timeout(Duration::from_millis(50), wait).await.ok().flatten()
}

pub(crate) async fn g08_an_acquire_dropped_at_any_poll_leaves_nothing(world: World) -> Outcome {
    let [locks, other] = [world.locks().await?, world.locks().await?];
    for fair in [true, false] {
        for polls in 1..POLLS {
            for drop_at in [DropAt::Once, DropAt::Wake] {
                for _ in 0..3 {
                    let lock = locks.mutex(path(fair)).fair(fair).timeout(None);
                    let granted = soon("the drop", poll_times(polls, drop_at, lock.acquire())).await;
                    if let Some(granted) = granted {
                        granted?.release().await?;
                    }
                    free(&other, fair)
                        .await
                        .map_err(|error| format!("{error} after {polls} polls, {drop_at:?}"))?;
                }
            }
        }
    }
    Ok(())
}

pub(crate) async fn g08_a_release_dropped_at_any_poll_still_releases(world: World) -> Outcome {
    let [locks, other] = [world.locks().await?, world.locks().await?];
    for fair in [true, false] {
        for polls in 0..POLLS {
            let guard = locks.mutex(path(fair)).fair(fair).timeout(None).acquire().await?;
            let _ = soon("the drop", poll_times(polls, DropAt::Once, guard.release())).await;
            free(&other, fair).await.map_err(|error| format!("{error} after {polls} polls"))?;
        }
    }
    Ok(())
}

pub(crate) async fn g05_a_race_of_cancel_and_grant_has_one_outcome_fair(world: World) -> Outcome {
    race_cancel_and_grant(world, true).await
}

pub(crate) async fn g05_a_race_of_cancel_and_grant_has_one_outcome_unfair(world: World) -> Outcome {
    race_cancel_and_grant(world, false).await
}

async fn race_cancel_and_grant(world: World, fair: bool) -> Outcome {
    let [holder, waiter] = [world.locks().await?, world.locks().await?];
    // 100,000 in memory and 2,000 on a server, with those of the other kind.
    let rounds = if world.is_shared_by_processes() { 1_000 } else { 50_000 };
    let mut random = Random::new();
    let (mut granted, mut cancelled) = (0, 0);
    // How long a hand-over takes on this machine, found out on the way, so that the two meet about half of the time.
    let (mut cancel_within, mut release_within) = (200, 200);
    for round in 0..rounds {
        let guard = holder.mutex(path(fair)).fair(fair).timeout(None).acquire().await?;
        let cancel_after = Duration::from_micros(random.below(cancel_within));
        let release_after = Duration::from_micros(random.below(release_within));
        // The two race on two workers, from the moment at which both are there.
        let start = std::sync::Arc::new(tokio::sync::Barrier::new(2));
        let waiting = tokio::spawn({
            let (lock, start) = (waiter.mutex(path(fair)).fair(fair).timeout(None), start.clone());
            async move {
                let acquire = std::pin::pin!(lock.acquire());
                let cancel = async {
                    start.wait().await;
                    pause(cancel_after).await;
                };
                tokio::select! { biased; guard = acquire => Some(guard), () = cancel => None }
            }
        });
        let releasing = tokio::spawn(async move {
            start.wait().await;
            pause(release_after).await;
            guard.release().await
        });
        soon("the release", releasing).await??;
        if let Some(guard) = soon("the wait", waiting).await? {
            let guard = guard?;
            assert!(guard.is_held(), "granted and not held, round {round} of seed {}", random.seed);
            assert!(
                holder.mutex(path(fair)).fair(fair).try_acquire().await?.is_none(),
                "granted and free as well"
            );
            guard.release().await?;
            granted += 1;
            (cancel_within, release_within) = ((cancel_within * 9 / 10).max(1), release_within * 11 / 10 + 1);
        } else {
            cancelled += 1;
            (cancel_within, release_within) = (cancel_within * 11 / 10 + 1, (release_within * 9 / 10).max(1));
        }
        // Either way it is free now; a grant that nobody took is on its way back.
        let next = soon("the lock after the race", holder.mutex(path(fair)).fair(fair).acquire()).await?;
        next.release().await?;
    }
    assert_eq!(granted + cancelled, rounds);
    assert!(granted > 50 && cancelled > 50, "{granted} granted, {cancelled} cancelled: that was no race");
    free(&holder, fair).await
}

/// Releases at the very moment at which the limit passes: one of the two, once, and nothing is left in the tables.
pub(crate) async fn g05_a_race_of_release_and_limit_has_one_outcome(world: World) -> Outcome {
    let [locks, other] = [world.locks().await?, world.locks().await?];
    let mut random = Random::new();
    for _ in 0..300 {
        let guard = locks.mutex(path(true)).timeout(Duration::from_millis(2)).acquire().await?;
        let until = Instant::now() + Duration::from_micros(1_500 + random.below(1_000));
        while Instant::now() < until {
            spin_loop();
        }
        let held = guard.is_held();
        match guard.release().await {
            Ok(()) => assert!(held),
            Err(Error::Overrun { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let snapshot = locks.snapshot();
        assert!(snapshot.held.is_empty(), "released, and still shown (seed {}): {snapshot:#?}", random.seed);
    }
    free(&other, true).await
}

/// The same with many at a time: while the reaper goes through what is due, those further back are released.
pub(crate) async fn g05_many_releases_race_their_limits(world: World) -> Outcome {
    const HOLDS: usize = 100;
    let locks = world.locks().await?;
    for round in 0..10 {
        let mut guards = Vec::new();
        for number in 0..HOLDS {
            let path = format!("/{number}");
            guards.push(locks.mutex(path.as_str()).timeout(None).acquire().await?);
        }
        let limit = Instant::now() + Duration::from_millis(5);
        for guard in &guards {
            guard.extend(limit.saturating_duration_since(Instant::now()))?;
        }
        while Instant::now() < limit {
            spin_loop();
        }
        let mut releases = Vec::new();
        for guard in guards.into_iter().rev() {
            releases.push(tokio::spawn(guard.release()));
        }
        for release in releases {
            match soon("a release", release).await? {
                Ok(()) | Err(Error::Overrun { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let left = locks.snapshot().held.len();
        assert_eq!(left, 0, "released, and still shown, in round {round}");
    }
    Ok(())
}

/// More exact than a timer.
async fn pause(duration: Duration) {
    let start = Instant::now();
    while start.elapsed() < duration {
        tokio::task::yield_now().await;
    }
}

/// Tries leave in the background, so each kind has a path of its own.
fn path(fair: bool) -> &'static str {
    if fair { "/fair" } else { "/unfair" }
}

/// Nothing is left in the queue, and the lock is to be had.
async fn free(locks: &Locks, fair: bool) -> Outcome {
    queued(locks, path(fair), 0).await?;
    // Waiting for it: the create of a call that was dropped may still have been on its way to the server.
    let guard = soon("the lock", locks.mutex(path(fair)).fair(fair).acquire()).await?;
    guard.release().await?;
    Ok(())
}
