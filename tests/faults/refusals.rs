//! Servers that are not there, do not answer, or refuse: a typed error within its bound that says whom to ask, and
//! nothing left behind.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use zklock::{Acl, Error, Locks, sqlx, zk_lock};
use zklock_testkit::{Direction, Proxy, ZooKeeper};

use crate::{
    mariadb, postgres,
    postgres::shop::{Shop, Then},
    support::{Outcome, Problem, chroot, patient, queued, soon, until},
};

/// Much less than whatever would end a wait that had no bound: the session timeout, and how long tests wait.
const BOUND: Duration = Duration::from_secs(10);

#[zk_lock(path = "/orders", wait = "2s", timeout = "60s", locks = shop.locks, transactional)]
async fn impatient(shop: &Shop, id: i64, #[tx] tx: &mut postgres::Connection) -> Result<(), Problem> {
    Ok(postgres::shop::insert(tx, id).await?)
}

#[tokio::test]
async fn g13_a_wait_ends_though_the_server_is_silent() -> Outcome {
    without_a_server(|proxy| proxy.black_hole(Direction::Both)).await
}

/// The request arrives and is carried out, and nothing is heard of it.
#[tokio::test]
async fn g13_a_wait_ends_though_no_answer_comes_back() -> Outcome {
    without_a_server(|proxy| proxy.black_hole(Direction::ToClient)).await
}

#[tokio::test]
async fn g13_a_wait_ends_though_the_server_is_gone() -> Outcome {
    without_a_server(|proxy| {
        proxy.refuse();
        proxy.cut();
    })
    .await
}

async fn without_a_server(fault: impl Fn(&Proxy)) -> Outcome {
    let chroot = chroot().await?;
    let proxy = Proxy::start(ZooKeeper::shared().await?.connect_string()).await?;
    let locks = patient(&chroot.via(proxy.addr()).url()).session_timeout(Duration::from_mins(1));
    let shop = Shop::open(locks, 1).await?;
    soon("a call", shop.write(1, Then::Return)).await?;
    fault(&proxy);
    let asked = Instant::now();
    let result = soon("an answer", impatient(&shop, 2)).await;
    let took = asked.elapsed();
    let Err(Problem::Lock(error @ Error::Unavailable { .. })) = result else { panic!("{result:?}") };
    assert!(took >= Duration::from_secs(2) && took < BOUND, "{took:?}");
    assert!(error.to_string().contains(&proxy.addr().to_string()), "{error}");
    assert!(error.is_retryable());
    proxy.heal()?;
    // What it asked for may be carried out now.
    soon("a later call", shop.write(3, Then::Return)).await?;
    shop.is_clean().await?;
    assert!(!shop.is_written(2).await?);
    Ok(())
}

#[tokio::test]
async fn g13_connecting_is_bounded_by_its_own_limit() -> Outcome {
    let chroot = chroot().await?;
    let proxy = Proxy::start(ZooKeeper::shared().await?.connect_string()).await?;
    let locks = || {
        let locks = patient(&chroot.via(proxy.addr()).url()).session_timeout(Duration::from_mins(1));
        locks.connect_timeout(Duration::from_millis(700))
    };
    for silent in [true, false] {
        if silent {
            proxy.black_hole(Direction::Both);
        } else {
            proxy.refuse();
        }
        let asked = Instant::now();
        let error = soon("an answer", locks().connect()).await.expect_err("there is no server");
        let took = asked.elapsed();
        assert!(took >= Duration::from_millis(700) && took < Duration::from_secs(8), "{took:?}");
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(error.to_string().contains(&proxy.addr().to_string()), "{error}");
        proxy.heal()?;
    }
    soon("a connection", locks().connect_timeout(BOUND).connect()).await?.close().await;
    Ok(())
}

#[tokio::test]
async fn g13_a_missing_right_or_a_wrong_password_is_named() -> Outcome {
    let chroot = chroot().await?;
    let url = format!("{}/ours", chroot.url());
    let owner = patient(&url).auth("digest", "admin:secret").acl(Acl::Creator).connect().await?;
    let guard = soon("the lock", owner.mutex("/orders").acquire()).await?;
    let strangers = [
        ("without credentials", patient(&url)),
        ("with a wrong password", patient(&url).auth("digest", "admin:wrong").acl(Acl::Creator)),
        ("with an unknown scheme", patient(&url).auth("palm", "reading")),
    ];
    for (who, stranger) in strangers {
        let error = match soon("an answer", stranger.connect()).await {
            Ok(locks) => soon("an answer", locks.mutex("/orders").acquire()).await.map(drop),
            Err(error) => Err(error),
        }
        .expect_err(who);
        assert!(matches!(error, Error::Refused { .. }), "{who}: {error:?}");
        assert!(!error.is_retryable(), "waiting does not help");
        let message = error.to_string();
        assert!(
            message.contains("/ours") || message.contains("auth"),
            "neither the node nor the credentials are named {who}: {message}"
        );
    }
    queued(&owner, "/orders", 1).await?;
    guard.release().await?;
    Ok(())
}

