use std::{
    ops::Add,
    time::{Duration, SystemTime},
};

/// A point on the clock that holds and sessions are judged by.
///
/// It counts the time that the machine was suspended: a laptop that slept through its session's timeout must
/// not believe for one more second that it holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tick(u64);

impl Tick {
    /// Later than every other.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    pub(crate) fn now() -> Self {
        Self(nanoseconds())
    }

    /// How long it is until then; zero when it has passed.
    pub(crate) fn remaining(self) -> Duration {
        self.since(Self::now())
    }

    /// How long ago it was; zero when it is still to come.
    pub(crate) fn elapsed(self) -> Duration {
        Self::now().since(self)
    }

    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// What the clock on the wall showed then, if it has not been set since.
    pub(crate) fn on_the_wall(self) -> SystemTime {
        let now = SystemTime::now();
        now.checked_sub(self.elapsed()).unwrap_or(now)
    }

    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub(crate) const fn as_nanos(self) -> u64 {
        self.0
    }
}

impl Add<Duration> for Tick {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

#[cfg(target_os = "linux")]
fn nanoseconds() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(time.tv_sec)
        .unwrap_or(0)
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Elsewhere the monotonic clock of the standard library, which on some systems stops while suspended.
#[cfg(not(target_os = "linux"))]
fn nanoseconds() -> u64 {
    use std::{sync::OnceLock, time::Instant};
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX).saturating_add(1)
}
