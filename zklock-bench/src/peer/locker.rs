use std::future::Future;

/// A kind of lock, as its users use it in a loop.
pub(super) trait Locker: Clone + Send + Sync + 'static {
    type Held: Send;

    /// Whether a path that was never used before is made by `acquire`; else cold keys make no difference to it.
    const MAKES_PATHS: bool = true;

    /// What must be there before the clock starts.
    fn prepare(&self, path: &str) -> impl Future<Output = anyhow::Result<()>> + Send {
        let _ = path;
        async { Ok(()) }
    }

    fn acquire(&self, path: &str) -> impl Future<Output = anyhow::Result<Self::Held>> + Send;

    /// As `acquire`, for a hold without a limit.
    fn acquire_for_long(&self, path: &str) -> impl Future<Output = anyhow::Result<Self::Held>> + Send {
        self.acquire(path)
    }

    fn release(&self, held: Self::Held) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// Nothing that was released is still on its way.
    fn settled(&self) -> impl Future<Output = anyhow::Result<()>> + Send {
        async { Ok(()) }
    }

    /// Grows in the order in which holders must be served, where it can be told.
    fn place(&self, held: &Self::Held) -> Option<u128> {
        let _ = held;
        None
    }

    /// How many tasks wait, where it can be told.
    fn waiting(&self) -> Option<usize> {
        None
    }

    fn close(self) -> impl Future<Output = ()> + Send {
        async {}
    }
}
