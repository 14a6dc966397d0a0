use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, bail};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufStream},
    net::TcpStream,
};

use super::{locker::Locker, pool::Pool};

/// The usual recipe: SET NX with a time to live, tried again and again; deleted by a script where it is still ours.
#[derive(Clone)]
pub(super) struct Redis(Arc<Inner>);

struct Inner {
    address: String,
    pool: Pool<BufStream<TcpStream>>,
    tokens: AtomicU64,
}

pub(super) struct Held {
    connection: BufStream<TcpStream>,
    path: String,
    token: String,
}

const LEASE_MILLIS: &str = "30000";
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(1);
const DELETE_OURS: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

impl Redis {
    pub(super) fn new(address: &str) -> Self {
        Self(Arc::new(Inner { address: address.into(), pool: Pool::default(), tokens: AtomicU64::new(1) }))
    }
}

impl Locker for Redis {
    type Held = Held;

    async fn acquire(&self, path: &str) -> anyhow::Result<Held> {
        let mut connection = if let Some(connection) = self.0.pool.take() {
            connection
        } else {
            let stream = TcpStream::connect(&self.0.address).await?;
            stream.set_nodelay(true)?;
            BufStream::new(stream)
        };
        let token = self.0.tokens.fetch_add(1, Ordering::Relaxed).to_string();
        while ask(&mut connection, &["SET", path, &token, "NX", "PX", LEASE_MILLIS]).await?.is_none() {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(Held { connection, path: path.into(), token })
    }

    async fn release(&self, mut held: Held) -> anyhow::Result<()> {
        let deleted = ask(&mut held.connection, &["EVAL", DELETE_OURS, "1", &held.path, &held.token]).await?;
        anyhow::ensure!(deleted.as_deref() == Some("1"), "the lock was not ours any more");
        self.0.pool.put(held.connection);
        Ok(())
    }
}

/// Of the answers, those that these two questions have: simple text, a number, nothing, an error.
async fn ask(connection: &mut BufStream<TcpStream>, words: &[&str]) -> anyhow::Result<Option<String>> {
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        // Writing to a String does not fail.
        let _ = write!(request, "${}\r\n{word}\r\n", word.len());
    }
    connection.write_all(request.as_bytes()).await?;
    connection.flush().await?;
    let kind = connection.read_u8().await?;
    let mut line = String::new();
    connection.read_line(&mut line).await?;
    let line = line.trim_end();
    match kind {
        b'+' | b':' => Ok(Some(line.into())),
        b'$' if line == "-1" => Ok(None),
        b'-' => bail!("Redis says: {line}"),
        other => Err(anyhow::anyhow!("{}{line}", char::from(other))).context("an answer that nobody expects"),
    }
}
