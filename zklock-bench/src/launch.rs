//! How the process of a contestant is started.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use tempfile::TempDir;
use tokio::process::Command;

use crate::{contestant::Contestant, peer};

const CURATOR: &str = include_str!("../peers/CuratorPeer.java");
const KAZOO: &str = include_str!("../peers/kazoo_peer.py");
/// Where Debian and Ubuntu have them; what these need in turn they name themselves.
const JARS: [&str; 5] = ["curator-recipes", "curator-framework", "curator-client", "zookeeper", "slf4j-nop"];

/// Makes what peers in other languages need, once.
#[derive(Default)]
pub(crate) struct Launch {
    folder: Option<TempDir>,
    curator_is_compiled: bool,
}

impl Launch {
    pub(crate) async fn command(&mut self, contestant: Contestant, address: &str) -> anyhow::Result<Command> {
        match contestant {
            Contestant::CuratorEach => self.curator(address, "each").await,
            Contestant::CuratorShared => self.curator(address, "shared").await,
            Contestant::Kazoo => self.kazoo(address),
            _ => {
                let mut command = Command::new(env::current_exe()?);
                command.args([peer::WORD, &contestant.word(), address]);
                Ok(command)
            }
        }
    }

    async fn curator(&mut self, address: &str, usage: &str) -> anyhow::Result<Command> {
        let jars = JARS.map(|jar| format!("/usr/share/java/{jar}.jar"));
        if let Some(missing) = jars.iter().find(|jar| !Path::new(jar).is_file()) {
            bail!("there is no {missing}: run scripts/install-peers, or leave it out with --skip curator");
        }
        let classes = self.folder()?;
        let class_path = format!("{}:{}", classes.display(), jars.join(":"));
        if !self.curator_is_compiled {
            let source = classes.join("CuratorPeer.java");
            fs::write(&source, CURATOR)?;
            let mut javac = Command::new("javac");
            javac.args(["-nowarn", "-cp", &class_path, "-d"]).arg(&classes).arg(&source);
            let compiled = javac.output().await.context(
                "javac does not start: run scripts/install-peers, or leave Curator out with --skip curator",
            )?;
            ensure!(compiled.status.success(), "javac: {}", String::from_utf8_lossy(&compiled.stderr));
            self.curator_is_compiled = true;
        }
        let mut java = Command::new("java");
        java.args(["-cp", &class_path, "CuratorPeer", address, usage]);
        Ok(java)
    }

    fn kazoo(&mut self, address: &str) -> anyhow::Result<Command> {
        let python = kazoo_python()?;
        ensure!(
            python.is_file(),
            "there is no {}: run scripts/install-peers, or leave it out with --skip kazoo",
            python.display()
        );
        let script = self.folder()?.join("kazoo_peer.py");
        fs::write(&script, KAZOO)?;
        let mut command = Command::new(python);
        command.arg(script).arg(address);
        Ok(command)
    }

    fn folder(&mut self) -> anyhow::Result<PathBuf> {
        if self.folder.is_none() {
            self.folder = Some(tempfile::Builder::new().prefix("zklock-bench-").tempdir()?);
        }
        Ok(self.folder.as_ref().context("it was just made")?.path().to_owned())
    }
}

/// In the folder that cargo builds in, which this program is two levels below.
pub(crate) fn kazoo_python() -> anyhow::Result<PathBuf> {
    let program = env::current_exe()?;
    let target = program.ancestors().nth(2).context("this program is nowhere")?;
    Ok(target.join("kazoo/bin/python"))
}
