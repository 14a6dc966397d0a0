//! One at a time, all or nothing.
