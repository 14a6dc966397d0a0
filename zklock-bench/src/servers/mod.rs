mod side;
mod warm_up;

use std::fmt;

use anyhow::Context as _;
use zklock_testkit::{Chroot, Ensemble, ZooKeeper, ZooKeeperBuilder};

pub(crate) use self::side::SideServer;
use crate::contestant::Contestant;

/// What all contestants of a run are connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Setup {
    pub(crate) size: Size,
    /// Whether each transaction is forced to the disk before it is answered.
    pub(crate) fsync: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Size {
    One,
    Three,
}

impl Setup {
    /// That of the targets.
    pub(crate) const MAIN: Self = Self { size: Size::One, fsync: true };
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.size {
            Size::One => "one server",
            Size::Three => "ensemble of three",
        })?;
        f.write_str(if self.fsync { ", fsync" } else { ", no fsync" })
    }
}

/// How many seconds the servers are warmed up at most.
pub(crate) const WARM_UP: usize = 25;
/// The same where a setup stands beside that of the targets.
pub(crate) const BRIEF_WARM_UP: usize = 12;

/// The servers of one setup.
pub(crate) struct Servers {
    running: Running,
}

enum Running {
    One(ZooKeeper),
    Three(Ensemble),
}

impl Servers {
    pub(crate) async fn start(setup: Setup) -> anyhow::Result<Self> {
        let settings = as_in_production().fsync(setup.fsync);
        let running = match setup.size {
            Size::One => Running::One(settings.start().await?),
            Size::Three => Running::Three(Ensemble::start_with(3, &settings).await?),
        };
        Ok(Self { running })
    }

    /// A node of its own for a contestant, with the way to it: `host:port,host:port/chroot`.
    pub(crate) async fn chroot(&self, contestant: Contestant) -> anyhow::Result<String> {
        Ok(self.below(&contestant.word()).await?.to_string())
    }

    async fn below(&self, name: &str) -> anyhow::Result<Chroot> {
        let chroot = self.first().chroot(name).await?;
        let addresses: Vec<_> = self.members().map(ZooKeeper::connect_string).collect();
        Ok(chroot.via(addresses.join(",")))
    }

    /// Keeps them busy until they get no quicker, and says how many seconds that took.
    pub(crate) async fn warm_up(&self, brief: bool) -> anyhow::Result<usize> {
        warm_up::run(&self.below("warm-up").await?, if brief { BRIEF_WARM_UP } else { WARM_UP }).await
    }

    /// How many requests the servers have received from clients.
    pub(crate) async fn requests(&self) -> anyhow::Result<u64> {
        let mut sum = 0;
        for member in self.members() {
            sum += member.metric("zk_packets_received").await?;
        }
        Ok(sum)
    }

    /// The names of the children of a node below a contestant's chroot.
    pub(crate) async fn children(&self, address: &str, path: &str) -> anyhow::Result<Vec<String>> {
        let (_, chroot) = address.split_once('/').context("the address has no chroot")?;
        Ok(self.first().children(&format!("/{chroot}{path}")).await?)
    }

    fn first(&self) -> &ZooKeeper {
        match &self.running {
            Running::One(server) => server,
            Running::Three(ensemble) => ensemble.member(0),
        }
    }

    fn members(&self) -> impl Iterator<Item = &ZooKeeper> {
        let count = match &self.running {
            Running::One(_) => 1,
            Running::Three(ensemble) => ensemble.len(),
        };
        (0..count).map(|member| match &self.running {
            Running::One(server) => server,
            Running::Three(ensemble) => ensemble.member(member),
        })
    }
}

/// The testkit's servers are made to start fast and stay small; these are as they are shipped, but for the session
/// timeouts and the collector of garbage.
fn as_in_production() -> ZooKeeperBuilder {
    ZooKeeper::builder()
        .java_option("-Xmx1g")
        .java_option("-XX:TieredStopAtLevel=4")
        .java_option("-Dzookeeper.preAllocSize=65536")
        // A queue of 10,000 is listed.
        .jute_max_buffer(8 << 20)
}
