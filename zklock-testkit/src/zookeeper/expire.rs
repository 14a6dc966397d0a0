use std::time::Duration;

use super::ZooKeeper;
use super::wire::Session;
use crate::error::Error;

/// Ends somebody else's session: a second client attaches to it with the same id and password, and
/// closes it. The server deletes the session's ephemeral nodes at once; the first client hears of it
/// when it connects again.
///
/// `connect_string` is that of any server that knows the session; a chroot in it is ignored. Where a
/// client does not tell its password, use [`ZooKeeper::expire_session`].
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

impl ZooKeeper {
    /// Ends somebody else's session, as [`expire_session`] does, without knowing its password. The
    /// session of whoever holds an ephemeral node is [`Node::ephemeral_owner`](super::Node::ephemeral_owner).
    ///
    /// # Errors
    ///
    /// As [`expire_session`].
    pub async fn expire_session(&self, session_id: i64) -> Result<(), Error> {
        expire_session(self.connect_string(), session_id, &password_of(session_id)).await
    }
}

/// ZooKeeper's servers do not store passwords but derive them from the id, with Java's generator of
/// random numbers and a constant: `ZooKeeperServer.generatePasswd`.
fn password_of(session_id: i64) -> [u8; 16] {
    const SECRET: u64 = 0xB341_5C00;
    const MULTIPLIER: u64 = 0x5_DEEC_E66D;
    const MASK: u64 = (1 << 48) - 1;

    let mut state = (session_id.cast_unsigned() ^ SECRET ^ MULTIPLIER) & MASK;
    let mut password = [0; 16];
    for part in password.chunks_exact_mut(4) {
        state = state.wrapping_mul(MULTIPLIER).wrapping_add(0xB) & MASK;
        // 32 bits from the 17th on, the lowest byte first.
        part.copy_from_slice(&state.to_le_bytes()[2..6]);
    }
    password
}
