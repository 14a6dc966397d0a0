//! A stand-in for `zklock` (`crate = crate::recorder`) that locks for real, keeps no database and writes down what the
//! expansion does, and in which order.
#![allow(
    dead_code,
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    clippy::manual_async_fn,
    clippy::pedantic
)]

use std::{cell::RefCell, mem};

thread_local! {
    static LOG: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Writes an entry. Tests run on one thread each.
pub fn log(entry: impl Into<String>) {
    LOG.with_borrow_mut(|log| log.push(entry.into()));
}

/// What was written since the last call.
pub fn take_log() -> Vec<String> {
    LOG.with_borrow_mut(mem::take)
}

/// Written down when it is dropped.
pub struct Noisy(pub &'static str);

impl Drop for Noisy {
    fn drop(&mut self) {
        log(format!("drop {}", self.0));
    }
}

/// As sqlx's `PgConnection`.
pub struct Connection(());

impl Connection {
    pub fn new() -> Self {
        Self(())
    }

    pub async fn execute(&mut self, what: &str) {
        tokio::task::yield_now().await;
        log(what);
    }
}

pub struct Database;

/// As sqlx's `Transaction`.
pub struct Transaction<'c, D> {
    connection: &'c mut Connection,
    _database: D,
}

impl<D> Transaction<'_, D> {
    pub async fn execute(&mut self, what: &str) {
        self.connection.execute(what).await;
    }
}

impl<D> Drop for Transaction<'_, D> {
    fn drop(&mut self) {
        log("drop slot");
    }
}

/// As sqlx's `Pool`.
pub struct Pool {
    pub fails: bool,
}

pub mod __private {
    pub use zklock::__private::*;
    use zklock::Error;

    use super::{Connection, Database, Pool, Transaction, log};

    pub struct Call(Option<zklock::__private::Call>);

    impl Drop for Call {
        fn drop(&mut self) {
            if self.0.is_some() {
                log("drop call");
            }
        }
    }

    impl Call {
        fn inner(&self) -> &zklock::__private::Call {
            self.0.as_ref().expect("taken by value only")
        }
    }

    pub fn enter<'a>(
        spec: &'static Spec,
        locks: Option<&'a Locks>,
        path: Result<zklock::LockPath, Error>,
    ) -> impl Future<Output = Result<Call, Error>> + Send + 'a {
        let Spec { function, fair, timeout, wait } = spec;
        log(format!("enter {function} fair={fair} timeout={timeout:?} wait={wait:?}"));
        async move { Ok(Call(Some(zklock::__private::enter(spec, locks, path).await?))) }
    }

    pub fn guard(call: &Call) -> &zklock::Guard {
        zklock::__private::guard(call.inner())
    }

    pub fn run<F: Future>(call: &Call, body: F) -> Run<'_, F> {
        log("run");
        zklock::__private::run(call.inner(), body)
    }

    pub fn leave<R>(mut call: Call, out: Result<R, Interrupted>) -> impl Future<Output = Result<R, Error>> {
        log("leave");
        let call = call.0.take().expect("taken once");
        async move { zklock::__private::leave(call, out).await }
    }

    pub fn abandon<R>(call: Call, error: Error) -> impl Future<Output = Result<R, Error>> {
        log("abandon");
        async move {
            drop(call);
            Err(error)
        }
    }

    #[derive(Debug)]
    pub struct TxSpec {
        pub isolation: Option<Isolation>,
        pub unfenced: bool,
        pub requires_new: bool,
    }

    #[derive(Debug)]
    pub enum Isolation {
        ReadUncommitted,
        ReadCommitted,
        RepeatableRead,
        Serializable,
    }

    #[diagnostic::on_unimplemented(message = "`{Self}` is not the connection of a database")]
    pub trait TxParam {
        type Slot<'t>;
        type Param<'t>;
        fn open(connection: &mut Connection) -> Self::Slot<'_>;
        fn param<'a, 't>(slot: &'a mut Self::Slot<'t>) -> &'a mut Self::Param<'t>;
    }

    impl TxParam for Connection {
        type Slot<'t> = &'t mut Connection;
        type Param<'t> = Connection;
        fn open(connection: &mut Connection) -> Self::Slot<'_> {
            connection
        }
        fn param<'a, 't>(slot: &'a mut Self::Slot<'t>) -> &'a mut Self::Param<'t> {
            slot
        }
    }

    impl TxParam for Transaction<'_, Database> {
        type Slot<'t> = Transaction<'t, Database>;
        type Param<'t> = Transaction<'t, Database>;
        fn open(connection: &mut Connection) -> Self::Slot<'_> {
            Transaction { connection, _database: Database }
        }
        fn param<'a, 't>(slot: &'a mut Self::Slot<'t>) -> &'a mut Self::Param<'t> {
            slot
        }
    }

    #[derive(Debug)]
    pub struct Installed;

    pub trait Source {
        fn name(&self) -> Option<&'static str>;
    }

    impl Source for Installed {
        fn name(&self) -> Option<&'static str> {
            Some("installed")
        }
    }

    impl Source for &Pool {
        fn name(&self) -> Option<&'static str> {
            (!self.fails).then_some("pool")
        }
    }

    impl Source for &mut Connection {
        fn name(&self) -> Option<&'static str> {
            Some("join")
        }
    }

    impl Source for &mut Transaction<'_, Database> {
        fn name(&self) -> Option<&'static str> {
            Some("join")
        }
    }

    pub struct Tx(Connection);

    impl Drop for Tx {
        fn drop(&mut self) {
            log("drop tx");
        }
    }

    pub fn begin<T: TxParam, S: Source>(
        _: &Call,
        spec: &'static TxSpec,
        source: S,
    ) -> impl Future<Output = Result<Tx, Error>> {
        async move {
            tokio::task::yield_now().await;
            let Some(name) = source.name() else { return Err(Error::Closed) };
            log(format!("begin {name} {spec:?}"));
            Ok(Tx(Connection(())))
        }
    }

    pub fn open<T: TxParam>(tx: &mut Tx) -> impl Future<Output = Result<T::Slot<'_>, Error>> {
        async move {
            log("open");
            Ok(T::open(&mut tx.0))
        }
    }

    pub fn param<'a, 't, T: TxParam>(slot: &'a mut T::Slot<'t>) -> &'a mut T::Param<'t> {
        T::param(slot)
    }

    pub fn close<'t, T: TxParam, R>(
        _: &Call,
        slot: T::Slot<'t>,
        out: Result<R, Interrupted>,
        commits: impl FnOnce(&R) -> bool,
    ) -> impl Future<Output = Result<R, Error>> {
        let end = match &out {
            Ok(out) if commits(out) => "close to commit",
            Ok(_) => "close to roll back",
            Err(_) => "close interrupted",
        };
        async move {
            tokio::task::yield_now().await;
            log(end);
            drop(slot);
            out.map_err(|_| Error::Closed)
        }
    }

    pub fn finish<R>(
        mut call: Call,
        tx: Tx,
        out: Result<R, Error>,
    ) -> impl Future<Output = Result<R, Error>> {
        async move {
            tokio::task::yield_now().await;
            log("finish");
            drop(tx);
            leave(Call(call.0.take()), Ok(())).await?;
            out
        }
    }
}
