use std::time::{Duration, Instant};

use zklock::sqlx;
use zklock_testkit::{Chroot, Postgres, Signal, ZooKeeper};

use crate::{
    child::Child,
    counting::tables,
    roles::{DATABASE, MODE, SESSION, Shop, URL},
    support::{Outcome, soon},
};

/// The testkit's servers expire sessions in steps of this.
const TICK: Duration = Duration::from_millis(500);

struct Stage {
    chroot: Chroot,
    database: String,
    shop: Shop,
}

impl Stage {
    async fn set() -> Outcome<Self> {
        let chroot = ZooKeeper::shared().await?.chroot("dying").await?;
        let database = Postgres::shared().await?.create_database("dying").await?;
        let shop = Shop::open(&chroot.url(), &database, Duration::from_secs(10)).await?;
        tables(&shop).await?;
        Ok(Self { chroot, database, shop })
    }

    fn child(&self, role: &str, mode: &str, session: Duration) -> Outcome<Child> {
        let (url, session) = (self.chroot.url(), session.as_millis().to_string());
        Child::start(role, &[(URL, &url), (DATABASE, &self.database), (SESSION, &session), (MODE, mode)])
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g08_after_a_kill_the_next_one_has_the_lock_within_the_session_timeout() -> Outcome {
    let stage = Stage::set().await?;
    let session = Duration::from_secs(3);
    for (mode, fair) in [("fair", true), ("unfair", false)] {
        let lock = stage.shop.locks.mutex(format!("/held/{mode}")).fair(fair).timeout(None);
        let holder = stage.child("hold", mode, session)?;
        holder.says("held")?;
        assert!(lock.clone().try_acquire().await?.is_none());
        let waiter = tokio::spawn(lock.clone().acquire());
        let killed = Instant::now();
        holder.signal(Signal::Kill)?;
        let guard = soon("the lock of the dead", waiter).await??;
        let took = killed.elapsed();
        // The last is for a machine that has other things to do.
        assert!(took <= session + TICK + Duration::from_secs(2), "it took {took:?}");
        guard.release().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_hands_over_at_once_however_long_the_session_timeout() -> Outcome {
    let stage = Stage::set().await?;
    // Far longer than anything is waited for here.
    let session = Duration::from_mins(1);
    for (mode, fair) in [("fair", true), ("unfair", false)] {
        let lock = stage.shop.locks.mutex(format!("/held/{mode}")).fair(fair).timeout(None);
        let mut holder = stage.child("hold", mode, session)?;
        holder.says("held")?;
        let waiter = tokio::spawn(lock.clone().acquire());
        holder.tell("close")?;
        let guard = soon("the lock of the closed", waiter).await??;
        holder.says("closed")?;
        guard.release().await?;
        lock.clone().try_acquire().await?.expect("free").release().await?;
        holder.tell("end")?;
        holder.ends()?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g02_a_stopped_process_cannot_commit_when_it_goes_on() -> Outcome {
    stopped("fenced").await
}

#[tokio::test(flavor = "multi_thread")]
async fn g02_a_stopped_process_cannot_commit_when_it_goes_on_without_a_fence() -> Outcome {
    stopped("unfenced").await
}

async fn stopped(mode: &str) -> Outcome {
    let stage = Stage::set().await?;
    let mut late = stage.child("write", mode, Duration::from_secs(2))?;
    late.says("written")?;
    late.signal(Signal::Stop)?;
    // Its session ends, and the database rolls its transaction back by the limit of the lock.
    soon("the next holder's commit", stage.shop.write("the next one")).await?;
    // Its body returns as soon as it runs again, and all it has looked at is from long ago.
    late.tell("go on")?;
    late.signal(Signal::Continue)?;
    let refused = late.says("refused")?;
    let known = ["Lost", "Overrun", "Fenced", "NotCommitted", "TransactionEnded"];
    assert!(known.iter().any(|known| refused.contains(known)), "{refused}");
    late.says("wrote later")?;
    late.ends()?;
    let writers: Vec<String> =
        sqlx::query_scalar("SELECT writer FROM writes").fetch_all(&stage.shop.pool).await?;
    assert_eq!(writers, ["the next one", "later"]);
    let value: i64 = sqlx::query_scalar("SELECT value FROM counter").fetch_one(&stage.shop.pool).await?;
    assert_eq!(value, 2);
    Ok(())
}
