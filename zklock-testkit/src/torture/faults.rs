//! What is done to the servers and to the network, one fault after the other.

use std::time::Duration;

use serde_json::Value;

use super::history::Excuse;
use super::holder::SESSION;
use super::random::Random;
use super::record::Record;
use super::work::PATHS;
use crate::ensemble::Ensemble;
use crate::error::Error;
use crate::proxy::{Direction, Op};

/// A fault of the lock service.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    CutClients { member: usize },
    CutAllClients,
    BlackHoleClients { member: usize, direction: Direction },
    BlackHoleAllClients { direction: Direction },
    DelayClients { member: usize, delay: Duration },
    SwallowReply { member: usize, op: Op, nth: u64 },
    DropRequest { member: usize, op: Op, nth: u64 },
    CutServers { here: usize, there: usize },
    BlackHoleServers { here: usize, there: usize, direction: Direction },
    DelayServers { here: usize, there: usize, delay: Duration },
    Isolate { member: usize },
    Pause { member: usize },
    Kill { member: usize },
    KillLeader,
    Expire { path: usize, contender: usize },
}

/// Makes faults for so long, from choices that depend on the seed alone.
pub(super) async fn keep_failing(
    ensemble: &Ensemble,
    mut random: Random,
    record: &Record,
) -> Result<(), Error> {
    loop {
        let (fault, lasts) = Fault::draw(&mut random);
        let pause = Duration::from_millis(random.between(200, 2_500));
        if !record.pause(pause).await {
            return Ok(());
        }
        fault.happen(ensemble, lasts, record).await?;
    }
}

impl Fault {
    fn draw(random: &mut Random) -> (Self, Duration) {
        let (member, path, contender) = (random.index(3), random.index(PATHS.len()), random.index(3));
        let (here, there) = (member, (member + 1 + random.index(2)) % 3);
        let direction = [Direction::ToServer, Direction::ToClient, Direction::Both][random.index(3)];
        let op = [Op::Create, Op::Delete, Op::Multi, Op::GetChildren, Op::Sync][random.index(5)];
        let nth = random.between(1, 8);
        let delay = Duration::from_millis(random.between(20, 400));
        let lasts = lasts(random);
        let fault = match random.index(20) {
            0 => Self::CutClients { member },
            1 => Self::CutAllClients,
            2 | 3 => Self::BlackHoleClients { member, direction },
            4 => Self::BlackHoleAllClients { direction },
            5 => Self::DelayClients { member, delay },
            6 | 7 => Self::SwallowReply { member, op, nth },
            8 => Self::DropRequest { member, op, nth },
            9 => Self::CutServers { here, there },
            10 | 11 => Self::BlackHoleServers { here, there, direction },
            12 => Self::DelayServers { here, there, delay },
            13 => Self::Isolate { member },
            14 | 15 => Self::Pause { member },
            16 => Self::Kill { member },
            17 => Self::KillLeader,
            _ => Self::Expire { path, contender },
        };
        (fault, lasts)
    }

    async fn happen(self, ensemble: &Ensemble, lasts: Duration, record: &Record) -> Result<(), Error> {
        if let Self::Expire { path, contender } = self {
            return expire(ensemble, path, contender, record).await;
        }
        let window = record.begin(&format!("{self:?}"), Excuse::None);
        match self {
            Self::CutClients { member } => ensemble.proxy(member).cut(),
            Self::CutAllClients => (0..ensemble.len()).for_each(|member| ensemble.proxy(member).cut()),
            Self::BlackHoleClients { member, direction } => ensemble.proxy(member).black_hole(direction),
            Self::BlackHoleAllClients { direction } => {
                (0..ensemble.len()).for_each(|member| ensemble.proxy(member).black_hole(direction));
            }
            Self::DelayClients { member, delay } => ensemble.proxy(member).delay(delay, Direction::Both),
            Self::SwallowReply { member, op, nth } => drop(ensemble.proxy(member).swallow_reply(op, nth)),
            Self::DropRequest { member, op, nth } => drop(ensemble.proxy(member).drop_request(op, nth)),
            Self::CutServers { here, there } => ensemble.link(here, there).cut(),
            Self::BlackHoleServers { here, there, direction } => {
                ensemble.link(here, there).black_hole(direction);
            }
            Self::DelayServers { here, there, delay } => {
                ensemble.link(here, there).delay(delay, Direction::Both);
            }
            Self::Isolate { member } => ensemble.isolate(member),
            Self::Pause { member } => ensemble.member(member).pause()?,
            Self::Kill { member } => ensemble.member(member).kill()?,
            Self::KillLeader => {
                let leader = ensemble.leader().await?;
                ensemble.member(leader).kill()?;
                tokio::time::sleep(lasts).await;
                ensemble.member(leader).start_again()?;
            }
            Self::Expire { .. } => {}
        }
        if !matches!(self, Self::KillLeader | Self::CutClients { .. } | Self::CutAllClients) {
            tokio::time::sleep(lasts).await;
        }
        match self {
            Self::Pause { member } => ensemble.member(member).resume()?,
            Self::Kill { member } => ensemble.member(member).start_again()?,
            _ => ensemble.heal()?,
        }
        if matches!(self, Self::Kill { .. } | Self::KillLeader) {
            ensemble.wait_until_serving().await?;
        }
        record.end(window, Duration::ZERO);
        Ok(())
    }
}

/// How long a fault lasts: a moment, a while, or longer than a session.
pub(super) fn lasts(random: &mut Random) -> Duration {
    Duration::from_millis(match random.index(10) {
        0..3 => random.between(50, 500),
        3..8 => random.between(500, 3_000),
        _ => random.between(3_000, 7_000),
    })
}

/// Ends the session of whoever holds or waits.
async fn expire(ensemble: &Ensemble, path: usize, contender: usize, record: &Record) -> Result<(), Error> {
    let (path, fair) = PATHS[path];
    let server = ensemble.member(ensemble.leader().await?);
    let node = if fair {
        let mut names = server.children(path).await?;
        names.retain(|name| name.contains("-lock-"));
        let Some(name) = names.get(contender % names.len().max(1)) else { return Ok(()) };
        format!("{path}/{name}")
    } else {
        path.to_owned()
    };
    let Some(found) = server.node(&node).await?.filter(|node| node.ephemeral_owner != 0) else {
        return Ok(());
    };
    let owner = identity(&found.data);
    let window = record.begin(&format!("Expire {{ process: {owner} }}"), Excuse::Expired(owner));
    // It may have ended by itself meanwhile.
    let _ = server.expire_session(found.ephemeral_owner).await;
    // It hears of it when it connects again, and by its own clock in any case.
    record.end(window, SESSION);
    Ok(())
}

/// Who says to have made a contender.
pub(super) fn identity(data: &[u8]) -> String {
    let tag: Value = serde_json::from_slice(data).unwrap_or_default();
    tag["identity"].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides() {
        let draw = |seed| {
            let mut random = Random::new(seed, &[]);
            (0..100).map(|_| Fault::draw(&mut random)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
