//! What becomes of the transaction when a body runs into its limit, fails, panics or is dropped: one list of cases, in
//! `cases`, over three databases.

#![allow(clippy::duplicate_mod, reason = "the cases are compiled once for each database")]

#[path = "../support/mod.rs"]
mod support;

mod mariadb;
mod postgres;
mod sqlite;
