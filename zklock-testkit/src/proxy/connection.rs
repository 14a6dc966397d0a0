use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use super::conversation::{Conversation, Step};
use super::faults::Way;
use super::link::Link;
use super::rule::Rule;

/// Carries one connection to its end; gives the rule that cut it, if one did. Dropping the future
/// closes both sides.
pub(crate) async fn carry(
    link: &Link,
    client: TcpStream,
    conversation: &Mutex<Conversation>,
) -> Option<Rule> {
    // Over a dead link not even the wish to connect arrives.
    link.faults.subscribe().wait_for(|faults| !faults.black_holes(Way::ToServer)).await.ok()?;
    let server = connect(link).await.ok()?;
    for side in [&client, &server] {
        // A proxy that gathers bytes would be a fault that nobody asked for.
        side.set_nodelay(true).ok()?;
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let ended = tokio::try_join!(
        one_way(link, Way::ToServer, conversation, from_client, to_server),
        one_way(link, Way::ToClient, conversation, from_server, to_client),
    );
    match ended {
        Err(End::Cut(rule)) => Some(rule),
        Ok(_) | Err(End::Broken) => None,
    }
}

/// Between servers, connecting takes some patience: a server that was just elected may not listen
/// yet, and another that is turned away tries again, but one that gets through and is hung up on
/// starts a new election.
async fn connect(link: &Link) -> io::Result<TcpStream> {
    const PATIENCE: Duration = Duration::from_secs(2);
    const PAUSE: Duration = Duration::from_millis(10);

    let start = Instant::now();
    loop {
        match TcpStream::connect(&link.target).await {
            Err(_) if link.is_between_servers() && start.elapsed() < PATIENCE => sleep(PAUSE).await,
            connected => return connected,
        }
    }
}

/// Why a connection ends before both sides have said all.
enum End {
    Broken,
    Cut(Rule),
}

/// A step and when it is due.
type Queued = (Instant, Step);

async fn one_way(
    link: &Link,
    way: Way,
    conversation: &Mutex<Conversation>,
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
) -> Result<(), End> {
    // As much as a network would hold; then the sender has to wait.
    const CAPACITY: usize = 1_000;

    let (sender, receiver) = mpsc::channel(CAPACITY);
    tokio::try_join!(read(link, way, conversation, from, sender), write(link, way, receiver, to)).map(drop)
}

/// Reads on while bytes are held back or delayed, so that many can be on their way at a time.
async fn read(
    link: &Link,
    way: Way,
    conversation: &Mutex<Conversation>,
    mut from: OwnedReadHalf,
    queue: mpsc::Sender<Queued>,
) -> Result<(), End> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        // A connection that was reset ends for the other side too, but in its turn: what is on the
        // way, or held by a dead link, comes first.
        let length = from.read(&mut buffer).await.unwrap_or(0);
        if length == 0 {
            return Ok(());
        }
        let bytes = &buffer[..length];
        let steps = {
            let mut conversation = conversation.lock().unwrap_or_else(PoisonError::into_inner);
            match way {
                Way::ToServer => conversation.client_says(bytes, &link.rules),
                Way::ToClient => conversation.server_says(bytes),
            }
        };
        let due = Instant::now() + link.faults.borrow().delay(way);
        for step in steps {
            queue.send((due, step)).await.map_err(|_| End::Broken)?;
        }
    }
}

async fn write(
    link: &Link,
    way: Way,
    mut queue: mpsc::Receiver<Queued>,
    mut to: OwnedWriteHalf,
) -> Result<(), End> {
    let mut faults = link.faults.subscribe();
    loop {
        let next = queue.recv().await;
        if let Some((due, _)) = &next {
            sleep_until(*due).await;
        }
        // The sender lives as long as the link.
        faults.wait_for(|faults| !faults.black_holes(way)).await.map_err(|_| End::Broken)?;
        match next {
            Some((_, Step::Forward(bytes))) => to.write_all(&bytes).await.map_err(|_| End::Broken)?,
            Some((_, Step::Hold(rule))) => {
                rule.fire();
                rule.released().await;
            }
            Some((_, Step::Cut(rule))) => return Err(End::Cut(rule)),
            // The other side has said all.
            None => return to.shutdown().await.map_err(|_| End::Broken),
        }
    }
}
