//! What is done to the lock service and to the network before it, one fault after the other.

use std::time::Duration;

use super::history::{Excuse, Reach};
use super::holder::SESSION;
use super::operator;
use super::random::{Deck, Random};
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
    RestartRolling { first: usize },
    Expire { path: usize, contender: usize },
    DeleteWaiter { contender: usize },
    Wipe,
}

/// The kinds of faults, each as often as it is wanted.
const DECK: [Kind; 26] = [
    Kind::CutClients,
    Kind::CutAllClients,
    Kind::BlackHoleClients,
    Kind::BlackHoleClients,
    Kind::BlackHoleAllClients,
    Kind::DelayClients,
    Kind::SwallowReply,
    Kind::SwallowReply,
    Kind::DropRequest,
    Kind::CutServers,
    Kind::BlackHoleServers,
    Kind::DelayServers,
    Kind::Isolate,
    Kind::Pause,
    Kind::Pause,
    Kind::Kill,
    Kind::KillLeader,
    Kind::RestartRolling,
    Kind::Expire,
    Kind::Expire,
    // These take no time.
    Kind::DeleteWaiter,
    Kind::DeleteWaiter,
    Kind::DeleteWaiter,
    Kind::DeleteWaiter,
    Kind::DeleteWaiter,
    Kind::Wipe,
];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    CutClients,
    CutAllClients,
    BlackHoleClients,
    BlackHoleAllClients,
    DelayClients,
    SwallowReply,
    DropRequest,
    CutServers,
    BlackHoleServers,
    DelayServers,
    Isolate,
    Pause,
    Kill,
    KillLeader,
    RestartRolling,
    Expire,
    DeleteWaiter,
    Wipe,
}

/// Makes faults for so long, from choices that depend on the seed alone.
pub(super) async fn keep_failing(
    ensemble: &Ensemble,
    database: &str,
    mut random: Random,
    record: &Record,
) -> Result<(), Error> {
    let mut deck = Deck::new(&DECK);
    loop {
        let (fault, lasts) = Fault::draw(&mut deck, &mut random);
        let pause = Duration::from_millis(random.between(200, 2_500));
        if !record.pause(pause).await {
            return Ok(());
        }
        let _stage = record.among_others().await;
        fault.happen(ensemble, database, lasts, record).await?;
    }
}

impl Fault {
    fn draw(deck: &mut Deck<Kind>, random: &mut Random) -> (Self, Duration) {
        let (member, path, contender) = (random.index(3), random.index(PATHS.len()), random.index(8));
        let (here, there) = (member, (member + 1 + random.index(2)) % 3);
        let direction = [Direction::ToServer, Direction::ToClient, Direction::Both][random.index(3)];
        let op = [Op::Create, Op::Delete, Op::Multi, Op::GetChildren, Op::Sync][random.index(5)];
        let nth = random.between(1, 8);
        let delay = Duration::from_millis(random.between(20, 400));
        let lasts = lasts(random);
        let fault = match deck.draw(random) {
            Kind::CutClients => Self::CutClients { member },
            Kind::CutAllClients => Self::CutAllClients,
            Kind::BlackHoleClients => Self::BlackHoleClients { member, direction },
            Kind::BlackHoleAllClients => Self::BlackHoleAllClients { direction },
            Kind::DelayClients => Self::DelayClients { member, delay },
            Kind::SwallowReply => Self::SwallowReply { member, op, nth },
            Kind::DropRequest => Self::DropRequest { member, op, nth },
            Kind::CutServers => Self::CutServers { here, there },
            Kind::BlackHoleServers => Self::BlackHoleServers { here, there, direction },
            Kind::DelayServers => Self::DelayServers { here, there, delay },
            Kind::Isolate => Self::Isolate { member },
            Kind::Pause => Self::Pause { member },
            Kind::Kill => Self::Kill { member },
            Kind::KillLeader => Self::KillLeader,
            Kind::RestartRolling => Self::RestartRolling { first: member },
            Kind::Expire => Self::Expire { path, contender },
            Kind::DeleteWaiter => Self::DeleteWaiter { contender },
            Kind::Wipe => Self::Wipe,
        };
        (fault, lasts)
    }

    async fn happen(
        self,
        ensemble: &Ensemble,
        database: &str,
        lasts: Duration,
        record: &Record,
    ) -> Result<(), Error> {
        match self {
            Self::Expire { path, contender } => {
                return operator::expire(ensemble, PATHS[path], contender, record).await;
            }
            Self::DeleteWaiter { contender } => {
                return operator::delete_waiter(ensemble, contender, record).await;
            }
            Self::Wipe => return operator::wipe(ensemble, database, record).await,
            _ => {}
        }
        let window = record.begin(&format!("{self:?}"), Excuse::None, Reach::LOCKS);
        let mut rule = None;
        match self {
            Self::CutClients { member } => ensemble.proxy(member).cut(),
            Self::CutAllClients => (0..ensemble.len()).for_each(|member| ensemble.proxy(member).cut()),
            Self::BlackHoleClients { member, direction } => ensemble.proxy(member).black_hole(direction),
            Self::BlackHoleAllClients { direction } => {
                (0..ensemble.len()).for_each(|member| ensemble.proxy(member).black_hole(direction));
            }
            Self::DelayClients { member, delay } => ensemble.proxy(member).delay(delay, Direction::Both),
            Self::SwallowReply { member, op, nth } => {
                rule = Some(ensemble.proxy(member).swallow_reply(op, nth));
            }
            Self::DropRequest { member, op, nth } => {
                rule = Some(ensemble.proxy(member).drop_request(op, nth));
            }
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
            Self::RestartRolling { first } => {
                let order = (0..ensemble.len()).map(|next| (first + next) % ensemble.len());
                ensemble.restart_rolling(order).await?;
            }
            Self::Expire { .. } | Self::DeleteWaiter { .. } | Self::Wipe => {}
        }
        if !matches!(
            self,
            Self::KillLeader | Self::RestartRolling { .. } | Self::CutClients { .. } | Self::CutAllClients
        ) {
            tokio::time::sleep(lasts).await;
        }
        record.fired(rule.as_ref());
        match self {
            Self::Pause { member } => ensemble.member(member).resume()?,
            Self::Kill { member } => ensemble.member(member).start_again()?,
            _ => ensemble.heal()?,
        }
        if matches!(self, Self::Kill { .. } | Self::KillLeader) {
            ensemble.wait_until_serving().await?;
        }
        // Whoever could not be heard knows by then whether he has lost his locks.
        record.end(window, SESSION);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides() {
        let draw = |seed| {
            let (mut deck, mut random) = (Deck::new(&DECK), Random::new(seed, &[]));
            (0..100).map(|_| Fault::draw(&mut deck, &mut random)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
