use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use uuid::Uuid;

use crate::{
    clock::Tick,
    hold::{Grant, Validity},
    options::LockOptions,
    path::LockPath,
    token::{Ensemble, FencingToken},
};

/// Numbers the grants.
pub(super) struct Grants {
    last_number: u64,
    /// What the clock on the wall showed at `start`, in microseconds.
    wall: u64,
    start: Tick,
    /// Random for each `Locks`, so that the names of its grants, which count from there, are none of another's: a system
    /// call for each would be a good part of what an uncontended lock costs.
    last_attempt: u128,
}

impl Grants {
    pub(super) fn new() -> Self {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self {
            last_number: 0,
            wall: u64::try_from(wall.as_micros()).unwrap_or(u64::MAX),
            start: Tick::now(),
            last_attempt: Uuid::new_v4().as_u128(),
        }
    }

    /// The next grant, and the number of its token.
    pub(super) fn next(
        &mut self,
        now: Tick,
        path: LockPath,
        options: LockOptions,
    ) -> (Grant<Option<Arc<Validity>>>, u64) {
        let number = self.number(now);
        let grant = Grant { path, options, token: token(number), attempt: self.attempt(), validity: None };
        (grant, number)
    }

    /// From the wall clock, so that a restart over the same database does not go back.
    fn number(&mut self, now: Tick) -> u64 {
        let past = u64::try_from(now.since(self.start).as_micros()).unwrap_or(u64::MAX);
        self.last_number = self.wall.saturating_add(past).max(self.last_number.saturating_add(1));
        self.last_number
    }

    fn attempt(&mut self) -> Uuid {
        self.last_attempt = self.last_attempt.wrapping_add(1);
        Uuid::from_u128(self.last_attempt)
    }
}

pub(super) fn token(number: u64) -> FencingToken {
    FencingToken::new(Ensemble::MEMORY, number, 0, 0)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn numbers_rise_within_one_microsecond_and_follow_the_wall_clock() {
        let mut grants = Grants::new();
        let start = grants.start;
        let first = grants.number(start);
        let second = grants.number(start);
        let late = grants.number(start + Duration::from_secs(1));
        assert!(first < second && second < late);
        assert_eq!(late, grants.wall + 1_000_000);
        // What is begun after a restart is above all that was granted before it.
        let mut restarted = Grants::new();
        assert!(restarted.number(Tick::now() + Duration::from_secs(2)) > late);
    }

    #[test]
    fn no_two_grants_have_one_name() {
        let mut all = [Grants::new(), Grants::new(), Grants::new()];
        let names: HashSet<Uuid> = (0..3000).map(|n| all[n % 3].attempt()).collect();
        assert_eq!(names.len(), 3000);
    }
}
