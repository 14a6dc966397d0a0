mod connection;
mod conversation;
mod faults;
mod link;
mod request;
mod rule;
mod thread;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;

pub use self::faults::Direction;
use self::link::Link;
pub(crate) use self::link::Protocol;
pub use self::request::{Op, Request};
use self::rule::Action;
pub use self::rule::Rule;
use crate::error::Error;
use crate::port::Port;

/// A network that fails on demand: clients connect to it in place of the server, and it passes on
/// what both sides say, until told otherwise.
///
/// There are two kinds of faults. Those of the link: [`cut`](Self::cut), [`refuse`](Self::refuse),
/// [`black_hole`](Self::black_hole), [`delay`](Self::delay). And rules about one request, which know
/// the protocols of ZooKeeper, PostgreSQL and MySQL: [`swallow_reply`](Self::swallow_reply),
/// [`drop_request`](Self::drop_request), [`hold_reply`](Self::hold_reply),
/// [`hold_request`](Self::hold_request). [`heal`](Self::heal) ends them all.
///
/// A fault is there when the call returns. Each rule gives a handle that tells when it has happened,
/// so that no test needs to sleep.
///
/// It runs on a thread of its own, and so goes on when the test's runtime is blocked. It ends, with
/// its connections, when dropped. On an encrypted connection rules see nothing.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), zklock_testkit::Error> {
/// use zklock_testkit::{Op, Postgres, Proxy, ZooKeeper};
///
/// // The lock is taken, but the client does not learn of it.
/// let zookeeper = ZooKeeper::shared().await?;
/// let proxy = Proxy::start(zookeeper.connect_string()).await?;
/// let lost = proxy.swallow_reply(Op::Create, 1);
/// println!("connect to {}", proxy.url(&zookeeper.url()));
/// # drop(lost);
/// // lost.fired().await?;
///
/// // The transaction is committed, but the client does not learn of it.
/// let url = Postgres::shared().await?.create_database("shop").await?;
/// let proxy = Proxy::start(&url).await?;
/// let lost = proxy.swallow_reply("COMMIT", 1);
/// println!("connect to {}", proxy.url(&url));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Proxy {
    link: Arc<Link>,
    port: Port,
    listener: AbortHandle,
}

impl Proxy {
    /// Starts a proxy before a server, given as `host:port` or as any URL that has such a part.
    /// The server need not run yet: it is connected to for each client.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if there is no port, or no thread, to be had.
    pub async fn start(target: impl AsRef<str>) -> Result<Self, Error> {
        // Nothing to wait for; async so that this may change.
        std::future::ready(Self::between(server_in(target.as_ref()).1.to_owned(), Protocol::Clients)).await
    }

    pub(crate) fn between(target: String, speaks: Protocol) -> Result<Self, Error> {
        Self::on(Port::claim()?, target, speaks)
    }

    /// A proxy on a port that was claimed before.
    pub(crate) fn on(port: Port, target: String, speaks: Protocol) -> Result<Self, Error> {
        let runtime = thread::runtime().map_err(Error::io("starting a thread for proxies"))?;
        let link = Arc::new(Link::new(target, speaks));
        let listener = runtime.spawn(Arc::clone(&link).listen(port.number())).abort_handle();
        let proxy = Self { link, port, listener };
        proxy.wait_until_listening(true)?;
        Ok(proxy)
    }

