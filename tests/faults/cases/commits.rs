use std::{sync::Arc, time::Duration};

use tokio::task::JoinHandle;
use zklock::{Error, HoldPhase};
use zklock_testkit::Proxy;

use super::{
    ENDS_SILENTLY,
    shop::{Shop, Then},
};
use crate::support::{Outcome, Problem, chroot, patient, queued, soon, until};

async fn behind(grace: Duration) -> Outcome<(Arc<Shop>, Proxy)> {
    let (shop, proxy) = Shop::behind(patient(&chroot().await?.url()).grace(grace), 2).await?;
    Ok((Arc::new(shop), proxy))
}

const GRACE: Duration = Duration::from_secs(1);

#[tokio::test]
async fn g12_a_commit_whose_answer_is_lost_is_ok_when_it_happened() -> Outcome {
    let (shop, proxy) = behind(GRACE).await?;
    let lost = proxy.swallow_reply("COMMIT", 1);
    soon("a call", shop.write(1, Then::Return)).await?;
    assert!(lost.has_fired());
    assert!(shop.is_written(1).await?);
    shop.is_clean().await
}

#[tokio::test]
async fn g12_a_commit_that_never_arrived_is_told_as_not_committed() -> Outcome {
    let (shop, proxy) = behind(GRACE).await?;
    let lost = proxy.drop_request("COMMIT", 1);
    let result = soon("a call", shop.write(1, Then::Return)).await;
    assert!(lost.has_fired());
    let Err(Problem::Lock(error @ Error::NotCommitted { .. })) = result else { panic!("{result:?}") };
    assert!(error.is_retryable(), "it surely had no effect");
    assert!(!shop.is_written(1).await?);
    shop.is_clean().await?;
    soon("the call again", shop.write(1, Then::Return)).await?;
    assert!(shop.is_written(1).await?);
    Ok(())
}

#[tokio::test]
async fn g12_without_a_fence_a_commit_without_an_answer_is_unknown() -> Outcome {
    let (shop, proxy) = behind(GRACE).await?;
    for (id, arrives) in [(1, true), (2, false)] {
        let lost = if arrives { proxy.swallow_reply("COMMIT", 1) } else { proxy.drop_request("COMMIT", 1) };
        let result = soon("a call", shop.write_unfenced(id, Then::Return)).await;
        assert!(lost.has_fired());
        let Err(Problem::Lock(error @ Error::CommitUnknown { .. })) = result else { panic!("{result:?}") };
        assert!(!error.is_retryable(), "it may have happened");
        assert_eq!(shop.is_written(id).await?, arrives);
        shop.is_clean().await?;
    }
    Ok(())
}

/// Cut before COMMIT was sent: it surely did not happen. Whether something else did is told as far as it is known: a
/// body may have ended the transaction itself, and the answer that would say so is the one that is lost.
#[tokio::test]
async fn g12_a_link_cut_right_before_commit_is_told_for_what_it_is() -> Outcome {
    let (shop, proxy) = behind(GRACE).await?;
    for unfenced in [false, true] {
        let lost = proxy.swallow_reply("RELEASE SAVEPOINT", 1);
        let result = if unfenced {
            soon("a call", shop.write_unfenced(1, Then::Return)).await
        } else {
            soon("a call", shop.write(1, Then::Return)).await
        };
        assert!(lost.has_fired());
        match &result {
            Err(Problem::Lock(Error::NotCommitted { .. })) if !unfenced && !ENDS_SILENTLY => {}
            Err(Problem::Lock(error @ Error::TransactionEnded { .. })) if unfenced || ENDS_SILENTLY => {
                assert!(!error.is_retryable(), "look first");
            }
            _ => panic!("{result:?}, without a fence: {unfenced}"),
        }
        assert!(!shop.is_written(1).await?);
        shop.is_clean().await?;
    }
    Ok(())
}

/// The limit passes while COMMIT is on its way: its answer is waited for, and nobody else comes in before it.
#[tokio::test]
async fn g06_a_limit_that_passes_during_commit_waits_for_the_answer() -> Outcome {
    tokio::try_join!(answered_late(true), answered_late(false))?;
    Ok(())
}

async fn answered_late(arrives: bool) -> Outcome {
    // Far more than it takes: the answer comes in time.
    let (shop, proxy) = behind(Duration::from_mins(1)).await?;
    let rule = if arrives { proxy.hold_reply("COMMIT", 1) } else { proxy.hold_request("COMMIT", 1) };
    let call = brief(&shop, 1, false);
    rule.fired().await?;
    let next = tokio::spawn(shop.locks.mutex("/orders").acquire());
    queued(&shop.locks, "/orders", 2).await?;
    until("the limit to pass", async || {
        let held = shop.locks.snapshot().held;
        held.iter().any(|held| {
            held.phase == HoldPhase::Committing && held.remaining.is_some_and(|left| left.is_zero())
        })
    })
    .await?;
    assert!(!call.is_finished() && !next.is_finished(), "COMMIT is on its way");
    rule.release();
    let result = soon("the answer", call).await?;
    let next = soon("the lock", next).await??;
    // The next holder has the lock, so what was told is there.
    match result {
        Ok(()) => assert!(shop.is_written(1).await?),
        // To the server the transaction is idle until COMMIT arrives, and it has the same limit.
        Err(Problem::Lock(Error::NotCommitted { .. })) if !arrives => assert!(!shop.is_written(1).await?),
        Err(problem) => return Err(problem.into()),
    }
    next.release().await?;
    shop.is_clean().await
}

/// The answer does not come: after limit and grace time the database itself is asked what became of it.
#[tokio::test]
async fn g06_a_limit_that_passes_during_a_commit_without_an_answer_is_bounded() -> Outcome {
    tokio::try_join!(
        unanswered(false, true),
        unanswered(false, false),
        unanswered(true, true),
        unanswered(true, false),
    )?;
    Ok(())
}

async fn unanswered(unfenced: bool, arrives: bool) -> Outcome {
    let (shop, proxy) = behind(GRACE).await?;
    let rule = if arrives { proxy.hold_reply("COMMIT", 1) } else { proxy.hold_request("COMMIT", 1) };
    let result = soon("an answer within limit and grace time", brief(&shop, 1, unfenced)).await?;
    assert!(rule.has_fired(), "{result:?}");
    let lock = soon("the lock", shop.locks.mutex("/orders").acquire()).await?;
    assert_eq!(shop.is_written(1).await?, arrives);
    is_honest(&result, unfenced, arrives);
    // What was held is sent now, to a transaction that is no more.
    rule.release();
    shop.pool_is_clean().await?;
    assert_eq!(shop.is_written(1).await?, arrives);
    lock.release().await?;
    shop.is_clean().await
}

fn is_honest(result: &Result<(), Problem>, unfenced: bool, arrives: bool) {
    match (result, unfenced, arrives) {
        (Ok(()), false, true)
        | (Err(Problem::Lock(Error::NotCommitted { .. })), false, false)
        | (Err(Problem::Lock(Error::CommitUnknown { .. })), true, _) => {}
        _ => panic!("{result:?} when it arrives: {arrives}, without a fence: {unfenced}"),
    }
}

fn brief(shop: &Arc<Shop>, id: i64, unfenced: bool) -> JoinHandle<Result<(), Problem>> {
    let shop = shop.clone();
    tokio::spawn(async move {
        if unfenced {
            shop.write_briefly_unfenced(id, Then::Return).await
        } else {
            shop.write_briefly(id, Then::Return).await
        }
    })
}
