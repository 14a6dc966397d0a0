//! The end of the sequence: a real server whose counter stands just before 2147483647, put there by a change to its
//! transaction log.

use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use zklock_testkit::ZooKeeper as Server;

use super::{
    super::nodes,
    support::{Peer, SOON, fair, release, until, within},
};
use crate::{error::Error, hold::Hold};

#[tokio::test]
async fn order_holds_where_the_servers_counter_ends() {
    let server = Server::start().await.unwrap();
    server.create_node("/a", b"").await.unwrap();
    server.create_node("/a/config", b"").await.unwrap();
    let data = data_of(&server).await;
    server.kill().unwrap();
    let first = i32::MAX - 4;
    set_counter(&data, "/a/config", first);
    server.restart().await.unwrap();

    let peers = [Peer::connect(&server.url(), "a").await, Peer::connect(&server.url(), "b").await];
    let contenders = async || {
        let mut names = server.children("/a").await.unwrap();
        names.retain(|name| nodes::sequence(name).is_some());
        names
    };
    let mut hold = peers[0].lock("/a").await;
    let mut sequences = vec![nodes::sequence(&contenders().await[0]).unwrap()];
    assert_eq!(sequences[0], first);
    let mut waiting = VecDeque::new();
    for round in 0..16 {
        let before = contenders().await;
        waiting.push_back(peers[round % 2].start(fair("/a", 3 * SOON)));
        until("one more is queued", async || contenders().await.len() > before.len()).await;
        let after = contenders().await;
        let new = after.into_iter().find(|name| !before.contains(name)).unwrap();
        sequences.push(nodes::sequence(&new).unwrap());
        // A queue of some length all the time, so that the wrap is in its midst.
        if waiting.len() > 4 {
            hold = pass_on(hold, &mut waiting).await;
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

/// Where the server keeps its data, by its own account.
async fn data_of(server: &Server) -> PathBuf {
    let conf = server.word("conf").await.unwrap();
    let line = conf.lines().find_map(|line| line.strip_prefix("dataDir=")).unwrap();
    // It names the folder of the current format, or the one above.
    let data = PathBuf::from(line.trim());
    if data.ends_with("version-2") { data } else { data.join("version-2") }
}

/// Changes the transaction that created `path`, so that its parent's count of children ever made is `counter`.
fn set_counter(data: &Path, path: &str, counter: i32) {
    let mut changed = 0;
    for file in fs::read_dir(data).unwrap().flatten() {
        if file.file_name().to_string_lossy().starts_with("log.") {
            let mut log = fs::read(file.path()).unwrap();
            changed += change(&mut log, path, counter);
            fs::write(file.path(), log).unwrap();
        }
    }
    assert_eq!(changed, 1);
}

/// `FileTxnLog.java`: a head of 16 bytes, then of each transaction the checksum, the length, the bytes, and a `B`.
fn change(log: &mut [u8], path: &str, counter: i32) -> usize {
    let mut changed = 0;
    let mut at = 16;
    while let Some(head) = log.get(at..at + 12) {
        let length = u32::from_be_bytes(head[8..].try_into().unwrap()) as usize;
        if length == 0 {
            break;
        }
        let entry = &mut log[at + 12..at + 12 + length];
        if let Some(place) = counter_of(entry, path) {
            entry[place..place + 4].copy_from_slice(&counter.to_be_bytes());
            let sum = u64::from(adler32(entry));
            log[at..at + 8].copy_from_slice(&sum.to_be_bytes());
            changed += 1;
        }
        at += 12 + length + 1;
    }
    changed
}

/// Where the count stands in a `CreateTxn` for `path`: after path, data, access list and the ephemeral flag.
fn counter_of(entry: &[u8], path: &str) -> Option<usize> {
    let int = |at: usize| Some(i32::from_be_bytes(entry.get(at..at + 4)?.try_into().ok()?));
    let skip = |at: usize| Some(at + 4 + usize::try_from(int(at)?.max(0)).ok()?);
    // The transaction's own head: session, count, zxid, time, kind.
    let kind = int(28)?;
    let body = 32;
    if !matches!(kind, 1 | 15) || entry.get(body + 4..skip(body)?)? != path.as_bytes() {
        return None;
    }
    let data = skip(body)?;
    let list = skip(data)?;
    let mut at = list + 4;
    for _ in 0..int(list)? {
        at = skip(skip(at + 4)?)?;
    }
    Some(at + 1)
}

fn adler32(bytes: &[u8]) -> u32 {
    let (mut a, mut b) = (1_u32, 0_u32);
    for &byte in bytes {
        a = (a + u32::from(byte)) % 65521;
        b = (b + a) % 65521;
    }
    (b << 16) | a
}
