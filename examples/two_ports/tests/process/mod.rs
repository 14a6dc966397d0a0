//! The demo as a child process, and what a browser would ask of it.
// Each file of tests uses a part of it.
#![allow(dead_code)]

use std::{process::Stdio, time::Duration};

use axum::{body::Body, http::Request};
use futures_util::StreamExt;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};

/// Nothing takes as long, however slow the machine is.
pub(crate) const SOON: Duration = Duration::from_mins(1);

pub(crate) struct Demo {
    child: Child,
    pub(crate) ports: Vec<u16>,
}

pub(crate) fn demo<'a>(args: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_two_ports"));
    command.args(args).stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    command
}

/// Runs it to its end: exit code, standard output and standard error.
pub(crate) async fn ends(mut command: Command) -> (Option<i32>, String, String) {
    let output = command.stderr(Stdio::piped()).output();
    let output = timeout(2 * SOON, output).await.expect("it ends").expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

impl Demo {
    /// Starts it and waits until it serves on as many ports.
    pub(crate) async fn start<'a>(ports: usize, args: impl IntoIterator<Item = &'a str>) -> Self {
        let mut child = demo(args).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut demo = Self { child, ports: Vec::new() };
        while demo.ports.len() < ports {
            let line = timeout(SOON, lines.next_line()).await.expect("it tells its ports").expect("text");
            let line = line.expect("it has not ended");
            demo.ports.push(line.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port"));
        }
        demo
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        kill_process(pid.expect("it runs"), signal).expect("it is ours");
    }

    /// The exit code after a signal.
    pub(crate) async fn end(&mut self, signal: Signal) -> Option<i32> {
        self.signal(signal);
        timeout(SOON, self.child.wait()).await.expect("it ends").expect("it is ours").code()
    }
}

/// Waits until a call on this port has come to `step`: the timeline tells the past, too.
pub(crate) async fn until(port: u16, step: &str) {
    let wanted = format!(r#""step":"{step}""#);
    let response = Client::builder(TokioExecutor::new()).build_http::<Body>();
    let response = response.get(format!("http://127.0.0.1:{port}/events").parse().expect("a URL"));
    let mut told = Body::new(response.await.expect("it answers").into_body()).into_data_stream();
    let mut text = String::new();
    while !text.contains(&wanted) {
        let piece =
            timeout(SOON, told.next()).await.unwrap_or_else(|_| panic!("{step} does not come: {text}"));
        text += &String::from_utf8_lossy(&piece.expect("it goes on").expect("it goes on"));
    }
}

pub(crate) async fn get(port: u16, path: &str) -> (u16, String) {
    send("GET", port, path).await.expect("it answers")
}

pub(crate) async fn post(port: u16, path: &str) -> (u16, String) {
    send("POST", port, path).await.expect("it answers")
}

/// `None` when the server went away instead.
pub(crate) async fn send(method: &str, port: u16, path: &str) -> Option<(u16, String)> {
    let url = format!("http://127.0.0.1:{port}{path}");
    let request = Request::builder().method(method).uri(url).body(Body::empty()).expect("a request");
    let client = Client::builder(TokioExecutor::new()).build_http();
    let response = timeout(SOON, client.request(request)).await.expect("it answers in time").ok()?;
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(Body::new(response.into_body()), 1 << 20).await.ok()?;
    Some((status, String::from_utf8_lossy(&body).into_owned()))
}

/// Free a moment ago.
pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it has an address").port()
}
