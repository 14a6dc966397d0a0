use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::Error;

/// Runs a database's own command line client on one statement and gives what it printed.
pub(crate) async fn ask<A: AsRef<OsStr>>(
    client: &Path,
    args: impl IntoIterator<Item = A>,
    sql: &str,
) -> Result<String, Error> {
    let mut command = Command::new(client);
    command.args(args).arg(sql).env("LC_ALL", "C").stdin(Stdio::null());
    let doing = format!("running {}", client.display());
    let output = tokio::task::spawn_blocking(move || command.output()).await;
    let output = output.unwrap_or_else(|error| Err(error.into())).map_err(Error::io(doing))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    } else {
        let answer = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
        Err(Error::Answer { asked: format!("'{sql}'"), answer })
    }
}
