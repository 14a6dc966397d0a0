//! Bad days, one test a situation: callers that go away at any moment, servers that fall silent, links that are cut
//! when it hurts. Each is named after the promise that it holds, works through annotated functions and guards, and
//! has real servers behind it.
//!
//! What is the same on each database stands in `cases`.

#![allow(clippy::duplicate_mod, reason = "the cases are compiled once for each database")]

#[path = "../support/mod.rs"]
mod support;

mod cancelling;
mod databases;
mod deadlock;
mod edge;
mod endings;
mod ensembles;
mod load;
mod mariadb;
mod postgres;
mod refusals;
mod sessions;
mod web;
