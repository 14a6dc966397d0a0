use std::fmt::Write as _;
use std::time::Duration;

use crate::error::Error;
use crate::port::Port;
use crate::proxy::{Direction, Protocol, Proxy};
use crate::wait::wait_until;
use crate::zookeeper::{Chroot, Mode, Server, ZooKeeper, ZooKeeperBuilder};

/// Several ZooKeeper servers that replicate one another, with a [`Proxy`] on each link between two
/// of them and one before each for its clients. So a follower can be cut off from its leader, but
/// not from its clients, and answer them with what was.
///
/// Members are numbered from 0. Like a single [`ZooKeeper`] they are child processes that end when
/// this is dropped, and with the test process; `ZKLOCK_TEST_ZOOKEEPER` does not apply.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), zklock_testkit::Error> {
/// use zklock_testkit::{Direction, Ensemble};
///
/// let ensemble = Ensemble::start(3).await?;
/// let (leader, followers) = (ensemble.leader().await?, ensemble.followers().await?);
///
/// ensemble.link(leader, followers[0]).black_hole(Direction::Both);
/// // ... a client of ensemble.proxy(followers[0]) notices nothing for a while
/// ensemble.heal()?;
///
/// ensemble.member(leader).kill()?;
/// let next = ensemble.leader().await?;
/// assert_ne!(next, leader);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Ensemble {
    members: Vec<ZooKeeper>,
    proxies: Vec<Proxy>,
    links: Vec<OneWayLink>,
}

/// What one member uses to call another.
#[derive(Debug)]
struct OneWayLink {
    from: usize,
    to: usize,
    replication: Proxy,
    election: Proxy,
}

/// How long an election may take on a busy machine; usually it is a second or two.
const ELECTION_DEADLINE: Duration = Duration::from_mins(1);

impl Ensemble {
    /// Starts so many servers with the default settings, and waits until all serve: about two
    /// seconds for three of them.
    ///
    /// # Errors
    ///
    /// As for [`ZooKeeper::start`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the servers.
    pub async fn start(servers: usize) -> Result<Self, Error> {
        Self::start_with(servers, &ZooKeeper::builder()).await
    }

    /// Starts so many servers with other settings. A leader counts a follower as lost after four
    /// ticks without an answer (`syncLimit`), which is two seconds with the default tick.
    pub async fn start_with(servers: usize, settings: &ZooKeeperBuilder) -> Result<Self, Error> {
        let ports = Ports::claim(servers)?;
        let configs: Vec<_> = (0..servers).map(|server| ports.config(server)).collect();
        let mut members = Vec::new();
        let mut proxies = Vec::new();
        let (clients, links) = ports.into_links()?;
        for (server, (port, config)) in clients.into_iter().zip(configs).enumerate() {
            let member = ZooKeeper::member(Server::spawn(settings, port, Some(server + 1), &config)?);
            proxies.push(Proxy::start(member.connect_string()).await?);
            members.push(member);
        }
        let ensemble = Self { members, proxies, links };
        ensemble.wait_until_serving().await?;
        Ok(ensemble)
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// A member, to pause, kill or ask it; its address leads past the proxy.
    ///
    /// # Panics
    ///
    /// If there is no such member.
    pub fn member(&self, member: usize) -> &ZooKeeper {
        &self.members[member]
    }

    /// The link between a member and its clients.
    ///
    /// # Panics
    ///
    /// If there is no such member.
    pub fn proxy(&self, member: usize) -> &Proxy {
        &self.proxies[member]
    }

    /// The link between two members. It has two ends: [`Direction::ToServer`] is towards `there`,
    /// [`Direction::ToClient`] towards `here`.
    ///
    /// # Panics
    ///
    /// If there are no such members, or the two are one.
    pub fn link(&self, here: usize, there: usize) -> ServerLink<'_> {
        assert!(here != there && here.max(there) < self.len(), "no link between {here} and {there}");
        ServerLink { ensemble: self, here, there }
    }

    /// Cuts a member off from all others, but not from its clients.
    ///
    /// # Panics
    ///
    /// If there is no such member.
    pub fn isolate(&self, member: usize) {
        for other in (0..self.len()).filter(|other| *other != member) {
            self.link(member, other).black_hole(Direction::Both);
        }
    }

