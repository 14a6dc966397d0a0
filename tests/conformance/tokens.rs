use std::time::Duration;

use crate::support::{Outcome, World, soon};

pub(crate) async fn g02_tokens_grow_with_every_grant(world: World) -> Outcome {
    let handles = world.handles(3).await?;
    for fair in [true, false] {
        let path = if fair { "/fair" } else { "/unfair" };
        let mut last = None;
        for round in 0..100 {
            let guard = handles[round % 3].mutex(path).fair(fair).acquire().await?;
            let token = guard.fencing_token();
            assert!(last < Some(token), "{token} came after {last:?}");
            last = Some(token);
            guard.release().await?;
        }
    }
    Ok(())
}

pub(crate) async fn g02_tokens_grow_across_kinds_and_force_releases(world: World) -> Outcome {
    let handles = world.handles(2).await?;
    let mut last = None;
    let mut kept = Vec::new();
    // On ZooKeeper each of them takes away the directory of its first fair lock only: before one that is unfair it must be
    // gone.
    for (who, fair) in [(0, true), (1, false), (1, true), (0, false), (0, true), (1, true)] {
        let lock = handles[who].mutex("/a").fair(fair);
        // Released by nobody: the next one gets it over the head of the last.
        let guard = loop {
            match soon("the next grant", lock.clone().timeout(Duration::from_millis(10)).acquire()).await {
                Err(zklock::Error::WrongKind { .. }) => tokio::time::sleep(Duration::from_millis(5)).await,
                other => break other?,
            }
        };
        let token = guard.fencing_token();
        assert!(last < Some(token), "{token} came after {last:?}");
        last = Some(token);
        kept.push(guard);
    }
    Ok(())
}

pub(crate) async fn tokens_sort_alike_as_values_bytes_and_text(world: World) -> Outcome {
    let handles = world.handles(2).await?;
    let mut tokens = Vec::new();
    for round in 0..40 {
        let guard = handles[round % 2].mutex("/a").acquire().await?;
        tokens.push(guard.fencing_token());
        guard.release().await?;
    }
    for pair in tokens.windows(2) {
        let [earlier, later] = [pair[0], pair[1]];
        assert!(earlier < later);
        assert!(earlier.to_bytes() < later.to_bytes());
        assert!(earlier.to_string() < later.to_string());
        assert_eq!(earlier.ensemble(), later.ensemble());
    }
    Ok(())
}
