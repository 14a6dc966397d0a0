//! What the arguments take.
use std::sync::Arc;

use zklock::{Commits, Error, FromLockError, Guard, LockPath, Locks, zk_lock};

use crate::recorder::{Connection, Database, Pool, Transaction, take_log};

mod paths {
    use super::*;

    #[zk_lock(path = path)]
    async fn by_reference(path: &LockPath, #[guard] guard: &Guard) -> Result<String, Error> {
        Ok(guard.path().to_string())
    }

    #[zk_lock(path = LockPath::from_segments(["ready", name])?)]
    async fn by_value(name: &str, #[guard] guard: &Guard) -> Result<String, Error> {
        Ok(guard.path().to_string())
    }

    #[zk_lock(path = LockPath::from_segments(["ready", name]))]
    async fn by_result(name: &str, #[guard] guard: &Guard) -> Result<String, Error> {
        Ok(guard.path().to_string())
    }

    #[tokio::test]
    async fn run() {
        let path = LockPath::new("/ready").unwrap();
        Locks::memory()
            .scope(async {
                assert_eq!(by_reference(&path).await.unwrap(), "/ready");
                assert_eq!(by_value("a/b").await.unwrap(), "/ready/a%2Fb");
                assert_eq!(by_result("a/b").await.unwrap(), "/ready/a%2Fb");
                assert!(matches!(by_value("").await, Err(Error::InvalidPath { .. })));
                assert!(matches!(by_result("").await, Err(Error::InvalidPath { .. })));
            })
            .await;
    }
}

mod locks {
    use super::*;

    struct Owns {
        locks: Locks,
        shared: Arc<Locks>,
    }

    impl Owns {
        #[zk_lock(path = "/owned", locks = self.locks)]
        async fn owned(&self) -> Result<(), Error> {
            Ok(())
        }

        #[zk_lock(path = "/shared", locks = self.shared)]
        async fn shared(&self) -> Result<(), Error> {
            Ok(())
        }

        #[zk_lock(path = "/made", locks = self.locks.clone())]
        async fn made(&self) -> Result<(), Error> {
            Ok(())
        }

        #[zk_lock(path = "/lent", locks = &self.locks)]
        async fn lent(self) -> Result<(), Error> {
            Ok(())
        }
    }

    #[zk_lock(path = "/argument", locks = locks)]
    async fn argument(locks: &Locks) -> Result<(), Error> {
        Ok(())
    }

    #[tokio::test]
    async fn run() {
        let locks = Locks::memory();
        let owns = Owns { locks: locks.clone(), shared: Arc::new(locks.clone()) };
        owns.owned().await.unwrap();
        owns.shared().await.unwrap();
        owns.made().await.unwrap();
        owns.lent().await.unwrap();
        tokio::spawn(async move { argument(&locks).await }).await.unwrap().unwrap();
    }
}

mod outcomes {
    use super::*;

    #[derive(Debug, PartialEq)]
    enum Answer {
        Done,
        Failed,
    }

    impl FromLockError for Answer {
        fn from_lock_error(_: Error) -> Self {
            Self::Failed
        }
    }

    impl Commits for Answer {
        fn commits(&self) -> bool {
            *self == Self::Done
        }
    }

    #[zk_lock(path = "/answer/{id}", transactional, crate = crate::recorder)]
    async fn by_trait(id: &str, #[tx] _tx: &mut Connection) -> Answer {
        if id == "no" {
            return Answer::Failed;
        }
        Answer::Done
    }

    fn to_number(error: Error) -> u32 {
        drop(error);
        0
    }

    #[allow(clippy::trivially_copy_pass_by_ref)]
    fn is_even(number: &u32) -> bool {
        number.is_multiple_of(2)
    }

