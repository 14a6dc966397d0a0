//! What is on its way is held up between the client and the server, so that the order of things can be seen.

use std::{sync::Arc, time::Duration};

use tokio::{sync::oneshot, task::JoinHandle};
use zklock::Error;
use zklock_testkit::{Proxy, Rule};

use super::{
    create_behind_a_proxy, pool,
    shop::{Shop, Then},
    told::inside,
};
use crate::support::{Outcome, Problem, queued, soon};

async fn shop_behind_a_proxy() -> Outcome<(Arc<Shop>, Proxy)> {
    let (direct, via, proxy) = create_behind_a_proxy().await?;
    Ok((Arc::new(Shop::open_on(direct, pool(via, 1)).await?), proxy))
}

/// The answer to COMMIT is on its way: the lock is not free before it is there.
#[tokio::test]
async fn g04_the_lock_is_not_released_before_the_commit_is_acknowledged() -> Outcome {
    let (shop, proxy) = shop_behind_a_proxy().await?;
    // Whatever is done once, is done.
    soon("a call", shop.write(1, 1, Then::Return)).await?;
    let answer = proxy.hold_reply("COMMIT", 1);
    let call = tokio::spawn({
        let shop = shop.clone();
        async move { shop.write(2, 1, Then::Return).await }
    });
    answer.fired().await?;
    let waiter = tokio::spawn(shop.locks.mutex("/orders").acquire());
    queued(&shop.locks, "/orders", 2).await?;
    assert_eq!(shop.writer(2).await?, Some(1), "the server has committed");
    // Far longer than a release takes: nothing comes of it.
    for _ in 0..100 {
        tokio::task::yield_now().await;
        assert!(shop.locks.mutex("/orders").try_acquire().await?.is_none());
    }
    assert!(!waiter.is_finished() && !call.is_finished());
    answer.release();
    soon("the call", call).await??;
    soon("the lock", waiter).await??.release().await?;
    soon("a clean pool", shop.pool_is_clean()).await
}

/// A rollback that gets stuck: the lock is not free before the transaction is over, be it by another way.
#[tokio::test]
async fn g05_the_lock_is_not_released_before_the_rollback() -> Outcome {
    for way in ["dropped", "failed", "panicked"] {
        let (shop, proxy) = shop_behind_a_proxy().await?;
        soon("a call", shop.write(1, 1, Then::Return)).await?;
        let stuck = proxy.hold_request("ROLLBACK", 1);
        let (written, is_written) = oneshot::channel();
        let call = tokio::spawn({
            let shop = shop.clone();
            async move {
                match way {
                    "dropped" => shop.hang(2, 1, written, Then::Await).await,
                    "failed" => shop.write(2, 1, Then::Fail).await,
                    _ => shop.write(2, 1, Then::Panic).await,
                }
            }
        });
        if way == "dropped" {
            soon("the write", is_written).await?;
            call.abort();
        }
        stuck.fired().await?;
        let guard = soon("the lock", shop.locks.mutex("/orders").acquire()).await?;
        assert_eq!(shop.writer(2).await?, None);
        let writable = shop.is_writable_at_once(2).await?;
        assert!(writable.is_ok(), "released while the transaction was open ({way}): {writable:?}");
        guard.release().await?;
        stuck.release();
        let result = soon("the end of the call", call).await;
        assert!(!matches!(result, Ok(Ok(_))), "{way}: {result:?}");
        soon("a clean pool", shop.pool_is_clean()).await?;
    }
    Ok(())
}

/// A wait for BEGIN is no body.
#[tokio::test]
async fn g04_the_body_does_not_run_before_begin_is_answered() -> Outcome {
    let (shop, proxy) = shop_behind_a_proxy().await?;
    soon("a call", shop.write(1, 1, Then::Return)).await?;
    let answer = proxy.hold_reply("SAVEPOINT", 1);
    let (written, mut is_written) = oneshot::channel();
    let call = tokio::spawn({
        let shop = shop.clone();
        async move { shop.hang(2, 1, written, Then::Return).await }
    });
    answer.fired().await?;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(is_written.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Empty));
    assert!(shop.locks.mutex("/orders").try_acquire().await?.is_none(), "granted before BEGIN");
    answer.release();
    soon("the call", call).await??;
    assert_eq!(shop.writer(2).await?, Some(1));
    Ok(())
}

/// Two addresses of one server: what it says of itself tells that they are.
#[tokio::test]
async fn a_transaction_inside_another_by_another_way_to_the_database_is_refused() -> Outcome {
    let (direct, via, _proxy) = create_behind_a_proxy().await?;
    let shop = Shop::open_on(direct.clone(), pool(direct, 1)).await?;
    let result = soon("a refusal", inside(&shop, &pool(via, 1))).await;
    assert!(matches!(result, Err(Problem::Lock(Error::NestedTransaction { .. }))), "{result:?}");
    assert_eq!((shop.writer(1).await?, shop.writer(2).await?), (None, None));
    for path in ["/inner", "/outer"] {
        queued(&shop.locks, path, 0).await?;
    }
    soon("a clean pool", shop.pool_is_clean()).await
}

/// A call whose COMMIT is on its way; or, when that has arrived, the answer to it.
async fn committing(shop: &Arc<Shop>, proxy: &Proxy, arrives: bool) -> Outcome<(Call, Rule)> {
    soon("a call", shop.write(1, 1, Then::Return)).await?;
    let held = if arrives { proxy.hold_reply("COMMIT", 1) } else { proxy.hold_request("COMMIT", 1) };
    let shop = shop.clone();
    let call = tokio::spawn(async move { shop.write(2, 1, Then::Return).await });
    held.fired().await?;
    Ok((call, held))
}

type Call = JoinHandle<Result<i64, Problem>>;

/// The answer to COMMIT decides what the caller is told, and closing waits for it, as long as it may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g12_a_close_during_commit_waits_for_its_answer() -> Outcome {
    for arrives in [true, false] {
        // With a grace time that does not pass meanwhile.
        let (direct, via, proxy) = create_behind_a_proxy().await?;
        let shop = Arc::new(Shop::open_with(direct, pool(via, 1), Duration::from_mins(1)).await?);
        let (call, held) = committing(&shop, &proxy, arrives).await?;
        let mut closing = Box::pin(shop.locks.close());
        // Longer than it takes without a COMMIT.
        let early = tokio::time::timeout(Duration::from_millis(300), &mut closing).await;
        assert!(early.is_err() && shop.locks.is_closed(), "it does not wait");
        assert!(!call.is_finished());
        held.release();
        soon("the answer", call).await??;
        assert_eq!(shop.writer(2).await?, Some(1));
        soon("closing", closing).await;
        soon("a clean pool", shop.pool_is_clean()).await?;
    }
    Ok(())
}

/// No answer comes: closing ends the transaction from outside when the grace time is over, and what has become of it is
/// told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g13_a_close_during_commit_is_bounded() -> Outcome {
    for arrives in [true, false] {
        let (shop, proxy) = shop_behind_a_proxy().await?;
        let (call, held) = committing(&shop, &proxy, arrives).await?;
        soon("closing without the answer", shop.locks.close()).await;
        assert_eq!(shop.writer(2).await?.is_some(), arrives);
        held.release();
        let result = soon("the answer", call).await?;
        match &result {
            Ok(_) => assert!(arrives),
            Err(Problem::Lock(Error::NotCommitted { .. })) => assert!(!arrives),
            Err(Problem::Lock(Error::CommitUnknown { .. })) => {}
            Err(problem) => panic!("{problem:?}"),
        }
        soon("a clean pool", shop.pool_is_clean()).await?;
    }
    Ok(())
}
