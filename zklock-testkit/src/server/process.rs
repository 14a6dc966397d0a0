use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::account::Account;
use crate::error::Error;
use crate::signal::{self, Signal};
use crate::wait::wait_until;

/// How to run a program, kept so that it can be run again.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    program: PathBuf,
    args: Vec<OsString>,
    // In a server's folder: by this the watchdog knows whom to end.
    folder: PathBuf,
    account: Option<Account>,
}

impl Launch {
    pub(crate) fn new(program: impl Into<PathBuf>, folder: &Path) -> Self {
        Self { program: program.into(), args: Vec::new(), folder: folder.into(), account: None }
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().into());
        self
    }

    pub(crate) fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().into()));
        self
    }

    pub(crate) fn account(mut self, account: Option<&Account>) -> Self {
        self.account = account.cloned();
        self
    }

    /// Runs a program that ends by itself and gives what it printed.
    pub(crate) fn output(&self) -> io::Result<(ExitStatus, String)> {
        let output = self.command().output()?;
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        Ok((output.status, text))
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .current_dir(&self.folder)
            .env("LC_ALL", "C")
            // MariaDB, for one, removes at its start what others have in a shared one.
            .env("TMPDIR", &self.folder)
            // The watchdog looks at this, too.
            .stdin(Stdio::null())
            // Ctrl-C in a terminal ends the tests; what becomes of the servers is decided here.
            .process_group(0);
        if let Some(account) = &self.account {
            command.uid(account.uid).gid(account.gid);
        }
        command
    }
}

/// A server as a child process, with its own children, killed when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    launch: Launch,
    log: PathBuf,
    child: Mutex<Option<Child>>,
}

impl Process {
    /// Does not start it yet; what it will print goes to `server.log` in its folder.
    pub(crate) fn new(launch: Launch) -> Self {
        Self { log: launch.folder.join("server.log"), launch, child: Mutex::new(None) }
    }

    /// Starts it if it does not run.
    pub(crate) fn start(&self) -> Result<(), Error> {
        let mut child = self.child();
        if child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None))) {
            return Ok(());
        }
        let log = OpenOptions::new().create(true).append(true).open(&self.log);
        let spawned = log.and_then(|log| {
            let errors = log.try_clone()?;
            self.launch.command().stdout(log).stderr(errors).spawn()
        });
        *child = Some(spawned.map_err(Error::io(format!("starting {}", self.launch.program.display())))?);
        Ok(())
    }

    /// The process number, if it runs.
    pub(crate) fn id(&self) -> Option<u32> {
        self.child().as_ref().map(Child::id)
    }

    /// How it ended, if it ended by itself.
    pub(crate) fn ended(&self) -> Option<ExitStatus> {
        self.child().as_mut().and_then(|child| child.try_wait().ok().flatten())
    }

    /// Stops the server and its children in their tracks.
    pub(crate) fn pause(&self) -> Result<(), Error> {
        self.child().as_ref().map_or(Ok(()), |child| stop(child.id()).map(drop))
    }

    /// Lets them go on.
    pub(crate) fn resume(&self) -> Result<(), Error> {
        let child = self.child();
        let Some(child) = &*child else { return Ok(()) };
        // The server last, so that it does not find its children unresponsive.
        for id in descendants(child.id()).into_iter().chain([child.id()]) {
            signal::send(id, Signal::Continue)?;
        }
        Ok(())
    }

    /// Ends the server and its children, with no chance to tidy up, and returns once they are gone.
    pub(crate) fn kill(&self) -> Result<(), Error> {
        let mut slot = self.child();
        let Some(mut child) = slot.take() else { return Ok(()) };
        // Stopped first: it can not start another child while the list is made.
        let children = stop(child.id())?;
        child.kill().map_err(Error::io("killing a server"))?;
        child.wait().map_err(Error::io("waiting for a killed server"))?;
        for id in &children {
            signal::send(*id, Signal::Kill)?;
        }
        let start = Instant::now();
        while children.iter().any(|id| runs(*id)) {
            if start.elapsed() > Duration::from_secs(10) {
                return Err(Error::Deadline {
                    waited_for: format!(
                        "the end of the killed children of {}",
                        self.launch.program.display()
                    ),
                    waited: start.elapsed(),
                });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Asks the server to end, and returns once it has.
    pub(crate) async fn end(&self, signal: rustix::process::Signal, deadline: Duration) -> Result<(), Error> {
        let Some(id) = self.id() else { return Ok(()) };
        signal::send_any(id, signal)?;
        let what = format!("the end of {}", self.launch.program.display());
        wait_until(deadline, what, async || self.ended().is_some()).await?;
        *self.child() = None;
        Ok(())
    }

    /// Everything it printed so far.
    pub(crate) fn log(&self) -> String {
        fs::read(&self.log).map(|log| String::from_utf8_lossy(&log).into_owned()).unwrap_or_default()
    }

    /// The last lines of what it printed.
    pub(crate) fn log_end(&self) -> String {
        const BYTES: i64 = 4_000;

        let end = File::open(&self.log).and_then(|mut log| {
            let mut end = Vec::new();
            if log.metadata()?.len() > BYTES.unsigned_abs() {
                log.seek(SeekFrom::End(-BYTES))?;
            }
            log.read_to_end(&mut end)?;
            Ok(end)
        });
        end.map(|end| String::from_utf8_lossy(&end).into_owned()).unwrap_or_default()
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The watchdog gets another chance when this process ends.
        let _ = self.kill();
    }
}

/// Stops a process and all below it, and says who they are.
fn stop(id: u32) -> Result<Vec<u32>, Error> {
    signal::send(id, Signal::Stop)?;
    let children = descendants(id);
    for child in &children {
        signal::send(*child, Signal::Stop)?;
    }
    Ok(children)
}

/// All processes below this one. PostgreSQL puts its children into process groups of their own, so
/// only their parents tell.
fn descendants(of: u32) -> Vec<u32> {
    let mut children = HashMap::<u32, Vec<u32>>::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let id = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let (Some(id), Ok(stat)) = (id, fs::read_to_string(entry.path().join("stat"))) else { continue };
        if let Some((_, parent)) = state_and_parent(&stat) {
            children.entry(parent).or_default().push(id);
        }
    }
    let mut found = Vec::new();
    let mut open = vec![of];
    while let Some(id) = open.pop() {
        let below = children.remove(&id).unwrap_or_default();
        found.extend(&below);
        open.extend(below);
    }
    found
}

fn runs(id: u32) -> bool {
    fs::read_to_string(format!("/proc/{id}/stat"))
        .is_ok_and(|stat| state_and_parent(&stat).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X')))
}

/// From `/proc/<id>/stat`: the third and fourth field, counted from behind the name, in which there
/// may be anything.
fn state_and_parent(stat: &str) -> Option<(char, u32)> {
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_parent_behind_any_name() {
        assert_eq!(state_and_parent("7 (a) b (c) S 42 7 7 0 -1"), Some(('S', 42)));
        assert_eq!(state_and_parent("nonsense"), None);
    }
}