    /// Ends all faults of all links, those to clients included.
    pub fn heal(&self) -> Result<(), Error> {
        let between = self.links.iter().flat_map(|link| [&link.replication, &link.election]);
        between.chain(&self.proxies).try_for_each(Proxy::heal)
    }

    /// The member that leads, once one does; of two (one of them cut off and not aware of it yet) the
    /// one whose followers are more.
    ///
    /// # Errors
    ///
    /// [`Error::Deadline`] if none leads within a minute.
    pub async fn leader(&self) -> Result<usize, Error> {
        let mut leader = None;
        wait_until(ELECTION_DEADLINE, "a member to lead the ensemble", async || {
            let mut best = 0;
            for (number, member) in self.members.iter().enumerate() {
                if let Ok(Mode::Leader) = member.mode().await
                    && let Ok(followers) = member.metric("zk_synced_followers").await
                    && followers > best
                {
                    (leader, best) = (Some(number), followers);
                }
            }
            // A leader without a majority is on its way out.
            best + 1 > self.len() as u64 / 2 && leader.is_some()
        })
        .await?;
        leader.ok_or_else(|| Error::Answer { asked: "the ensemble".into(), answer: "no leader".into() })
    }

    /// The members that follow, as far as they know.
    pub async fn followers(&self) -> Result<Vec<usize>, Error> {
        let mut followers = Vec::new();
        for (number, member) in self.members.iter().enumerate() {
            if matches!(member.mode().await, Ok(Mode::Follower)) {
                followers.push(number);
            }
        }
        Ok(followers)
    }

    /// Waits until every member serves clients, at most a minute for each.
    pub async fn wait_until_serving(&self) -> Result<(), Error> {
        for member in &self.members {
            member.wait_until_serving().await?;
        }
        Ok(())
    }

    /// What an operator may do in despair: kills all servers that run, removes all their data, starts them again on the
    /// same ports, and waits until they serve. It is another ensemble then: all sessions are over, and transaction
    /// numbers start from the beginning.
    pub async fn wipe(&self) -> Result<(), Error> {
        self.members.iter().try_for_each(ZooKeeper::kill)?;
        self.members.iter().try_for_each(ZooKeeper::wipe_data)?;
        self.members.iter().try_for_each(ZooKeeper::start_again)?;
        self.wait_until_serving().await
    }

    /// Restarts the servers one after the other, as for an upgrade: the next one goes when the last one is back and
    /// follows a leader, so that there is a majority all the time.
    pub async fn restart_rolling(&self, order: impl IntoIterator<Item = usize>) -> Result<(), Error> {
        for member in order {
            self.member(member).restart().await?;
            self.leader().await?;
        }
        Ok(())
    }

    /// For ZooKeeper clients, by way of the proxies: `127.0.0.1:23456,127.0.0.1:23457,...`.
    pub fn connect_string(&self) -> String {
        let addresses: Vec<_> = self.proxies.iter().map(|proxy| proxy.addr().to_string()).collect();
        addresses.join(",")
    }

    /// For `zklock`, by way of the proxies: `zk://127.0.0.1:23456,127.0.0.1:23457,...`.
    pub fn url(&self) -> String {
        format!("zk://{}", self.connect_string())
    }

    /// Makes a node of its own for one test, `/<name>-<random>`.
    pub async fn chroot(&self, name: &str) -> Result<Chroot, Error> {
        let chroot = self.member(self.leader().await?).chroot(name).await?;
        Ok(chroot.via(self.connect_string()))
    }
}

/// The link between two members of an [`Ensemble`], over which they replicate and vote.
///
/// Faults are as those of a [`Proxy`]; [`Ensemble::heal`] ends them, too.
#[derive(Debug, Clone, Copy)]
pub struct ServerLink<'a> {
    ensemble: &'a Ensemble,
    here: usize,
    there: usize,
}

