//! What is done to the processes that hold locks, to the database, and to the way there.

use std::time::Duration;

use super::faults::lasts;
use super::history::{Excuse, Reach, Violation, Whose};
use super::holder::SESSION;
use super::operator::{contenders, is_alive};
use super::processes::Holders;
use super::random::{Deck, Random};
use super::record::Record;
use crate::ensemble::Ensemble;
use crate::error::Error;
use crate::proxy::{Direction, Proxy};
use crate::signal::Signal;
use crate::sql::{Postgres, Shutdown};
use crate::wait::wait_until;

/// How far away the database is while nothing else is wrong.
const FAR: Duration = Duration::from_millis(20);

/// What these faults are made to, and what they are seen by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub(super) ensemble: &'a Ensemble,
    pub(super) postgres: &'a Postgres,
    /// Before the database.
    pub(super) sql: &'a Proxy,
}

/// A fault of a process, of its database, or between the two.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Stop { process: usize },
    Kill { process: usize },
    Restart { process: usize },
    BlockWorkers { process: usize },
    RestartSql { shutdown: Shutdown },
    CutSql,
    BlackHoleSql { direction: Direction },
    DelaySql { delay: Duration },
    SwallowCommit { nth: u64 },
    DropCommit { nth: u64 },
    HoldCommit { nth: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    StopBriefly,
    /// Longer than its session: others have its locks when it goes on.
    StopForLong,
    Kill,
    Restart,
    BlockWorkers,
    RestartSql(Shutdown),
    CutSql,
    BlackHoleSql,
    DelaySql,
    SwallowCommit,
    DropCommit,
    HoldCommit,
}

/// The kinds of faults, each as often as it is wanted.
const DECK: [Kind; 20] = [
    Kind::StopBriefly,
    Kind::StopBriefly,
    Kind::StopForLong,
    Kind::StopForLong,
    Kind::StopForLong,
    Kind::Kill,
    Kind::Kill,
    Kind::Restart,
    Kind::BlockWorkers,
    Kind::RestartSql(Shutdown::Fast),
    Kind::RestartSql(Shutdown::Immediate),
    Kind::CutSql,
    Kind::BlackHoleSql,
    Kind::DelaySql,
    Kind::DelaySql,
    Kind::SwallowCommit,
    Kind::DropCommit,
    Kind::HoldCommit,
    Kind::HoldCommit,
    Kind::HoldCommit,
];

/// Makes faults for so long, from choices that depend on the seed alone.
pub(super) async fn keep_failing(
    holders: &mut Holders,
    around: Surroundings<'_>,
    mut random: Random,
    record: &Record,
) -> Result<(), Error> {
    let mut deck = Deck::new(&DECK);
    loop {
        let (fault, lasts) = Fault::draw(&mut deck, &mut random, holders.len());
        let pause = Duration::from_millis(random.between(200, 2_500));
        // A COMMIT takes longer than it takes to hand on the lock, so that one before the other shows.
        around.sql.delay(FAR, Direction::ToServer);
        let go_on = record.pause(pause).await;
        around.sql.heal()?;
        if !go_on {
            return Ok(());
        }
        if let Fault::BlockWorkers { process } = fault {
            block_workers(holders, process, around, lasts, record).await;
        } else {
            let _stage = record.among_others().await;
            fault.happen(holders, around, lasts, record).await?;
        }
    }
}

impl Fault {
    fn draw(deck: &mut Deck<Kind>, random: &mut Random, processes: usize) -> (Self, Duration) {
        let process = random.index(processes);
        let direction = [Direction::ToServer, Direction::ToClient, Direction::Both][random.index(3)];
        let (nth, delay) = (random.between(1, 6), Duration::from_millis(random.between(10, 200)));
        let (lasts, long) = (lasts(random), Duration::from_millis(random.between(4_500, 8_000)));
        let fault = match deck.draw(random) {
            Kind::StopBriefly => Self::Stop { process },
            Kind::StopForLong => return (Self::Stop { process }, long),
            Kind::Kill => Self::Kill { process },
            Kind::Restart => Self::Restart { process },
            Kind::BlockWorkers => return (Self::BlockWorkers { process }, long),
            Kind::RestartSql(shutdown) => Self::RestartSql { shutdown },
            Kind::CutSql => Self::CutSql,
            Kind::BlackHoleSql => Self::BlackHoleSql { direction },
            Kind::DelaySql => Self::DelaySql { delay },
            Kind::SwallowCommit => Self::SwallowCommit { nth },
            Kind::DropCommit => Self::DropCommit { nth },
            Kind::HoldCommit => Self::HoldCommit { nth },
        };
        (fault, lasts)
    }