#[tokio::test]
async fn g13_a_database_that_refuses_is_told_and_the_lock_is_free() -> Outcome {
    use mariadb::shop as maria;
    // Not there.
    let shop = Shop::open(patient(&chroot().await?.url()), 1).await?;
    let nowhere = shop.direct.clone().database("no_such_database");
    let url = chroot().await?.url();
    let lost = Shop::over(patient(&url), nowhere, shop.direct.clone(), 1).await?;
    let result = soon("an answer", lost.write(1, Then::Return)).await;
    is_database_error(&result, "no_such_database");
    queued(&lost.locks, "/orders", 0).await?;
    // A wrong password.
    let direct = maria::database().await?;
    let stranger = direct.clone().password("wrong");
    let lost = maria::Shop::over(patient(&url), stranger, direct, 1).await?;
    let result = soon("an answer", lost.write(1, maria::Then::Return)).await;
    is_database_error(&result, "denied");
    queued(&lost.locks, "/orders", 0).await?;
    assert!(!lost.is_written(1).await?);
    Ok(())
}

fn is_database_error(result: &Result<(), Problem>, says: &str) {
    let Err(Problem::Lock(error @ Error::Database { .. })) = result else { panic!("{result:?}") };
    assert!(error.to_string().contains(says), "{error}");
}

/// The lock is granted, and no connection of the pool is to be had.
#[tokio::test]
async fn g13_an_exhausted_pool_costs_no_lock() -> Outcome {
    let url = chroot().await?.url();
    let shop = Arc::new(Shop::open(patient(&url), 1).await?);
    let only = shop.pool.acquire().await?;
    // For as long as the lock may be held, if the pool itself waits longer.
    let result = soon("the limit", shop.write_briefly(1, Then::Return)).await;
    assert!(matches!(result, Err(Problem::Lock(Error::Database { .. }))), "{result:?}");
    queued(&shop.locks, "/orders", 0).await?;
    // Else for as long as the pool says.
    let pool =
        sqlx::postgres::PgPoolOptions::new().max_connections(1).acquire_timeout(Duration::from_millis(300));
    let pool = pool.connect_lazy_with(shop.direct.clone());
    let other = patient(&url).pool(pool.clone()).connect().await?;
    let other = Shop { locks: other, pool, direct: shop.direct.clone() };
    let taken = other.pool.acquire().await?;
    let result = soon("the pool's own limit", other.write(2, Then::Return)).await;
    assert!(matches!(result, Err(Problem::Lock(Error::Database { .. }))), "{result:?}");
    queued(&shop.locks, "/orders", 0).await?;
    drop((only, taken));
    for shop in [&*shop, &other] {
        shop.is_clean().await?;
    }
    assert!(!shop.is_written(1).await? && !shop.is_written(2).await?);
    Ok(())
}

/// A server that takes so many connections of one address, and no more.
#[tokio::test]
async fn g13_a_server_that_takes_no_more_connections_is_told_within_the_limit() -> Outcome {
    const CONNECTIONS: usize = 3;
    let limit = u32::try_from(CONNECTIONS)?;
    let server = ZooKeeper::builder().max_client_connections(limit).start().await?;
    let mut connected: Vec<Locks> = Vec::new();
    // Questions to the server take connections too, for a moment.
    until("all connections to be taken", async || {
        if connected.len() < CONNECTIONS {
            connected.extend(patient(&server.url()).connect().await.ok());
        }
        connected.len() == CONNECTIONS
    })
    .await?;
    let asked = Instant::now();
    let one_more = patient(&server.url()).connect_timeout(Duration::from_secs(1));
    let error = soon("an answer", one_more.connect()).await.expect_err("there are too many");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains(server.connect_string()), "{error}");
    assert!(asked.elapsed() < BOUND);
    // Those that are there are not disturbed, and when one goes there is room.
    let guard = soon("the lock", connected[0].mutex("/a").acquire()).await?;
    connected.swap_remove(1).close().await;
    let room = soon("a connection", patient(&server.url()).connect_timeout(BOUND).connect()).await?;
    assert!(room.mutex("/a").try_acquire().await?.is_none());
    guard.release().await?;
    soon("the lock", room.mutex("/a").acquire()).await?.release().await?;
    Ok(())
}
