//! The end of the sequence: a real server whose counter stands just before 2147483647, put there by a change to its
//! transaction log.

use std::{collections::VecDeque, sync::Arc};

use zklock_testkit::ZooKeeper as Server;

use super::{
    super::nodes,
    support::{Peer, SOON, fair, release, until, within},
};
use crate::{backend::Backend, error::Error, hold::Hold, path::LockPath};

#[tokio::test]
async fn order_holds_where_the_servers_counter_ends() {
    let server = Server::start().await.unwrap();
    server.create_node("/a", b"").await.unwrap();
    server.create_node("/a/config", b"").await.unwrap();
    server.kill().unwrap();
    let first = i32::MAX - 4;
    server.set_child_counter("/a/config", first).unwrap();
    server.restart().await.unwrap();

    let peers = [Peer::connect(&server.url(), "a").await, Peer::connect(&server.url(), "b").await];
    let contenders = async || {
        let mut names = server.children("/a").await.unwrap();
        names.retain(|name| nodes::sequence(name).is_some());
        names
    };
    let mut hold = peers[0].lock("/a").await;
    let mut queue: VecDeque<_> = contenders().await.into();
    let mut sequences = vec![nodes::sequence(&queue[0]).unwrap()];
    assert_eq!(sequences[0], first);
    let mut waiting = VecDeque::new();
    for round in 0..16 {
        let before = contenders().await;
        waiting.push_back(peers[round % 2].start(fair("/a", 3 * SOON)));
        until("one more is queued", async || contenders().await.len() > before.len()).await;
        let after = contenders().await;
        let new = after.into_iter().find(|name| !before.contains(name)).unwrap();
        sequences.push(nodes::sequence(&new).unwrap());
        queue.push_back(new);
        // Operators are shown the queue as it is, too.
        let shown = peers[0].inspect(&LockPath::new("/a").unwrap()).await.unwrap();
        assert_eq!(
            shown.iter().map(|entry| &entry.name).collect::<Vec<_>>(),
            queue.iter().collect::<Vec<_>>()
        );
        assert!(shown.iter().enumerate().all(|(place, entry)| entry.is_holder == (place == 0)));
        // A queue of some length all the time, so that the wrap is in its midst.
        if waiting.len() > 4 {
            hold = pass_on(hold, &mut waiting).await;
            queue.pop_front();
        }
    }
    while !waiting.is_empty() {
        hold = pass_on(hold, &mut waiting).await;
    }
    release(hold).await;
    // What makes it hard: the counter does not go on, or goes back and forth.
    assert!(
        sequences.iter().filter(|&&sequence| sequence == i32::MAX || sequence < 0).count() > 8,
        "{sequences:?}"
    );
    println!("sequences: {sequences:?}");
}

type Waiting = tokio::task::JoinHandle<Result<Arc<Hold>, Error>>;

/// Only the first in line may get it.
async fn pass_on(hold: Arc<Hold>, waiting: &mut VecDeque<Waiting>) -> Arc<Hold> {
    assert!(hold.is_held() && waiting.iter().all(|waiter| !waiter.is_finished()), "two holders");
    release(hold).await;
    let next = within(SOON, waiting.pop_front().unwrap()).await.unwrap().unwrap();
    assert!(waiting.iter().all(|waiter| !waiter.is_finished()), "two holders");
    next
}