    async fn happen(
        self,
        holders: &mut Holders,
        around: Surroundings<'_>,
        lasts: Duration,
        record: &Record,
    ) -> Result<(), Error> {
        let Surroundings { postgres, sql, .. } = around;
        let excuse = match self {
            Self::Stop { .. } | Self::Kill { .. } | Self::BlackHoleSql { .. } | Self::HoldCommit { .. } => {
                Excuse::LateCommit
            }
            // A delay is far shorter than what zklock allows for between the last look at the clock and the end of
            // the session. And a database that was shut down has decided on all of its transactions.
            _ => Excuse::None,
        };
        let reach = match self {
            Self::Stop { process } => Reach::process(holders.name(process)),
            Self::Restart { .. } => Reach::NOTHING,
            _ => Reach::DATABASE,
        };
        let window = record.begin(&format!("{self:?}"), excuse, reach);
        let mut rule = None;
        match self {
            Self::Stop { process } => {
                holders.send(process, Signal::Stop)?;
                tokio::time::sleep(lasts).await;
                holders.send(process, Signal::Continue)?;
            }
            Self::Kill { process } => holders.kill(process).await?,
            Self::Restart { process } => holders.restart(process, record).await?,
            Self::RestartSql { shutdown } => postgres.restart_after(shutdown).await?,
            Self::CutSql => sql.cut(),
            Self::BlackHoleSql { direction } => sql.black_hole(direction),
            Self::DelaySql { delay } => sql.delay(delay, Direction::Both),
            Self::SwallowCommit { nth } => rule = Some(sql.swallow_reply("COMMIT", nth)),
            Self::DropCommit { nth } => rule = Some(sql.drop_request("COMMIT", nth)),
            Self::HoldCommit { nth } => rule = Some(sql.hold_request("COMMIT", nth)),
            Self::BlockWorkers { .. } => {}
        }
        match self {
            Self::BlackHoleSql { .. }
            | Self::DelaySql { .. }
            | Self::SwallowCommit { .. }
            | Self::DropCommit { .. }
            | Self::HoldCommit { .. } => {
                tokio::time::sleep(lasts).await;
                record.fired(rule.as_ref());
                sql.heal()?;
            }
            _ => {}
        }
        // What was on its way arrives.
        record.end(window, Duration::from_secs(5));
        Ok(())
    }
}

/// Keeps all threads of one process busy, for longer than its session may be silent. The session must live on: nothing
/// else is wrong meanwhile, so a lost lock has no cause. And all that the process held or waited for must be given to
/// others: it cannot be stopped, so it is reaped.
async fn block_workers(
    holders: &mut Holders,
    process: usize,
    around: Surroundings<'_>,
    lasts: Duration,
    record: &Record,
) {
    /// Far longer than a wait, a hold and the grace time together.
    const REAPED: Duration = Duration::from_secs(30);

    let _stage = record.alone().await;
    // What others did is over by then for all whom it reached.
    tokio::time::sleep(SESSION).await;
    let name = holders.name(process).to_owned();
    let mut session = None;
    let seen = wait_until(REAPED, "a process to want something", async || {
        let Ok(found) = contenders(around.ensemble).await else { return false };
        session = found.iter().find(|contender| contender.process == name).map(|contender| contender.session);
        session.is_some()
    });
    let _ = seen.await;
    let reach = Reach { transactions: Whose::Of(name.clone()), ..Reach::NOTHING };
    let window = record.begin(&format!("BlockWorkers {{ process: {name} }}"), Excuse::None, reach);
    if let Some(threads) = holders.block(process).await {
        record.note("worker threads blocked", threads);
        tokio::time::sleep(lasts).await;
        let mut left = Vec::new();
        let reaped = wait_until(REAPED, "what a blocked process holds to be reaped", async || {
            let Ok(found) = contenders(around.ensemble).await else { return false };
            left = found.into_iter().filter(|contender| contender.process == name).collect();
            left.is_empty()
        });
        if reaped.await.is_err() {
            let what = format!("{name} was blocked, and nobody took from it {left:?}");
            record.violation(Violation::NoProgress { what });
        }
        if let Some(session) = session {
            record.note("sessions of blocked processes", 1);
            let is_alive = matches!(is_alive(around.ensemble, session).await, Ok(true));
            // A machine that stood still is noticed afterwards.
            tokio::time::sleep(SESSION).await;
            if !is_alive && !record.has_disturbed(&name, window) {
                let what = format!("{name} lost session {session:#x} while its worker threads were blocked");
                record.violation(Violation::NoProgress { what });
            }
        }
        holders.unblock(process).await;
    } else {
        record.violation(Violation::NoProgress { what: format!("{name} could not be blocked") });
    }
    // Its callers hear of it when they run again, and what they then begin has its connections ended behind its back.
    record.end(window, SESSION);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides() {
        let draw = |seed| {
            let (mut deck, mut random) = (Deck::new(&DECK), Random::new(seed, &[]));
            (0..100).map(|_| Fault::draw(&mut deck, &mut random, 3)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
