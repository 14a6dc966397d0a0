//! What the attribute accepts, under the lints that a strict user has on: no warning may come out of the expansion.
#![deny(warnings, clippy::pedantic)]
#![allow(missing_docs, clippy::missing_errors_doc, clippy::unused_async, clippy::unwrap_used)]

#[path = "accepted/attributes.rs"]
mod attributes;
#[path = "accepted/options.rs"]
mod options;
mod recorder;
#[path = "accepted/shapes.rs"]
mod shapes;
