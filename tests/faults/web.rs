//! A web service whose clients hang up: axum drops the handler, wherever it is.

use std::sync::{Arc, Mutex};

use axum::{
    Router,
    extract::{Path, State},
    http::StatusCode,
    routing::post,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
};
use zklock_testkit::{Op, Proxy, ZooKeeper};

use crate::{
    postgres::shop::{Shop, Then},
    support::{Outcome, Pause, Paused, chroot, patient, pause, queued, soon},
};

struct Service {
    shop: Shop,
    /// Where the body of the next call is to wait.
    at: Mutex<Option<Pause>>,
    /// Told when a handler is over, be it done or dropped.
    left: UnboundedSender<()>,
}

struct Leaving(UnboundedSender<()>);

impl Drop for Leaving {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

async fn write(State(service): State<Arc<Service>>, Path(id): Path<i64>) -> StatusCode {
    let _leaving = Leaving(service.left.clone());
    let at = service.at.lock().expect("no panic").take();
    match service.shop.write(id, at.map_or(Then::Return, Then::Pause)).await {
        Ok(()) => StatusCode::OK,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The service, with a proxy before each of its servers, and its pool of one connection.
struct Stage {
    service: Arc<Service>,
    address: std::net::SocketAddr,
    left: UnboundedReceiver<()>,
    lock_server: Proxy,
    database: Proxy,
}

impl Stage {
    async fn set() -> Outcome<Self> {
        let chroot = chroot().await?;
        let lock_server = Proxy::start(ZooKeeper::shared().await?.connect_string()).await?;
        let (shop, database) = Shop::behind(patient(&chroot.via(lock_server.addr()).url()), 1).await?;
        let (leaving, left) = unbounded_channel();
        let service = Arc::new(Service { shop, at: Mutex::default(), left: leaving });
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let router = Router::new().route("/orders/{id}", post(write)).with_state(service.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { service, address, left, lock_server, database })
    }

    fn shop(&self) -> &Shop {
        &self.service.shop
    }

    async fn ask(&self, id: i64) -> Outcome<TcpStream> {
        let mut client = TcpStream::connect(self.address).await?;
        let request = format!("POST /orders/{id} HTTP/1.1\r\nHost: shop\r\nContent-Length: 0\r\n\r\n");
        client.write_all(request.as_bytes()).await?;
        Ok(client)
    }

    fn pause_the_next(&self) -> Paused {
        let (at, paused) = pause();
        *self.service.at.lock().expect("no panic") = Some(at);
        paused
    }

    /// The client is gone, and the handler with it.
    async fn hang_up(&mut self, client: TcpStream) -> Outcome {
        drop(client);
        soon("the handler to be dropped", self.left.recv())
            .await
            .ok_or("the service lives")
            .map_err(Into::into)
    }

    /// Nothing is left of what was given up, and the next client is served.
    async fn serves_on(&mut self, id: i64) -> Outcome {
        self.shop().is_clean().await?;
        let mut client = self.ask(id).await?;
        let mut answer = [0; 12];
        soon("an answer", client.read_exact(&mut answer)).await?;
        assert_eq!(&answer, b"HTTP/1.1 200");
        assert!(self.shop().is_written(id).await?);
        self.left.recv().await.ok_or("the service lives")?;
        self.shop().is_clean().await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g05_a_client_that_hangs_up_while_its_handler_queues() -> Outcome {
    let mut stage = Stage::set().await?;
    let holder = stage.shop().locks.mutex("/orders").acquire().await?;
    let client = stage.ask(1).await?;
    queued(&stage.shop().locks, "/orders", 2).await?;
    stage.hang_up(client).await?;
    queued(&stage.shop().locks, "/orders", 1).await?;
    assert!(holder.is_held());
    holder.release().await?;
    assert!(!stage.shop().is_written(1).await?);
    stage.serves_on(2).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g05_a_client_that_hangs_up_while_its_handler_begins() -> Outcome {
    let mut stage = Stage::set().await?;
    let begin = stage.database.hold_request("BEGIN", 1);
    let client = stage.ask(1).await?;
    begin.fired().await?;
    stage.hang_up(client).await?;
    begin.release();
    stage.serves_on(2).await?;
    assert!(!stage.shop().is_written(1).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g05_a_client_that_hangs_up_while_its_handler_runs() -> Outcome {
    let mut stage = Stage::set().await?;
    let mut paused = stage.pause_the_next();
    let client = stage.ask(1).await?;
    paused.reached().await?;
    stage.hang_up(client).await?;
    stage.serves_on(2).await?;
    assert!(!stage.shop().is_written(1).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g05_a_client_that_hangs_up_while_its_handler_commits() -> Outcome {
    let mut stage = Stage::set().await?;
    let commit = stage.database.hold_request("COMMIT", 1);
    let client = stage.ask(1).await?;
    commit.fired().await?;
    stage.hang_up(client).await?;
    commit.release();
    stage.serves_on(2).await?;
    assert!(stage.shop().is_written(1).await?, "a COMMIT that was sent is seen through");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g05_a_client_that_hangs_up_while_its_handler_releases() -> Outcome {
    let mut stage = Stage::set().await?;
    let mut paused = stage.pause_the_next();
    let client = stage.ask(1).await?;
    paused.reached().await?;
    // From here on nothing is asked of the lock server but to take the node away.
    let release = [Op::Multi, Op::Delete].map(|op| stage.lock_server.hold_request(op, 1));
    paused.go_on();
    soon("the release", async {
        tokio::select! { fired = release[0].fired() => fired, fired = release[1].fired() => fired }
    })
    .await?;
    stage.hang_up(client).await?;
    release.iter().for_each(zklock_testkit::Rule::release);
    stage.serves_on(2).await?;
    assert!(stage.shop().is_written(1).await?);
    Ok(())
}
