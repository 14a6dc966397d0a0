use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::task::JoinHandle;
use zklock::{Error, Locks};

use crate::support::{Outcome, World, queued, soon};

/// A queue in which each waiter, once it is there, notes its number when its turn comes.
struct Line {
    watch: Locks,
    length: usize,
    served: Arc<Mutex<Vec<usize>>>,
}

impl Line {
    fn behind_one_holder(watch: Locks) -> Self {
        Self { watch, length: 1, served: Arc::default() }
    }

    /// Lets one more wait, and returns when it stands in the queue.
    async fn join(&mut self, locks: &Locks, number: usize) -> Outcome<JoinHandle<Result<(), Error>>> {
        let (lock, served) = (locks.mutex("/a").function("in line").timeout(None), self.served.clone());
        let task = tokio::spawn(async move {
            let guard = lock.acquire().await?;
            served.lock().expect("no panic").push(number);
            guard.release().await
        });
        self.length += 1;
        queued(&self.watch, "/a", self.length).await?;
        Ok(task)
    }

    fn served(&self) -> Vec<usize> {
        self.served.lock().expect("no panic").clone()
    }
}

pub(crate) async fn g09_first_come_first_served_across_handles(world: World) -> Outcome {
    let handles = world.handles(3).await?;
    let first = handles[0].mutex("/a").timeout(None).acquire().await?;
    let mut line = Line::behind_one_holder(handles[0].clone());
    let mut tasks = Vec::new();
    // Neighbours of one handle, and of two.
    for (number, handle) in [0, 0, 1, 2, 2, 1, 0, 2, 0, 1, 1, 0].into_iter().enumerate() {
        tasks.push(line.join(&handles[handle], number).await?);
    }
    first.release().await?;
    for task in tasks {
        soon("a turn", task).await??;
    }
    assert_eq!(line.served(), (0..12).collect::<Vec<_>>());
    Ok(())
}

pub(crate) async fn g09_cancelled_waiters_do_not_block_the_living(world: World) -> Outcome {
    let handles = world.handles(2).await?;
    let first = handles[0].mutex("/a").timeout(None).acquire().await?;
    let mut line = Line::behind_one_holder(handles[0].clone());
    let mut tasks = Vec::new();
    for number in 0..8 {
        tasks.push(line.join(&handles[number % 2], number).await?);
    }
    // The first, the last, and two neighbours.
    for cancelled in [0, 3, 4, 7] {
        tasks[cancelled].abort();
    }
    queued(&handles[1], "/a", 5).await?;
    first.release().await?;
    for (number, task) in tasks.into_iter().enumerate() {
        match soon("an end", task).await {
            Ok(done) => done?,
            Err(error) => assert!(error.is_cancelled() && [0, 3, 4, 7].contains(&number), "{error}"),
        }
    }
    assert_eq!(line.served(), [1, 2, 5, 6]);
    queued(&handles[0], "/a", 0).await
}

pub(crate) async fn g09_waiters_that_gave_up_do_not_block_the_living(world: World) -> Outcome {
    let handles = world.handles(2).await?;
    let first = handles[0].mutex("/a").timeout(None).acquire().await?;
    let mut line = Line::behind_one_holder(handles[0].clone());
    let brief = tokio::spawn({
        let locks = handles[1].clone();
        async move { locks.mutex("/a").wait(Duration::from_millis(300)).acquire().await.map(drop) }
    });
    let patient = soon("both in line", async {
        queued(&handles[0], "/a", 2).await?;
        line.length = 2;
        line.join(&handles[1], 1).await
    })
    .await;
    let gave_up = soon("an end of patience", brief).await?;
    assert!(matches!(gave_up, Err(Error::Busy { .. })), "{gave_up:?}");
    first.release().await?;
    soon("the turn of the patient one", patient?).await??;
    assert_eq!(line.served(), [1]);
    Ok(())
}

pub(crate) async fn g09_waiters_whose_locks_are_closed_do_not_block_the_living(world: World) -> Outcome {
    let [holder, other, dying] = [world.locks().await?, world.locks().await?, world.locks().await?];
    // In memory all handles are one: closing one is closing all.
    let independent = world.is_shared_by_processes();
    let first = holder.mutex("/a").timeout(None).acquire().await?;
    let mut line = Line::behind_one_holder(holder.clone());
    let one = line.join(&dying, 1).await?;
    let two = line.join(&other, 2).await?;
    let three = line.join(&dying, 3).await?;
    let four = line.join(&other, 4).await?;
    if independent {
        soon("closing", dying.close()).await;
        for task in [one, three] {
            let result = soon("a closed waiter", task).await?;
            assert!(matches!(result, Err(Error::Closed)), "{result:?}");
        }
    } else {
        for task in [one, three] {
            task.abort();
            assert!(soon("a cancelled waiter", task).await.is_err());
        }
    }
    first.release().await?;
    for task in [two, four] {
        soon("a turn", task).await??;
    }
    assert_eq!(line.served(), [2, 4]);
    Ok(())
}

pub(crate) async fn g09_a_late_try_does_not_overtake(world: World) -> Outcome {
    let handles = world.handles(2).await?;
    let first = handles[0].mutex("/a").timeout(None).acquire().await?;
    let mut line = Line::behind_one_holder(handles[0].clone());
    let mut tasks = Vec::new();
    for number in 0..6 {
        tasks.push(line.join(&handles[number % 2], number).await?);
    }
    drop(first);
    // Whatever moment of the hand-over they fall into, tries must not come before those that stood in line.
    let served = line.served.clone();
    let pushing = async {
        while handles[1].mutex("/a").try_acquire().await?.is_none() {}
        assert_eq!(served.lock().expect("no panic").len(), 6, "a try overtook");
        Ok::<_, Error>(())
    };
    soon("a try that succeeds", pushing).await?;
    for task in tasks {
        soon("a turn", task).await??;
    }
    assert_eq!(line.served(), (0..6).collect::<Vec<_>>());
    Ok(())
}
