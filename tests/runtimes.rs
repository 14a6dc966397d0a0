//! Under every kind of runtime, and with none: what zklock does for itself, it does on a thread of its own.

mod support;

use std::{
    fs,
    future::Future,
    pin::pin,
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use tokio::runtime::{Builder, Runtime};
use zklock::{Error, Locks, LostReason, zk_lock};
use zklock_testkit::ZooKeeper;

use self::support::{Outcome, SOON, World, alone, queued, soon, until};

/// Runs each case on every backend.
macro_rules! on_every_backend {
    ($($case:ident)+) => {
        mod memory {
            $(#[test]
            fn $case() -> crate::Outcome {
                crate::$case(&crate::multi_thread(2)?.block_on(crate::World::memory())?)
            })+
        }
        mod zookeeper {
            $(#[test]
            fn $case() -> crate::Outcome {
                crate::$case(&crate::multi_thread(2)?.block_on(crate::World::zookeeper())?)
            })+
        }
    };
}

on_every_backend! {
    the_same_function_runs_on_every_runtime
    a_body_need_not_be_send
    g06_a_body_that_blocks_its_only_worker_is_reaped_from_outside
    g06_a_grant_that_nobody_polls_is_reaped
    g01_blocked_workers_cost_no_lock_and_stop_no_reaper
    a_handle_outlives_the_runtime_that_made_it
    no_runtime_is_needed
    g05_a_guard_is_released_on_another_thread_and_outside_of_runtimes
    g05_locks_dropped_without_a_close_let_go
}

fn current_thread() -> Outcome<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

fn multi_thread(workers: usize) -> Outcome<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(workers).enable_all().build()?)
}

/// The handles are made where the case wants them to be.
fn locks(world: &World) -> Outcome<Locks> {
    current_thread()?.block_on(world.locks())
}

/// One annotated function for all of them. It counts who is inside.
#[zk_lock(path = "/jobs/{name}", timeout = "60s", locks = locks)]
async fn job(locks: &Locks, name: &str, inside: &AtomicUsize, done: &AtomicUsize) -> Result<usize, Error> {
    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at a time");
    tokio::task::yield_now().await;
    inside.fetch_sub(1, Ordering::SeqCst);
    Ok(done.fetch_add(1, Ordering::SeqCst))
}

fn the_same_function_runs_on_every_runtime(world: &World) -> Outcome {
    let counts = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let start = Arc::new(Barrier::new(3));
    let mut threads = Vec::new();
    // All at a time, on the same path.
    for runtime in [current_thread()?, multi_thread(1)?, multi_thread(3)?] {
        let (locks, counts, start) = (locks(world)?, counts.clone(), start.clone());
        threads.push(thread::spawn(move || {
            start.wait();
            runtime.block_on(async {
                let mut calls = Vec::new();
                for _ in 0..10 {
                    let (locks, counts) = (locks.clone(), counts.clone());
                    calls.push(tokio::spawn(
                        async move { job(&locks, "nightly", &counts.0, &counts.1).await },
                    ));
                }
                for call in calls {
                    soon("a call", call).await??;
                }
                Outcome::Ok(())
            })
        }));
    }
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked")??;
    }
    assert_eq!(counts.1.load(Ordering::SeqCst), 30);
    Ok(())
}

fn a_body_need_not_be_send(world: &World) -> Outcome {
    #[zk_lock(path = "/local", timeout = "60s", locks = locks)]
    async fn local(locks: &Locks, value: std::rc::Rc<std::cell::Cell<u32>>) -> Result<u32, Error> {
        let before = value.get();
        tokio::task::yield_now().await;
        value.set(before + 1);
        Ok(value.get())
    }
    let locks = locks(world)?;
    current_thread()?.block_on(tokio::task::LocalSet::new().run_until(async {
        let value = std::rc::Rc::default();
        let calls: Vec<_> = (0..5)
            .map(|_| {
                let (locks, value) = (locks.clone(), std::rc::Rc::clone(&value));
                tokio::task::spawn_local(async move { local(&locks, value).await })
            })
            .collect();
        for call in calls {
            soon("a call", call).await??;
        }
        assert_eq!(value.get(), 5);
        Ok(())
    }))
}

#[zk_lock(path = "/blocks", timeout = "80ms", locks = locks)]
async fn blocks(locks: &Locks, running: mpsc::Sender<()>, go_on: mpsc::Receiver<()>) -> Result<(), Error> {
    let _ = running.send(());
    let _ = go_on.recv();
    Ok(())
}

