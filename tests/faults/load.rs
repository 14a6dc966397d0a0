//! Many at a time.

use std::{sync::Arc, time::Duration};

use tokio::task::JoinSet;
use zklock_testkit::ZooKeeper;

use crate::support::{Outcome, Register, chroot, patient, queued, soon, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g09_a_thousand_waiters_of_one_path_are_all_served() -> Outcome {
    const EACH: usize = 500;
    let chroot = chroot().await?;
    let zookeeper = ZooKeeper::shared().await?;
    let locks = [patient(&chroot.url()).connect().await?, patient(&chroot.url()).connect().await?];
    let register = Arc::new(Register::default());
    let first = locks[0].mutex("/busy").acquire().await?;
    let mut waiters = JoinSet::new();
    for _ in 0..EACH {
        for locks in &locks {
            let (lock, register) = (locks.mutex("/busy"), register.clone());
            waiters.spawn(async move {
                let guard = lock.acquire().await?;
                register.increment(&guard).await;
                guard.release().await
            });
        }
    }
    let directory = format!("{}/busy", chroot.path());
    until("all to stand in the queue", async || {
        zookeeper.children(&directory).await.is_ok_and(|names| names.len() == 2 * EACH + 1)
    })
    .await?;
    first.release().await?;
    for number in 0..2 * EACH {
        let served = soon(&format!("waiter {number}"), waiters.join_next()).await;
        served.ok_or("one for each")???;
    }
    assert_eq!(register.value(), 2 * EACH as u64);
    for locks in &locks {
        queued(locks, "/busy", 0).await?;
        let snapshot = locks.snapshot();
        assert!(snapshot.held.is_empty() && snapshot.waiting.is_empty(), "{snapshot:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g08_ten_thousand_paths_in_one_session_leave_nothing() -> Outcome {
    const PATHS: usize = 10_000;
    let chroot = chroot().await?;
    let zookeeper = ZooKeeper::shared().await?;
    // A busy machine is not what this is about.
    let connect = async || patient(&chroot.url()).session_timeout(Duration::from_mins(1)).connect().await;
    let [locks, other] = [connect().await?, connect().await?];
    let mut grants = JoinSet::new();
    for number in 0..PATHS {
        let path = format!("/wide/{number}");
        // Every tenth is an unfair one.
        grants.spawn(locks.mutex(path.as_str()).fair(number % 10 != 0).acquire());
    }
    let mut guards = Vec::new();
    while let Some(guard) = soon("a grant", grants.join_next()).await {
        guards.push(guard??);
    }
    assert_eq!(locks.snapshot().held.len(), PATHS);
    let directory = format!("{}/wide/", chroot.path());
    assert_eq!(contenders(zookeeper, &directory).await?, PATHS);
    let mut tokens: Vec<_> = guards.iter().map(zklock::Guard::fencing_token).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), PATHS, "no two grants have one token");
    for number in (0..PATHS).step_by(97) {
        let path = format!("/wide/{number}");
        // A single try gives the server a second to answer, which is too little with so much to do.
        until("it to be told as busy", async || {
            match other.mutex(path.as_str()).fair(number % 10 != 0).try_acquire().await {
                Ok(granted) => granted.is_none_or(|guard| panic!("two holders: {guard:?}")),
                Err(_) => false,
            }
        })
        .await?;
    }
    assert!(guards.iter().all(zklock::Guard::is_held));
    let mut releases = JoinSet::new();
    for guard in guards {
        releases.spawn(guard.release());
    }
    while let Some(release) = soon("a release", releases.join_next()).await {
        release??;
    }
    assert!(locks.snapshot().held.is_empty());
    until("no contender to be left", async || {
        contenders(zookeeper, &directory).await.is_ok_and(|left| left == 0)
    })
    .await
}

/// How many ephemeral nodes there are below a directory, of all sessions.
async fn contenders(zookeeper: &ZooKeeper, directory: &str) -> Outcome<usize> {
    let sessions = zookeeper.word("dump").await?;
    Ok(sessions.lines().filter(|line| line.trim().starts_with(directory)).count())
}
