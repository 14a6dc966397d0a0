use std::{sync::Arc, time::Duration};

use sqlx::{Pool, pool::PoolConnection};
use sqlx_core::transaction::TransactionManager;
use tokio::runtime::Handle;

use super::{
    commit::{Standing, returned},
    database::{Database, GUARD, roll_back_all},
    stop::{Running, Stopper},
};
use crate::{
    engine::Engine,
    error::{Error, LostReason},
    hold::{Attached, Hold, Stop},
};

/// How long a rollback may wait for what runs on the connection, before the transaction is ended from outside.
pub(crate) const PATIENCE: Duration = Duration::from_millis(100);
/// The same once what runs there was told to end: it may have something to undo.
pub(crate) const PATIENCE_AFTER_CANCEL: Duration = Duration::from_millis(500);
/// The same where nobody outside can end it.
const PATIENCE_IN_PROCESS: Duration = Duration::from_secs(5);
/// How long it may take to make a connection what it was before.
const RESTORE: Duration = Duration::from_secs(5);
/// How long an end that cannot be confirmed is tried again. The lock is not kept for it: it is let go at the end of
/// the grace time, and the fence does the rest.
const PERSISTENCE: Duration = Duration::from_mins(1);

/// The connection of a transaction, from before BEGIN until its end is certain.
pub(crate) struct Session<DB: Database> {
    /// `None` once it was given back or closed.
    connection: Option<PoolConnection<DB>>,
    phase: Phase,
    running: Arc<Running<DB>>,
    hold: Arc<Hold>,
    /// Keeps the lock. `None` once the end is certain.
    attached: Option<Attached>,
    /// The runtime that the pool's connections live on.
    handle: Handle,
    grace: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// As it came from the pool.
    Idle,
    /// Something is on its way outside of a transaction, or BEGIN is: nothing was written that a client would have
    /// to roll back, but the driver may have lost count.
    Busy,
    /// In the transaction, as far as is known: the body may have ended it, or the database.
    Open,
    /// In the transaction, and it is the one that was begun. Nothing was sent since but what ends it.
    Certain,
}

impl<DB: Database> Session<DB> {
    pub(crate) fn new(
        connection: PoolConnection<DB>,
        pool: &Pool<DB>,
        hold: &Arc<Hold>,
        engine: &Arc<Engine>,
        unfenced: bool,
        grace: Duration,
    ) -> Self {
        let running = Running::new(pool, hold, engine, unfenced);
        let attached = hold.attach(&(Arc::new(Stopper(running.clone())) as Arc<dyn Stop>));
        Self {
            connection: Some(connection),
            phase: Phase::Idle,
            running,
            hold: hold.clone(),
            attached: Some(attached),
            handle: Handle::current(),
            grace,
        }
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(crate) fn grace(&self) -> Duration {
        self.grace
    }

    pub(crate) fn running(&self) -> &Arc<Running<DB>> {
        &self.running
    }

    pub(crate) fn enter(&mut self, phase: Phase) {
        self.phase = phase;
    }

    pub(crate) fn connection(&mut self) -> Result<&mut DB::Connection, Error> {
        // It is taken out only by what consumes the session.
        self.connection.as_deref_mut().ok_or(Error::Closed)
    }

    /// The end is certain: the lock need not be kept any longer. Whether the connection may go back.
    pub(crate) fn conclude(&mut self) -> bool {
        let reusable = self.running.end();
        self.attached = None;
        reusable
    }

    /// Gives the connection back as it was before, or closes it where that is not possible.
    pub(crate) async fn give_back(mut self: Box<Self>) {
        let mark = &self.running.mark;
        if let Some(connection) = self.connection.as_deref_mut()
            && let Ok(Ok(())) = tokio::time::timeout(RESTORE, DB::restore(connection, mark)).await
        {
            drop(self.connection.take());
        }
        // What is still here is closed by the drop.
    }

    /// Cuts the connection. Whatever is on its way to the server, nothing more will be.
    pub(crate) fn cut(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            // Its drop spawns, and may be reached from outside of every runtime.
            let _context = self.handle.enter();
            connection.close_on_drop();
            drop(connection);
        }
    }

