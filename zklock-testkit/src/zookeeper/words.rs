use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Asks one of ZooKeeper's four-letter words on a connection of its own.
///
/// A server that is stopped accepts connections and does not answer, hence the limit of 2 seconds.
pub(crate) async fn ask(server: &str, word: &str) -> io::Result<String> {
    tokio::time::timeout(Duration::from_secs(2), async {
        let mut stream = TcpStream::connect(server).await?;
        stream.write_all(word.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    })
    .await
    .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// The part that a server plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// It is alone.
    Standalone,
    /// It leads its ensemble.
    Leader,
    /// It follows the leader of its ensemble.
    Follower,
    /// It follows without a vote.
    Observer,
}

impl Mode {
    /// From the answer to `srvr`; none while the server serves nobody, as during an election.
    pub(crate) fn from_srvr(answer: &str) -> Option<Self> {
        match answer.lines().find_map(|line| line.strip_prefix("Mode: "))?.trim() {
            "standalone" => Some(Self::Standalone),
            "leader" => Some(Self::Leader),
            "follower" => Some(Self::Follower),
            "observer" => Some(Self::Observer),
            _ => None,
        }
    }
}
