//! Other attributes and macros around the function.
use async_trait::async_trait;
use zklock::{Error, Guard, Locks, zk_lock};

use crate::recorder::{Connection, Database, Transaction};

struct Shop {
    region: String,
    locks: Locks,
}

fn shop() -> Shop {
    Shop { region: "eu".to_owned(), locks: Locks::memory() }
}

#[async_trait]
trait Boxed {
    async fn pay(&self, id: u64, name: String, pair: (u8, u8)) -> Result<String, Error>;

    async fn transfer(&mut self, from: &str, to: &str) -> Result<String, Error>;

    async fn nothing(&self);

    async fn by_value(self, id: u64) -> Result<u64, Error>
    where
        Self: Sized;

    #[zk_lock(path = "/boxed/default/{id}", locks = self.locks())]
    async fn default_body(&self, id: u64, #[guard] guard: &Guard) -> Result<String, Error> {
        let _ = id;
        Ok(guard.path().to_string())
    }

    fn locks(&self) -> &Locks;
}

#[async_trait]
impl Boxed for Shop {
    #[zk_lock(path = "/boxed/{self.region}/{id}/{name}", locks = self.locks)]
    async fn pay(
        &self,
        id: u64,
        name: String,
        #[guard] guard: &Guard,
        (a, b): (u8, u8),
    ) -> Result<String, Error> {
        if id == 0 {
            return Err(Error::Closed);
        }
        Ok(format!("{name}{a}{b} {}", guard.path()))
    }

    #[zk_lock(path = "/boxed/{self.region}/{from}-{to}", transactional, locks = self.locks, crate = crate::recorder)]
    async fn transfer(
        &mut self,
        from: &str,
        #[tx] tx: &mut Transaction<'_, Database>,
        to: &str,
        #[guard] guard: &Guard,
    ) -> Result<String, Error> {
        tx.execute(from).await;
        tx.execute(to).await;
        self.region.push('!');
        Ok(guard.path().to_string())
    }

    #[zk_lock(path = "/boxed", locks = self.locks, on_error = ignore)]
    async fn nothing(&self) {
        tokio::task::yield_now().await;
    }

    #[zk_lock(path = "/boxed/{self.region}/{id}", transactional(pool = pool()), locks = self.locks, crate = crate::recorder)]
    async fn by_value(mut self, id: u64, #[tx] mut tx: &mut Connection) -> Result<u64, Error> {
        self.region.clear();
        tx.execute("statement").await;
        let other = tx;
        other.execute("statement").await;
        tx = other;
        tx.execute("statement").await;
        Ok(id)
    }

    fn locks(&self) -> &Locks {
        &self.locks
    }
}

fn pool() -> crate::recorder::Pool {
    crate::recorder::Pool { fails: false }
}

#[allow(clippy::needless_pass_by_value)]
fn ignore(error: Error) {
    assert!(!error.to_string().is_empty());
}

#[tokio::test]
async fn async_traits() {
    let mut shop = shop();
    assert_eq!(shop.pay(1, "n".to_owned(), (2, 3)).await.unwrap(), "n23 /boxed/eu/1/n");
    assert!(shop.pay(0, "n".to_owned(), (2, 3)).await.is_err());
    assert_eq!(
        tokio::spawn(async move { shop.transfer("a", "b-c").await }).await.unwrap().unwrap(),
        "/boxed/eu/a-b%2Dc"
    );
    let object: Box<dyn Boxed + Send + Sync> = Box::new(self::shop());
    assert_eq!(object.default_body(1).await.unwrap(), "/boxed/default/1");
    object.nothing().await;
    assert_eq!(self::shop().by_value(4).await.unwrap(), 4);
}

mod instrumented {
    use tracing::instrument;

    use super::*;

    #[instrument(skip_all, err)]
    #[zk_lock(path = "/traced/{id}", transactional, crate = crate::recorder)]
    async fn above(id: u64, #[tx] tx: &mut Connection) -> Result<u64, Error> {
        tx.execute("statement").await;
        Ok(id)
    }

    #[zk_lock(path = "/traced/{id}", transactional, crate = crate::recorder)]
    #[instrument(err, ret)]
    async fn below(id: u64, #[tx] tx: &mut Connection) -> Result<u64, Error> {
        tx.execute("statement").await;
        Ok(id)
    }

    #[async_trait]
    trait Traced {
        async fn above(&self, id: u64) -> Result<u64, Error>;
        async fn below(&self, id: u64) -> Result<u64, Error>;
    }