fn g06_a_body_that_blocks_its_only_worker_is_reaped_from_outside(world: &World) -> Outcome {
    let (blocked, other) = (locks(world)?, locks(world)?);
    let (running, runs) = mpsc::channel();
    let (go_on, waits) = mpsc::channel();
    let only_worker = current_thread()?;
    let call = thread::spawn(move || only_worker.block_on(blocks(&blocked, running, waits)));
    runs.recv_timeout(SOON)?;
    let next = current_thread()?
        .block_on(soon("the lock, while the body blocks", other.mutex("/blocks").acquire()))?;
    assert!(!call.is_finished());
    assert!(next.is_held());
    go_on.send(())?;
    let result = call.join().map_err(|_| "the call panicked")?;
    assert!(matches!(result, Err(Error::Overrun { .. })), "{result:?}");
    assert!(next.is_held(), "the late one has not released what is not its own");
    current_thread()?.block_on(next.release())?;
    Ok(())
}

/// The lock is granted to a call whose runtime is blocked, by something else: nobody takes the grant, and nobody else
/// must wait for it for longer than its limit.
fn g06_a_grant_that_nobody_polls_is_reaped(world: &World) -> Outcome {
    let (stuck, other) = (locks(world)?, locks(world)?);
    let holder = current_thread()?;
    let first = holder.block_on(other.mutex("/a").timeout(None).acquire())?;
    let (blocking, blocks) = mpsc::channel();
    let (go_on, waits) = mpsc::channel::<()>();
    let (queueing, is_queueing) = mpsc::channel();
    let runtime = current_thread()?;
    let thread = thread::spawn(move || {
        runtime.block_on(async {
            let waiting = tokio::spawn({
                let lock = stuck.mutex("/a").timeout(Duration::from_millis(80));
                async move { lock.acquire().await.map(|guard| guard.is_held()) }
            });
            queued(&stuck, "/a", 2).await?;
            let _ = queueing.send(());
            // Somebody else's body blocks the only thread there is.
            let _ = blocking.send(());
            let _ = waits.recv();
            Ok::<_, support::Failure>(soon("the late grant", waiting).await?)
        })
    });
    is_queueing.recv_timeout(SOON)?;
    blocks.recv_timeout(SOON)?;
    holder.block_on(async {
        first.release().await?;
        let next = soon("the lock, past the one who does not take it", other.mutex("/a").acquire()).await?;
        assert!(next.is_held());
        go_on.send(())?;
        let late = tokio::task::spawn_blocking(move || thread.join()).await?;
        let late = late.map_err(|_| "the thread panicked")??;
        assert!(matches!(late, Ok(false) | Err(Error::Overrun { .. })), "{late:?}");
        assert!(next.is_held());
        next.release().await?;
        Ok(())
    })
}

fn g01_blocked_workers_cost_no_lock_and_stop_no_reaper(world: &World) -> Outcome {
    // Long enough for a busy machine to keep its session; the workers are blocked for longer.
    let session = Duration::from_secs(4);
    let (blocked, other) = (current_thread()?.block_on(world.locks_with(session))?, locks(world)?);
    let runtime = multi_thread(2)?;
    let (reaped, reaping) = mpsc::channel();
    let kept = runtime.block_on(async {
        let kept = blocked.mutex("/kept").timeout(None).acquire().await?;
        let start = Arc::new(Barrier::new(3));
        for number in 0..2 {
            let (lock, start, reaped) = (blocked.clone(), start.clone(), reaped.clone());
            tokio::spawn(async move {
                let path = format!("/blocks/{number}");
                let guard = lock.mutex(path.as_str()).timeout(Duration::from_millis(50)).acquire().await?;
                let body = async {
                    start.wait();
                    // Past the session timeout, with no way to be woken.
                    thread::sleep(session + session / 2);
                };
                let result = guard.run(body).await;
                let _ = reaped.send(result);
                Ok::<_, Error>(())
            });
        }
        tokio::task::spawn_blocking(move || start.wait()).await?;
        Ok::<_, support::Failure>(kept)
    })?;
    let blocked_since = Instant::now();
    current_thread()?.block_on(async {
        for number in 0..2 {
            let path = format!("/blocks/{number}");
            let next = soon("what the blocked ones held", other.mutex(path.as_str()).acquire()).await?;
            next.release().await?;
        }
        Ok::<_, Error>(())
    })?;
    for _ in 0..2 {
        let result = reaping.recv_timeout(SOON)?;
        assert!(matches!(result, Err(Error::Overrun { .. })), "{result:?}");
    }
    assert!(blocked_since.elapsed() > session, "they were not blocked for long enough");
    assert!(kept.is_held(), "{:?}", kept.check());
    current_thread()?.block_on(async {
        assert!(other.mutex("/kept").try_acquire().await?.is_none());
        kept.release().await
    })?;
    Ok(())
}

