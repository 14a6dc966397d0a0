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

/// The version that an answer to `srvr` tells, if it is too old for nodes that go when they are empty.
pub(crate) fn too_old(srvr: &str) -> Option<&str> {
    const OLDEST: [u32; 3] = [3, 5, 3];

    let version = srvr.lines().find_map(|line| line.strip_prefix("Zookeeper version: "))?;
    let version = version.split(['-', ',']).next()?;
    let numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    numbers.lt(OLDEST).then_some(version)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_versions_that_are_too_old() {
        let srvr = |version: &str| format!("Zookeeper version: {version}-0, built on x\nMode: standalone\n");
        assert_eq!(too_old(&srvr("3.4.13")), Some("3.4.13"));
        assert_eq!(too_old(&srvr("3.8.0")), None);
        assert_eq!(too_old(&srvr("3.10.0")), None);
        assert_eq!(Mode::from_srvr(&srvr("3.8.0")), Some(Mode::Standalone));
    }
}
