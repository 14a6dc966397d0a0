use std::fmt;

/// A node made for one test: below it the test is alone, on a server that it shares with others.
///
/// Made by [`ZooKeeper::chroot`](super::ZooKeeper::chroot). It is not deleted at the end, so that it
/// can be looked at; it goes with the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chroot {
    servers: String,
    path: String,
}

impl Chroot {
    pub(crate) fn new(servers: impl Into<String>, path: impl Into<String>) -> Self {
        Self { servers: servers.into(), path: path.into() }
    }

    /// For `zklock`: `zk://127.0.0.1:23456/orders-1f3a`.
    pub fn url(&self) -> String {
        format!("zk://{self}")
    }

    /// For other clients: `127.0.0.1:23456/orders-1f3a`.
    pub fn connect_string(&self) -> String {
        self.to_string()
    }

    /// Where it is, seen from the root: `/orders-1f3a`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The same node by another way to the server, a [`Proxy`](crate::Proxy) for instance.
    #[must_use]
    pub fn via(&self, servers: impl fmt::Display) -> Self {
        Self { servers: servers.to_string(), path: self.path.clone() }
    }
}

impl fmt::Display for Chroot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.servers, self.path)
    }
}