fn a_handle_outlives_the_runtime_that_made_it(world: &World) -> Outcome {
    let first = multi_thread(1)?;
    let locks = first.block_on(world.locks())?;
    let guard = first.block_on(locks.mutex("/a").timeout(None).acquire())?;
    drop(first);
    assert!(guard.is_held());
    let second = current_thread()?;
    second.block_on(async {
        assert!(locks.mutex("/a").try_acquire().await?.is_none());
        guard.release().await?;
        soon("the lock", locks.mutex("/a").acquire()).await?.release().await
    })?;
    let guard = second.block_on(locks.mutex("/a").timeout(Duration::from_millis(20)).acquire())?;
    drop(second);
    // The reaper was nobody's but its own.
    let third = current_thread()?;
    assert_eq!(third.block_on(soon("the limit", guard.lost())), LostReason::Overrun);
    third.block_on(locks.close());
    Ok(())
}

/// Polls on a bare thread: no runtime, no timers.
fn bare<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let start = Instant::now();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        assert!(start.elapsed() < SOON, "waited in vain without a runtime");
        thread::park_timeout(SOON);
    }
}

fn no_runtime_is_needed(world: &World) -> Outcome {
    let locks = bare(world.locks())?;
    for fair in [true, false] {
        let path = if fair { "/fair" } else { "/unfair" };
        let guard = bare(locks.mutex(path).fair(fair).timeout(None).acquire())?;
        assert!(bare(locks.mutex(path).fair(fair).try_acquire())?.is_none());
        let busy = bare(locks.mutex(path).fair(fair).wait(Duration::from_millis(30)).acquire()).map(drop);
        assert!(matches!(busy, Err(Error::Busy { .. })), "{busy:?}");
        assert_eq!(bare(guard.run(async { 42 }))?, 42);
        bare(guard.release())?;
        let overrun = bare(locks.mutex(path).fair(fair).timeout(Duration::from_millis(30)).acquire())?;
        let result = bare(overrun.run(std::future::pending::<()>()));
        assert!(matches!(result, Err(Error::Overrun { .. })), "{result:?}");
        drop(overrun);
        let (inside, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        assert_eq!(bare(job(&locks, "bare", &inside, &done))?, 0);
    }
    bare(locks.inspect("/fair"))?;
    bare(locks.close());
    Ok(())
}

fn g05_a_guard_is_released_on_another_thread_and_outside_of_runtimes(world: &World) -> Outcome {
    let (locks, other) = (locks(world)?, locks(world)?);
    let runtime = current_thread()?;
    // Released by hand, in another runtime than it was acquired in.
    let guard = runtime.block_on(locks.mutex("/a").timeout(None).acquire())?;
    let released =
        thread::spawn(move || current_thread()?.block_on(guard.release()).map_err(support::Failure::from));
    released.join().map_err(|_| "the release panicked")??;
    drop(runtime.block_on(other.mutex("/a").try_acquire())?.expect("free after a release"));
    // Dropped with no runtime around, after its own is gone, and by a thread that ends.
    let guard = runtime.block_on(soon("the lock", locks.mutex("/a").timeout(None).acquire()))?;
    drop(runtime);
    thread::spawn(move || drop(guard)).join().map_err(|_| "the drop panicked")?;
    let runtime = current_thread()?;
    let guard = runtime.block_on(soon("the lock", other.mutex("/a").acquire()))?;
    // Dropped by the destructor of a thread-local, when even the thread's own runtime context may be gone.
    thread_local! {
        static KEPT: std::cell::RefCell<Option<zklock::Guard>> = const { std::cell::RefCell::new(None) };
    }
    thread::spawn(move || KEPT.with(|kept| kept.replace(Some(guard))).is_none())
        .join()
        .map_err(|_| "the thread-local panicked")?;
    drop(runtime.block_on(soon("the lock", locks.mutex("/a").acquire()))?);
    Ok(())
}

fn g05_locks_dropped_without_a_close_let_go(world: &World) -> Outcome {
    let runtime = current_thread()?;
    let other = locks(world)?;
    let dropped = runtime.block_on(world.locks())?;
    let guard = runtime.block_on(dropped.mutex("/a").timeout(None).acquire())?;
    drop(dropped);
    // The guard keeps what it needs.
    assert!(guard.is_held());
    assert!(runtime.block_on(other.mutex("/a").try_acquire())?.is_none());
    drop(guard);
    drop(runtime.block_on(soon("the lock", other.mutex("/a").acquire()))?);
    Ok(())
}

/// In a process of its own, with a server of its own, so that all there is to count is ours.
#[test]
fn nothing_is_left_of_ten_runtimes() -> Outcome {
    if !alone("nothing_is_left_of_ten_runtimes") {
        return Ok(());
    }
    let watch = multi_thread(1)?;
    let zookeeper = watch.block_on(ZooKeeper::start())?;
    let url = watch.block_on(zookeeper.chroot("runtimes"))?.url();
    let before = watch.block_on(counts(&zookeeper))?;
    for round in 0..10 {
        let runtime = if round % 2 == 0 { current_thread()? } else { multi_thread(2)? };
        runtime.block_on(async {
            for url in ["memory:", &url] {
                let locks = Locks::connect(url).await?;
                let (inside, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
                job(&locks, "ten", &inside, &done).await?;
                let kept = locks.mutex("/kept").timeout(None).acquire().await?;
                match round % 3 {
                    // Closed, with a guard that is still there.
                    0 => locks.close().await,
                    1 => {
                        drop(kept);
                        locks.close().await;
                    }
                    // Neither closed nor released, but dropped.
                    _ => {}
                }
            }
            Ok::<_, Error>(())
        })?;
    }
    // Connections of tasks that nobody awaited, and a call that was cut off.
    let runtime = multi_thread(2)?;
    runtime.block_on(async {
        for polls in 0..6 {
            support::poll_times(polls, support::DropAt::Once, Locks::connect(&url)).await.transpose()?;
        }
        Ok::<_, Error>(())
    })?;
    drop(runtime);
    watch.block_on(async {
        let mut after = before.clone();
        let gone = until("no thread, no socket and no session more than before", async || {
            match counts(&zookeeper).await {
                Ok(now) => after = now,
                Err(_) => return false,
            }
            after == before
        });
        gone.await.map_err(|error| format!("{error}; before {before:?}, after {after:?}"))?;
        Ok(())
    })
}

/// Threads of ours, sockets of this process, sessions and connections at the server.
#[derive(Clone, Debug, PartialEq)]
struct Counts {
    threads: Vec<String>,
    sockets: usize,
    sessions: usize,
}

async fn counts(zookeeper: &ZooKeeper) -> Outcome<Counts> {
    // The server's first: asking it takes sockets for a moment.
    let dump = zookeeper.word("dump").await?;
    let sessions = dump.lines().filter(|line| line.trim_start().starts_with("0x")).count();
    let mut threads = Vec::new();
    for task in fs::read_dir("/proc/self/task")? {
        // One that ends meanwhile is gone.
        let Ok(name) = fs::read_to_string(task?.path().join("comm")) else { continue };
        if name.starts_with("zklock") {
            threads.push(name.trim().to_owned());
        }
    }
    let mut sockets = 0;
    for file in fs::read_dir("/proc/self/fd")? {
        let link = fs::read_link(file?.path());
        sockets += usize::from(link.is_ok_and(|link| link.to_string_lossy().starts_with("socket:")));
    }
    Ok(Counts { threads, sockets, sessions })
}

/// What an application's subscriber does on zklock's own thread must not cost a lock.
#[test]
fn g06_a_subscriber_that_panics_does_not_end_the_watch() -> Outcome {
    if !alone("g06_a_subscriber_that_panics_does_not_end_the_watch") {
        return Ok(());
    }
    let panics = Arc::new(AtomicUsize::new(0));
    tracing::subscriber::set_global_default(Panics(panics.clone()))?;
    multi_thread(1)?.block_on(async {
        let locks = World::memory().await?.locks().await?;
        let brief = Duration::from_millis(50);
        // Nobody polls them or lets go of them, so each is warned of, stopped and released over its head.
        let guards = [
            locks.mutex("/a").timeout(brief).acquire().await?,
            locks.mutex("/b").timeout(2 * brief).acquire().await?,
        ];
        for path in ["/a", "/b"] {
            soon("the lock", locks.mutex(path).acquire()).await?.release().await?;
        }
        assert!(guards.iter().all(|guard| !guard.is_held()));
        assert!(panics.load(Ordering::SeqCst) > 2, "it was told of both");
        soon("closing", locks.close()).await;
        Ok(())
    })
}

/// Panics at each event of zklock's own thread, and counts.
struct Panics(Arc<AtomicUsize>);

impl tracing::Subscriber for Panics {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target() == "zklock"
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        if thread::current().name() == Some("zklock") {
            self.0.fetch_add(1, Ordering::SeqCst);
            panic!("as a subscriber may");
        }
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}
