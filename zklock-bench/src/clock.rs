use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of a clock that all processes of this machine share; Java's `System.nanoTime` and Python's
/// `time.monotonic_ns` are the same one.
pub(crate) fn shared_nanos() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
