use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;

use crate::error::Error;

/// An unprivileged account of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Account {
    /// Whom to become for a server that refuses to run as root: none if we are not root.
    pub(crate) fn unprivileged(preferred: &str) -> Result<Option<Self>, Error> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let accounts = fs::read_to_string("/etc/passwd").map_err(Error::io("reading /etc/passwd"))?;
        match [preferred, "nobody"].into_iter().find_map(|name| Self::find(&accounts, name)) {
            Some(account) => Ok(Some(account)),
            None => Err(Error::NotInstalled {
                what: "an account other than root",
                how: "add one with `useradd --system nobody`, or run the tests as an ordinary user",
            }),
        }
    }

    /// Makes it the owner of a file or folder.
    pub(crate) fn own(&self, path: &Path) -> Result<(), Error> {
        let doing = format!("giving {} to account {}", path.display(), self.uid);
        chown(path, Some(self.uid), Some(self.gid)).map_err(Error::io(doing))
    }

    fn find(accounts: &str, name: &str) -> Option<Self> {
        accounts.lines().find_map(|line| {
            let mut fields = line.split(':');
            if fields.next()? != name {
                return None;
            }
            let uid = fields.nth(1)?.parse().ok()?;
            Some(Self { uid, gid: fields.next()?.parse().ok()? })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_an_account_by_its_whole_name() {
        let accounts = "root:x:0:0:root:/root:/bin/sh\npostgres2:x:7:8:::\npostgres:x:101:103:::\n";
        assert_eq!(Account::find(accounts, "postgres"), Some(Account { uid: 101, gid: 103 }));
        assert_eq!(Account::find(accounts, "mysql"), None);
    }
}
