//! Against a real server.

mod basics;
mod cancel;
mod ensemble;
mod faults;
mod footprint;
mod neighbours;
mod passing;
mod rights;
mod sessions;
mod support;
mod wrap;
