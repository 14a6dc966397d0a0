//! The moment at which a lock goes from one who is cut off to the next.

use std::{
    thread,
    time::{Duration, Instant},
};

use tokio::task::{JoinSet, LocalSet};
use zklock::LostReason;
use zklock_testkit::{Direction, Proxy, ZooKeeper};

use crate::support::{Outcome, Random, chroot, patient, queued, soon};

/// Several pairs of processes, each at an edge of its own: the first is cut off from the server, one way or both, and
/// the second waits. By one clock, the first must have stopped to say that it holds before the second does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g01_who_is_cut_off_lets_go_before_the_next_one_holds() -> Outcome {
    let mut random = Random::new();
    let (mut pairs, here) = (JoinSet::new(), LocalSet::new());
    for direction in [Direction::Both, Direction::ToServer, Direction::ToClient] {
        for fair in [true, false] {
            let cut_after = Duration::from_millis(random.below(500));
            pairs.spawn_local_on(pair(direction, fair, cut_after), &here);
        }
    }
    here.run_until(async {
        while let Some(pair) = soon("a pair", pairs.join_next()).await {
            pair??;
        }
        Ok(())
    })
    .await
}

async fn pair(direction: Direction, fair: bool, cut_after: Duration) -> Outcome {
    const SESSION: Duration = Duration::from_secs(4);
    let case = format!("{direction:?}, fair: {fair}, cut after {cut_after:?}");
    let server = ZooKeeper::shared().await?.connect_string();
    let (chroot, proxies) = (chroot().await?, [Proxy::start(server).await?, Proxy::start(server).await?]);
    let url = |proxy: &Proxy| chroot.via(proxy.addr()).url();
    let first = patient(&url(&proxies[0])).session_timeout(SESSION).connect().await?;
    let second = patient(&url(&proxies[1])).connect().await?;
    let guard = first.mutex("/edge").fair(fair).acquire().await?;
    let waiting = {
        let lock = second.mutex("/edge").fair(fair);
        tokio::spawn(async move { lock.acquire().await.map(|guard| (Instant::now(), guard)) })
    };
    // Not everybody who waits for an unfair lock has a node.
    if fair {
        queued(&second, "/edge", 2).await?;
    }
    // At any point between two heartbeats.
    tokio::time::sleep(cut_after).await;
    let cut = Instant::now();
    proxies[0].black_hole(direction);
    let watched = thread::spawn(move || {
        loop {
            let asked = Instant::now();
            if !guard.is_held() {
                return (asked, guard);
            }
            thread::sleep(Duration::from_micros(500));
        }
    });
    let (watched, granted) = tokio::join!(
        tokio::task::spawn_blocking(move || watched.join()),
        soon("the lock of the one who is cut off", waiting)
    );
    let (last_held, lost) = watched?.map_err(|_| "the watch panicked")?;
    let (granted_at, granted) = granted??;
    assert!(last_held < granted_at, "{case}: held until {:?} after the grant", last_held - granted_at);
    assert!(granted.is_held() && !lost.is_held(), "{case}");
    assert_eq!(soon("the reason", lost.lost()).await, LostReason::Unconfirmed, "{case}");
    assert!(granted.fencing_token() > lost.fencing_token(), "{case}");
    // Within the session timeout, with its margin, of the last heartbeat that was answered.
    assert!(last_held - cut < SESSION, "{case}: held for {:?}", last_held - cut);
    proxies[0].heal()?;
    soon("the late release", lost.release()).await.expect_err("it was lost");
    assert!(granted.is_held(), "{case}: the late one has released what is not its own");
    granted.release().await?;
    queued(&second, "/edge", 0).await
}
