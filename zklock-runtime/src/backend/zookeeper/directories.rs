use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::line::Line;

/// What a session knows of the directories of fair locks, so that the usual acquire is one round trip and a
/// directory of its own making is taken away with its last contender.
///
/// All of it may be wrong at any moment, since others create and delete directories too: it decides what is tried
/// first, and the server has the last word.
#[derive(Debug, Default)]
pub(super) struct Directories(Mutex<Known>);

#[derive(Debug)]
struct Known {
    all: HashMap<Arc<str>, Directory>,
    /// With so many, those without contenders are forgotten. It follows the number of those that have some: else, with
    /// many held, every acquire would go through all of them.
    most: usize,
}

impl Default for Known {
    fn default() -> Self {
        Self { all: HashMap::new(), most: Directories::MOST }
    }
}

impl Known {
    fn make_room(&mut self) {
        if self.all.len() >= self.most {
            self.all.retain(|_, directory| directory.contenders > 0);
            self.most = Directories::MOST.max(2 * self.all.len());
        }
    }
}

#[derive(Debug, Default)]
struct Directory {
    exists: bool,
    /// This session created it, as a container, in the transaction of the line. Not so any more where it was not left empty by
    /// us: others use it, and may rely on it (kazoo remembers that a directory exists).
    is_ours: bool,
    /// We may create in it, but not write to it.
    read_only: bool,
    use_of_it: Use,
    /// Contenders of this session, from before their creation to their end.
    contenders: u32,
    /// Their line, which knows the transaction that made the directory.
    line: Option<Arc<Line>>,
}

/// Whether we come back to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Use {
    #[default]
    First,
    /// We took it away.
    Left,
    /// We took it away and came back: next time it is left to the server, which sweeps empty containers.
    Again,
}

/// How a contender is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// With its directory.
    Found,
    /// In a directory that is there.
    Join,
    /// In a directory that we may not write to, so that who else is there must be asked.
    Bare,
}

/// A contender of this session in a directory.
#[derive(Debug)]
pub(super) struct Presence {
    directories: Arc<Directories>,
    path: Arc<str>,
}

impl Directories {
    /// How many directories without contenders are remembered.
    const MOST: usize = 4096;

    pub(super) fn enter(self: &Arc<Self>, path: &Arc<str>) -> Presence {
        let mut known = self.lock();
        known.make_room();
        let directory = known.all.entry(path.clone()).or_default();
        directory.contenders += 1;
        if directory.use_of_it == Use::Left {
            directory.use_of_it = Use::Again;
        }
        Presence { directories: self.clone(), path: path.clone() }
    }

    /// Others are in it, whom we did not see: it is there, and not ours to take away.
    pub(super) fn is_shared(&self, path: &str) {
        if let Some(directory) = self.lock().all.get_mut(path) {
            directory.exists = true;
            directory.is_ours = false;
        }
    }

    /// All lines that somebody of ours stands in.
    pub(super) fn lines(&self) -> Vec<Arc<Line>> {
        self.lock().all.values().filter_map(|directory| directory.line.clone()).collect()
    }

