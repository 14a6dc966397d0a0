use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::{
    contestant::Contestant,
    protocol::{Cycles, Order, Shape},
    running::Process,
    together,
};

/// Processes of one contestant, which share their paths.
pub(crate) struct Team {
    /// Of the servers, with the chroot where they are ZooKeeper's.
    pub(crate) address: String,
    pub(crate) processes: Vec<Process>,
}

impl Team {
    /// Java gets quick only with time.
    pub(crate) async fn warm_up(&mut self, contestant: Contestant, brief: bool) -> anyhow::Result<()> {
        let time = match contestant {
            Contestant::CuratorEach | Contestant::CuratorShared => Duration::from_secs(4),
            _ => Duration::from_millis(500),
        };
        let millis = u64::try_from(time.as_millis())? / if brief { 2 } else { 1 };
        let _: Vec<Cycles> = self.ask(Order::Cycles { shape: Shape::Own, tasks: 8, millis }).await?;
        let _: Vec<Cycles> =
            self.ask(Order::Cycles { shape: Shape::Shared, tasks: 8, millis: millis / 2 }).await?;
        Ok(())
    }

    /// Asks all at the same time.
    pub(crate) async fn ask<A: DeserializeOwned>(&mut self, order: Order) -> anyhow::Result<Vec<A>> {
        self.ask_each(|_| order).await
    }

    /// The same with an order for each.
    pub(crate) async fn ask_each<A: DeserializeOwned>(
        &mut self,
        order: impl Fn(usize) -> Order,
    ) -> anyhow::Result<Vec<A>> {
        let asking =
            self.processes.iter_mut().enumerate().map(|(number, process)| process.ask(order(number)));
        together::all(asking).await.into_iter().collect()
    }

    pub(crate) async fn ask_first<A: DeserializeOwned>(&mut self, order: Order) -> anyhow::Result<A> {
        self.processes[0].ask(order).await
    }
}
