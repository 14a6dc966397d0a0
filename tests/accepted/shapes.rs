//! Kinds of functions.
use std::{fmt::Display, rc::Rc, sync::Arc};

use zklock::{Error, Guard, Locks, zk_lock};

#[derive(Debug)]
enum AppError {
    Lock(Error),
    Other(String),
}

impl From<Error> for AppError {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

impl From<std::num::ParseIntError> for AppError {
    fn from(error: std::num::ParseIntError) -> Self {
        Self::Other(error.to_string())
    }
}

struct Order {
    id: u64,
    region: String,
    lines: (u8, (u8, u8)),
}

fn order() -> Order {
    Order { id: 7, region: "eu".to_owned(), lines: (1, (2, 3)) }
}

/// The path of the lock that is held right now, as a holder sees it.
fn held(guard: &Guard) -> String {
    guard.path().to_string()
}

/// Runs `future` with locks of its own.
async fn alone<F: Future>(future: F) -> F::Output {
    Locks::memory().scope(future).await
}

const fn send<T: Send>(value: T) -> T {
    value
}

mod free {
    use super::*;

    #[zk_lock(path = "/plain/{id}", fair, timeout = "5s", wait = "1m 30s")]
    async fn plain(id: u64, #[guard] guard: &Guard) -> Result<String, Error> {
        assert_eq!(id, 1);
        Ok(held(guard))
    }

    #[zk_lock(path = "/barging/{id}", fair = false, timeout = 250ms, wait = "none",)]
    pub(crate) async fn barging(id: u64) -> Result<u64, Error> {
        Ok(id)
    }

    #[zk_lock(path = "/nobody/waits", timeout = "none", wait = "0s")]
    async fn constant() -> Result<(), Error> {
        Ok(())
    }

    #[tokio::test]
    async fn run() {
        assert_eq!(alone(send(plain(1))).await.unwrap(), "/plain/1");
        assert_eq!(alone(send(barging(2))).await.unwrap(), 2);
        alone(constant()).await.unwrap();
    }
}

mod bodies {
    use super::*;

    // `?` converts, and the last `Ok` takes the error type from the signature.
    #[zk_lock(path = "/question/{text}")]
    async fn question(text: &str) -> Result<i32, AppError> {
        let number = text.parse::<i32>()?;
        if number < 0 {
            return Err(AppError::Other("negative".to_owned()));
        }
        Ok(number.checked_add(1).unwrap_or_default())
    }

    // Inference that needs the return type from the start.
    #[zk_lock(path = "/inference/{count}")]
    async fn inference(count: u8) -> Result<Vec<String>, Box<dyn std::error::Error + Send + Sync>> {
        if count == 0 {
            Err("zero")?;
        }
        let all = (0..count).map(|n| n.to_string()).collect();
        Ok(all)
    }

    #[zk_lock(path = "/never/{id}")]
    async fn never(id: u8) -> Result<std::convert::Infallible, Error> {
        loop {
            if id == 1 {
                return Err(Error::Closed);
            }
            tokio::task::yield_now().await;
        }
    }

    #[zk_lock(path = "/anyhow/{id}")]
    async fn any(id: u8) -> anyhow::Result<()> {
        if id == 3 {
            anyhow::bail!("three")
        }
        Ok(())
    }

    type Alias<T> = Result<T, AppError>;
    type Whole = Alias<u8>;

    #[zk_lock(path = "/alias/{id}")]
    async fn alias(id: u8) -> Whole {
        Ok(id)
    }

    #[tokio::test]
    async fn run() {
        assert_eq!(alone(send(question("5"))).await.unwrap(), 6);
        assert!(matches!(alone(question("x")).await, Err(AppError::Other(_))));
        let negative = alone(question("-1")).await;
        assert!(matches!(negative, Err(AppError::Other(text)) if text == "negative"));
        let blank = alone(question(" ")).await;
        let Err(AppError::Lock(Error::InvalidPath { argument: Some(argument), .. })) = blank else {
            panic!("{blank:?}")
        };
        assert_eq!(argument, "text");
        assert_eq!(alone(send(inference(2))).await.unwrap(), ["0", "1"]);
        assert!(alone(inference(0)).await.is_err());
        assert!(alone(never(1)).await.is_err());
        assert_eq!(alone(any(3)).await.unwrap_err().to_string(), "three");
        assert_eq!(alone(alias(1)).await.unwrap(), 1);
        // No `Locks` at all.
        let nothing = any(1).await.unwrap_err();
        assert!(matches!(nothing.downcast_ref(), Some(Error::NotInstalled { .. })), "{nothing:?}");
    }
}

mod arguments {
    use super::*;

