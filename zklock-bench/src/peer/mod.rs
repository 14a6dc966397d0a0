//! A contestant as a process of its own: it does as it is told, line by line, until its input ends.

mod client_lock;
mod cycles;
mod etcd;
mod holds;
mod kept;
mod locker;
mod pool;
mod postgres;
mod queue;
mod raw;
mod redis;
mod zklock;
mod zookeeper;

use anyhow::{Context as _, bail};
use serde::Serialize;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, stdin, stdout};

use self::{kept::Keeper, locker::Locker, queue::Queue};
use crate::{
    contestant::Contestant,
    protocol::{Done, Failed, Order},
};

/// The first argument of a process that is a contestant; its name and the servers' address follow.
pub(crate) const WORD: &str = "peer";

/// `address` is that of the servers, with the contestant's own chroot where they are ZooKeeper's.
pub(crate) fn main(contestant: &str, address: &str) -> anyhow::Result<()> {
    // As a service may have it, and the same for all that are written in Rust.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let contestant = Contestant::ALL.into_iter().find(|known| known.word() == contestant);
        match contestant.context("no such contestant is in this program")? {
            Contestant::Raw => serve(raw::Raw::connect(address).await?).await,
            Contestant::Zklock => serve(zklock::Zklock::connect(address, true).await?).await,
            Contestant::ZklockUnfair => serve(zklock::Zklock::connect(address, false).await?).await,
            Contestant::ClientLock => serve(client_lock::ClientLock::connect(address).await?).await,
            Contestant::Redis => serve(redis::Redis::new(address)).await,
            Contestant::Etcd => serve(etcd::Etcd::new(address)).await,
            Contestant::PostgresAdvisory => serve(postgres::PostgresAdvisory::connect(address).await?).await,
            other => bail!("{other} is no process of this program"),
        }
    })
}

async fn serve<L: Locker>(locker: L) -> anyhow::Result<()> {
    say(&Done {}).await?;
    let mut peer = Peer { queue: Queue::default(), keeper: Keeper::default(), locker };
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let order = line.parse()?;
        if let Err(error) = peer.obey(order).await.with_context(|| line.clone()) {
            say(&Failed { error: format!("{error:#}") }).await?;
        }
    }
    peer.locker.close().await;
    Ok(())
}

struct Peer<L: Locker> {
    locker: L,
    queue: Queue<L>,
    keeper: Keeper<L>,
}

impl<L: Locker> Peer<L> {
    async fn obey(&mut self, order: Order) -> anyhow::Result<()> {
        match order {
            Order::Cycles { shape, tasks, millis } => {
                say(&cycles::run(&self.locker, shape, tasks, millis).await?).await
            }
            Order::Holds { tasks, hold_micros, start, stride, end } => {
                say(&holds::run(&self.locker, tasks, hold_micros, start, stride, end).await?).await
            }
            Order::Hold => say(&self.queue.hold(&self.locker).await?).await,
            Order::Release => say(&self.queue.release(&self.locker).await?).await,
            Order::Queue { tasks } => say(&self.queue.start(&self.locker, tasks).await?).await,
            Order::Drained => say(&self.queue.drained().await?).await,
            Order::Keep { locks } => say(&self.keeper.keep(&self.locker, locks).await?).await,
            Order::Unkeep => say(&self.keeper.give_back(&self.locker).await?).await,
        }
    }
}

async fn say(answer: &impl Serialize) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let mut out = stdout();
    out.write_all(&line).await?;
    Ok(out.flush().await?)
}
