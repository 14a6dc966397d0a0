//! Real servers for tests: ZooKeeper, PostgreSQL and MariaDB as child processes, with faults on demand.

mod ensemble;
mod error;
mod port;
mod proxy;
mod random;
mod server;
mod signal;
mod sql;
mod wait;
mod zookeeper;

pub use self::ensemble::{Ensemble, ServerLink};
pub use self::error::Error;
pub use self::proxy::{Direction, Op, Proxy, Request, Rule};
pub use self::signal::{Signal, send as send_signal};
pub use self::sql::{MariaDb, MariaDbBuilder, Postgres, PostgresBuilder};
pub use self::wait::wait_until;
pub use self::zookeeper::{Chroot, Mode, Node, ZooKeeper, ZooKeeperBuilder, expire_session};
