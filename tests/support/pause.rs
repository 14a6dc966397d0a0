use std::future::pending;

use tokio::sync::oneshot;

use super::{Outcome, soon};

/// A point in a body at which it waits to be told to go on: made by [`pause`].
pub(crate) struct Pause {
    reached: oneshot::Sender<()>,
    go_on: oneshot::Receiver<()>,
}

/// The other end of a [`Pause`]. A body whose other end is dropped waits for ever.
pub(crate) struct Paused {
    reached: Option<oneshot::Receiver<()>>,
    go_on: Option<oneshot::Sender<()>>,
}

pub(crate) fn pause() -> (Pause, Paused) {
    let (reached, is_reached) = oneshot::channel();
    let (go_on, goes_on) = oneshot::channel();
    (Pause { reached, go_on: goes_on }, Paused { reached: Some(is_reached), go_on: Some(go_on) })
}

impl Pause {
    pub(crate) async fn here(self) {
        let _ = self.reached.send(());
        if self.go_on.await.is_err() {
            pending::<()>().await;
        }
    }
}

impl Paused {
    /// Waits until the body is there.
    pub(crate) async fn reached(&mut self) -> Outcome {
        if let Some(reached) = self.reached.take() {
            soon("a body to get to its pause", reached).await?;
        }
        Ok(())
    }

    pub(crate) fn go_on(&mut self) {
        if let Some(go_on) = self.go_on.take() {
            // A body that was stopped meanwhile does not go on.
            let _ = go_on.send(());
        }
    }
}
