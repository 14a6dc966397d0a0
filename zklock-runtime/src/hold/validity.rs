use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use crate::{clock::Tick, error::LostReason};

/// Until when the server surely keeps our nodes, and below which node; shared by all holds of one session.
#[derive(Debug)]
pub(crate) struct Validity {
    until: AtomicU64,
    connected: AtomicBool,
    ended: AtomicBool,
    /// All paths of the session are below this one; empty where the paths are whole.
    chroot: Box<str>,
}

impl Validity {
    /// As if there were no session.
    #[cfg(test)]
    pub(crate) fn unlimited() -> Arc<Self> {
        Arc::new(Self {
            until: AtomicU64::new(Tick::NEVER.as_nanos()),
            connected: AtomicBool::new(true),
            ended: AtomicBool::new(false),
            chroot: Box::default(),
        })
    }

    #[cfg_attr(not(feature = "zookeeper"), expect(dead_code, reason = "memory has no sessions"))]
    pub(crate) fn until(until: Tick, chroot: &str) -> Arc<Self> {
        Arc::new(Self {
            until: AtomicU64::new(until.as_nanos()),
            connected: AtomicBool::new(true),
            ended: AtomicBool::new(false),
            chroot: chroot.into(),
        })
    }

    /// The server confirmed the session: it stands until then, if not longer already.
    #[cfg_attr(not(feature = "zookeeper"), expect(dead_code, reason = "memory has no sessions"))]
    pub(crate) fn confirm(&self, until: Tick) {
        self.until.fetch_max(until.as_nanos(), Ordering::AcqRel);
    }

    #[cfg_attr(not(feature = "zookeeper"), expect(dead_code, reason = "memory has no sessions"))]
    pub(crate) fn connected(&self, connected: bool) {
        self.connected.store(connected, Ordering::Release);
    }

    /// The session is over for good.
    #[cfg_attr(not(feature = "zookeeper"), expect(dead_code, reason = "memory has no sessions"))]
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    #[cfg_attr(not(feature = "zookeeper"), expect(dead_code, reason = "memory has no sessions"))]
    pub(crate) fn valid_until(&self) -> Tick {
        Tick::from_nanos(self.until.load(Ordering::Acquire))
    }

    pub(crate) fn chroot(&self) -> &str {
        &self.chroot
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Acquire)
    }

    /// Why nothing of this session is held any more, if so.
    pub(crate) fn verdict(&self, now: Tick) -> Option<LostReason> {
        if self.ended.load(Ordering::Acquire) {
            Some(LostReason::SessionExpired)
        } else if now >= Tick::from_nanos(self.until.load(Ordering::Acquire)) {
            Some(LostReason::Unconfirmed)
        } else {
            None
        }
    }
}