    #[zk_lock(path = "/generic/{key}/{order.region}/{n}-{order.lines.1.0}")]
    async fn generic<'a, K, const N: usize>(
        key: K,
        order: &'a Order,
        (n, mut m): (u8, u8),
        mut numbers: [u8; N],
        extra: impl Into<String> + Send,
        #[guard] guard: &Guard,
    ) -> Result<(impl Display, &'a str, String), AppError>
    where
        K: Display + Clone + Send,
    {
        m += n;
        numbers[0] = m;
        let extra: String = extra.into();
        Ok((format!("{key}{m}{}{extra}", numbers[0]), order.region.as_str(), held(guard)))
    }

    struct Tag(&'static str);

    #[zk_lock(path = "/destructured/{region}/{tag}/{r#type}")]
    async fn destructured(
        Order { region, .. }: Order,
        Tag(tag): Tag,
        r#type: u8,
        #[allow(unused_variables)] unused: u8,
        #[cfg(any())] absent: u8,
        #[guard] guard: &Guard,
    ) -> Result<(String, &'static str), Error> {
        let _ = r#type;
        drop(region);
        Ok((held(guard), tag))
    }

    // Moved into the path's value and into the body alike.
    #[zk_lock(path = "/moved/{name}/{name.len()}")]
    async fn moved(name: String) -> Result<String, Error> {
        Ok(name)
    }

    #[allow(clippy::used_underscore_binding)]
    #[zk_lock(path = "/unused/{_id}")]
    async fn unused(_id: u64) -> Result<(), Error> {
        Ok(())
    }

    #[zk_lock(path = "/rc/{name}")]
    async fn not_send(name: Rc<str>) -> Result<usize, Error> {
        tokio::task::yield_now().await;
        Ok(name.len())
    }

    // What the path is made of need not be `Send` where the body does not keep it.
    struct Local(Rc<u8>);

    impl Local {
        fn key(&self) -> Rc<u8> {
            Rc::clone(&self.0)
        }
    }

    #[zk_lock(path = "/local/{local.key()}")]
    async fn local_key(local: &Local) -> Result<(), Error> {
        let _ = local;
        Ok(())
    }

    #[zk_lock(path = "/{{braces}}/{id}")]
    async fn braces(id: u8, #[guard] guard: &Guard) -> Result<String, Error> {
        let _ = id;
        Ok(held(guard))
    }

    #[tokio::test]
    async fn run() {
        let order = order();
        let (shown, region, path) = alone(send(generic("k", &order, (1, 2), [0; 3], "z"))).await.unwrap();
        assert_eq!((shown.to_string(), region), ("k33z".to_owned(), "eu"));
        assert_eq!(path, "/generic/k/eu/1-2");
        let (path, tag) = alone(send(destructured(self::order(), Tag("t"), 9, 0))).await.unwrap();
        assert_eq!((&*path, tag), ("/destructured/eu/t/9", "t"));
        assert_eq!(alone(send(moved("abc".to_owned()))).await.unwrap(), "abc");
        alone(unused(1)).await.unwrap();
        assert_eq!(alone(not_send("abc".into())).await.unwrap(), 3);
        alone(local_key(&Local(Rc::new(1)))).await.unwrap();
        assert_eq!(alone(braces(1)).await.unwrap(), "/{braces}/1");
    }
}

mod methods {
    use super::*;

    struct Service {
        tenant: String,
        hits: u32,
    }

    impl Service {
        #[zk_lock(path = "/service/{self.tenant}/{order.id}")]
        async fn by_reference(&self, order: &Order) -> Result<&str, AppError> {
            let _ = order;
            Ok(&self.tenant)
        }

        #[zk_lock(path = "/service/{self.tenant}")]
        async fn by_mut(&mut self) -> Result<&mut u32, AppError> {
            self.hits += 1;
            Ok(&mut self.hits)
        }

        #[zk_lock(path = "/service/{self.tenant}")]
        async fn by_value(mut self) -> Result<Self, AppError> {
            self.hits += 1;
            Ok(self)
        }

        #[zk_lock(path = "/service/{self.tenant}")]
        async fn by_arc(self: Arc<Self>) -> Result<u32, AppError> {
            Ok(self.hits)
        }

        #[zk_lock(path = "/service/{self.tenant}")]
        async fn by_box(self: Box<Self>) -> Result<u32, AppError> {
            Ok(self.hits)
        }

        #[zk_lock(path = "/service/{self.tenant}")]
        async fn by_pin(self: std::pin::Pin<&mut Self>) -> Result<u32, AppError> {
            Ok(self.hits)
        }

        #[zk_lock(path = "/service")]
        async fn without() -> Result<u32, AppError> {
            Ok(0)
        }
    }

    trait Native {
        fn id(&self) -> u64;

        #[allow(async_fn_in_trait)]
        #[zk_lock(path = "/native/{self.id()}")]
        async fn default_body(&self) -> Result<u64, AppError> {
            Ok(self.id())
        }

        fn required(&self, n: u64) -> impl Future<Output = Result<u64, Error>> + Send;
    }

    impl Native for Order {
        fn id(&self) -> u64 {
            self.id
        }

        #[zk_lock(path = "/native/{self.id}/{n}")]
        async fn required(&self, n: u64, #[guard] _guard: &Guard) -> Result<u64, Error> {
            Ok(self.id + n)
        }
    }

    #[tokio::test]
    async fn run() {
        let mut service = Service { tenant: "t".to_owned(), hits: 0 };
        let order = order();
        assert_eq!(alone(send(service.by_reference(&order))).await.unwrap(), "t");
        *alone(send(service.by_mut())).await.unwrap() += 1;
        let mut service = alone(send(service.by_value())).await.unwrap();
        assert_eq!(alone(send(std::pin::Pin::new(&mut service).by_pin())).await.unwrap(), 3);
        let service = Arc::new(service);
        assert_eq!(alone(send(Arc::clone(&service).by_arc())).await.unwrap(), 3);
        let service = Box::new(Arc::try_unwrap(service).ok().unwrap());
        assert_eq!(alone(send(service.by_box())).await.unwrap(), 3);
        assert_eq!(alone(send(Service::without())).await.unwrap(), 0);
        assert_eq!(alone(order.default_body()).await.unwrap(), 7);
        assert_eq!(alone(send(order.required(1))).await.unwrap(), 8);
    }

    #[tokio::test]
    async fn spawned() {
        let locks = Locks::memory();
        let sum = tokio::spawn(async move {
            locks
                .scope(async {
                    let mut service = Service { tenant: "t".to_owned(), hits: 1 };
                    *service.by_mut().await.unwrap() += 1;
                    service.hits
                })
                .await
        });
        assert_eq!(sum.await.unwrap(), 3);
    }
}
