use std::mem::size_of;

use super::super::{
    contender::OwnNode,
    line::Line,
    session::{Live, Node},
};
use crate::hold::Hold;

/// What each fair lock that is held has for itself, in bytes; beside it there is one text of its path. The tables are twice
/// as large as what is in them, at most.
#[cfg(target_pointer_width = "64")]
#[test]
fn a_held_lock_is_small() {
    let apart = size_of::<Hold>() + size_of::<OwnNode>() + size_of::<Node>() + size_of::<Line>();
    assert!(apart <= 440, "{apart}");
    assert!(size_of::<Live>() <= 16, "of the session's nodes");
}
