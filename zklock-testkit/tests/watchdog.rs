//! Servers end with the process that started them, however it ends.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::process::Command as AsyncCommand;
use zklock_testkit::{Error, MariaDb, Postgres, Signal, ZooKeeper, send_signal, wait_until};

/// Tells this very program to play the owner of servers instead of a test.
const ROLE: &str = "TESTKIT_TEST_ROLE";
const ENOUGH: Duration = Duration::from_secs(30);

#[tokio::test]
async fn servers_end_when_their_owner_is_killed() -> Result<(), Error> {
    let owner = Owner::start("wait");
    owner.assert_running();
    send_signal(owner.child.id(), Signal::Kill)?;
    owner.wait_until_all_is_gone().await
}

/// The watchdog must not need a server's cooperation.
#[tokio::test]
async fn paused_servers_end_when_their_owner_is_killed() -> Result<(), Error> {
    let owner = Owner::start("pause");
    send_signal(owner.child.id(), Signal::Kill)?;
    owner.wait_until_all_is_gone().await
}

/// Shared servers live in statics, which nobody drops.
#[tokio::test]
async fn shared_servers_end_when_their_owner_exits() -> Result<(), Error> {
    let owner = Owner::start("exit");
    owner.wait_until_all_is_gone().await
}

#[tokio::test]
async fn a_server_and_its_folder_end_when_dropped() -> Result<(), Error> {
    let zookeeper = ZooKeeper::start().await?;
    let folder = folder_of(zookeeper.process_id().expect("it runs"));
    assert!(folder.join("zoo.cfg").is_file());
    let port = zookeeper.port();
    drop(zookeeper);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    assert!(!folder.exists());
    Ok(())
}

/// Somebody looks at a log while the tests run.
#[tokio::test]
async fn a_bystander_in_the_folder_is_left_alone() -> Result<(), Error> {
    let owner = Owner::start("wait");
    let mut bystander = AsyncCommand::new("cat")
        .current_dir(owner.folder.join("zookeeper-0"))
        .stdin(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("cat");
    send_signal(owner.child.id(), Signal::Kill)?;
    owner.wait_until_all_is_gone().await?;
    drop(bystander.stdin.take());
    assert!(bystander.wait().await.expect("its end").success(), "it came to its own end");
    Ok(())
}

/// Not a test of its own: what the other tests run in a process that they kill.
#[tokio::test]
async fn owner() -> Result<(), Error> {
    let Ok(role) = std::env::var(ROLE) else { return Ok(()) };
    let (zookeeper, postgres, mariadb) =
        (ZooKeeper::shared().await?, Postgres::shared().await?, MariaDb::shared().await?);
    let own = ZooKeeper::start().await?;
    // Postgres has children, with process groups of their own.
    let url = postgres.url();
    let long = "SELECT count(*) FROM generate_series(1, 1000000000000)";
    let busy = tokio::spawn({
        let url = url.clone();
        async move { postgres.sql(&url, long).await.is_ok() }
    });
    wait_until(ENOUGH, "the long query to run", async || {
        let running = "SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE '%generate_series(1, 10%' \
                       AND pid <> pg_backend_pid()";
        postgres.sql(&url, running).await.is_ok_and(|answer| answer == "t")
    })
    .await?;
    if role == "pause" {
        postgres.pause()?;
        mariadb.pause()?;
        zookeeper.pause()?;
    }
    let folder = folder_of(zookeeper.process_id().expect("it runs"));
    println!("folder {}", folder.parent().expect("a folder above").display());
    for port in
        [Some(zookeeper.port()), Some(own.port()), postgres.port(), mariadb.port()].into_iter().flatten()
    {
        println!("port {port}");
    }
    println!("ready");
    if role == "exit" {
        std::process::exit(0);
    }
    busy.await.expect("the query");
    Ok(())
}

/// A process of ours that owns servers.
struct Owner {
    child: Child,
    folder: PathBuf,
    ports: Vec<u16>,
}

impl Owner {
    fn start(role: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "owner", "--nocapture"])
            .env(ROLE, role)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the owner");
        let mut owner = (None, Vec::new());
        for line in BufReader::new(child.stdout.take().expect("its output")).lines() {
            let line = line.expect("a line");
            match line.split_once(' ') {
                Some(("folder", folder)) => owner.0 = Some(folder.into()),
                Some(("port", port)) => owner.1.push(port.parse().expect("a port")),
                _ if line == "ready" => break,
                _ => {}
            }
        }
        Self { child, folder: owner.0.expect("the owner's servers started"), ports: owner.1 }
    }

    fn assert_running(&self) {
        assert_eq!(self.ports.len(), 4);
        assert!(self.ports.iter().all(|port| TcpStream::connect(("127.0.0.1", *port)).is_ok()));
        assert!(self.folder.is_dir());
        assert!(processes_in(&self.folder) > 4, "servers and their children");
    }

    async fn wait_until_all_is_gone(mut self) -> Result<(), Error> {
        self.child.wait().expect("the owner's end");
        wait_until(ENOUGH, "the end of servers and folder", async || {
            let closed = self.ports.iter().all(|port| TcpStream::connect(("127.0.0.1", *port)).is_err());
            closed && !self.folder.exists()
        })
        .await?;
        Ok(())
    }
}

/// The folder that a server of ours works in.
fn folder_of(process: u32) -> PathBuf {
    fs::read_link(format!("/proc/{process}/cwd")).expect("its working directory")
}

fn processes_in(folder: &std::path::Path) -> usize {
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    processes
        .filter(|process| fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder)))
        .count()
}
