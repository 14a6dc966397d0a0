//! Faults of a link, seen by plain sockets.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use zklock_testkit::{Direction, Error, Proxy, wait_until};

const ENOUGH: Duration = Duration::from_secs(30);
/// For what must not happen: long enough that it would have.
const A_WHILE: Duration = Duration::from_millis(200);

#[tokio::test]
async fn passes_on_what_both_sides_say() -> Result<(), Error> {
    let (_, proxy) = proxied_echo().await?;
    let mut client = connect(&proxy).await;
    let long = vec![b'x'; 3_000_000];
    let (mut from, mut to) = client.split();
    let mut answer = vec![0; long.len()];
    let (sent, received) = tokio::join!(to.write_all(&long), from.read_exact(&mut answer));
    sent.expect("all is sent");
    received.expect("all comes back");
    assert!(answer == long);
    to.shutdown().await.expect("the end is sent");
    assert_eq!(from.read(&mut answer).await.expect("the end comes back"), 0);
    Ok(())
}

#[tokio::test]
async fn a_cut_ends_connections_but_not_the_next() -> Result<(), Error> {
    let (_, proxy) = proxied_echo().await?;
    let mut client = connect(&proxy).await;
    assert_eq!(echo(&mut client).await, Some(b'?'));
    assert_eq!(proxy.connections(), 1);
    proxy.cut();
    assert_eq!(proxy.connections(), 0);
    assert_eq!(echo(&mut client).await, None);
    assert_eq!(echo(&mut connect(&proxy).await).await, Some(b'?'));
    Ok(())
}

#[tokio::test]
async fn refusing_turns_away_the_new_only() -> Result<(), Error> {
    let (_, proxy) = proxied_echo().await?;
    let mut client = connect(&proxy).await;
    assert_eq!(echo(&mut client).await, Some(b'?'));
    proxy.refuse();
    assert!(TcpStream::connect(proxy.addr()).await.is_err());
    assert_eq!(echo(&mut client).await, Some(b'?'));
    proxy.heal()?;
    assert_eq!(echo(&mut connect(&proxy).await).await, Some(b'?'));
    Ok(())
}

#[tokio::test]
async fn a_black_hole_swallows_one_way_until_healed() -> Result<(), Error> {
    for direction in [Direction::ToServer, Direction::ToClient, Direction::Both] {
        let (heard, proxy) = proxied_echo().await?;
        let mut client = connect(&proxy).await;
        assert_eq!(echo(&mut client).await, Some(b'?'));
        proxy.black_hole(direction);
        assert!(timeout(A_WHILE, echo(&mut client)).await.is_err(), "{direction:?}");
        let arrived = if direction == Direction::ToClient { 2 } else { 1 };
        assert_eq!(heard.load(std::sync::atomic::Ordering::SeqCst), arrived, "{direction:?}");
        proxy.heal()?;
        // The question from before is answered now.
        assert_eq!(timeout(ENOUGH, client.read_u8()).await.expect("in time").ok(), Some(b'?'));
    }
    Ok(())
}

#[tokio::test]
async fn no_connection_gets_through_a_black_hole() -> Result<(), Error> {
    let (_, proxy) = proxied_echo().await?;
    proxy.black_hole(Direction::Both);
    let mut client = connect(&proxy).await;
    assert!(timeout(A_WHILE, echo(&mut client)).await.is_err());
    proxy.heal()?;
    assert_eq!(timeout(ENOUGH, client.read_u8()).await.expect("in time").ok(), Some(b'?'));
    Ok(())
}

/// A peer that is cut off does not hear that the other is gone.
#[tokio::test]
async fn the_end_of_a_connection_does_not_get_through_a_black_hole() -> Result<(), Error> {
    let server = TcpListener::bind("127.0.0.1:0").await.expect("a server");
    let proxy = Proxy::start(server.local_addr().expect("its address").to_string()).await?;
    let mut client = connect(&proxy).await;
    let (accepted, _) = server.accept().await.expect("a connection");
    proxy.black_hole(Direction::ToClient);
    drop(accepted);
    assert!(timeout(A_WHILE, client.read_u8()).await.is_err());
    proxy.heal()?;
    assert!(timeout(ENOUGH, client.read_u8()).await.expect("in time").is_err());
    Ok(())
}