    #[zk_lock(
        path = "/number/{number}",
        on_error = to_number,
        transactional(commit_if = is_even),
        crate = crate::recorder
    )]
    async fn by_functions(number: u32, #[tx] _tx: &mut Connection) -> u32 {
        number
    }

    struct Handlers;

    impl Handlers {
        fn shown(error: Error) -> Box<dyn std::fmt::Display + Send> {
            Box::new(error)
        }

        #[zk_lock(path = "/opaque/{name}", on_error = Self::shown)]
        async fn opaque(name: &str) -> impl std::fmt::Display {
            Box::new(name.len()) as Box<dyn std::fmt::Display + Send>
        }
    }

    fn ignore(_: Error) {}

    #[zk_lock(path = "/nothing", on_error = ignore)]
    async fn nothing() {}

    #[zk_lock(path = "/unit", on_error = self::ignore)]
    async fn unit() -> () {
        tokio::task::yield_now().await;
    }

    #[tokio::test]
    async fn run() {
        assert_eq!(by_trait("yes").await, Answer::Failed, "nothing is installed");
        Locks::memory()
            .scope(async {
                let _ = take_log();
                assert_eq!(by_trait("yes").await, Answer::Done);
                assert!(take_log().contains(&"close to commit".to_owned()));
                assert_eq!(by_trait("no").await, Answer::Failed);
                assert!(take_log().contains(&"close to roll back".to_owned()));
                assert_eq!(by_functions(2).await, 2);
                assert!(take_log().contains(&"close to commit".to_owned()));
                assert_eq!(by_functions(3).await, 3);
                assert!(take_log().contains(&"close to roll back".to_owned()));
                assert_eq!(Handlers::opaque("abc").await.to_string(), "3");
                assert!(Handlers::opaque("").await.to_string().contains("`name`"));
                nothing().await;
                unit().await;
            })
            .await;
    }
}

mod transactions {
    use super::*;

    type Conn = Connection;

    struct Service {
        pool: Pool,
        shared: Arc<Pool>,
    }

    impl Service {
        #[zk_lock(path = "/service", transactional(pool = self.pool), crate = crate::recorder)]
        async fn owned(&self, #[tx] tx: &mut Conn) -> Result<(), Error> {
            tx.execute("statement").await;
            Ok(())
        }

        #[zk_lock(path = "/service", transactional(pool = &*self.shared), crate = crate::recorder)]
        async fn shared(&self, #[tx] tx: &mut crate::recorder::Connection) -> Result<(), Error> {
            tx.execute("statement").await;
            Ok(())
        }
    }

    // Lifetimes that only the transaction used are taken out with it.
    #[zk_lock(path = "/lifetimes/{name}", transactional, crate = crate::recorder)]
    async fn lifetimes<'a, 'c, 'd, T>(
        name: &'a str,
        #[tx] tx: &'d mut Transaction<'c, Database>,
        value: T,
    ) -> Result<(&'a str, T), Error>
    where
        'c: 'd,
        T: Send,
    {
        tx.execute("statement").await;
        Ok((name, value))
    }

    #[zk_lock(path = "/joins", transactional(pool = outer), crate = crate::recorder)]
    async fn joins(outer: &mut Connection, #[tx] tx: &mut Transaction<'_, Database>) -> Result<(), Error> {
        tx.execute("statement").await;
        Ok(())
    }

    #[zk_lock(path = "/joins", transactional(pool = &mut *outer, unfenced), crate = crate::recorder)]
    async fn joins_mut(
        outer: &mut Transaction<'_, Database>,
        #[tx] tx: &mut Connection,
    ) -> Result<(), Error> {
        tx.execute("statement").await;
        Ok(())
    }

    #[zk_lock(path = "/outer", transactional, crate = crate::recorder)]
    async fn outer(#[tx] tx: &mut Connection) -> Result<(), Error> {
        joins(tx).await
    }

    #[zk_lock(path = "/outer2", transactional, crate = crate::recorder)]
    async fn outer_mut(#[tx] tx: &mut Transaction<'static, Database>) -> Result<(), Error> {
        joins_mut(tx).await
    }

    const fn send<T: Send>(value: T) -> T {
        value
    }

    #[tokio::test]
    async fn run() {
        let service = Service { pool: Pool { fails: false }, shared: Arc::new(Pool { fails: false }) };
        Locks::memory()
            .scope(async {
                send(service.owned()).await.unwrap();
                send(service.shared()).await.unwrap();
                assert_eq!(send(lifetimes("a", 1)).await.unwrap(), ("a", 1));
                let _ = take_log();
                send(outer()).await.unwrap();
                assert!(take_log().iter().any(|entry| entry.starts_with("begin join")));
                send(outer_mut()).await.unwrap();
                assert!(take_log().iter().any(|entry| entry.starts_with("begin join")));
            })
            .await;
    }
}
