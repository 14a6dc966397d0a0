//! What the bench and its contestants, each a process, say to one another: a line of words there, a line of JSON back.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// What a contestant is told to do. The peers in other languages read the same lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Take and give back locks for so long: answered with [`Cycles`].
    Cycles { shape: Shape, tasks: usize, millis: u64 },
    /// Hold one lock in turn with other processes: answered with [`Holds`]. Task `i` begins at
    /// `start + i * stride`, and all end at `end`, by the clock that processes share.
    Holds { tasks: usize, hold_micros: u64, start: u64, stride: u64, end: u64 },
    /// Hold the lock that others will queue for.
    Hold,
    /// Give it back.
    Release,
    /// Have so many tasks queue for it, each of which gives it back at once.
    Queue { tasks: usize },
    /// Answer when all of them have had it.
    Drained,
    /// Hold so many locks: answered with [`Kept`].
    Keep { locks: usize },
    /// Give them back.
    Unkeep,
}

/// On which paths the tasks of [`Order::Cycles`] lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Each on one of its own, over and over.
    Own,
    /// All on one.
    Shared,
    /// Each cycle on one that was never used before.
    Cold,
    /// As `Own`, with nothing on its way when a cycle begins.
    Idle,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Cycles {
    pub(crate) count: u64,
    /// Until the last lock was given back.
    pub(crate) nanos: u64,
    /// Nanoseconds from the call to the grant.
    pub(crate) acquire_p50: u64,
    pub(crate) acquire_p99: u64,
    /// Whether tokens grew from grant to grant, where they say in which order the holders came.
    #[serde(default)]
    pub(crate) in_order: Option<bool>,
}

/// When the lock was granted and when it was given back, hold by hold.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Holds {
    pub(crate) holds: Vec<(u64, u64)>,
}

/// Bytes in memory.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) before: u64,
    pub(crate) after: u64,
}

/// An answer that says no more than that it is done.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Done {}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Failed {
    pub(crate) error: String,
}

/// Below the contestant's chroot.
pub(crate) const SHARED_PATH: &str = "/shared";
pub(crate) const DRAINED_PATH: &str = "/drained";
pub(crate) const COLD_FOLDER: &str = "/cold";

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cycles { shape, tasks, millis } => write!(f, "cycles {} {tasks} {millis}", shape.word()),
            Self::Holds { tasks, hold_micros, start, stride, end } => {
                write!(f, "holds {tasks} {hold_micros} {start} {stride} {end}")
            }
            Self::Hold => f.write_str("hold"),
            Self::Release => f.write_str("release"),
            Self::Queue { tasks } => write!(f, "queue {tasks}"),
            Self::Drained => f.write_str("drained"),
            Self::Keep { locks } => write!(f, "keep {locks}"),
            Self::Unkeep => f.write_str("unkeep"),
        }
    }
}

impl FromStr for Order {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let words: Vec<_> = line.split_whitespace().collect();
        Ok(match words[..] {
            ["cycles", shape, tasks, millis] => Self::Cycles {
                shape: Shape::from_word(shape)?,
                tasks: tasks.parse()?,
                millis: millis.parse()?,
            },
            ["holds", tasks, hold, start, stride, end] => Self::Holds {
                tasks: tasks.parse()?,
                hold_micros: hold.parse()?,
                start: start.parse()?,
                stride: stride.parse()?,
                end: end.parse()?,
            },
            ["hold"] => Self::Hold,
            ["release"] => Self::Release,
            ["queue", tasks] => Self::Queue { tasks: tasks.parse()? },
            ["drained"] => Self::Drained,
            ["keep", locks] => Self::Keep { locks: locks.parse()? },
            ["unkeep"] => Self::Unkeep,
            _ => anyhow::bail!("no contestant understands '{line}'"),
        })
    }
}

impl Shape {
    fn word(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Shared => "shared",
            Self::Cold => "cold",
            Self::Idle => "idle",
        }
    }

    fn from_word(word: &str) -> anyhow::Result<Self> {
        let shapes = [Self::Own, Self::Shared, Self::Cold, Self::Idle];
        shapes
            .into_iter()
            .find(|shape| shape.word() == word)
            .ok_or_else(|| anyhow::anyhow!("there is no shape '{word}'"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_as_it_was_written() {
        let orders = [
            Order::Cycles { shape: Shape::Own, tasks: 64, millis: 2_000 },
            Order::Cycles { shape: Shape::Cold, tasks: 1, millis: 5 },
            Order::Holds { tasks: 25, hold_micros: 1_000, start: 7, stride: 8, end: u64::MAX },
            Order::Hold,
            Order::Release,
            Order::Queue { tasks: 125 },
            Order::Drained,
            Order::Keep { locks: 10_000 },
            Order::Unkeep,
        ];
        for order in orders {
            assert_eq!(order.to_string().parse::<Order>().unwrap(), order);
        }
        assert!("cycles round 1 1".parse::<Order>().is_err());
        assert!("dance".parse::<Order>().is_err());
    }
}
