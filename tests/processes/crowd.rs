//! Very many waiters, of several processes, for one lock.

use std::{
    env, fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::task::JoinSet;
use zklock::{Guard, Locks, LocksBuilder};
use zklock_testkit::ZooKeeper;

use crate::{
    child::{Child, hear, say},
    roles::{ROUNDS, URL},
    support::Outcome,
};

const PROCESSES: usize = 4;
const EACH: usize = 2_500;
const PATH: &str = "/busy";

/// Where the register is kept.
const REGISTER: &str = "ZKLOCK_TEST_CHILD_REGISTER";

/// Bounds what hangs; nothing here depends on how fast a machine is.
const WATCHDOG: Duration = Duration::from_mins(10);

#[tokio::test(flavor = "multi_thread")]
async fn g09_ten_thousand_waiters_of_several_processes_are_served_in_order() -> Outcome {
    let zookeeper = ZooKeeper::shared().await?;
    let chroot = zookeeper.chroot("crowd").await?;
    let folder = Folder::create()?;
    let register = Register(folder.0.join("register"));
    let locks = settings(&chroot.url()).connect().await?;
    let first = locks.mutex(PATH).acquire().await?;
    register.increment(&first)?;

    let (url, file, each) = (chroot.url(), register.0.to_string_lossy(), EACH.to_string());
    let settings = [(URL, &*url), (REGISTER, &*file), (ROUNDS, &*each)];
    let mut children = Vec::new();
    for _ in 0..PROCESSES {
        children.push(Child::start("crowd", &settings)?);
    }
    for child in &mut children {
        child.says("ready")?;
    }
    for child in &mut children {
        child.tell("go")?;
    }
    let directory = format!("{}{PATH}", chroot.path());
    let all = i32::try_from(PROCESSES * EACH + 1)?;
    zklock_testkit::wait_until(WATCHDOG, "all to stand in the queue", async || {
        zookeeper.node(&directory).await.is_ok_and(|node| node.is_some_and(|node| node.children == all))
    })
    .await?;
    assert!(first.is_held());
    first.release().await?;
    tokio::task::spawn_blocking(move || {
        for child in children {
            child.says_within(WATCHDOG, "served")?;
            child.ends()?;
        }
        Outcome::Ok(())
    })
    .await??;
    assert_eq!(register.read()?.0, PROCESSES * EACH + 1);
    assert!(locks.inspect(PATH).await?.is_empty());
    Ok(())
}

/// In a child: so many tasks that each want the lock once.
pub(crate) async fn wait() -> Outcome {
    let locks = settings(&env::var(URL)?).connect().await?;
    let (register, each) =
        (Arc::new(Register(env::var(REGISTER)?.into())), env::var(ROUNDS)?.parse::<usize>()?);
    say("ready");
    hear()?;
    let mut waiters = JoinSet::new();
    for _ in 0..each {
        let (lock, register) = (locks.mutex(PATH), register.clone());
        waiters.spawn(async move {
            let guard = lock.acquire().await?;
            register.increment(&guard)?;
            guard.release().await?;
            Outcome::Ok(())
        });
    }
    while let Some(served) = waiters.join_next().await {
        served??;
    }
    let snapshot = locks.snapshot();
    assert!(snapshot.held.is_empty() && snapshot.waiting.is_empty(), "{snapshot:?}");
    locks.close().await;
    say("served");
    Ok(())
}

/// With which nothing runs out by itself.
fn settings(url: &str) -> LocksBuilder {
    let session = Duration::from_mins(1);
    Locks::builder(url).session_timeout(session).default_timeout(None).default_wait(None)
}

/// A number in a file, and the token that it was written under. Nothing keeps two writers apart but the lock.
struct Register(PathBuf);

impl Register {
    /// The token tells the place in the queue: it grows where nobody is overtaken.
    fn increment(&self, guard: &Guard) -> Outcome {
        let (value, last) = self.read()?;
        let token = guard.fencing_token().to_string();
        if last >= token {
            return Err(format!("{token} was granted after {last}").into());
        }
        fs::write(&self.0, format!("{} {token}", value + 1))?;
        if guard.is_held() { Ok(()) } else { Err("not held to the end".into()) }
    }

    fn read(&self) -> Outcome<(usize, String)> {
        let text = match fs::read_to_string(&self.0) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((0, String::new())),
            text => text?,
        };
        let (value, token) = text.split_once(' ').ok_or("another one is writing")?;
        Ok((value.parse()?, token.to_owned()))
    }
}

/// Removed with its contents.
struct Folder(PathBuf);

impl Folder {
    fn create() -> Outcome<Self> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("crowd-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
