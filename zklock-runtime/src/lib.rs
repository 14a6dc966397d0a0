//! What the attribute of zklock runs on.
