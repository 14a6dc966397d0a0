//! Calls that end in the middle: panics, runtimes that are shut down, futures that change their thread.

use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};
use zklock_testkit::Proxy;

use crate::{
    postgres::shop::{Shop, Then, via},
    support::{Outcome, chroot, patient, pause, soon},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g05_a_panic_rolls_back_and_releases() -> Outcome {
    let chroot = chroot().await?;
    let shop = Arc::new(Shop::open(patient(&chroot.url()), 1).await?);
    let other = shop.beside(patient(&chroot.url())).await?;
    let call = tokio::spawn({
        let shop = shop.clone();
        async move { shop.write(1, Then::Panic).await }
    });
    assert!(soon("the panic", call).await.is_err_and(|error| error.is_panic()));
    soon("the next call", other.write(2, Then::Return)).await?;
    assert!(!shop.is_written(1).await?);
    shop.is_clean().await
}

/// Another process, on a runtime of its own, with a proxy before its database.
async fn elsewhere(shop: &Shop, url: &str) -> Outcome<(Runtime, Arc<Shop>, Proxy)> {
    let proxy = Proxy::start(zklock::sqlx::ConnectOptions::to_url_lossy(&shop.direct).as_str()).await?;
    let (way, direct) = (via(&shop.direct, &proxy), shop.direct.clone());
    let locks = patient(url);
    tokio::task::spawn_blocking(move || {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let shop = runtime.block_on(Shop::over(locks, way, direct, 1))?;
        Ok((runtime, Arc::new(shop), proxy))
    })
    .await?
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g05_a_runtime_that_ends_takes_its_transaction_and_its_lock_with_it() -> Outcome {
    let url = chroot().await?.url();
    let shop = Shop::open(patient(&url), 2).await?;
    let (runtime, ended, _proxy) = elsewhere(&shop, &url).await?;
    let (at, mut paused) = pause();
    let call = {
        let ended = ended.clone();
        runtime.spawn(async move { ended.write(1, Then::Pause(at)).await })
    };
    paused.reached().await?;
    runtime.shutdown_background();
    assert!(soon("the end of the call", call).await.is_err_and(|error| error.is_cancelled()));
    soon("the next call", shop.write(2, Then::Return)).await?;
    assert!(!shop.is_written(1).await?);
    shop.is_clean().await
}

/// Shut down while COMMIT, or its answer, is on its way: what has reached the server counts, and the lock is not free
/// before that is certain.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g05_a_runtime_that_ends_during_commit_frees_the_lock() -> Outcome {
    let url = chroot().await?.url();
    let shop = Shop::open(patient(&url), 2).await?;
    for (id, arrives) in [(1, true), (2, false)] {
        let (runtime, ended, proxy) = elsewhere(&shop, &url).await?;
        let rule = if arrives { proxy.hold_reply("COMMIT", 1) } else { proxy.hold_request("COMMIT", 1) };
        let call = {
            let ended = ended.clone();
            runtime.spawn(async move { ended.write(id, Then::Return).await })
        };
        rule.fired().await?;
        runtime.shutdown_background();
        assert!(soon("the end of the call", call).await.is_err_and(|error| error.is_cancelled()));
        let next = soon("the lock", shop.locks.mutex("/orders").acquire()).await?;
        assert_eq!(shop.is_written(id).await?, arrives);
        next.release().await?;
        rule.release();
        shop.is_clean().await?;
        assert_eq!(shop.is_written(id).await?, arrives, "what came late did nothing");
    }
    Ok(())
}

/// A call that begins on one thread is carried to another, with another runtime, and commits and releases there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g05_a_call_that_changes_its_thread_is_committed_and_released_there() -> Outcome {
    let shop = Arc::new(Shop::open(patient(&chroot().await?.url()), 1).await?);
    let (at, mut paused) = pause();
    let mut call = Box::pin({
        let shop = shop.clone();
        async move { shop.write(1, Then::Pause(at)).await }
    });
    tokio::select! {
        result = &mut call => return Err(format!("it did not pause: {result:?}").into()),
        reached = paused.reached() => reached?,
    }
    paused.go_on();
    let thread = std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(soon("the call", call)).map_err(crate::support::Failure::from)
    });
    tokio::task::spawn_blocking(move || thread.join()).await?.map_err(|_| "the thread panicked")??;
    assert!(shop.is_written(1).await?);
    shop.is_clean().await
}
