use std::time::Duration;

use tokio::{
    runtime::Builder,
    sync::{mpsc, oneshot},
};
use zklock::{Error, Guard, Locks};

use crate::support::{Failure, Outcome, World, queued, soon};

pub(crate) async fn g05_releasing_lets_the_next_one_in_at_once(world: World) -> Outcome {
    let handles = world.handles(2).await?;
    // A path that is locked again and again keeps its kind, until the server has swept its directory.
    for (path, fair) in [("/fair", true), ("/unfair", false)] {
        for round in 0..20 {
            let guard = handles[round % 2].mutex(path).fair(fair).try_acquire().await?;
            guard.expect("released is free, for every handle").release().await?;
        }
        queued(&handles[0], path, 0).await?;
    }
    Ok(())
}

pub(crate) async fn g05_a_dropped_guard_lets_the_next_one_in(world: World) -> Outcome {
    let handles = world.handles(2).await?;
    // Dropping releases in the background, so for a moment each path still has its kind.
    for (path, fair) in [("/fair", true), ("/unfair", false)] {
        let guard = handles[0].mutex(path).fair(fair).timeout(None).acquire().await?;
        drop(guard);
        let guard = soon("the next one", handles[1].mutex(path).fair(fair).acquire()).await?;
        drop(guard);
        queued(&handles[0], path, 0).await?;
    }
    Ok(())
}

pub(crate) async fn g05_ok_releases(world: World) -> Outcome {
    let locks = world.locks().await?;
    let answer =
        under_the_lock(&locks, async |guard| guard.run(async { 42 }).await.map_err(Into::into)).await?;
    assert_eq!(answer, 42);
    free_again(&world).await
}

pub(crate) async fn g05_an_error_releases(world: World) -> Outcome {
    let locks = world.locks().await?;
    let error = under_the_lock(&locks, async |guard| {
        let body = async {
            let _never: u8 = "not a number".parse::<u8>()?;
            Ok::<_, Failure>(())
        };
        guard.run(body).await?
    })
    .await;
    assert!(error.is_err_and(|error| error.to_string().contains("invalid digit")));
    free_again(&world).await
}

pub(crate) async fn g05_an_early_return_releases(world: World) -> Outcome {
    #[expect(clippy::needless_return, reason = "it is what is tested")]
    async fn early(guard: &Guard) -> Outcome<u8> {
        if guard.is_held() {
            return Ok(1);
        }
        return Ok(2);
    }
    let locks = world.locks().await?;
    assert_eq!(under_the_lock(&locks, early).await?, 1);
    free_again(&world).await
}

pub(crate) async fn g05_a_panic_releases(world: World) -> Outcome {
    let locks = world.locks().await?;
    let task = tokio::spawn(async move {
        let guard = locks.mutex("/a").timeout(None).acquire().await?;
        guard.run(async { panic!("as a body may") }).await
    });
    assert!(soon("a panic", task).await.is_err_and(|error| error.is_panic()));
    free_again(&world).await?;
    // Poisoned nothing.
    let locks = world.locks().await?;
    let guard = locks.mutex("/a").acquire().await?;
    assert_eq!(locks.snapshot().held.len(), 1);
    guard.release().await?;
    Ok(())
}

pub(crate) async fn g05_a_dropped_future_releases(world: World) -> Outcome {
    let locks = world.locks().await?;
    let (running, runs) = oneshot::channel();
    let (alive, mut dropped) = mpsc::channel::<()>(1);
    let call = tokio::spawn(async move {
        let guard = locks.mutex("/a").timeout(None).acquire().await?;
        let body = async move {
            let _alive = alive;
            let _ = running.send(());
            std::future::pending::<()>().await;
        };
        guard.run(body).await
    });
    soon("the body", runs).await?;
    call.abort();
    assert!(soon("the end of the body", dropped.recv()).await.is_none());
    free_again(&world).await
}

pub(crate) async fn g05_the_end_of_the_runtime_releases(world: World) -> Outcome {
    let locks = world.locks().await?;
    let elsewhere = tokio::task::spawn_blocking(move || {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let (running, runs) = oneshot::channel();
        runtime.spawn(async move {
            let guard = locks.mutex("/a").timeout(None).acquire().await?;
            let _ = running.send(locks.clone());
            guard.run(std::future::pending::<()>()).await
        });
        let locks = runtime.block_on(runs)?;
        drop(runtime);
        Ok::<_, Failure>(locks)
    });
    let locks = soon("the end of the runtime", elsewhere).await??;
    free_again(&world).await?;
    // What was used in a runtime that is gone goes on in another.
    let guard = soon("the same handle, elsewhere", locks.mutex("/a").acquire()).await?;
    guard.release().await?;
    Ok(())
}

pub(crate) async fn g05_a_guard_is_released_on_a_thread_without_a_runtime(world: World) -> Outcome {
    let locks = world.locks().await?;
    for fair in [true, false] {
        let guard = locks.mutex("/a").fair(fair).timeout(None).acquire().await?;
        let dropping = std::thread::spawn(move || drop(guard));
        tokio::task::spawn_blocking(move || dropping.join()).await?.map_err(|_| "dropping it panicked")?;
        free_again(&world).await?;
    }
    Ok(())
}

pub(crate) async fn g05_a_late_guard_does_not_free_the_next_holder(world: World) -> Outcome {
    late(world, async |guard| {
        drop(guard);
        Ok(())
    })
    .await
}

pub(crate) async fn g05_a_late_release_does_not_free_the_next_holder(world: World) -> Outcome {
    late(world, async |guard: Guard| {
        let result = soon("a late release", guard.release()).await;
        assert!(matches!(result, Err(Error::Overrun { .. })), "{result:?}");
        Ok(())
    })
    .await
}

/// A guard that was taken back is let go while the next holder has the lock.
async fn late(world: World, let_go: impl AsyncFn(Guard) -> Outcome) -> Outcome {
    let [old, new] = [world.locks().await?, world.locks().await?];
    for (path, fair) in [("/fair", true), ("/unfair", false)] {
        let late = old.mutex(path).fair(fair).timeout(Duration::from_millis(20)).acquire().await?;
        let next = soon("the next holder", new.mutex(path).fair(fair).timeout(None).acquire()).await?;
        assert!(!late.is_held());
        let_go(late).await?;
        assert!(next.is_held());
        queued(&old, path, 1).await?;
        assert!(old.mutex(path).fair(fair).try_acquire().await?.is_none(), "the lock is the next holder's");
        assert!(next.is_held());
        next.release().await?;
    }
    Ok(())
}

async fn under_the_lock<T>(locks: &Locks, body: impl AsyncFnOnce(&Guard) -> Outcome<T>) -> Outcome<T> {
    let guard = locks.mutex("/a").timeout(None).acquire().await?;
    body(&guard).await
}

/// Another handle gets the lock, and nothing is left in the queue.
async fn free_again(world: &World) -> Outcome {
    let other = world.locks().await?;
    queued(&other, "/a", 0).await?;
    let guard = other.mutex("/a").try_acquire().await?.expect("nobody is in the queue");
    guard.release().await?;
    Ok(())
}