    /// The line of a directory as it was last seen.
    pub(super) fn last_line(&self, path: &str) -> Option<Arc<Line>> {
        self.lock().all.get(path)?.line.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Directory {
    /// All that is left to say of it when it is gone.
    fn forgotten(&self) -> Self {
        Self { contenders: self.contenders, use_of_it: self.use_of_it, ..Self::default() }
    }

    /// `None` for an answer that is late, about a directory that is gone.
    fn line(&mut self, czxid: i64) -> Option<&Arc<Line>> {
        let last = self.line.as_ref().and_then(|line| line.made_in());
        if last > Some(czxid) {
            return None;
        }
        if last != Some(czxid) {
            self.is_ours = false;
            self.line = Some(Arc::new(Line::of(Some(czxid))));
        }
        self.line.as_ref()
    }
}

impl Presence {
    pub(super) fn path(&self) -> &Arc<str> {
        &self.path
    }

    fn with<T>(&self, look: impl FnOnce(&mut Directory) -> T) -> T {
        look(self.directories.lock().all.entry(self.path.clone()).or_default())
    }

    #[cfg(test)]
    fn exists(&self) -> bool {
        self.with(|directory| directory.exists)
    }

    /// How a contender is best created in it.
    pub(super) fn way(&self) -> Way {
        self.with(|directory| match (directory.read_only, directory.exists) {
            (true, _) => Way::Bare,
            (false, true) => Way::Join,
            (false, false) => Way::Found,
        })
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.with(|directory| directory.read_only)
    }

    pub(super) fn is_there(&self) {
        self.with(|directory| directory.exists = true);
    }

    pub(super) fn is_missing(&self) {
        self.with(|directory| {
            *directory = directory.forgotten();
        });
    }

    pub(super) fn was_made_in(&self, czxid: i64) {
        self.with(|directory| {
            directory.exists = true;
            directory.is_ours |= directory.line(czxid).is_some();
        });
    }

    /// The line of our contenders in the directory that was made in `czxid`.
    pub(super) fn line(&self, czxid: i64) -> Arc<Line> {
        let line = self.with(|directory| directory.line(czxid).cloned());
        line.unwrap_or_else(|| Arc::new(Line::of(Some(czxid))))
    }

    pub(super) fn may_not_be_written(&self) {
        self.with(|directory| directory.read_only = true);
    }

    /// Ends the presence of a contender that was alone when it was last seen, in the directory that was created in
    /// `czxid`. True if the directory should go with it: this session made it, nobody else is known to be there, and we do
    /// not come back again and again.
    /// It is forgotten then, so that the next acquire makes it again.
    pub(super) fn leave_last(&self, czxid: i64) -> bool {
        self.with(|directory| {
            let last = directory.contenders == 1
                && directory.is_ours
                && directory.line.as_ref().and_then(|line| line.made_in()) == Some(czxid)
                && directory.use_of_it == Use::First;
            if last {
                *directory = Directory { use_of_it: Use::Left, ..directory.forgotten() };
            }
            last
        })
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let all = &mut self.directories.lock().all;
        if let Some(directory) = all.get_mut(&self.path) {
            directory.contenders = directory.contenders.saturating_sub(1);
            if directory.contenders == 0 {
                // Nobody of ours is left to see a foreign child, or to take the directory away.
                directory.is_ours = false;
                if !directory.exists && directory.use_of_it == Use::First {
                    all.remove(&self.path);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_contender_takes_away_what_was_made_here() {
        let directories = Arc::new(Directories::default());
        let first = directories.enter(&"/a".into());
        assert!(!first.exists());
        first.was_made_in(5);
        let second = directories.enter(&"/a".into());
        assert!(second.exists());
        assert!(!first.leave_last(5));
        drop(first);
        assert!(second.leave_last(5));
        drop(second);
        assert!(!directories.enter(&"/a".into()).exists());
    }

    #[test]
    fn where_we_come_back_it_is_left_to_the_server() {
        let directories = Arc::new(Directories::default());
        for (czxid, is_once) in [(5, true), (6, false), (7, false)] {
            let presence = directories.enter(&"/a".into());
            presence.was_made_in(czxid);
            assert_eq!(presence.leave_last(czxid), is_once);
            // The server has swept it.
            presence.is_missing();
        }
        let other = directories.enter(&"/b".into());
        other.was_made_in(8);
        assert!(other.leave_last(8));
    }

    #[test]
    fn what_others_made_or_use_stays() {
        let directories = Arc::new(Directories::default());
        let found = directories.enter(&"/a".into());
        found.is_there();
        assert!(!found.leave_last(5));
        let other_incarnation = directories.enter(&"/b".into());
        other_incarnation.was_made_in(5);
        assert!(!other_incarnation.leave_last(6));
        let shared = directories.enter(&"/c".into());
        shared.was_made_in(5);
        directories.is_shared("/c");
        assert!(!shared.leave_last(5));
        // Made once, left standing, and used by others since: not ours any more.
        let later = directories.enter(&"/b".into());
        assert!(later.exists());
        assert!(!later.leave_last(5));
    }

    #[test]
    fn a_line_is_of_one_directory_and_a_late_answer_does_not_bring_an_old_one_back() {
        let directories = Arc::new(Directories::default());
        let presence = directories.enter(&"/a".into());
        let old = presence.line(5);
        assert!(Arc::ptr_eq(&old, &directories.enter(&"/a".into()).line(5)));
        let new = presence.line(7);
        assert!(!Arc::ptr_eq(&old, &new));
        let late = presence.line(5);
        assert!(!Arc::ptr_eq(&late, &old) && !Arc::ptr_eq(&late, &new));
        assert!(directories.last_line("/a").is_some_and(|line| Arc::ptr_eq(&line, &new)));
    }

    #[test]
    fn no_more_than_so_many_are_remembered() {
        let directories = Arc::new(Directories::default());
        let kept = directories.enter(&"/kept".into());
        for i in 0..3 * Directories::MOST {
            directories.enter(&format!("/{i}").into()).is_there();
        }
        assert!(directories.lock().all.len() <= Directories::MOST);
        assert!(directories.lock().all.contains_key(kept.path()));
    }

    #[test]
    fn with_many_held_not_all_are_gone_through_for_each() {
        let directories = Arc::new(Directories::default());
        let mut held = Vec::new();
        let mut times = 0;
        for i in 0..4 * Directories::MOST {
            let most = directories.lock().most;
            held.push(directories.enter(&format!("/{i}").into()));
            times += usize::from(directories.lock().most != most);
        }
        assert!((1..=3).contains(&times), "{times} times");
        assert_eq!(directories.lock().all.len(), held.len());
    }
}
