use crate::error::Error;

/// Return types that can say that the lock, or the transaction, failed.
///
/// A function with `#[zk_lock]` returns something that an [`Error`] can be turned into. Every `Result<T, E>` is, where
/// `E: From<zklock::Error>`, under whatever name: also `anyhow::Result<T>`, `Result<T, Box<dyn std::error::Error>>` and
/// aliases of your own. For any other type, either implement this trait or name a function in the annotation:
/// `#[zk_lock(.., on_error = path)]`, which is called with the `Error` and gives what the function returns.
///
/// ```
/// # use zklock_runtime as zklock;
/// use zklock::{Error, FromLockError};
///
/// enum Answer {
///     Done,
///     TryLater,
///     Failed(String),
/// }
///
/// impl FromLockError for Answer {
///     fn from_lock_error(error: Error) -> Self {
///         if error.is_retryable() { Self::TryLater } else { Self::Failed(error.to_string()) }
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "a function with `#[zk_lock]` cannot return `{Self}`: it does not say how the lock may fail",
    label = "cannot be made from a lock error",
    note = "return `Result<T, E>` where `E: From<zklock::Error>`",
    note = "or name a function from `zklock::Error` to `{Self}` in the annotation: `on_error = path`"
)]
pub trait FromLockError: Sized {
    /// The return value for `error`.
    fn from_lock_error(error: Error) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T, E: From<Error>> FromLockError for Result<T, E> {
    fn from_lock_error(error: Error) -> Self {
        Err(error.into())
    }
}

/// Return types that say whether the transaction is to be committed.
///
/// Every `Result` is: `Ok` commits, `Err` rolls back. For any other type, either implement this trait or name a
/// function in the annotation: `#[zk_lock(.., transactional(commit_if = path))]`, which is called with a reference to
/// what the body returned. It also overrules what a `Result` says.
///
/// ```
/// # use zklock_runtime as zklock;
/// use zklock::Commits;
///
/// enum Answer {
///     Done,
///     TryLater,
/// }
///
/// impl Commits for Answer {
///     fn commits(&self) -> bool {
///         matches!(self, Self::Done)
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say whether the transaction is to be committed",
    label = "neither success nor failure",
    note = "return a `Result`, whose `Ok` commits and whose `Err` rolls back",
    note = "or name a function from `&{Self}` to `bool` in the annotation: `transactional(commit_if = path)`"
)]
pub trait Commits {
    /// Whether to commit; else the transaction is rolled back.
    fn commits(&self) -> bool;
}

impl<T, E> Commits for Result<T, E> {
    fn commits(&self) -> bool {
        self.is_ok()
    }
}
