use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;
use crate::random::random;

/// A folder for one server, removed when dropped, and in any case when this process ends.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    pub(crate) fn create(name: &str) -> Result<Self, Error> {
        static NEXT: AtomicU64 = AtomicU64::new(0);

        let path = root()?.join(format!("{name}-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir(&path).map_err(Error::io(format!("creating {}", path.display())))?;
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left is removed by the watchdog when the process ends.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The folder of this process, with a watchdog that outlives it.
#[derive(Debug)]
struct Root {
    path: PathBuf,
    // Never written to: the watchdog waits for the end of this pipe. The kernel closes it with the
    // process, so not even SIGKILL gets past it; servers do not inherit it.
    _lifeline: ChildStdin,
}

fn root() -> Result<PathBuf, Error> {
    static ROOT: Mutex<Option<Root>> = Mutex::new(None);

    let mut root = ROOT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(root) = &*root {
        return Ok(root.path.clone());
    }
    let path = create_root().map_err(Error::io("creating a temporary folder"))?;
    let lifeline = start_watchdog(&path).map_err(Error::io("starting /bin/sh to watch over the servers"))?;
    Ok(root.insert(Root { path, _lifeline: lifeline }).path.clone())
}

fn create_root() -> io::Result<PathBuf> {
    // The watchdog compares with what /proc says, where links are resolved.
    let parent = std::env::temp_dir().canonicalize()?;
    loop {
        let path = parent.join(format!("zklock-testkit-{}-{:016x}", std::process::id(), random()));
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => {
                // PostgreSQL runs as another account if we are root: let it pass, not look.
                fs::set_permissions(&path, fs::Permissions::from_mode(0o711))?;
                return Ok(path);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

fn start_watchdog(root: &Path) -> io::Result<ChildStdin> {
    // In a file, so that a list of processes shows what it is and not all of its text.
    let script = root.join("watchdog.sh");
    fs::write(&script, include_str!("watchdog.sh"))?;
    let mut watchdog = Command::new("/bin/sh")
        .arg(script)
        .arg(root)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Ctrl-C goes to the tests; the watchdog has its work to do just then.
        .process_group(0)
        .spawn()?;
    watchdog.stdin.take().ok_or_else(|| io::ErrorKind::BrokenPipe.into())
}
