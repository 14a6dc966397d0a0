//! What the server has to tell whom: only it can say, so there is no counterpart in memory.

use std::collections::HashMap;

use zklock_testkit::ZooKeeper;

use crate::support::{Outcome, World, queued, soon, until};

/// The sessions that watch each node below the chroot.
async fn watchers(chroot: &str) -> Outcome<HashMap<String, usize>> {
    let answer = ZooKeeper::shared().await?.word("wchp").await?;
    let mut watchers = HashMap::new();
    let mut node = None;
    for line in answer.lines() {
        if line.starts_with('/') {
            node = Some(line).filter(|node| node.starts_with(chroot));
        } else if let Some(node) = node {
            *watchers.entry(node.to_owned()).or_default() += usize::from(line.trim().starts_with("0x"));
        }
    }
    Ok(watchers)
}

/// A release is told to the next in line, who has the lock then, and to the one behind it, who then sees that it is
/// next; to nobody else, however many wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g09_a_release_is_told_to_two_at_most() -> Outcome {
    const WAITERS: usize = 12;
    let world = World::zookeeper().await?;
    let chroot = world.chroot().ok_or("it has one")?.path().to_owned();
    let handles = world.handles(4).await?;
    let mut last = handles[0].mutex("/a").timeout(None).acquire().await?;
    let mut waiters = Vec::new();
    for number in 0..WAITERS {
        let lock = handles[(number + 1) % 4].mutex("/a").timeout(None);
        waiters.push(tokio::spawn(lock.acquire()));
        queued(&handles[0], "/a", number + 2).await?;
    }
    for left in (0..WAITERS).rev() {
        // The waiters, without the holder: each has its own node to watch, and all but a few have one.
        let mut seen = HashMap::new();
        let watched = until("one watch a waiter", async || {
            seen = watchers(&chroot).await.unwrap_or_default();
            seen.keys().filter(|node| node.contains("-lock-")).count() > left
        });
        watched.await.map_err(|error| format!("{error}: {left} of {seen:?}"))?;
        // Those two, and whose node it is.
        assert!(seen.values().all(|sessions| *sessions <= 3), "a herd at {left}: {seen:?}");
        let next = waiters.remove(0);
        last.release().await?;
        last = soon("the next turn", next).await??;
    }
    last.release().await?;
    Ok(())
}

/// Of the waiters of one process for an unfair lock, one speaks for all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfair_waiters_of_one_process_watch_once() -> Outcome {
    let world = World::zookeeper().await?;
    let chroot = world.chroot().ok_or("it has one")?.path().to_owned();
    let [holder, other] = [world.locks().await?, world.locks().await?];
    let guard = holder.mutex("/a").fair(false).timeout(None).acquire().await?;
    let mut waiters = Vec::new();
    for _ in 0..10 {
        let lock = other.mutex("/a").fair(false).timeout(None);
        waiters.push(tokio::spawn(async move { lock.acquire().await?.release().await }));
    }
    until("ten waiters", async || other.snapshot().waiting.len() == 10).await?;
    until("a watch", async || watchers(&chroot).await.is_ok_and(|seen| !seen.is_empty())).await?;
    let seen = watchers(&chroot).await?;
    // The holder watches its own node, once it has had it for a while.
    assert!(seen.values().sum::<usize>() <= 2, "{seen:?}");
    guard.release().await?;
    for waiter in waiters {
        soon("a turn", waiter).await??;
    }
    Ok(())
}
