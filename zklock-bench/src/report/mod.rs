//! What the measured is made into.

mod machine;
mod page;
mod plots;
mod svg;
mod tables;
mod targets;

pub(crate) use self::{
    page::{summary, write},
    tables::{number, text},
};
