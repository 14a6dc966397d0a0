use std::{sync::Arc, time::Duration};

use zklock::Error;

use crate::support::{Outcome, Register, World, queued, soon};

pub(crate) async fn g03_a_free_lock_is_granted(world: World) -> Outcome {
    let locks = world.locks().await?;
    let guard = soon("a free lock", locks.mutex("/orders/42").acquire()).await?;
    assert!(guard.is_held());
    guard.check()?;
    assert_eq!(guard.path().as_str(), "/orders/42");
    guard.release().await?;
    let guard = locks.mutex("/orders/42").try_acquire().await?.expect("free again");
    guard.release().await?;
    Ok(())
}

pub(crate) async fn g03_a_held_lock_is_busy_when_the_wait_is_over(world: World) -> Outcome {
    let [holder, other] = [world.locks().await?, world.locks().await?];
    let guard = holder.mutex("/a").timeout(None).function("pay").acquire().await?;
    let wait = Duration::from_millis(60);
    let error = other.mutex("/a").wait(wait).acquire().await.expect_err("it is held");
    let Error::Busy { path, waited, holder } = &error else { panic!("{error:?}") };
    assert_eq!(path.as_str(), "/a");
    assert!(*waited >= wait, "gave up after {waited:?}");
    let holder = holder.as_deref().unwrap_or_default();
    assert!(holder.contains("a tester") && holder.contains("pay"), "{error}");
    assert!(error.is_retryable());
    assert!(guard.is_held());
    queued(&other, "/a", 1).await
}

pub(crate) async fn g03_a_try_on_a_held_lock_gives_none_and_leaves_no_contender(world: World) -> Outcome {
    let [holder, other] = [world.locks().await?, world.locks().await?];
    for fair in [true, false] {
        let guard = holder.mutex("/a").fair(fair).timeout(None).acquire().await?;
        for _ in 0..20 {
            assert!(other.mutex("/a").fair(fair).try_acquire().await?.is_none());
            assert!(holder.mutex("/a").fair(fair).try_acquire().await?.is_none());
        }
        queued(&other, "/a", 1).await?;
        guard.release().await?;
        let guard = other.mutex("/a").fair(fair).try_acquire().await?.expect("free again");
        guard.release().await?;
        queued(&holder, "/a", 0).await?;
    }
    Ok(())
}

pub(crate) async fn g03_a_waiter_is_granted_what_is_freed(world: World) -> Outcome {
    let [holder, other] = [world.locks().await?, world.locks().await?];
    for fair in [true, false] {
        let guard = holder.mutex("/a").fair(fair).acquire().await?;
        let waiter = tokio::spawn({
            let other = other.clone();
            async move { other.mutex("/a").fair(fair).acquire().await }
        });
        soon("a waiter", async {
            while other.snapshot().waiting.is_empty() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert!(!waiter.is_finished());
        guard.release().await?;
        let guard = soon("the grant", waiter).await??;
        assert!(guard.is_held());
        guard.release().await?;
    }
    Ok(())
}

pub(crate) async fn g13_the_wait_is_bounded_for_every_waiter(world: World) -> Outcome {
    let handles = world.handles(2).await?;
    let guard = handles[0].mutex("/a").timeout(None).acquire().await?;
    let mut waiters = Vec::new();
    for number in 0..10_u64 {
        let lock =
            handles[usize::try_from(number % 2)?].mutex("/a").wait(Duration::from_millis(20 + 10 * number));
        waiters.push(tokio::spawn(async move { lock.acquire().await.map(drop) }));
    }
    for waiter in waiters {
        let result = soon("the end of a wait", waiter).await?;
        assert!(matches!(result, Err(Error::Busy { .. })), "{result:?}");
    }
    queued(&handles[1], "/a", 1).await?;
    guard.release().await?;
    Ok(())
}

pub(crate) async fn different_paths_do_not_wait_for_each_other(world: World) -> Outcome {
    let locks = world.locks().await?;
    let mut guards = Vec::new();
    for number in 0..50 {
        let path = format!("/orders/{number}");
        guards.push(locks.mutex(path.as_str()).try_acquire().await?.expect("free"));
    }
    assert!(guards.iter().all(zklock::Guard::is_held));
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

pub(crate) async fn g01_one_holder_at_a_time_fair(world: World) -> Outcome {
    one_holder_at_a_time(world, true).await
}

pub(crate) async fn g01_one_holder_at_a_time_unfair(world: World) -> Outcome {
    one_holder_at_a_time(world, false).await
}

async fn one_holder_at_a_time(world: World, fair: bool) -> Outcome {
    const TASKS: usize = 9;
    const ROUNDS: usize = 20;
    let register = Arc::new(Register::default());
    let handles = world.handles(3).await?;
    let mut tasks = Vec::new();
    for number in 0..TASKS {
        let (locks, register) = (handles[number % 3].clone(), register.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let guard = locks.mutex("/a").fair(fair).timeout(None).acquire().await?;
                register.increment(&guard).await;
                guard.release().await?;
            }
            Ok::<_, Error>(())
        }));
    }
    for task in tasks {
        soon("all rounds of a task", task).await??;
    }
    assert_eq!(register.value(), (TASKS * ROUNDS) as u64);
    queued(&handles[0], "/a", 0).await
}
