use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::event::{Event, What};

/// The log of one process. Each line is one write to the file, so that what was said before a SIGKILL is there.
#[derive(Debug)]
pub(super) struct Log(File);

impl Log {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        OpenOptions::new().create(true).append(true).open(path).map(Self)
    }

    /// # Panics
    ///
    /// If the line cannot be written: a run without its history shows nothing.
    pub(super) fn say(&self, at: u64, op: &str, what: What) {
        let event = Event { at, op: op.to_owned(), what };
        let line = serde_json::to_string(&event).map(|line| line + "\n").map_err(io::Error::from);
        line.and_then(|line| (&self.0).write_all(line.as_bytes())).expect("the log can be written");
    }
}

/// By the clock that all logs use.
pub(super) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let nanos = |value: i64| u64::try_from(value).unwrap_or_default();
    nanos(time.tv_sec) * 1_000_000_000 + nanos(time.tv_nsec)
}

/// Reads logs while they grow.
#[derive(Debug, Default)]
pub(super) struct Follower {
    files: Vec<(PathBuf, u64)>,
    pub(super) events: Vec<Event>,
}

impl Follower {
    pub(super) fn add(&mut self, path: PathBuf) {
        self.files.push((path, 0));
    }

    /// Takes in what came since. A last line without its end is left for the next time; after a SIGKILL it may never
    /// be finished.
    pub(super) fn catch_up(&mut self) -> io::Result<()> {
        for (path, read) in &mut self.files {
            let mut file = match File::open(&*path) {
                Ok(file) => file,
                // Its process has not come so far.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            file.seek(SeekFrom::Start(*read))?;
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            for line in text.split_inclusive('\n').take_while(|line| line.ends_with('\n')) {
                *read += line.len() as u64;
                self.events.push(serde_json::from_str(line)?);
            }
        }
        Ok(())
    }
}
