//! What all servers have in common: a folder, a process, an account, a watchdog.

mod account;
mod folder;
mod process;
mod program;

pub(crate) use account::Account;
pub(crate) use folder::Folder;
pub(crate) use process::{Launch, Process};
pub(crate) use program::find_program;
