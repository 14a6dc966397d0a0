use std::{process::Stdio, time::Duration};

use anyhow::{Context as _, bail};
use serde::de::DeserializeOwned;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use crate::protocol::{Done, Failed, Order};

/// Nothing that is asked takes longer, however slow a contestant is with the longest queue.
const PATIENCE: Duration = Duration::from_mins(10);

/// A contestant's process, which lives until this is dropped.
pub(crate) struct Process {
    name: String,
    _child: Child,
    // Its input ends before the process is killed.
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Returns when it is connected.
    pub(crate) async fn start(name: String, mut command: Command) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {name}: {command:?}"))?;
        let input = child.stdin.take().context("it has an input")?;
        let output = child.stdout.take().context("it has an output")?;
        let mut process = Self { name, _child: child, input, output: BufReader::new(output) };
        let Done {} = process.answer().await?;
        Ok(process)
    }

    pub(crate) async fn ask<A: DeserializeOwned>(&mut self, order: Order) -> anyhow::Result<A> {
        self.input
            .write_all(format!("{order}\n").as_bytes())
            .await
            .with_context(|| format!("{} has ended", self.name))?;
        self.answer().await
    }

    async fn answer<A: DeserializeOwned>(&mut self) -> anyhow::Result<A> {
        let mut line = String::new();
        let read = timeout(PATIENCE, self.output.read_line(&mut line)).await;
        if read.with_context(|| format!("{} did not answer within {PATIENCE:?}", self.name))?? == 0 {
            bail!("{} has ended; what it printed says why", self.name);
        }
        if let Ok(Failed { error }) = serde_json::from_str(&line) {
            bail!("{}: {error}", self.name);
        }
        serde_json::from_str(&line).with_context(|| format!("{} answered: {line}", self.name))
    }
}
