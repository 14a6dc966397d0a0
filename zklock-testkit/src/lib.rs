//! Real servers for tests, with faults on demand: ZooKeeper, PostgreSQL and MariaDB.
//!
//! A lock that was tested on a good day is not tested. This crate starts real servers, stops them in
//! their tracks, kills them, and puts a network between them and the code under test that loses
//! exactly the message that matters. But for the `torture` run it knows nothing of zklock, and works for
//! any code that uses these servers: `default-features = false` leaves zklock out.
//!
//! | to | use |
//! |---|---|
//! | have a server that all tests of a process share | [`ZooKeeper::shared`], [`Postgres::shared`], [`MariaDb::shared`] |
//! | be alone on it | [`ZooKeeper::chroot`], [`Postgres::create_database`], [`MariaDb::create_database`] |
//! | have a server that may be paused, killed, wiped | [`ZooKeeper::start`], [`Postgres::start`], [`MariaDb::start`] |
//! | have several that vote, lag, and lose each other | [`Ensemble::start`] |
//! | lose a reply, a request, a link | [`Proxy`] |
//! | end a session | [`ZooKeeper::expire_session`] |
//! | see what is really on the server | [`ZooKeeper::node`], [`ZooKeeper::children`], [`Postgres::sql`], [`MariaDb::sql`] |
//! | stop or kill a process of your own | [`send_signal`] |
//! | cancel at every point | [`drop_fuzz`] |
//! | wait for something, not for time to pass | [`wait_until`], [`Rule::fired`] |
//!
//! # What is needed
//!
//! Linux, and the servers, which are not started by the system but from here:
//! `apt-get install zookeeper default-jre-headless postgresql mariadb-server`. ZooKeeper may also be an
//! unpacked release that `ZOOKEEPER_HOME` points at. What is missing is an error that says how to get it,
//! never a test that is skipped.
//!
//! Servers that run already, in containers for instance, are used instead where these variables are
//! set; tests that pause, kill or configure a server then fail, saying so:
//!
//! | variable | example |
//! |---|---|
//! | `ZKLOCK_TEST_ZOOKEEPER` | `127.0.0.1:2181` |
//! | `ZKLOCK_TEST_POSTGRES` | `postgres://postgres@127.0.0.1:5432/postgres` |
//! | `ZKLOCK_TEST_MARIADB` | `mysql://root@127.0.0.1:3306/mysql` |
//!
//! # What is left behind
//!
//! Nothing. Servers are child processes on ports of 127.0.0.1 that are claimed for them, with their
//! data below one temporary folder. They are killed when their owner is dropped. When the test
//! process ends, by whatever means, SIGKILL included, a watchdog kills those that are left and removes
//! the folder. Several test processes at a time do not disturb each other.
//!
//! # Example
//!
//! ```
//! use zklock_testkit::{Error, Op, Proxy, ZooKeeper};
//!
//! # // Run as a test by the reader, and as a program here.
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
//! // In a test: #[tokio::test] async fn ...() -> Result<(), Error> {
//! let zookeeper = ZooKeeper::shared().await?;
//! let chroot = zookeeper.chroot("orders").await?;
//! let proxy = Proxy::start(zookeeper.connect_string()).await?;
//!
//! let lost = proxy.swallow_reply(Op::Create, 1);
//! let url = proxy.url(&chroot.url()); // give it to the code under test, let it take a lock, then:
//! # drop((lost, url));
//! // lost.fired().await?;
//! assert_eq!(zookeeper.children(chroot.path()).await?.len(), 0, "no node is left over");
//! # Ok(())
//! # }
//! ```

mod drop_fuzz;
mod ensemble;
mod error;
mod port;
mod proxy;
mod random;
mod server;
mod signal;
mod sql;
#[cfg(feature = "torture")]
pub mod torture;
mod wait;
mod zookeeper;

pub use self::drop_fuzz::{DropFuzzed, DropMoment, drop_fuzz};
pub use self::ensemble::{Ensemble, ServerLink};
pub use self::error::Error;
pub use self::proxy::{Direction, Op, Proxy, Request, Rule};
pub use self::signal::{Signal, send as send_signal};
pub use self::sql::{MariaDb, MariaDbBuilder, Postgres, PostgresBuilder, Shutdown};
pub use self::wait::wait_until;
pub use self::zookeeper::{Chroot, Mode, Node, ZooKeeper, ZooKeeperBuilder, expire_session};
