//! The attribute of zklock. Use the crate `zklock`, which re-exports it.
mod args;
mod boxed;
mod duration;
mod errors;
mod expand;
mod function;
#[cfg(test)]
mod golden;
mod injected;
mod plan;
mod template;

use proc_macro2::TokenStream;

use crate::{args::Args, errors::Errors, function::Function, injected::Injected, plan::Plan};

/// Runs an async function under a lock, and in a transaction if asked to.
///
/// ```
/// use zklock::{Error, Locks, zk_lock};
///
/// #[zk_lock(path = "/reports/{day}", timeout = "30s", wait = "2s")]
/// async fn build_report(day: u32) -> Result<u32, Error> {
///     // One process at a time gets here for one `day`.
///     Ok(day)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// Locks::memory().install();
/// assert_eq!(build_report(365).await?, 365);
/// # Ok(()) }
/// ```
///
/// A call takes the lock, begins the transaction, runs the body, commits, gives the lock back, and returns what the
/// body returned. Never in another order (G4), and the last two steps on every way out (G5): also when the body fails,
/// panics, or is dropped half-way. If the lock is not granted, the body does not run (G3).
///
/// # Arguments
///
/// All but `path` may be left out.
///
/// | argument | meaning | default |
/// |---|---|---|
/// | `path = "/orders/{id}"` | what is locked, see below | |
/// | `fair`, `fair = false` | first come, first served among all processes, or whoever is quickest. The same for a path everywhere | `true` |
/// | `timeout = "5s"` | how long the lock may be held before the body is stopped; `"none"` for no limit | that of the `Locks`: 5 s |
/// | `wait = "2s"` | how long it may take to get the lock, connecting included; `"0s"` to try once, `"none"` for no limit | that of the `Locks`: 30 s |
/// | `transactional`, `transactional(..)` | run in a database transaction, see below | none |
/// | `locks = self.locks` | the `Locks` to use: an expression that is one, or a reference or an `Arc` of one | the one installed, or that of `Locks::scope` |
/// | `on_error = path` | a function that makes the return value of a lock error, see below | `FromLockError` |
/// | `crate = path` | where this crate is, for macros that re-export it | `::zklock` |
///
/// Durations are made of `ms`, `s`, `m` and `h`: `"250ms"`, `"1m 30s"`. The quotes may be left out where there is one
/// unit: `timeout = 5s`.
///
/// # The path
///
/// In a string, `{..}` holds an argument of the function, a field of one, or a method of one that takes nothing; it is
/// checked at compile time and shown by its `Display`. `{{` and `}}` are the braces themselves.
///
/// ```
/// use zklock::{Error, zk_lock};
///
/// struct Order {
///     id: u64,
///     region: String,
/// }
///
/// struct Shop {
///     name: String,
/// }
///
/// impl Shop {
///     #[zk_lock(path = "/shops/{self.name}/orders/{order.region}-{order.id}")]
///     async fn ship(&self, order: &Order) -> Result<(), Error> {
///         Ok(())
///     }
/// }
/// ```
///
/// Each value is encoded so that it stays in its segment and that different values give different paths, whatever is in
/// them (G11); `LockPath` says how. A value that is empty or blank makes the call fail with `Error::InvalidPath`.
///
/// Any other expression is a path that is made already: a `LockPath`, a reference to one, or a `Result` with one.
///
/// ```
/// use zklock::{Error, LockPath, zk_lock};
///
/// #[zk_lock(path = LockPath::from_segments(["tenants", tenant]))]
/// async fn rename(tenant: &str) -> Result<(), Error> {
///     Ok(())
/// }
/// ```
///
/// The path is evaluated once, before anything else is done.
///
/// # The transaction
///
/// With `transactional`, one parameter is marked `#[tx]`. It is a `&mut` of the connection of your database, or of
/// sqlx's `Transaction<'_, ..>`: its type says which database is meant. Callers do not see it, and do not pass it.
///
/// ```
/// use zklock::{sqlx::{self, PgConnection}, zk_lock};
///
/// type AppError = Box<dyn std::error::Error + Send + Sync>;
///
/// #[zk_lock(path = "/orders/{id}", fair = true, timeout = "5s", transactional)]
/// async fn pay(id: i64, amount: i64, #[tx] tx: &mut PgConnection) -> Result<(), AppError> {
///     sqlx::query("UPDATE orders SET paid = paid + $1 WHERE id = $2").bind(amount).bind(id).execute(tx).await?;
///     Ok(())
/// }
///
/// # async fn caller() -> Result<(), AppError> {
/// pay(42, 100).await?;
/// # Ok(()) }
/// ```
///
/// `Ok` commits, `Err` rolls back. A holder that was superseded cannot commit (G2), and `Ok` is returned only if the
/// commit is known to have happened (G12).
///
/// | option of `transactional(..)` | meaning |
/// |---|---|
/// | `pool = self.db` | the pool to take the connection from; else the one that the `Locks` has for the database. A parameter that is a `&mut` of a connection or a transaction, or any `&mut ..`, is a transaction to join, in a savepoint |
/// | `isolation = "serializable"` | the level: also `"repeatable read"`, `"read committed"`, `"read uncommitted"`. Default: that of the database |
/// | `unfenced` | without the row of the fence table that keeps superseded holders from committing |
/// | `requires_new` | a transaction of its own where the caller has one open in the same database, which is an error else |
/// | `commit_if = path` | a function from `&R` to `bool`, for a return type `R` that is no `Result`, or to overrule it |
///
/// Whether the database is the same one is told before anything is begun where both connections come from one pool, or
/// from pools with the same address, database and user (on SQLite: the same file, by whatever name). Behind two
/// addresses of one server it is told after BEGIN, by what the server says of itself; a call that locks the same path
/// as its caller is not told by then, since it waits for its caller's fence row until its own `timeout` is over. What
/// is not told: that two users, or two databases of one server, come to the same tables by way of views or links,
/// and transactions that the caller has begun by hand, which are known only to a call that joins them.
///
/// # The guard
///
/// A parameter `#[guard] guard: &Guard` gets the lock itself: to read its fencing token, to see what time is left, to
/// extend it. Callers do not see it either.
///
/// ```
/// use zklock::{Error, Guard, zk_lock};
///
/// #[zk_lock(path = "/exports/{name}")]
/// async fn export(name: &str, #[guard] guard: &Guard) -> Result<String, Error> {
///     Ok(guard.fencing_token().to_string())
/// }
/// ```
///
/// # The return type
///
/// The lock may fail, so the function returns something that can say so: a `Result<T, E>` where `E: From<zklock::Error>`,
/// under whatever name, or a type of yours with `FromLockError`. For any other, `on_error` names a function from
/// `zklock::Error` to it:
///
/// ```
/// use zklock::{Error, zk_lock};
///
/// fn log(error: Error) {
///     eprintln!("not today: {error}");
/// }
///
/// #[zk_lock(path = "/nightly", wait = "0s", on_error = log)]
/// async fn nightly() {
///     // ..
/// }
/// ```
///
/// # Errors
///
/// Beside those of the body, all variants of `zklock::Error`, as its documentation says: `Busy` where `wait` was over,
/// `Overrun` where `timeout` was, `Lost`, `InvalidPath`, `NotInstalled`, and with a transaction `Fenced`, `NotCommitted`,
/// `CommitUnknown` and `TransactionEnded` among others.
///
/// # Cancel safety
///
/// A call may be dropped at any await: a place in the queue is given up, a transaction is rolled back, the lock is
/// released in the background. A COMMIT that is on its way when the call is dropped may still happen.
///
/// # What it goes on
///
/// Functions, methods with every receiver, methods in an `impl` of a trait, methods with a body in a trait; generic, with
/// lifetimes, patterns, and `impl Trait` in and out; also made by `macro_rules!`. `?` and `return` are as without the
/// attribute, the body's variables are dropped before its arguments, these before the transaction, and that before the
/// lock. No bound is added: the future is `Send` if what is kept over an await is. It is at most 512 bytes larger than
/// without the attribute, besides arguments that are `Copy`, or that the path is made of, by value: they are kept twice.
///
/// Together with other attributes:
///
/// - `#[async_trait]` stands on the `impl` or the `trait` as always. It renames arguments that are taken apart by a
///   pattern, so their parts cannot be in the path; the fields of an argument can.
/// - `#[instrument]` may be above or below. Above, its span includes the injected parameters, so skip `tx`; below, it
///   does not see them, nor the time that is waited for the lock.
/// - `#[tokio::test]` and `#[tokio::main]` go below, since they turn the function into one that is not `async`.
#[proc_macro_attribute]
pub fn zk_lock(args: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    expand(args.into(), item.into()).into()
}

/// The attribute as tests can call it.
fn expand(args: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let args = Args::parse(args, &mut errors);
    let mut function: Function = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            errors.push(not_a_function(&item).unwrap_or(error));
            return errors.beside(item);
        }
    };
    let tokens = function.body.as_ref().map(|body| body.tokens.clone()).unwrap_or_default();
    let injected = Injected::take(&mut function.sig, &tokens, &mut errors);
    let krate = args.krate.clone();
    match (Plan::new(args, &function, &injected, &mut errors), &function.body) {
        (Some(plan), Some(body)) => expand::expand(&plan, &function, body),
        _ => errors.beside(expand::untouched(krate.as_ref(), &function, &injected)),
    }
}

/// What to say about an item that is no function at all.
fn not_a_function(item: &TokenStream) -> Option<syn::Error> {
    let is_function = item.clone().into_iter().any(|token| token.to_string() == "fn");
    let message = "`#[zk_lock]` goes on an `async fn`: in an `impl` or a `trait`, on the method itself";
    (!is_function).then(|| syn::Error::new_spanned(item, message))
}
