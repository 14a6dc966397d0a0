use std::time::{Duration, Instant};

use zklock::Error;

use crate::support::{Outcome, World, queued, soon, until};

pub(crate) async fn unfair_locks_exclude_and_hand_over(world: World) -> Outcome {
    let [one, other] = [world.locks().await?, world.locks().await?];
    let guard = one.mutex("/a").fair(false).timeout(None).acquire().await?;
    assert!(other.mutex("/a").fair(false).try_acquire().await?.is_none());
    let waiting = tokio::spawn({
        let lock = other.mutex("/a").fair(false).timeout(None);
        async move { lock.acquire().await }
    });
    until("a waiter", async || !other.snapshot().waiting.is_empty()).await?;
    guard.release().await?;
    let guard = soon("the hand-over", waiting).await??;
    assert!(one.mutex("/a").fair(false).try_acquire().await?.is_none());
    guard.release().await?;
    queued(&one, "/a", 0).await
}

pub(crate) async fn unfair_waiters_all_get_it_in_the_end(world: World) -> Outcome {
    let handles = world.handles(3).await?;
    let guard = handles[0].mutex("/a").fair(false).timeout(None).acquire().await?;
    let mut waiters = Vec::new();
    for number in 0..12 {
        let lock = handles[number % 3].mutex("/a").fair(false).timeout(None);
        waiters.push(tokio::spawn(async move { lock.acquire().await?.release().await }));
    }
    guard.release().await?;
    for waiter in waiters {
        soon("a turn", waiter).await??;
    }
    queued(&handles[0], "/a", 0).await
}

pub(crate) async fn unfair_waiters_may_be_cancelled(world: World) -> Outcome {
    let handles = world.handles(2).await?;
    let guard = handles[0].mutex("/a").fair(false).timeout(None).acquire().await?;
    let mut waiters = Vec::new();
    for number in 0..8 {
        let lock = handles[number % 2].mutex("/a").fair(false).timeout(None);
        waiters.push(tokio::spawn(async move { lock.acquire().await?.release().await }));
    }
    let counted = || handles.iter().map(|locks| locks.snapshot().waiting.len()).max().unwrap_or_default();
    until("waiters", async || counted() >= 4).await?;
    for cancelled in [0, 1, 4, 7] {
        waiters[cancelled].abort();
    }
    guard.release().await?;
    for waiter in waiters {
        match soon("an end", waiter).await {
            Ok(done) => done?,
            Err(error) => assert!(error.is_cancelled(), "{error}"),
        }
    }
    queued(&handles[1], "/a", 0).await
}

pub(crate) async fn an_unfair_try_does_not_wait_for_the_waiters_beside_it(world: World) -> Outcome {
    const TRIES: u32 = 10;
    let [holder, other] = [world.locks().await?, world.locks().await?];
    let guard = holder.mutex("/a").fair(false).timeout(None).acquire().await?;
    let waiter = tokio::spawn({
        let lock = other.mutex("/a").fair(false).timeout(None);
        async move { lock.acquire().await?.release().await }
    });
    until("a waiter", async || !other.snapshot().waiting.is_empty()).await?;
    // On the same handle as the waiter. Answers to be had at once, however slow the machine, do not take half a second
    // each.
    let start = Instant::now();
    for _ in 0..TRIES {
        assert!(soon("a try", other.mutex("/a").fair(false).try_acquire()).await?.is_none());
    }
    assert!(start.elapsed() < TRIES * Duration::from_millis(500), "{TRIES} tries took {:?}", start.elapsed());
    guard.release().await?;
    soon("a turn", waiter).await??;
    Ok(())
}

pub(crate) async fn fair_and_unfair_do_not_mix_on_one_path(world: World) -> Outcome {
    let [one, other] = [world.locks().await?, world.locks().await?];
    for fair in [true, false] {
        let guard = one.mutex("/a").fair(fair).timeout(None).acquire().await?;
        for locks in [&one, &other] {
            let wrong = soon("a refusal", locks.mutex("/a").fair(!fair).acquire()).await.map(drop);
            let Err(error @ Error::WrongKind { .. }) = &wrong else { panic!("{wrong:?}") };
            assert!(error.to_string().contains("\"/a\""), "{error}");
            let wrong = locks.mutex("/a").fair(!fair).try_acquire().await.map(drop);
            assert!(matches!(wrong, Err(Error::WrongKind { .. })), "{wrong:?}");
        }
        assert!(guard.is_held());
        queued(&other, "/a", 1).await?;
        guard.release().await?;
    }
    Ok(())
}

pub(crate) async fn a_path_may_change_its_kind_when_it_is_free(world: World) -> Outcome {
    let handles = world.handles(2).await?;
    for round in 0..6 {
        let lock = handles[round % 2].mutex("/a").fair(round % 3 == 0).wait(Duration::from_secs(5));
        soon("the other kind", lock.acquire()).await?.release().await?;
    }
    queued(&handles[0], "/a", 0).await
}