    /// Whether all that was done in the transaction is known to be undone. `asked`: somebody wants to know.
    async fn roll_back(mut self: Box<Self>, asked: bool) -> bool {
        match self.phase {
            Phase::Idle => {
                self.conclude();
                drop(self.connection.take());
                return true;
            }
            Phase::Busy if !DB::IN_PROCESS => {
                // Closing is enough: no lock of the database is held for longer than the server takes to notice.
                self.cut();
                self.conclude();
                return true;
            }
            Phase::Busy | Phase::Open | Phase::Certain => {}
        }
        DB::interrupt(&self.running.mark);
        let patience = if DB::IN_PROCESS { PATIENCE_IN_PROCESS } else { PATIENCE };
        let mut undone = self.undo(patience, asked).await;
        if matches!(undone, Undone::Late) && asked && !DB::IN_PROCESS {
            // A statement runs. A transaction that is ended from outside can no longer say whether it was still ours.
            self.running.cancel().await;
            undone = self.undo(PATIENCE_AFTER_CANCEL, asked).await;
        }
        if matches!(undone, Undone::Done) {
            let is_certain = self.phase == Phase::Certain;
            if self.conclude() {
                self.give_back().await;
            } else {
                self.cut();
            }
            return is_certain;
        }
        let stopped = self.running.stop();
        self.cut();
        if stopped.await.is_err() {
            // Its drop tries on.
            return false;
        }
        self.conclude();
        self.phase == Phase::Certain
    }

    /// Rolls back on the connection itself. With `look` it notes before whether that is the transaction that was begun.
    async fn undo(&mut self, patience: Duration, look: bool) -> Undone {
        let Some(connection) = self.connection.as_deref_mut() else { return Undone::Failed };
        let phase = &mut self.phase;
        let undo = async {
            DB::let_run(connection).await?;
            if look && *phase == Phase::Open {
                DB::settle(connection).await?;
                // With a deeper level, which was begun and forgotten, its savepoint would be gone with ours.
                if DB::TransactionManager::get_transaction_depth(connection) <= 1
                    && returned::<DB>(connection, GUARD).await == Standing::Intact
                {
                    *phase = Phase::Certain;
                }
            }
            roll_back_all::<DB>(connection).await
        };
        match tokio::time::timeout(patience, undo).await {
            Ok(Ok(())) => Undone::Done,
            Ok(Err(_)) => Undone::Failed,
            Err(_) => Undone::Late,
        }
    }
}

/// What a rollback on the transaction's own connection came to.
enum Undone {
    /// Nothing is open.
    Done,
    Failed,
    Late,
}

/// Whoever drops a session has not brought its transaction to an end: a runtime that is shut down, mostly.
impl<DB: Database> Drop for Session<DB> {
    fn drop(&mut self) {
        self.cut();
        let Some(attached) = self.attached.take() else { return };
        if !matches!(self.phase, Phase::Open | Phase::Certain) {
            self.running.end();
            return;
        }
        let (running, hold) = (self.running.clone(), self.hold.clone());
        self.running.engine().handle().spawn(async move {
            let until = tokio::time::Instant::now() + PERSISTENCE;
            let mut pause = Duration::from_millis(10);
            while running.stop().await.is_err() {
                if tokio::time::Instant::now() >= until {
                    tracing::error!(
                        target: "zklock",
                        path = %hold.path(),
                        "the end of a transaction could not be confirmed; its database's own limits will end it"
                    );
                    break;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(2));
            }
            running.end();
            drop(attached);
        });
    }
}

/// Rolls back, whatever becomes of the caller. Whether all that was done in the transaction is known to be undone.
pub(crate) async fn roll_back<DB: Database>(session: Box<Session<DB>>) -> bool {
    let handle = session.handle.clone();
    // An error means that the runtime is gone, and that the drop of the session has seen to it.
    handle.spawn(session.roll_back(true)).await.unwrap_or(false)
}

/// The same where nothing was done in it yet.
pub(crate) async fn clean_up<DB: Database>(session: Box<Session<DB>>) {
    let handle = session.handle.clone();
    let _ = handle.spawn(session.roll_back(false)).await;
}

/// Rolls back while the caller goes on.
pub(crate) fn roll_back_in_background<DB: Database>(session: Box<Session<DB>>) {
    let handle = session.handle.clone();
    // Nobody waits: the session itself says when it is done, by letting go of the lock.
    drop(handle.spawn(session.roll_back(false)));
}

/// Resolves with the reason when the hold is over: by what others do, or by the clock, which is read here.
pub(crate) async fn over(hold: &Arc<Hold>) -> LostReason {
    loop {
        let deadline = tokio::time::sleep(hold.deadline().remaining());
        tokio::select! {
            reason = hold.ended() => return reason,
            () = deadline => if let Err(reason) = hold.check() { return reason },
        }
    }
}
