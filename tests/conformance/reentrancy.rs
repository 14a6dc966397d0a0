use std::{sync::Arc, time::Duration};

use tokio::sync::Barrier;
use zklock::{Error, Guard, Locks, LostReason};

use crate::support::{Outcome, World, queued, soon};

pub(crate) async fn g10_the_same_chain_enters_again(world: World) -> Outcome {
    let locks = world.locks().await?;
    for fair in [true, false] {
        let outer = locks.mutex("/a").fair(fair).timeout(None).acquire().await?;
        let token = outer.fencing_token();
        let body = async {
            let inner = soon("the same lock again", locks.mutex("/a").fair(fair).acquire()).await?;
            assert_eq!(inner.fencing_token(), token);
            inner
                .run(async {
                    let innermost = locks.mutex("/a").fair(fair).try_acquire().await?.expect("it is ours");
                    assert!(innermost.is_held());
                    queued(&locks, "/a", 1).await?;
                    innermost.release().await?;
                    Ok::<_, crate::support::Failure>(())
                })
                .await??;
            inner.release().await?;
            Outcome::Ok(())
        };
        outer.run(body).await??;
        assert!(outer.is_held());
        outer.release().await?;
    }
    queued(&locks, "/a", 0).await
}

pub(crate) async fn g10_a_path_is_entered_again_below_another(world: World) -> Outcome {
    let locks = world.locks().await?;
    let a = locks.mutex("/a").timeout(None).acquire().await?;
    let body = async {
        let b = locks.mutex("/b").acquire().await?;
        let again = b.run(async { locks.mutex("/a").acquire().await }).await??;
        assert!(again.is_held());
        again.release().await?;
        assert!(b.is_held());
        b.release().await
    };
    soon("a, b, a", a.run(body)).await??;
    a.release().await?;
    Ok(())
}

pub(crate) async fn g10_an_inner_release_keeps_the_outer(world: World) -> Outcome {
    let [locks, other] = [world.locks().await?, world.locks().await?];
    let outer = locks.mutex("/a").timeout(None).acquire().await?;
    outer.run(async { locks.mutex("/a").acquire().await?.release().await }).await??;
    outer.run(async { locks.mutex("/a").acquire().await.map(drop) }).await??;
    assert!(outer.is_held());
    assert!(other.mutex("/a").try_acquire().await?.is_none());
    outer.release().await?;
    other.mutex("/a").try_acquire().await?.expect("free").release().await?;
    Ok(())
}

pub(crate) async fn g10_an_inner_guard_does_not_outlive_the_outer(world: World) -> Outcome {
    let [locks, other] = [world.locks().await?, world.locks().await?];
    let outer = locks.mutex("/a").timeout(None).acquire().await?;
    let inner = outer.run(async { locks.mutex("/a").timeout(None).acquire().await }).await??;
    assert!(inner.is_held());
    outer.release().await?;
    assert!(!inner.is_held(), "the lock itself is gone");
    soon("the loss", inner.lost()).await;
    let next = other.mutex("/a").try_acquire().await?.expect("released by the outer guard");
    assert!(inner.run(async {}).await.is_err());
    drop(inner);
    assert!(next.is_held());
    queued(&other, "/a", 1).await?;
    next.release().await?;
    Ok(())
}

pub(crate) async fn g10_the_earlier_deadline_counts(world: World) -> Outcome {
    let locks = world.locks().await?;
    let limit = Duration::from_millis(80);
    let outer = locks.mutex("/a").timeout(limit).acquire().await?;
    let body = async {
        let inner = locks.mutex("/a").timeout(Duration::from_hours(1)).acquire().await?;
        assert!(inner.remaining().is_some_and(|remaining| remaining <= limit));
        inner.extend(Duration::from_hours(1))?;
        assert!(inner.remaining().is_some_and(|remaining| remaining <= limit), "past the outer limit");
        inner.run(std::future::pending::<()>()).await
    };
    let result = soon("the outer overrun", outer.run(body)).await;
    assert!(matches!(result, Err(Error::Overrun { .. }) | Ok(Err(Error::Overrun { .. }))), "{result:?}");
    assert_eq!(soon("the loss", outer.lost()).await, LostReason::Overrun);
    Ok(())
}

pub(crate) async fn g10_an_inner_limit_does_not_end_the_outer(world: World) -> Outcome {
    let [locks, other] = [world.locks().await?, world.locks().await?];
    let outer = locks.mutex("/a").timeout(None).acquire().await?;
    let body = async {
        let inner = locks.mutex("/a").timeout(Duration::from_millis(30)).acquire().await?;
        inner.run(std::future::pending::<()>()).await
    };
    let result = soon("the inner overrun", outer.run(body)).await?;
    assert!(matches!(result, Err(Error::Overrun { .. })), "{result:?}");
    assert!(outer.is_held());
    assert!(other.mutex("/a").try_acquire().await?.is_none());
    outer.release().await?;
    Ok(())
}

