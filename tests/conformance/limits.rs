use std::time::{Duration, Instant};

use zklock::{Error, LostReason};

use crate::support::{GRACE, Outcome, World, soon};

const HOUR: Duration = Duration::from_hours(1);

pub(crate) async fn extending_moves_the_limit_later(world: World) -> Outcome {
    let locks = world.locks().await?;
    let limit = Duration::from_millis(400);
    let guard = locks.mutex("/a").timeout(limit).acquire().await?;
    let other = locks.mutex("/b").timeout(limit).acquire().await?;
    guard.extend(HOUR)?;
    assert!(guard.remaining().is_some_and(|remaining| remaining > limit));
    assert_eq!(soon("the limit of the other", other.lost()).await, LostReason::Overrun);
    assert!(guard.is_held(), "its own limit came later");
    guard.release().await?;
    Ok(())
}

pub(crate) async fn extending_moves_the_limit_earlier(world: World) -> Outcome {
    let [locks, other] = [world.locks().await?, world.locks().await?];
    let guard = locks.mutex("/a").timeout(HOUR).acquire().await?;
    let brief = Duration::from_millis(50);
    let asked = Instant::now();
    guard.extend(brief)?;
    assert!(guard.remaining().is_some_and(|remaining| remaining <= brief));
    assert_eq!(soon("the earlier limit", guard.lost()).await, LostReason::Overrun);
    assert!(asked.elapsed() >= brief);
    soon("the lock", other.mutex("/a").acquire()).await?.release().await?;
    Ok(())
}

pub(crate) async fn extending_is_refused_when_it_is_over(world: World) -> Outcome {
    let locks = world.locks().await?;
    let guard = locks.mutex("/a").timeout(Duration::from_millis(20)).acquire().await?;
    soon("the limit", guard.lost()).await;
    let result = guard.extend(HOUR);
    assert!(matches!(result, Err(Error::Overrun { .. })), "{result:?}");
    assert!(!guard.is_held());
    let guard = locks.mutex("/b").timeout(None).acquire().await?;
    locks.close().await;
    let result = guard.extend(HOUR);
    assert!(matches!(result, Err(Error::Lost { reason: LostReason::Closed, .. })), "{result:?}");
    Ok(())
}

pub(crate) async fn extending_sets_a_limit_where_there_was_none(world: World) -> Outcome {
    let locks = world.locks().await?;
    let guard = locks.mutex("/a").timeout(None).acquire().await?;
    assert_eq!(guard.remaining(), None);
    guard.extend(Duration::from_millis(50))?;
    assert!(guard.remaining().is_some());
    assert_eq!(soon("the limit", guard.lost()).await, LostReason::Overrun);
    Ok(())
}

/// Whoever extends at the very moment at which the limit passes is told one thing, and that one happens: either the
/// lock is held for the new time, or it is over and is given back within the grace time.
pub(crate) async fn g06_extending_does_not_put_off_a_force_release(world: World) -> Outcome {
    let [locks, other] = [world.locks().await?, world.locks().await?];
    let limit = Duration::from_millis(3);
    for round in 0..60 {
        let guard = locks.mutex("/a").timeout(limit).acquire().await?;
        let granted = Instant::now();
        // Around the limit, by spinning: a timer is too coarse.
        let mut extended = Ok(());
        while granted.elapsed() < limit + Duration::from_micros(300) {
            extended = guard
                .extend(limit.saturating_sub(granted.elapsed()) + Duration::from_micros(20 * (round % 10)));
            if extended.is_err() {
                break;
            }
        }
        if extended.is_ok() {
            // Not over: then a last extension counts for as long as it says, or was refused.
            if guard.extend(HOUR).is_ok() {
                assert!(guard.is_held(), "extended, and over");
                tokio::time::sleep(Duration::from_millis(2)).await;
                assert!(guard.is_held(), "extended for an hour, and over");
                guard.release().await?;
                continue;
            }
        }
        assert!(!guard.is_held());
        // Nobody runs it: after the grace time it is taken back. The guard stays until then.
        let next = soon("the lock after the grace time", other.mutex("/a").acquire()).await?;
        drop(guard);
        assert!(next.is_held());
        next.release().await?;
        if round > 4 && granted.elapsed() > 5 * GRACE {
            break;
        }
    }
    Ok(())
}

pub(crate) async fn lost_tells_why(world: World) -> Outcome {
    let locks = world.locks().await?;
    let overrun = locks.mutex("/a").timeout(Duration::from_millis(20)).acquire().await?;
    assert_eq!(soon("the loss", overrun.lost()).await, LostReason::Overrun);
    assert_eq!(soon("the same again", overrun.lost()).await, LostReason::Overrun);
    let closed = locks.mutex("/b").timeout(None).acquire().await?;
    let both = async { tokio::join!(closed.lost(), closed.lost(), locks.close()) };
    let (one, two, ()) = soon("the loss", both).await;
    assert_eq!((one, two), (LostReason::Closed, LostReason::Closed));
    let error = closed.check().expect_err("lost");
    assert!(matches!(error, Error::Lost { reason: LostReason::Closed, .. }), "{error:?}");
    assert!(!error.is_retryable(), "what was done without a transaction stands");
    Ok(())
}

pub(crate) async fn remaining_runs_down(world: World) -> Outcome {
    let locks = world.locks().await?;
    let guard = locks.mutex("/a").timeout(HOUR).acquire().await?;
    let first = guard.remaining().expect("there is a limit");
    let later = guard.remaining().expect("there is a limit");
    assert!(first <= HOUR && later <= first);
    guard.extend(Duration::ZERO)?;
    assert_eq!(guard.remaining(), Some(Duration::ZERO));
    assert!(!guard.is_held());
    Ok(())
}