    /// Where clients connect to.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port.number()).into()
    }

    /// The same URL, but by way of this proxy: host and port are replaced.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), zklock_testkit::Error> {
    /// let proxy = zklock_testkit::Proxy::start("127.0.0.1:5432").await?;
    /// let url = proxy.url("postgres://me:secret@127.0.0.1:5432/shop");
    /// assert_eq!(url, format!("postgres://me:secret@{}/shop", proxy.addr()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn url(&self, url: &str) -> String {
        let (before, _, after) = server_in(url);
        format!("{before}{}{after}", self.addr())
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.link.connections()
    }

    /// Ends all connections, at both sides; new ones are welcome. What was on its way is lost. They
    /// are closed when this returns.
    pub fn cut(&self) {
        // Fails only if the proxy's thread hangs, and then the test fails on its own.
        let _ = self.link.cut();
    }

    /// Turns new connections away, as a machine does where no server runs; those that there are go
    /// on.
    pub fn refuse(&self) {
        self.link.faults.send_modify(|faults| faults.refuse = true);
        let _ = self.link.wait_until_listening(false);
    }

    /// Lets nothing through any more in this direction, not even the end of a connection, as a
    /// network does that loses all packets: connections stay open, and new ones do not get to the
    /// server. After [`heal`](Self::heal) all of it arrives, since TCP would have sent it again.
    pub fn black_hole(&self, direction: Direction) {
        self.link.faults.send_modify(|faults| faults.set_black_hole(direction));
    }

    /// Lets bytes arrive this much later in this direction, in order, and as many at a time as
    /// before. Those that are on their way already keep their time.
    pub fn delay(&self, delay: Duration, direction: Direction) {
        self.link.faults.send_modify(|faults| faults.set_delay(delay, direction));
    }

    /// Ends all faults: connections are accepted, what was withheld arrives, delays are over, rules
    /// that have not happened yet will not happen.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the port is taken by someone else meanwhile.
    pub fn heal(&self) -> Result<(), Error> {
        self.link.rules.clear();
        self.link.faults.send_modify(|faults| *faults = faults::Faults::default());
        self.wait_until_listening(true)
    }

    /// Lets the `nth` request of this kind (the first is 1, counted from now over all connections)
    /// through to the server, waits for its answer, does not pass it on, and cuts the connection: the
    /// server has acted, and the client cannot know.
    ///
    /// For a database the whole answer is withheld on PostgreSQL, and all from its first packet on
    /// MySQL, which is the whole for statements that give no rows.
    pub fn swallow_reply(&self, request: impl Into<Request>, nth: u64) -> Rule {
        self.link.rules.add(request.into(), nth, Action::SwallowReply)
    }

    /// Cuts the connection when the `nth` request of this kind comes by, before it gets to the
    /// server: to the client it looks like [`swallow_reply`](Self::swallow_reply), but nothing has
    /// happened. (TCP does not lose a message and go on, so neither does this.)
    pub fn drop_request(&self, request: impl Into<Request>, nth: u64) -> Rule {
        self.link.rules.add(request.into(), nth, Action::DropRequest)
    }

    /// Keeps the answer to the `nth` request of this kind, and all that follows it, until
    /// [`Rule::release`]: the server has acted, and the client does not know yet.
    pub fn hold_reply(&self, request: impl Into<Request>, nth: u64) -> Rule {
        self.link.rules.add(request.into(), nth, Action::HoldReply)
    }

    /// Keeps the `nth` request of this kind, and all that follows it on its connection, until
    /// [`Rule::release`].
    pub fn hold_request(&self, request: impl Into<Request>, nth: u64) -> Rule {
        self.link.rules.add(request.into(), nth, Action::HoldRequest)
    }

    /// Counts requests of this kind from now on, with [`Rule::seen`], and does nothing to them.
    pub fn count(&self, request: impl Into<Request>) -> Rule {
        self.link.rules.add(request.into(), 0, Action::Count)
    }

    fn wait_until_listening(&self, listening: bool) -> Result<(), Error> {
        let waited = self.link.wait_until_listening(listening);
        waited.map_err(Error::io(format!("listening on port {}", self.port.number())))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // In this order: nobody comes in after the cut.
        self.refuse();
        self.listener.abort();
        self.cut();
    }
}

/// The part of a URL that names the server, between the two others.
fn server_in(url: &str) -> (&str, &str, &str) {
    let begin = url.find("://").map_or(0, |scheme| scheme + 3);
    let end = url[begin..].find(['/', '?']).map_or(url.len(), |slash| begin + slash);
    let begin = url[begin..end].rfind('@').map_or(begin, |account| begin + account + 1);
    (&url[..begin], &url[begin..end], &url[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_server_in_a_url() {
        assert_eq!(server_in("127.0.0.1:2181"), ("", "127.0.0.1:2181", ""));
        assert_eq!(server_in("zk://h:1/a/b"), ("zk://", "h:1", "/a/b"));
        assert_eq!(server_in("mysql://u:p@h:2/d?x=@"), ("mysql://u:p@", "h:2", "/d?x=@"));
    }
}
