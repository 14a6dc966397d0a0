use std::{sync::Arc, time::Duration};

use super::{
    database::{Database, Verdict},
    fence::{Row, Stored},
    stop::Running,
};

/// How long one look may wait for the transaction to end by itself.
const LOOK: Duration = Duration::from_secs(2);

/// Finds out what became of a COMMIT whose answer is lost. `None` when the end of the transaction is not even
/// certain.
pub(crate) async fn resolve<DB: Database>(running: &Arc<Running<DB>>) -> Option<Verdict> {
    let verdict = look(running).await;
    if verdict.is_some() {
        return verdict;
    }
    // It may be open on a server that has not noticed that its client is gone. A COMMIT that is being carried out
    // is not undone by this.
    running.stop().await.ok()?;
    Some(look(running).await.unwrap_or(Verdict::Unknown))
}

/// On the engine's thread: the caller's runtime may have no life left in it.
async fn look<DB: Database>(running: &Arc<Running<DB>>) -> Option<Verdict> {
    running.row.as_ref()?;
    let look = running.clone();
    let task = running.engine().handle().spawn(async move {
        let row = look.row.as_ref()?;
        let verdict = DB::resolve(&look.options, &look.mark, row);
        match tokio::time::timeout(LOOK, verdict).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(error)) => {
                tracing::warn!(target: "zklock", key = row.key, %error, "the fate of a COMMIT could not be looked up");
                None
            }
            Err(_) => None,
        }
    });
    task.await.ok().flatten()
}

impl Row {
    /// What a row says of the transaction that was to write `self`, read when that transaction is known to be over.
    pub(crate) fn verdict(&self, stored: &Stored) -> Verdict {
        if stored.writer == self.writer {
            Verdict::Committed
        } else if stored.ensemble == self.ensemble && stored.token[..] < self.token[..] {
            // Raised by us within the transaction, and lower now: undone.
            Verdict::NotCommitted
        } else {
            // Overwritten by a newer grant or by another transaction of the same one, or adopted.
            Verdict::Unknown
        }
    }
}
