use std::fs;
use std::io;
use std::path::Path;

use super::ZooKeeper;
use crate::error::Error;

impl ZooKeeper {
    /// Makes a server that was killed believe that `child` was the `counter`th child of its parent, where the next
    /// sequential nodes are numbered on from: so a test gets to the end of the numbers, 2147483647, without two
    /// billion nodes.
    ///
    /// It is a change to the creation of `child` in the server's transaction log. In an ensemble, kill all members
    /// and do it to each.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the log cannot be changed, or the creation of `child` is not in it.
    pub fn set_child_counter(&self, child: &str, counter: i32) -> Result<(), Error> {
        let changed = change_all(&self.server()?.data().join("version-2"), child, counter);
        let changed = changed.and_then(|changed| match changed {
            1 => Ok(()),
            other => Err(io::Error::other(format!("it was created {other} times"))),
        });
        changed.map_err(Error::io(format!("changing the creation of {child} in ZooKeeper's log")))
    }
}

fn change_all(data: &Path, path: &str, counter: i32) -> io::Result<usize> {
    let mut changed = 0;
    for file in fs::read_dir(data)? {
        let file = file?;
        if file.file_name().to_string_lossy().starts_with("log.") {
            let mut log = fs::read(file.path())?;
            changed += change(&mut log, path, counter);
            fs::write(file.path(), log)?;
        }
    }
    Ok(changed)
}

/// `FileTxnLog.java`: a head of 16 bytes, then of each transaction the checksum, the length, the bytes, and a `B`.
fn change(log: &mut [u8], path: &str, counter: i32) -> usize {
    let mut changed = 0;
    let mut at = 16;
    while let Some(length) = number(log, at + 8) {
        let begin = at + 12;
        let Some(entry) = log.get_mut(begin..begin + length).filter(|entry| !entry.is_empty()) else { break };
        if let Some(place) = counter_of(entry, path) {
            entry[place..place + 4].copy_from_slice(&counter.to_be_bytes());
            let sum = u64::from(adler32(entry));
            log[at..at + 8].copy_from_slice(&sum.to_be_bytes());
            changed += 1;
        }
        at = begin + length + 1;
    }
    changed
}

/// Where the count stands in a `CreateTxn` for `path`: after path, data, access list and the ephemeral flag.
fn counter_of(entry: &[u8], path: &str) -> Option<usize> {
    let skip = |at: usize| Some(at + 4 + number(entry, at)?);
    // The transaction's own head: session, count, zxid, time, kind.
    let body = 32;
    if !matches!(number(entry, 28)?, 1 | 15) || entry.get(body + 4..skip(body)?)? != path.as_bytes() {
        return None;
    }
    let data = skip(body)?;
    let list = skip(data)?;
    let mut at = list + 4;
    for _ in 0..number(entry, list)? {
        at = skip(skip(at + 4)?)?;
    }
    Some(at + 1)
}

/// A length; "none", which is written as -1, is as short as nothing.
fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let number = i32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?);
    usize::try_from(number.max(0)).ok()
}

fn adler32(bytes: &[u8]) -> u32 {
    let (mut a, mut b) = (1_u32, 0_u32);
    for &byte in bytes {
        a = (a + u32::from(byte)) % 65521;
        b = (b + a) % 65521;
    }
    (b << 16) | a
}