impl ServerLink<'_> {
    /// Ends all connections; the members connect again at once. See [`Proxy::cut`].
    pub fn cut(&self) {
        self.each(|proxy, _| proxy.cut());
    }

    /// Lets nothing through in this direction. See [`Proxy::black_hole`].
    pub fn black_hole(&self, direction: Direction) {
        self.each(|proxy, reversed| proxy.black_hole(turn(direction, reversed)));
    }

    /// Lets everything arrive later in this direction: a follower that lags. See [`Proxy::delay`].
    pub fn delay(&self, delay: Duration, direction: Direction) {
        self.each(|proxy, reversed| proxy.delay(delay, turn(direction, reversed)));
    }

    /// Ends the faults of this link.
    pub fn heal(&self) -> Result<(), Error> {
        let mut healed = Ok(());
        self.each(|proxy, _| healed = std::mem::replace(&mut healed, Ok(())).and_then(|()| proxy.heal()));
        healed
    }

    /// All proxies between the two, and whether it is the other side that calls through them.
    fn each(&self, mut act: impl FnMut(&Proxy, bool)) {
        for link in &self.ensemble.links {
            let reversed = (link.from, link.to) == (self.there, self.here);
            if reversed || (link.from, link.to) == (self.here, self.there) {
                act(&link.replication, reversed);
                act(&link.election, reversed);
            }
        }
    }
}

fn turn(direction: Direction, reversed: bool) -> Direction {
    match direction {
        Direction::ToServer if reversed => Direction::ToClient,
        Direction::ToClient if reversed => Direction::ToServer,
        other => other,
    }
}

/// All ports of an ensemble, before anything runs on them.
struct Ports {
    servers: Vec<ServerPorts>,
    links: Vec<LinkPorts>,
}

struct ServerPorts {
    clients: Port,
    replication: Port,
    election: Port,
}

struct LinkPorts {
    from: usize,
    to: usize,
    replication: Port,
    election: Port,
}

impl Ports {
    fn claim(servers: usize) -> Result<Self, Error> {
        let pairs = (0..servers).flat_map(|from| (0..servers).map(move |to| (from, to)));
        Ok(Self {
            servers: (0..servers)
                .map(|_| {
                    let (clients, replication) = (Port::claim()?, Port::claim()?);
                    Ok(ServerPorts { clients, replication, election: Port::claim()? })
                })
                .collect::<Result<_, Error>>()?,
            links: pairs
                .filter(|(from, to)| from != to)
                .map(|(from, to)| {
                    Ok(LinkPorts { from, to, replication: Port::claim()?, election: Port::claim()? })
                })
                .collect::<Result<_, Error>>()?,
        })
    }

    /// The ensemble as one server sees it: itself where it is, the others behind proxies.
    fn config(&self, server: usize) -> Vec<String> {
        let mut lines = vec!["initLimit=10".to_owned(), "syncLimit=4".into()];
        for (other, ports) in self.servers.iter().enumerate() {
            let (replication, election) = match self.link(server, other) {
                Some(link) => (&link.replication, &link.election),
                None => (&ports.replication, &ports.election),
            };
            let mut line = String::new();
            // Writing to a String does not fail.
            let _ = write!(line, "server.{}=", other + 1);
            let _ = write!(line, "127.0.0.1:{}:{}", replication.number(), election.number());
            lines.push(line);
        }
        lines
    }

    fn link(&self, from: usize, to: usize) -> Option<&LinkPorts> {
        self.links.iter().find(|link| (link.from, link.to) == (from, to))
    }

    /// Starts the proxies between servers; what is left are the ports for clients.
    fn into_links(self) -> Result<(Vec<Port>, Vec<OneWayLink>), Error> {
        let address = |port: &Port| format!("127.0.0.1:{}", port.number());
        let real = |ports: &ServerPorts| (address(&ports.replication), address(&ports.election));
        let servers: Vec<_> = self.servers.iter().map(real).collect();
        let back: Vec<_> = self
            .links
            .iter()
            .map(|link| self.link(link.to, link.from).map(|back| address(&back.election)))
            .collect();
        let mut links = Vec::new();
        for (link, back) in self.links.into_iter().zip(back) {
            let (replication, election) = servers[link.to].clone();
            // Of two servers the one with the higher number keeps the connection for votes: called
            // by the other it hangs up, and calls back where the other said that it can be reached.
            let votes = Protocol::Election {
                address: servers[link.from].1.clone(),
                instead: back.unwrap_or_default(),
            };
            links.push(OneWayLink {
                from: link.from,
                to: link.to,
                replication: Proxy::on(link.replication, replication, Protocol::Replication)?,
                election: Proxy::on(link.election, election, votes)?,
            });
        }
        Ok((self.servers.into_iter().map(|ports| ports.clients).collect(), links))
    }
}
