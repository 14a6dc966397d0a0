use std::env;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Looks for a program in `first`, in this order, then in PATH, then where only root's PATH leads.
pub(crate) fn find_program(names: &[&str], first: &[PathBuf]) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = first
        .iter()
        .cloned()
        .chain(env::split_paths(&path))
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.flat_map(|folder| names.iter().map(move |name| folder.join(name))).find(|file| runnable(file))
}

fn runnable(file: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
