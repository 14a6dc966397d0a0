use std::sync::Arc;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufStream},
    net::TcpStream,
};

use super::{locker::Locker, pool::Pool};

/// etcd's own lock service, spoken to as HTTP. A lease makes a contender, so each connection has its own.
#[derive(Clone)]
pub(super) struct Etcd(Arc<Inner>);

struct Inner {
    address: String,
    pool: Pool<Connection>,
}

struct Connection {
    stream: BufStream<TcpStream>,
    lease: Value,
}

pub(super) struct Held {
    connection: Connection,
    key: Value,
}

/// Longer than any run: nobody keeps it alive.
const LEASE_SECONDS: u32 = 3_600;

impl Etcd {
    pub(super) fn new(address: &str) -> Self {
        Self(Arc::new(Inner { address: address.into(), pool: Pool::default() }))
    }

    async fn connect(&self) -> anyhow::Result<Connection> {
        let stream = TcpStream::connect(&self.0.address).await?;
        stream.set_nodelay(true)?;
        let mut stream = BufStream::new(stream);
        let granted = post(&mut stream, "/v3/lease/grant", &json!({ "TTL": LEASE_SECONDS })).await?;
        Ok(Connection { stream, lease: granted.get("ID").context("no lease")?.clone() })
    }
}

impl Locker for Etcd {
    type Held = Held;

    async fn acquire(&self, path: &str) -> anyhow::Result<Held> {
        let mut connection = match self.0.pool.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let body = json!({ "name": base64(path.as_bytes()), "lease": connection.lease });
        let locked = post(&mut connection.stream, "/v3/lock/lock", &body).await?;
        let key = locked.get("key").with_context(|| format!("no key in {locked}"))?.clone();
        Ok(Held { connection, key })
    }

    async fn release(&self, mut held: Held) -> anyhow::Result<()> {
        let body = json!({ "key": held.key });
        post(&mut held.connection.stream, "/v3/lock/unlock", &body).await?;
        self.0.pool.put(held.connection);
        Ok(())
    }
}

async fn post(stream: &mut BufStream<TcpStream>, path: &str, body: &Value) -> anyhow::Result<Value> {
    let body = body.to_string();
    let head = format!("POST {path} HTTP/1.1\r\nHost: etcd\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.flush().await?;
    let (mut status, mut length) = (String::new(), None);
    loop {
        let mut line = String::new();
        ensure!(stream.read_line(&mut line).await? > 0, "etcd hung up");
        let line = line.trim_end();
        if status.is_empty() {
            line.clone_into(&mut status);
        } else if line.is_empty() {
            break;
        } else if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = Some(value.trim().parse::<usize>()?);
        }
    }
    let answer = match length {
        Some(length) => exactly(stream, length).await?,
        None => chunks(stream).await?,
    };
    ensure!(status.contains(" 200 "), "etcd says: {status} {}", String::from_utf8_lossy(&answer));
    Ok(serde_json::from_slice(&answer)?)
}

async fn exactly(stream: &mut BufStream<TcpStream>, length: usize) -> anyhow::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

async fn chunks(stream: &mut BufStream<TcpStream>) -> anyhow::Result<Vec<u8>> {
    let mut answer = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let length = usize::from_str_radix(line.trim(), 16)?;
        answer.extend(exactly(stream, length).await?);
        exactly(stream, 2).await?;
        if length == 0 {
            return Ok(answer);
        }
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits =
            three.iter().fold(0u32, |bits, &byte| bits << 8 | u32::from(byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= three.len() { digit.into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_is_that_of_the_standard() {
        let cases = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (plain, encoded) in cases {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }
}
