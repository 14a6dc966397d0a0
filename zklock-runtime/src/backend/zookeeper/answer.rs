use zookeeper_client as zk;

use crate::{
    error::{Cause, Error},
    path::LockPath,
};

/// What an error of the client library says about the request that it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The server read it and did not do it.
    Refusal,
    /// It may or may not have been done: the answer was lost, or cannot be read.
    Unknown,
    /// The session is over, and every node that it had with it.
    SessionOver,
}

/// Sorts the errors of the client library. What is not known to be a refusal counts as unknown: a lost answer
/// comes as `ConnectionLoss`, `Custom` (a broken or silent connection), and more.
pub(super) fn kind(error: &zk::Error) -> Kind {
    match error {
        zk::Error::SessionExpired | zk::Error::AuthFailed | zk::Error::ClientClosed => Kind::SessionOver,
        zk::Error::NoNode
        | zk::Error::NoAuth
        | zk::Error::BadVersion
        | zk::Error::BadArguments(_)
        | zk::Error::NoChildrenForEphemerals
        | zk::Error::NodeExists
        | zk::Error::NotEmpty
        | zk::Error::InvalidAcl
        | zk::Error::NotReadOnly
        | zk::Error::NoWatcher
        | zk::Error::QuotaExceeded
        | zk::Error::Throttled
        | zk::Error::MarshallingError
        | zk::Error::Unimplemented
        | zk::Error::ReconfigDisabled => Kind::Refusal,
        // `SessionMoved` is unknown too: the request was not done, but whoever asks must ask again.
        _ => Kind::Unknown,
    }
}

/// Why an attempt to get a lock did not go on.
#[derive(Debug)]
pub(super) enum Setback {
    /// The session is over: start anew on the next one.
    SessionOver,
    /// For the caller.
    Failed(Error),
}

impl From<Error> for Setback {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// What the caller is told when the server refuses something that was to be done at `node`, for which `right` is
/// needed.
pub(super) fn refused(path: Option<&LockPath>, right: &str, node: &str, error: zk::Error) -> Error {
    match error {
        zk::Error::NoAuth => Error::Refused {
            path: path.cloned(),
            reason: format!(
                "the right {right} on node \"{node}\" is missing; grant it, or connect with the credentials (`auth`) \
                 that have it"
            ),
        },
        zk::Error::InvalidAcl => Error::Refused {
            path: path.cloned(),
            reason: format!(
                "the access list for node \"{node}\" was not taken; an `acl` for its creator needs credentials (`auth`)"
            ),
        },
        zk::Error::NoChildrenForEphemerals => match path {
            Some(path) => Error::WrongKind {
                path: path.clone(),
                found: format!("\"{node}\" is held, or stands in the way, as a plain node of `fair = false`"),
            },
            None => Error::Config {
                reason: format!("\"{node}\" is an ephemeral node, so nothing can be below it"),
            },
        },
        zk::Error::BadArguments(reason) => match path {
            Some(path) => {
                Error::InvalidPath { path: path.to_string(), argument: None, reason: (*reason).to_string() }
            }
            None => Error::Config { reason: format!("\"{node}\": {reason}") },
        },
        zk::Error::Unimplemented => Error::Backend {
            path: path.cloned(),
            source: Cause::new(format!(
                "the server does not know a request about \"{node}\": zklock needs ZooKeeper 3.5.3 or later"
            )),
        },
        error => Error::Backend { path: path.cloned(), source: Cause::new(error) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_surely_refused_is_unknown() {
        assert_eq!(kind(&zk::Error::ConnectionLoss), Kind::Unknown);
        assert_eq!(kind(&zk::Error::Timeout), Kind::Unknown);
        assert_eq!(kind(&zk::Error::SessionMoved), Kind::Unknown);
        assert_eq!(kind(&zk::Error::RuntimeInconsistent), Kind::Unknown);
        assert_eq!(kind(&zk::Error::UnexpectedErrorCode(-4)), Kind::Unknown);
        assert_eq!(kind(&zk::Error::NoNode), Kind::Refusal);
        assert_eq!(kind(&zk::Error::SessionExpired), Kind::SessionOver);
    }

    #[test]
    fn the_missing_right_is_named() {
        let path = LockPath::new("/orders/42").unwrap();
        let message = refused(Some(&path), "CREATE", "/shop/orders", zk::Error::NoAuth).to_string();
        assert!(
            message.contains("CREATE") && message.contains("/shop/orders") && message.contains("/orders/42")
        );
    }
}