#[tokio::test]
async fn a_delay_is_not_a_bottleneck() -> Result<(), Error> {
    const DELAY: Duration = Duration::from_millis(100);
    const MESSAGES: u32 = 50;

    let (_, proxy) = proxied_echo().await?;
    let mut client = connect(&proxy).await;
    assert_eq!(echo(&mut client).await, Some(b'?'));
    proxy.delay(DELAY, Direction::ToServer);
    let start = Instant::now();
    for _ in 0..MESSAGES {
        client.write_u8(b'?').await.expect("it is sent");
        tokio::task::yield_now().await;
    }
    for _ in 0..MESSAGES {
        client.read_u8().await.expect("it comes back");
    }
    assert!(start.elapsed() >= DELAY);
    assert!(start.elapsed() < DELAY * MESSAGES / 2, "{:?}", start.elapsed());
    Ok(())
}

/// Everything that a test's runtime does stands still while a test blocks it.
#[tokio::test]
async fn goes_on_while_the_tests_runtime_is_blocked() -> Result<(), Error> {
    use std::io::{Read, Write};

    let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a server");
    let proxy = Proxy::start(server.local_addr().expect("its address").to_string()).await?;
    let mut client = std::net::TcpStream::connect(proxy.addr()).expect("a connection");
    let (mut accepted, _) = server.accept().expect("a connection");
    client.write_all(b"?").expect("it is sent");
    let mut heard = [0];
    accepted.read_exact(&mut heard).expect("it arrives");
    assert_eq!(heard, *b"?");
    Ok(())
}

#[tokio::test]
async fn a_dropped_proxy_leaves_nothing_behind() -> Result<(), Error> {
    let (_, proxy) = proxied_echo().await?;
    let mut client = connect(&proxy).await;
    assert_eq!(echo(&mut client).await, Some(b'?'));
    let addr = proxy.addr();
    drop(proxy);
    assert_eq!(echo(&mut client).await, None);
    assert!(TcpStream::connect(addr).await.is_err());
    Ok(())
}

#[tokio::test]
async fn a_client_hears_that_the_server_is_gone() -> Result<(), Error> {
    let server = TcpListener::bind("127.0.0.1:0").await.expect("a server");
    let proxy = Proxy::start(server.local_addr().expect("its address").to_string()).await?;
    let mut client = connect(&proxy).await;
    drop(server.accept().await.expect("a connection"));
    assert!(timeout(ENOUGH, client.read_u8()).await.expect("in time").is_err());
    drop(client);
    wait_until(ENOUGH, "the connection to be forgotten", async || proxy.connections() == 0).await?;
    drop(server);
    // Nobody there: the connection ends at once.
    let mut client = connect(&proxy).await;
    assert!(timeout(ENOUGH, client.read_u8()).await.expect("in time").is_err());
    Ok(())
}

type Heard = std::sync::Arc<std::sync::atomic::AtomicUsize>;

/// A server that says again what it hears, and how many bytes that was, behind a proxy. What it
/// speaks is nothing that the proxy knows.
async fn proxied_echo() -> Result<(Heard, Proxy), Error> {
    let server = TcpListener::bind("127.0.0.1:0").await.expect("a server");
    let proxy = Proxy::start(server.local_addr().expect("its address").to_string()).await?;
    let heard = Heard::default();
    let counter = heard.clone();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = server.accept().await {
            let counter = counter.clone();
            tokio::spawn(async move {
                // Long enough a greeting, and an impossible one.
                let mut greeting = [0; 8];
                client.read_exact(&mut greeting).await.ok()?;
                let mut bytes = vec![0; 10_000];
                loop {
                    let length = client.read(&mut bytes).await.ok().filter(|length| *length > 0)?;
                    counter.fetch_add(length, std::sync::atomic::Ordering::SeqCst);
                    client.write_all(&bytes[..length]).await.ok()?;
                }
                #[allow(unreachable_code)]
                Some(())
            });
        }
    });
    Ok((heard, proxy))
}

async fn connect(proxy: &Proxy) -> TcpStream {
    let mut client = TcpStream::connect(proxy.addr()).await.expect("a connection");
    client.write_all(b"greeting").await.expect("a greeting");
    client
}

async fn echo(client: &mut TcpStream) -> Option<u8> {
    client.write_u8(b'?').await.ok()?;
    client.read_u8().await.ok()
}
