//! What the attribute expands to. Not for use by hand: it changes with any release.

use std::{
    fmt::Display,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

pub use core;

use crate::{error::Error, path::LockPath};

/// What an annotation says, in a constant.
#[derive(Debug)]
pub struct Spec {
    /// Module and name of the function.
    pub function: &'static str,
    /// `fair`.
    pub fair: bool,
    /// `timeout`.
    pub timeout: Limit,
    /// `wait`.
    pub wait: Limit,
}

/// A duration in an annotation.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// Not given: the default of the `Locks`.
    Default,
    /// `"none"`.
    None,
    /// Given.
    Some(Duration),
}

/// One part of a segment of a template.
#[derive(Debug)]
pub enum Part {
    /// Text as it stands.
    Text(&'static str),
    /// The next value; what stands between the braces.
    Value(&'static str),
}

/// The path of one call. `template` holds segments of parts, `values` one value for each `Part::Value`.
pub fn path(template: &'static [&'static [Part]], values: &[&dyn Display]) -> Result<LockPath, Error> {
    let _ = (template, values);
    unimplemented!()
}

/// The path of one call where the annotation holds an expression.
pub fn ready_path(path: impl Into<LockPath>) -> Result<LockPath, Error> {
    Ok(path.into())
}