pub(crate) async fn g10_another_task_is_not_the_same_chain(world: World) -> Outcome {
    let locks = world.locks().await?;
    let outer = locks.mutex("/a").timeout(None).acquire().await?;
    let tried = outer
        .run(async {
            let child = locks.clone();
            tokio::spawn(async move { child.mutex("/a").try_acquire().await.map(|guard| guard.is_some()) })
                .await
        })
        .await??;
    assert!(matches!(tried, Ok(false)), "{tried:?}");
    // Nor is a future beside the body.
    assert!(locks.mutex("/a").try_acquire().await?.is_none());
    outer.release().await?;
    Ok(())
}

pub(crate) async fn g10_siblings_wait_for_each_other(world: World) -> Outcome {
    let locks = world.locks().await?;
    let outer = locks.mutex("/outer").timeout(None).acquire().await?;
    let inside = std::cell::Cell::new(0);
    let child = async || {
        let guard = locks.mutex("/a").acquire().await?;
        guard
            .run(async {
                assert_eq!(inside.replace(1), 0, "two at a time");
                tokio::task::yield_now().await;
                inside.set(0);
            })
            .await?;
        guard.release().await
    };
    // Two branches of one body: neither is in the lock of the other, and waiting is no deadlock.
    let both = outer.run(async { tokio::join!(child(), child()) });
    let (one, other) = soon("both branches", both).await?;
    one?;
    other?;
    outer.release().await?;
    Ok(())
}

/// Takes `first`, waits until all have theirs, then asks for `second`.
async fn in_turn(locks: Locks, barrier: Arc<Barrier>, first: String, second: String) -> Result<(), Error> {
    let guard = locks.mutex(first.as_str()).timeout(None).acquire().await?;
    barrier.wait().await;
    let result = guard.run(async { locks.mutex(second.as_str()).acquire().await.map(drop) }).await;
    guard.release().await?;
    result?
}

async fn circle(locks: &Locks, length: usize) -> Outcome {
    for _ in 0..20 {
        let barrier = Arc::new(Barrier::new(length));
        let mut tasks = Vec::new();
        for number in 0..length {
            let (first, second) = (format!("/{number}"), format!("/{}", (number + 1) % length));
            tasks.push(tokio::spawn(in_turn(locks.clone(), barrier.clone(), first, second)));
        }
        let mut deadlocks = 0;
        for task in tasks {
            match soon("not a silent stall", task).await? {
                Ok(()) => {}
                Err(Error::Deadlock { cycle, path }) => {
                    assert_eq!(cycle.len(), length, "{cycle:?}");
                    assert_eq!(cycle[0], path);
                    deadlocks += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
        assert_eq!(deadlocks, 1, "one refusal breaks the circle");
    }
    Ok(())
}

pub(crate) async fn g10_opposite_orders_do_not_stall(world: World) -> Outcome {
    circle(&world.locks().await?, 2).await
}

pub(crate) async fn g10_a_circle_of_three_does_not_stall(world: World) -> Outcome {
    circle(&world.locks().await?, 3).await
}

pub(crate) async fn g10_a_try_never_deadlocks(world: World) -> Outcome {
    let locks = world.locks().await?;
    let a = locks.mutex("/a").timeout(None).acquire().await?;
    let b = locks.mutex("/b").timeout(None).acquire().await?;
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move {
            let under: Result<Guard, Error> = b.run(async { locks.mutex("/a").acquire().await }).await?;
            under.map(drop)
        }
    });
    queued(&locks, "/a", 2).await?;
    // It does not wait, so it closes no circle: the lock is just not free.
    let tried = a.run(async { locks.mutex("/b").try_acquire().await.map(|guard| guard.is_some()) }).await?;
    assert!(matches!(tried, Ok(false)), "{tried:?}");
    a.release().await?;
    soon("the other one", waiting).await??;
    Ok(())
}

pub(crate) async fn g10_entering_again_as_another_kind_is_wrong(world: World) -> Outcome {
    let locks = world.locks().await?;
    for fair in [true, false] {
        let outer = locks.mutex("/a").fair(fair).timeout(None).acquire().await?;
        let result = outer.run(async { locks.mutex("/a").fair(!fair).acquire().await.map(drop) }).await?;
        assert!(matches!(result, Err(Error::WrongKind { .. })), "{result:?}");
        assert!(outer.is_held());
        outer.release().await?;
    }
    Ok(())
}
