use std::{
    env,
    io::{BufRead, BufReader, Write},
    process::{Child as Process, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use zklock_testkit::{Signal, send_signal};

use crate::support::{Outcome, SOON};

/// What a child is told to be.
pub(crate) const ROLE: &str = "ZKLOCK_TEST_ROLE";

/// What stands before each line that a child has to say: its test harness talks too.
const MARK: &str = "@@ ";

/// Another process, which runs this very program as its [`roles`](crate::roles) say.
pub(crate) struct Child {
    process: Process,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Child {
    pub(crate) fn start(role: &str, settings: &[(&str, &str)]) -> Outcome<Self> {
        let mut process = Command::new(env::current_exe()?)
            .args(["--exact", "roles::child", "--nocapture"])
            .env(ROLE, role)
            .envs(settings.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = process.stdin.take();
        let output = process.stdout.take().ok_or("it has an output")?;
        let (line, lines) = mpsc::channel();
        thread::spawn(move || {
            for text in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some((_, said)) = text.split_once(MARK) {
                    let _ = line.send(said.to_owned());
                }
            }
        });
        Ok(Self { process, input, lines })
    }

    /// The next thing that it says, which must begin with `expected`; the rest of it.
    pub(crate) fn says(&self, expected: &str) -> Outcome<String> {
        self.says_within(SOON, expected)
    }

    pub(crate) fn says_within(&self, time: Duration, expected: &str) -> Outcome<String> {
        let said =
            self.lines.recv_timeout(time).map_err(|error| format!("waited for {expected:?}: {error}"))?;
        let rest =
            said.strip_prefix(expected).ok_or_else(|| format!("said {said:?} instead of {expected:?}"))?;
        Ok(rest.trim().to_owned())
    }

    pub(crate) fn tell(&mut self, line: &str) -> Outcome {
        let input = self.input.as_mut().ok_or("it has an input")?;
        writeln!(input, "{line}")?;
        Ok(input.flush()?)
    }

    pub(crate) fn signal(&self, signal: Signal) -> Outcome {
        Ok(send_signal(self.process.id(), signal)?)
    }

    /// Ends with success by itself.
    pub(crate) fn ends(mut self) -> Outcome {
        drop(self.input.take());
        let status = self.process.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the child ended with {status}").into()) }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// In the child: says a line to its parent.
pub(crate) fn say(line: &str) {
    println!("{MARK}{line}");
}

/// In the child: waits until its parent says something.
pub(crate) fn hear() -> Outcome<String> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(line.trim().to_owned())
}
