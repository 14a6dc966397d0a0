use std::time::Duration;

use super::wire::Session;
use crate::error::Error;

/// Ends somebody else's session: a second client attaches to it with the same id and password, and
/// closes it. The server deletes the session's ephemeral nodes at once; the first client hears of it
/// when it connects again.
///
/// `connect_string` is that of any server that knows the session, without a chroot.
///
/// # Errors
///
/// [`Error::Io`] if there is no such session (any more), the password is wrong, or nothing answers
/// within 10 seconds.
///
/// ```no_run
/// # async fn example(id: i64, password: &[u8]) -> Result<(), zklock_testkit::Error> {
/// let zookeeper = zklock_testkit::ZooKeeper::shared().await?;
/// zklock_testkit::expire_session(zookeeper.connect_string(), id, password).await?;
/// # Ok(())
/// # }
/// ```
pub async fn expire_session(connect_string: &str, session_id: i64, password: &[u8]) -> Result<(), Error> {
    let server = connect_string.split(['/', ',']).next().unwrap_or_default();
    let expire = async { Session::attach(server, session_id, password).await?.close().await };
    let done = tokio::time::timeout(Duration::from_secs(10), expire).await;
    done.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
        .map_err(Error::io(format!("ending session {session_id:#x} at {server}")))
}
