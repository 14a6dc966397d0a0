//! Several real processes on one ZooKeeper and one PostgreSQL: what they do is judged by what is in the database.

#[path = "../support/mod.rs"]
mod support;

mod child;
mod counting;
mod crowd;
mod dying;
mod roles;
