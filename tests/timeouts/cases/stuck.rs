//! SQLite has no link to hold up, but it calls out while it rolls back, and waits for the answer.

use std::{
    os::unix::fs::symlink,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use tokio::sync::{Notify, oneshot};
use zklock::{Error, sqlx::sqlite::SqlitePoolOptions};

use super::{
    create, pool,
    shop::{Shop, Then},
    told::inside,
};
use crate::support::{Outcome, Problem, queued, soon};

/// A shop on a pool of one connection, whose next rollback tells that it is on its way, and waits to be let go on.
async fn shop_whose_rollback_waits() -> Outcome<(Arc<Shop>, Arc<Notify>, mpsc::Sender<()>)> {
    let (go_on, goes_on) = mpsc::channel();
    let (reached, goes_on) = (Arc::new(Notify::new()), Arc::new(Mutex::new(goes_on)));
    let waits = Arc::new(AtomicBool::new(true));
    let options = create().await?;
    let stuck = SqlitePoolOptions::new().max_connections(1).after_connect({
        let reached = reached.clone();
        move |connection, _| {
            let (reached, goes_on, waits) = (reached.clone(), goes_on.clone(), waits.clone());
            Box::pin(async move {
                connection.lock_handle().await?.set_rollback_hook(move || {
                    if waits.swap(false, Ordering::SeqCst) {
                        reached.notify_one();
                        // An error means that the test is over.
                        let _ = goes_on.lock().expect("no panic").recv();
                    }
                });
                Ok(())
            })
        }
    });
    let stuck = stuck.connect_lazy_with(options.clone());
    let shop = Shop::open_with(options, stuck, Duration::from_mins(1)).await?;
    Ok((Arc::new(shop), reached, go_on))
}

#[tokio::test]
async fn g05_the_lock_is_not_released_before_the_rollback() -> Outcome {
    for way in ["dropped", "failed", "panicked"] {
        let (shop, reached, go_on) = shop_whose_rollback_waits().await?;
        let (written, is_written) = oneshot::channel();
        let call = tokio::spawn({
            let shop = shop.clone();
            async move {
                match way {
                    "dropped" => shop.hang(1, 1, written, Then::Await).await,
                    "failed" => shop.write(1, 1, Then::Fail).await,
                    _ => shop.write(1, 1, Then::Panic).await,
                }
            }
        });
        if way == "dropped" {
            soon("the write", is_written).await?;
            call.abort();
        }
        soon("the rollback", reached.notified()).await;
        let next = tokio::spawn(shop.locks.mutex("/orders").acquire());
        queued(&shop.locks, "/orders", 2).await?;
        // Far longer than a release takes: nothing comes of it.
        for _ in 0..100 {
            tokio::task::yield_now().await;
            let tried = shop.locks.mutex("/orders").try_acquire().await?;
            assert!(tried.is_none(), "{way}: free while the rollback is on its way");
        }
        assert!(!next.is_finished());
        go_on.send(())?;
        soon("the lock", next).await??.release().await?;
        shop.is_writable_at_once(1).await??;
        assert_eq!(shop.writer(1).await?, None, "{way}");
        soon("a clean pool", shop.pool_is_clean()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_transaction_inside_another_by_another_name_of_the_file_is_refused() -> Outcome {
    let options = create().await?;
    let shop = Shop::open_on(options.clone(), pool(options.clone(), 1)).await?;
    let link = options.get_filename().with_extension("link");
    let _ = std::fs::remove_file(&link);
    symlink(options.get_filename(), &link)?;
    let result = soon("a refusal", inside(&shop, &pool(options.filename(link), 1))).await;
    assert!(matches!(result, Err(Problem::Lock(Error::NestedTransaction { .. }))), "{result:?}");
    assert_eq!((shop.writer(1).await?, shop.writer(2).await?), (None, None));
    soon("a clean pool", shop.pool_is_clean()).await
}
