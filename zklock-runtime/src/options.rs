use std::time::Duration;

/// How a lock is taken and how long it may be held: what the annotation or the builder says, with the
/// defaults of the `Locks` filled in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockOptions {
    /// First come, first served; else whoever is quickest.
    pub(crate) fair: bool,
    /// How long it may be held; `None` for no limit.
    pub(crate) timeout: Option<Duration>,
    /// How long it may take to get it: `None` for no limit, zero for one try.
    pub(crate) wait: Option<Duration>,
    /// The function that locks, shown to operators.
    pub(crate) function: &'static str,
}
