//! Two web servers that share one lock: what zklock does, on one page.
//!
//! `cargo run -p two_ports`, then open <http://localhost:8080>; or `cargo run -p two_ports -- --drive` to have the story
//! told in the terminal. What is locked, and how, is in `orders.rs`: read that first.
// `orders.rs` is compiled once for each type of database.
#![allow(clippy::duplicate_mod)]

mod database;
mod drive;
mod failure;
mod server;
mod timeline;

use std::{io, process::ExitCode, time::Duration};

use clap::Parser;
use tokio::{sync::watch, task::JoinSet, time::timeout};
use zklock::Locks;

use crate::{
    database::without_password,
    drive::{drive, say},
    server::{About, Server},
    timeline::Timeline,
};

/// Two web servers that share one lock.
#[derive(Parser)]
#[command(
    version,
    after_help = "Two processes:\n  two_ports --port 8080 --url zk://localhost:2181 --database postgres://..\n  two_ports --port 8081 --url zk://localhost:2181 --database postgres://.."
)]
struct Args {
    /// The ports; one alone gives one server, so that two processes can be run. 0 is any that is free
    #[arg(long = "port", value_name = "PORT", value_delimiter = ',', num_args = 1.., default_values_t = [8080, 8081])]
    ports: Vec<u16>,
    /// Where to listen; 0.0.0.0 lets others in
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Where the locks live: `zk://host:2181/chroot`, or in this process
    #[arg(long, value_name = "URL", default_value = "memory:")]
    url: String,
    /// `postgres://..`, `mysql://..` or `sqlite:file` [default: a temporary SQLite file]
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// The server of another process, for the page to show [default: the other of 8080 and 8081]
    #[arg(long = "peer", value_name = "URL")]
    peers: Vec<String>,
    /// Plays the story by itself, prints it, checks it, and ends
    #[arg(long)]
    drive: bool,
}

/// How long a body that was stopped has to yield, before it is ended from outside.
const GRACE: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    let args = Args::parse();
    // One thread may be blocked by a body on purpose.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build();
    let ended = match runtime {
        Ok(runtime) => {
            let ended = runtime.block_on(run(args));
            // That blocked thread must not keep the process.
            runtime.shutdown_background();
            ended
        }
        Err(error) => Err(format!("cannot start threads: {error}")),
    };
    ended.unwrap_or_else(|error| {
        eprintln!("two_ports: {error}");
        ExitCode::from(2)
    })
}

/// All or nothing: ports, database and locks are there before the first request is answered.
async fn run(args: Args) -> Result<ExitCode, String> {
    let mut servers = Vec::new();
    for &port in &args.ports {
        servers.push(Server::bind(&args.host, port).await?);
    }
    let ports: Vec<u16> = servers.iter().map(|server| server.port).collect();
    let both = <[u16; 2]>::try_from(&*ports);
    if args.drive && both.is_err() {
        return Err("--drive plays on two ports: give none, or two".to_owned());
    }

    // Gone with the process, unless it is killed.
    let folder = match &args.database {
        None => Some(tempfile::Builder::new().prefix("two_ports-").tempdir()),
        Some(_) => None,
    };
    let folder = folder.transpose().map_err(|error| format!("cannot create a temporary folder: {error}"))?;
    let own = folder.as_ref().map(|folder| format!("sqlite:{}", folder.path().join("orders.db").display()));
    let database = args.database.clone().or(own).unwrap_or_default();
    let timeline = Timeline::start();
    let (locks, orders) = database::open(&database, Locks::builder(&args.url).grace(GRACE)).await?;
    locks.install();

    let (stop, stopping) = watch::channel(false);
    let mut serving = JoinSet::new();
    for server in servers {
        let about = About {
            port: server.port,
            peers: peers(&args, &ports, server.port),
            locks: args.url.clone(),
            database: args.database.as_deref().map_or("sqlite".to_owned(), without_password),
            now: 0.0,
        };
        serving.spawn(server.serve(orders.clone(), about, timeline.clone(), stopping.clone()));
    }

    let ended = match both {
        Ok(ports) if args.drive => drive(&args.host, ports, &timeline).await,
        _ => {
            let asked_to_end = asked_to_end().map_err(|error| format!("cannot wait for signals: {error}"))?;
            announce(&args, &ports);
            asked_to_end.await;
            Ok(ExitCode::SUCCESS)
        }
    };

    // No new requests; then the locks go, so that the other process takes over at once; then the last answers.
    let _ = stop.send(true);
    locks.close().await;
    let _ = timeout(Duration::from_secs(1), serving.join_all()).await;
    ended
}

fn peers(args: &Args, ports: &[u16], own: u16) -> Vec<String> {
    let others: Vec<u16> = match (ports, own) {
        ([_], 8080) => vec![8081],
        ([_], 8081) => vec![8080],
        _ => ports.iter().copied().filter(|&port| port != own).collect(),
    };
    if args.peers.is_empty() {
        others.iter().map(|port| format!(":{port}")).collect()
    } else {
        args.peers.clone()
    }
}

fn announce(args: &Args, ports: &[u16]) {
    for port in ports {
        say(format_args!("http://{}:{port}", if args.host == "0.0.0.0" { "localhost" } else { &args.host }));
    }
    if let ([_], true) = (ports, args.url == "memory:" || args.database.is_none()) {
        eprintln!(
            "two_ports: locks in memory and the default database are this process's own; for two processes give both \
             the same --url zk://host:2181 and --database"
        );
    }
}

/// Resolves on Ctrl-C and on SIGTERM, from the moment of the call on.
#[cfg(unix)]
fn asked_to_end() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "as on Unix")]
fn asked_to_end() -> io::Result<impl Future<Output = ()>> {
    Ok(async { drop(tokio::signal::ctrl_c().await) })
}
