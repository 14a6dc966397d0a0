//! Against a real server.

mod basics;
mod support;
