//! ZooKeeper as far as a fair queue sees it: one directory, its contenders, sessions, and a follower that may lag.
//! Each function is one step of the leader, so that steps interleave and their insides do not.

use zookeeper_client as zk;

use super::fixed::Fixed;

/// A transaction. Only their order matters, so that they are numbered anew after each step: see
/// [`State::normalize`](super::State::normalize).
pub(super) type Zxid = u8;

/// A session of the server; the sessions of one client are numbered upwards.
pub(super) type SessionId = u8;

/// What names a contender's node: `_c_<uuid>-lock-<sequence>`, the uuid being that of one attempt of one contender.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Name {
    pub(super) who: u8,
    pub(super) attempt: u8,
    pub(super) sequence: i32,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Node {
    pub(super) name: Name,
    pub(super) owner: SessionId,
    pub(super) czxid: Zxid,
}

/// The children of the directory, in the order of their creation.
pub(super) type Nodes = Fixed<Node, 8>;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Server {
    pub(super) zxid: Zxid,
    pub(super) directory: Option<Directory>,
    pub(super) nodes: Nodes,
    /// What a follower shows that has stopped hearing of new transactions.
    pub(super) lagging: Option<Nodes>,
    /// Sessions that are not over, a bit each.
    pub(super) alive: u16,
    /// Sessions whose last heartbeat is so recent that their clients may trust in them.
    pub(super) fresh: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Directory {
    pub(super) made: Zxid,
    /// The sequence that the next contender is given.
    pub(super) counter: i32,
}

/// Which part of a create was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Directory,
    Contender,
}

impl Server {
    pub(super) fn new() -> Self {
        Self { zxid: 0, directory: None, nodes: Nodes::default(), lagging: None, alive: 0, fresh: 0 }
    }

    pub(super) fn open(&mut self, session: SessionId) {
        self.alive |= 1 << session;
        self.fresh |= 1 << session;
    }

    pub(super) fn is_alive(&self, session: SessionId) -> bool {
        self.alive & 1 << session != 0
    }

    pub(super) fn is_fresh(&self, session: SessionId) -> bool {
        self.fresh & 1 << session != 0
    }

    /// So much time has passed without a heartbeat that the client stops believing in the session.
    pub(super) fn lapse(&mut self, session: SessionId) {
        self.fresh &= !(1 << session);
    }

    /// A heartbeat is answered.
    pub(super) fn confirm(&mut self, session: SessionId) {
        self.fresh |= 1 << session;
    }

    /// Ends a session and takes its nodes away, in one transaction. Whoever believes in it is not told.
    pub(super) fn expire(&mut self, session: SessionId) {
        self.alive &= !(1 << session);
        self.nodes.retain(|node| node.owner != session);
    }

    /// Whether the next contender may be given the number past the end: the counter is stuck at its greatest value,
    /// but counts on while a create is still being written.
    pub(super) fn may_pass_the_end(&self) -> bool {
        self.directory.is_some_and(|directory| directory.counter == i32::MAX)
            && self.nodes.iter().any(|node| node.name.sequence == i32::MAX)
    }

    /// A multi of `create container` (if `found`), `create ephemeral-sequential`, and `set_data` of the directory.
    pub(super) fn create(
        &mut self,
        (who, attempt): (u8, u8),
        owner: SessionId,
        found: bool,
        past_the_end: bool,
    ) -> Result<Node, (Part, zk::Error)> {
        if !self.is_alive(owner) {
            return Err((Part::Contender, zk::Error::SessionExpired));
        }
        let czxid = self.zxid + 1;
        match (found, self.directory) {
            (true, Some(_)) => return Err((Part::Directory, zk::Error::NodeExists)),
            (true, None) => self.directory = Some(Directory { made: czxid, counter: 0 }),
            (false, _) => {}
        }
        let Some(directory) = &mut self.directory else { return Err((Part::Contender, zk::Error::NoNode)) };
        let sequence = if past_the_end { directory.counter.wrapping_add(1) } else { directory.counter };
        // `DataTree.createNode` keeps the greater count, so that it never wraps.
        directory.counter = directory.counter.max(sequence.wrapping_add(1));
        self.zxid = czxid;
        let node = Node { name: Name { who, attempt, sequence }, owner, czxid };
        self.nodes.push(node);
        Ok(node)
    }

    /// Deletes a contender, with its directory if asked for: all or nothing, with the place of what failed.
    pub(super) fn delete(&mut self, name: Name, with_directory: bool) -> Result<(), (usize, zk::Error)> {
        if !self.nodes.iter().any(|node| node.name == name) {
            return Err((0, zk::Error::NoNode));
        }
        if with_directory && self.nodes.iter().any(|node| node.name != name) {
            return Err((1, zk::Error::NotEmpty));
        }
        self.nodes.retain(|node| node.name != name);
        if with_directory {
            self.directory = None;
        }
        Ok(())
    }

    /// The server takes empty containers away.
    pub(super) fn sweep(&mut self) {
        self.directory = None;
    }

    pub(super) fn each_zxid(&mut self, f: &mut impl FnMut(&mut Zxid)) {
        if let Some(directory) = &mut self.directory {
            f(&mut directory.made);
        }
        for node in self.nodes.iter_mut() {
            f(&mut node.czxid);
        }
        for node in self.lagging.iter_mut().flat_map(Fixed::iter_mut) {
            f(&mut node.czxid);
        }
    }
}
