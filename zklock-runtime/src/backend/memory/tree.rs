use std::collections::{HashMap, HashSet};

use crate::{error::Error, path::LockPath};

/// What stands on which path, as the nodes of a server would: one that is an unfair lock cannot have others below it.
///
/// Only who uses unfair locks pays for it.
#[derive(Default)]
pub(super) struct Tree(Option<Nodes>);

#[derive(Default)]
struct Nodes {
    unfair: HashSet<Box<str>>,
    /// How many queues there are below a path.
    below: HashMap<Box<str>, usize>,
}

impl Tree {
    /// To be called before the first unfair lock comes, with the paths that are there already, all fair.
    pub(super) fn watch_over<'a, I: Iterator<Item = &'a LockPath>>(&mut self, there: impl FnOnce() -> I) {
        self.0.get_or_insert_with(|| there().fold(Nodes::default(), Nodes::with));
    }

    pub(super) fn add(&mut self, path: &LockPath, fair: bool) -> Result<(), Error> {
        self.0.as_mut().map_or(Ok(()), |nodes| nodes.add(path, fair))
    }

    pub(super) fn remove(&mut self, path: &LockPath) {
        if let Some(nodes) = &mut self.0 {
            nodes.remove(path);
        }
    }
}

impl Nodes {
    fn with(mut self, fair: &LockPath) -> Self {
        self.count(fair);
        self
    }

    fn add(&mut self, path: &LockPath, fair: bool) -> Result<(), Error> {
        let wrong = |found| Err(Error::WrongKind { path: path.clone(), found });
        if let Some(above) = above(path).find(|above| self.unfair.contains(*above)) {
            return wrong(format!("\"{above}\" above it is {}", super::kind(false)));
        }
        if !fair && self.below.contains_key(path.as_str()) {
            return wrong("there are locks below it".to_owned());
        }
        self.count(path);
        if !fair {
            self.unfair.insert(path.as_str().into());
        }
        Ok(())
    }

    fn count(&mut self, path: &LockPath) {
        for above in above(path) {
            *self.below.entry(above.into()).or_default() += 1;
        }
    }

    fn remove(&mut self, path: &LockPath) {
        self.unfair.remove(path.as_str());
        for above in above(path) {
            if let Some(count) = self.below.get_mut(above) {
                *count -= 1;
                if *count == 0 {
                    self.below.remove(above);
                }
            }
        }
    }
}

/// The paths above `path`, the root left out.
fn above(path: &LockPath) -> impl Iterator<Item = &str> {
    path.as_str().match_indices('/').skip(1).map(|(end, _)| &path.as_str()[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_unfair_lock_meets_those_that_are_there_already() {
        let path = |path| LockPath::new(path).unwrap();
        let there = [path("/a/b/c"), path("/d")];
        let mut tree = Tree::default();
        for each in &there {
            tree.add(each, true).unwrap();
        }
        tree.watch_over(|| there.iter());
        for below in ["/a", "/a/b"] {
            let refused = tree.add(&path(below), false);
            assert!(matches!(refused, Err(Error::WrongKind { .. })), "{below}: {refused:?}");
        }
        tree.remove(&there[0]);
        tree.add(&path("/a/b"), false).unwrap();
        assert!(tree.add(&there[0], true).is_err());
        tree.remove(&path("/a/b"));
        tree.add(&there[0], true).unwrap();
        tree.remove(&there[0]);
        tree.remove(&there[1]);
        let Nodes { unfair, below } = tree.0.unwrap();
        assert!(unfair.is_empty() && below.is_empty(), "{unfair:?} {below:?}");
    }
}