    #[async_trait]
    impl Traced for Shop {
        #[instrument(skip(self), err)]
        #[zk_lock(path = "/traced/{self.region}/{id}", locks = self.locks)]
        async fn above(&self, id: u64, #[guard] guard: &Guard) -> Result<u64, Error> {
            guard.check()?;
            Ok(id)
        }

        #[zk_lock(path = "/traced/{self.region}/{id}", locks = self.locks)]
        #[instrument(skip(self), ret)]
        async fn below(&self, id: u64, #[guard] guard: &Guard) -> Result<u64, Error> {
            guard.check()?;
            Ok(id)
        }
    }

    #[tokio::test]
    async fn run() {
        let sum = Locks::memory().scope(async { above(1).await.unwrap() + below(2).await.unwrap() }).await;
        assert_eq!(sum, 3);
        let shop = shop();
        assert_eq!(Traced::above(&shop, 1).await.unwrap() + Traced::below(&shop, 2).await.unwrap(), 3);
    }
}

mod made_by_macros {
    use super::*;

    // Names from both sides.
    macro_rules! with_body {
        ($name:ident, $arg:ident, $body:expr) => {
            #[zk_lock(path = "/made/{id}", timeout = "5s")]
            async fn $name(id: u64, $arg: u64) -> Result<u64, Error> {
                Ok($body + id)
            }
        };
    }
    with_body!(with_names, x, x + 1);

    macro_rules! with_path {
        ($name:ident, $arg:ident, $path:literal, $timeout:literal) => {
            #[zk_lock(path = $path, timeout = $timeout)]
            async fn $name($arg: u64, #[guard] guard: &Guard) -> Result<String, Error> {
                let _ = $arg;
                Ok(guard.path().to_string())
            }
        };
    }
    with_path!(with_literal, x, "/made/{x}", "5s");

    macro_rules! with_expression {
        ($name:ident, $path:expr, $locks:expr) => {
            #[zk_lock(path = $path, locks = $locks)]
            async fn $name(x: u64) -> Result<u64, Error> {
                Ok(x)
            }
        };
    }
    with_expression!(with_expr, "/made/constant", &Locks::memory());

    macro_rules! with_crate {
        ($name:ident) => {
            #[zk_lock(path = "/made", transactional, crate = $crate::recorder)]
            async fn $name(#[tx] _tx: &mut Connection) -> Result<(), Error> {
                Ok(())
            }
        };
    }
    with_crate!(with_dollar_crate);

    #[tokio::test]
    async fn run() {
        Locks::memory()
            .scope(async {
                assert_eq!(with_names(1, 2).await.unwrap(), 4);
                assert_eq!(with_literal(3).await.unwrap(), "/made/3");
                assert_eq!(with_expr(3).await.unwrap(), 3);
                with_dollar_crate().await.unwrap();
            })
            .await;
    }
}

mod shadowed {
    #![allow(dead_code, non_camel_case_types)]

    struct Result;
    struct Ok;
    struct Err;
    struct Option;
    struct Some;
    struct None;
    struct String;
    mod core {}
    mod std {}
    mod zklock {}

    #[::zklock::zk_lock(path = "/shadowed/{path}/{out}", timeout = "1s", locks = locks)]
    pub(super) async fn shadowed(
        path: u8,
        out: u8,
        call: u8,
        locks: &::zklock::Locks,
    ) -> ::std::result::Result<u8, ::zklock::Error> {
        let _ = locks;
        ::std::result::Result::Ok(path + out + call)
    }
}

#[tokio::test]
async fn names_of_the_user_do_not_meet_ours() {
    assert_eq!(shadowed::shadowed(1, 2, 3, &Locks::memory()).await.unwrap(), 6);
}

mod kept {
    use super::*;

    /// Documented.
    ///
    /// The example is kept.
    #[must_use = "kept"]
    #[inline]
    #[deprecated = "kept"]
    #[zk_lock(path = "/kept/{id}")]
    pub(in crate::attributes) async fn all(
        #[allow(unused_mut)] mut id: u8,
        #[allow(unused_variables)] b: u8,
    ) -> Result<u8, Error> {
        #![allow(unused_assignments, clippy::let_and_return)]
        let mut out = 1;
        out = id;
        out.checked_add(0).ok_or(Error::Closed)
    }

    #[zk_lock(path = "/kept", locks = Locks::memory())]
    #[tokio::test]
    async fn locked_test(#[guard] guard: &Guard) -> Result<(), Error> {
        guard.check()
    }
}

#[tokio::test]
#[allow(deprecated)]
async fn docs_and_lints_are_kept() {
    assert_eq!(Locks::memory().scope(kept::all(1, 2)).await.unwrap(), 1);
}
