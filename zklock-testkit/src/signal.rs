use rustix::io::Errno;
use rustix::process::{Pid, kill_process};

use crate::error::Error;

/// What can be done to a process from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGSTOP: it stands still, as a machine that swaps or a virtual machine that is moved does.
    Stop,
    /// SIGCONT: it goes on as if nothing had been.
    Continue,
    /// SIGKILL: it is gone, with no chance to tidy up.
    Kill,
}

/// Sends a signal to a process, for example to a lock holder that a test has started.
///
/// A process that is already gone is no error.
///
/// # Errors
///
/// [`Error::Io`] if it is not ours to signal.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::process::Command;
/// use zklock_testkit::{Signal, send_signal};
///
/// let mut holder = Command::new("sleep").arg("60").spawn()?;
/// send_signal(holder.id(), Signal::Stop)?;
/// send_signal(holder.id(), Signal::Kill)?;
/// holder.wait()?;
/// # Ok(())
/// # }
/// ```
pub fn send(process: u32, signal: Signal) -> Result<(), Error> {
    let signal = match signal {
        Signal::Stop => rustix::process::Signal::STOP,
        Signal::Continue => rustix::process::Signal::CONT,
        Signal::Kill => rustix::process::Signal::KILL,
    };
    send_any(process, signal)
}

/// Any signal, for those that mean something to one program only.
pub(crate) fn send_any(process: u32, signal: rustix::process::Signal) -> Result<(), Error> {
    let Some(id) = i32::try_from(process).ok().and_then(Pid::from_raw) else { return Ok(()) };
    match kill_process(id, signal) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(Error::io(format!("sending {signal:?} to process {process}"))(error.into())),
    }
}
