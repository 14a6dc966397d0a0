/// Which requests a rule of a [`Proxy`](super::Proxy) is about.
///
/// Made from an [`Op`] for ZooKeeper, and from a text for databases: a statement that contains it, in
/// whatever case, be it sent as text or executed as a statement prepared before.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request {
    /// Every request but ZooKeeper's pings and what belongs to connecting.
    Any,
    /// ZooKeeper's requests of one kind.
    Op(Op),
    /// A database's statements that contain this text, in whatever case.
    Sql(String),
}

impl From<Op> for Request {
    fn from(op: Op) -> Self {
        Self::Op(op)
    }
}

impl From<&str> for Request {
    fn from(text: &str) -> Self {
        Self::Sql(text.to_owned())
    }
}

impl Request {
    pub(crate) fn covers(&self, seen: &Seen<'_>) -> bool {
        match (self, seen) {
            (Self::Any, Seen::Op(op)) => !matches!(op, Op::Ping | Op::Connect),
            (Self::Any, Seen::Sql(_)) => true,
            (Self::Op(wanted), Seen::Op(op)) => wanted == op,
            (Self::Sql(wanted), Seen::Sql(text)) => contains(text, wanted),
            _ => false,
        }
    }
}

/// A request on its way through a proxy.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen<'a> {
    Op(Op),
    Sql(&'a [u8]),
}

fn contains(text: &[u8], wanted: &str) -> bool {
    wanted.is_empty() || text.windows(wanted.len()).any(|part| part.eq_ignore_ascii_case(wanted.as_bytes()))
}

/// A kind of request in ZooKeeper's protocol. The two forms of `create` and of `getChildren`, which
/// differ in their answers only, are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// The first message of a connection: makes a session, or moves it here.
    Connect,
    /// Creates a node of a simple kind.
    Create,
    /// Creates a container.
    CreateContainer,
    /// Creates a node with a time to live.
    CreateTtl,
    /// Deletes a node.
    Delete,
    /// Asks whether a node exists, and maybe sets a watch.
    Exists,
    /// Reads a node's data, and maybe sets a watch.
    GetData,
    /// Writes a node's data.
    SetData,
    /// Lists a node's children, and maybe sets a watch.
    GetChildren,
    /// Lets the server catch up with the leader.
    Sync,
    /// Checks a node's version.
    Check,
    /// Several operations, all or none.
    Multi,
    /// Keeps the session alive.
    Ping,
    /// Sets watches again on a new connection.
    SetWatches,
    /// Sets a persistent watch.
    AddWatch,
    /// Removes watches.
    RemoveWatches,
    /// Adds credentials.
    Auth,
    /// Ends the session.
    CloseSession,
    /// Any other, by its number in `ZooDefs.OpCode`.
    Other(i32),
}

impl Op {
    pub(crate) fn from_code(code: i32) -> Self {
        match code {
            1 | 15 => Self::Create,
            2 => Self::Delete,
            3 => Self::Exists,
            4 => Self::GetData,
            5 => Self::SetData,
            8 | 12 => Self::GetChildren,
            9 => Self::Sync,
            11 => Self::Ping,
            13 => Self::Check,
            14 => Self::Multi,
            18 => Self::RemoveWatches,
            19 => Self::CreateContainer,
            21 => Self::CreateTtl,
            100 => Self::Auth,
            101 | 105 => Self::SetWatches,
            106 => Self::AddWatch,
            -11 => Self::CloseSession,
            other => Self::Other(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_found_in_any_case() {
        let commit = Request::from("commit");
        assert!(commit.covers(&Seen::Sql(b"RELEASE SAVEPOINT s; COMMIT")));
        assert!(!commit.covers(&Seen::Sql(b"ROLLBACK")));
        assert!(!commit.covers(&Seen::Op(Op::Create)));
    }

    #[test]
    fn any_leaves_out_what_comes_by_itself() {
        assert!(Request::Any.covers(&Seen::Op(Op::Sync)));
        assert!(!Request::Any.covers(&Seen::Op(Op::Ping)));
    }
}
