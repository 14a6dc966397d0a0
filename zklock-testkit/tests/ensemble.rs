//! An ensemble votes, loses members and links, and recovers.

use std::time::Duration;

use zklock_testkit::{Direction, Ensemble, Error, Mode, wait_until};

const ENOUGH: Duration = Duration::from_mins(1);
const A_WHILE: Duration = Duration::from_millis(300);

#[tokio::test]
async fn the_majority_goes_on_when_the_leader_is_killed() -> Result<(), Error> {
    let ensemble = Ensemble::start(3).await?;
    let leader = ensemble.leader().await?;
    assert_eq!(ensemble.followers().await?.len(), 2);
    let chroot = ensemble.chroot("mine").await?;

    ensemble.member(leader).kill()?;
    let next = ensemble.leader().await?;
    assert_ne!(next, leader);
    ensemble.member(next).create_node(&format!("{}/after", chroot.path()), b"").await?;

    // It comes back, as a follower, and catches up.
    ensemble.member(leader).restart().await?;
    wait_until(ENOUGH, "the old leader to catch up", async || {
        ensemble.member(leader).children(chroot.path()).await.is_ok_and(|names| names == ["after"])
    })
    .await?;
    assert_eq!(ensemble.member(leader).mode().await?, Mode::Follower);
    Ok(())
}

/// What the validity of a lock must not rest on.
#[tokio::test]
async fn a_follower_cut_off_from_its_leader_answers_reads_for_a_while() -> Result<(), Error> {
    let ensemble = Ensemble::start(3).await?;
    let (leader, followers) = (ensemble.leader().await?, ensemble.followers().await?);
    let (lagging, other) = (ensemble.member(followers[0]), ensemble.member(followers[1]));
    ensemble.member(leader).create_node("/seen", b"old").await?;
    wait_until(ENOUGH, "the follower to have it", async || node_count(lagging).await == Some(6)).await?;

    ensemble.link(leader, followers[0]).black_hole(Direction::Both);
    ensemble.member(leader).create_node("/not-seen", b"").await?;
    assert!(other.node("/not-seen").await?.is_some());
    // Reads of its own tree; a session could not be made, since that is a write.
    assert_eq!(node_count(lagging).await, Some(6));

    wait_until(ENOUGH, "it to give up", async || lagging.mode().await.is_err()).await?;
    ensemble.heal()?;
    wait_until(ENOUGH, "it to catch up", async || node_count(lagging).await == Some(7)).await
}

#[tokio::test]
async fn a_follower_lags_when_its_link_is_slow() -> Result<(), Error> {
    let ensemble = Ensemble::start(3).await?;
    let (leader, followers) = (ensemble.leader().await?, ensemble.followers().await?);
    let lagging = ensemble.member(followers[0]);
    wait_until(ENOUGH, "the follower to be up to date", async || node_count(lagging).await == Some(5))
        .await?;
    ensemble.link(leader, followers[0]).delay(A_WHILE * 2, Direction::ToServer);
    ensemble.member(leader).create_node("/late", b"").await?;
    assert_eq!(node_count(lagging).await, Some(5));
    wait_until(ENOUGH, "it to arrive", async || node_count(lagging).await == Some(6)).await?;
    assert_eq!(lagging.mode().await?, Mode::Follower, "slow is not lost");
    Ok(())
}

#[tokio::test]
async fn an_isolated_leader_is_replaced_and_comes_back() -> Result<(), Error> {
    let ensemble = Ensemble::start(3).await?;
    let leader = ensemble.leader().await?;
    ensemble.isolate(leader);
    wait_until(ENOUGH, "the others to choose", async || {
        ensemble.leader().await.is_ok_and(|next| next != leader)
    })
    .await?;
    wait_until(ENOUGH, "the old one to give up", async || ensemble.member(leader).mode().await.is_err())
        .await?;
    ensemble.heal()?;
    ensemble.wait_until_serving().await?;
    assert_eq!(ensemble.member(leader).mode().await?, Mode::Follower);
    Ok(())
}

/// Votes must not find a way past the proxies, not even over connections from before: the others
/// would choose the one with the highest number, which they can not follow, again and again.
#[tokio::test]
async fn an_isolated_member_takes_no_part_in_an_election() -> Result<(), Error> {
    const FAVOURITE: usize = 2;

    let ensemble = Ensemble::start(3).await?;
    let first = ensemble.leader().await?;
    if first != FAVOURITE {
        ensemble.member(first).kill()?;
        assert_eq!(ensemble.leader().await?, FAVOURITE);
        ensemble.member(first).restart().await?;
    }
    ensemble.isolate(FAVOURITE);
    let replaced = wait_until(Duration::from_secs(15), "the others to choose", async || {
        ensemble.leader().await.is_ok_and(|next| next < FAVOURITE)
    });
    replaced.await?;
    for member in [0, 1] {
        ensemble.member(member).wait_until_serving().await?;
    }
    ensemble.heal()?;
    ensemble.wait_until_serving().await
}

#[tokio::test]
async fn clients_are_cut_off_one_member_at_a_time() -> Result<(), Error> {
    let ensemble = Ensemble::start(3).await?;
    assert!(ensemble.url().starts_with("zk://127.0.0.1:"));
    assert_eq!(ensemble.connect_string().split(',').count(), 3);
    ensemble.proxy(0).refuse();
    assert!(tokio::net::TcpStream::connect(ensemble.proxy(0).addr()).await.is_err());
    tokio::net::TcpStream::connect(ensemble.proxy(1).addr()).await.expect("the others accept");
    ensemble.heal()?;
    tokio::net::TcpStream::connect(ensemble.proxy(0).addr()).await.expect("it accepts again");
    Ok(())
}

/// How many nodes a member knows, which it tells without a session.
async fn node_count(member: &zklock_testkit::ZooKeeper) -> Option<u64> {
    member.metric("zk_znode_count").await.ok()
}

/// A client that may go from one to the other notices no more than that.
#[tokio::test]
async fn a_rolling_restart_forgets_nothing_and_a_wipe_all() -> Result<(), Error> {
    let ensemble = Ensemble::start(3).await?;
    let before: Vec<_> = (0..3).map(|member| ensemble.member(member).process_id()).collect();
    ensemble.member(0).create_node("/kept", b"").await?;
    ensemble.restart_rolling([2, 0, 1]).await?;
    for (member, before) in before.into_iter().enumerate() {
        assert_ne!(ensemble.member(member).process_id(), before);
        wait_until(ENOUGH, "the member to catch up", async || {
            ensemble.member(member).node("/kept").await.is_ok_and(|node| node.is_some())
        })
        .await?;
    }
    ensemble.wipe().await?;
    assert_eq!(ensemble.followers().await?.len(), 2);
    for member in 0..3 {
        assert_eq!(ensemble.member(member).node("/kept").await?, None);
    }
    Ok(())
}
