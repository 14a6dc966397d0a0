//! What the test targets share.

#![allow(dead_code, unused_imports, reason = "each test target uses a part of it")]

mod alone;
mod deadline;
mod fuzz;
mod pause;
#[cfg(feature = "sqlx")]
mod problem;
mod register;
#[cfg(feature = "zookeeper")]
mod servers;
mod world;

#[cfg(feature = "sqlx")]
pub(crate) use self::problem::Problem;
#[cfg(feature = "zookeeper")]
pub(crate) use self::servers::{chroot, patient};
pub(crate) use self::{
    alone::alone,
    deadline::{SOON, queued, soon, until},
    fuzz::{DropAt, Random, poll_times},
    pause::{Pause, Paused, pause},
    register::Register,
    world::{GRACE, World},
};

/// What every case returns: an error fails it as a panic does.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;
