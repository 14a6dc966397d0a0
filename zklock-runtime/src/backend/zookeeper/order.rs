use std::{collections::BTreeMap, sync::Arc};

use super::{nodes, queue};

/// Whose turn it is among the contenders of one session in one directory, as far as is known. It decides and does
/// nothing: [`Line`](super::line::Line) acts on it, and the model explores it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Order<W> {
    /// The last sequence that was taken in.
    taken: Option<i32>,
    /// All contenders up to this sequence are over.
    done: Option<i32>,
    /// The sequence of ours that holds, or is being granted.
    holder: Option<i32>,
    /// Boxed, since a map keeps room for eleven.
    waiting: BTreeMap<i32, Box<Waiter<W>>>,
    /// Contenders of other sessions were seen, or other children.
    has_others: bool,
    has_foreign: bool,
    /// Once there was one: who is alone needs none.
    surveys: Option<Box<Surveys>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiter<W> {
    who: W,
    before: Before,
    /// How many surveys had started when it came.
    since: u64,
}

/// What the order must know of who waits in it.
pub(super) trait Waits {
    /// Whether its node has this name.
    fn is_named(&self, name: &str) -> bool;

    /// What is known of its place has changed.
    fn stir(&mut self);
}

/// Who is before a contender, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Before {
    Unknown,
    /// It is not in the list.
    Missing,
    /// Its turn had come, but the session could not be relied on.
    Unconfirmed,
    /// One of ours, which waits, holds or was the last to be over: whoever changes that tells the one behind it.
    Ours(i32),
    Theirs(Theirs),
}

/// Another session's contender.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Theirs {
    pub(super) name: Arc<str>,
    /// Nobody is before it: when it goes, it is our turn.
    pub(super) is_first: bool,
    /// The one before it: when that goes, it may be first.
    pub(super) ahead: Option<Arc<str>>,
}

/// Numbers the listings of the directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Surveys {
    started: u64,
    finished: u64,
    finished_synced: u64,
}

/// Whether sequences of a directory tell the order: not past the end of the server's counter, see [`queue::place`].
pub(super) fn is_in_order(sequence: i32) -> bool {
    (0..i32::MAX).contains(&sequence)
}

impl<W> Default for Order<W> {
    fn default() -> Self {
        Self {
            taken: None,
            done: None,
            holder: None,
            waiting: BTreeMap::new(),
            has_others: false,
            has_foreign: false,
            surveys: None,
        }
    }
}

impl<W: Waits> Order<W> {
    /// Takes the sequence in, to enter, if it comes after all that are known. If not, its answer was late, or the directory
    /// was made anew since. Nobody else can enter with it then: it would take the place of the first.
    pub(super) fn takes(&mut self, sequence: i32) -> bool {
        let is_later = self.taken < Some(sequence);
        self.taken = self.taken.max(Some(sequence));
        is_later
    }

    /// `is_first`: nobody else was there when it came.
    pub(super) fn enter(&mut self, sequence: i32, is_first: bool, who: W) {
        self.taken = self.taken.max(Some(sequence));
        let previous = sequence.wrapping_sub(1);
        if is_first {
            self.are_over(previous);
        }
        let before = Some(previous)
            .filter(|_| is_in_order(sequence) && self.done < Some(sequence))
            .and_then(|previous| self.ours(previous))
            .map_or(Before::Unknown, Before::Ours);
        self.insert(sequence, before, who);
    }

    /// Takes out whose turn it is, to be granted.
    pub(super) fn next(&mut self) -> Option<(i32, W)> {
        if self.holder.is_some() {
            return None;
        }
        let done = self.done?;
        let next = done.wrapping_add(1);
        let (&sequence, waiter) = self.waiting.get_key_value(&next).or_else(|| {
            self.waiting.range(next..).next().filter(|(_, waiter)| waiter.before == Before::Ours(done))
        })?;
        if waiter.before == Before::Unconfirmed {
            return None;
        }
        self.holder = Some(sequence);
        self.take(sequence).map(|waiter| (sequence, waiter.who))
    }

    /// It could not be granted, since the session could not be relied on.
    pub(super) fn put_back(&mut self, sequence: i32, mut who: W) {
        self.holder = None;
        who.stir();
        self.insert(sequence, Before::Unconfirmed, who);
    }

    /// The holder is done. `passes`: its node stood until now, as far as we know. If it did not, all nodes may have been
    /// deleted, so that whoever is behind it must see that its own is there.
    pub(super) fn leave(&mut self, sequence: i32, passes: bool) {
        if self.holder != Some(sequence) {
            return;
        }
        self.holder = None;
        if passes {
            self.are_over(sequence);
        } else {
            self.relink(sequence, Before::Unknown);
        }
    }

    /// Takes out who does not want to wait any more, or whose node `is_gone`.
    pub(super) fn withdraw(&mut self, sequence: i32, is_gone: bool) -> Option<W> {
        let waiter = self.take(sequence)?;
        match waiter.before {
            _ if is_gone => self.relink(sequence, Before::Unknown),
            _ if self.done == Some(sequence.wrapping_sub(1)) && is_in_order(sequence) => {
                self.are_over(sequence);
            }
            before @ (Before::Ours(_) | Before::Theirs(_)) => self.relink(sequence, before),
            Before::Unknown | Before::Missing | Before::Unconfirmed => self.relink(sequence, Before::Unknown),
        }
        Some(waiter.who)
    }

    /// Nobody is before it any more.
    pub(super) fn is_first(&mut self, sequence: i32) {
        if self.waiting.contains_key(&sequence) {
            self.done = Some(sequence.wrapping_sub(1));
        }
    }

    /// `None` if it does not wait.
    pub(super) fn before(&self, sequence: i32) -> Option<&Before> {
        self.waiting.get(&sequence).map(|waiter| &waiter.before)
    }

    pub(super) fn is(&mut self, sequence: i32, before: Before) {
        if let Some(waiter) = self.waiting.get_mut(&sequence) {
            waiter.before = before;
        }
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = &W> {
        self.waiting.values().map(|waiter| &waiter.who)
    }

    /// Has all who wait look again.
    pub(super) fn stir(&mut self) {
        self.waiting.values_mut().for_each(|waiter| waiter.who.stir());
    }

    pub(super) fn has_holder(&self) -> bool {
        self.holder.is_some()
    }

    /// Nobody but us is known to use the directory.
    pub(super) fn is_only_ours(&self) -> bool {
        !self.has_others && !self.has_foreign
    }

    /// Which survey, at the earliest, says something about whoever asks now.
    pub(super) fn next_survey(&self) -> u64 {
        self.surveys().started + 1
    }

    /// Whether that one, or a later one, is done.
    pub(super) fn is_surveyed(&self, number: u64, synced: bool) -> bool {
        let surveys = self.surveys();
        number <= if synced { surveys.finished_synced } else { surveys.finished }
    }

    /// A listing is about to be asked for.
    pub(super) fn start_survey(&mut self) -> u64 {
        let surveys = self.surveys.get_or_insert_default();
        surveys.started += 1;
        surveys.started
    }

    /// The listing `number` has come: finds the places of all ours in it.
    pub(super) fn finish_survey(&mut self, number: u64, synced: bool, children: &[String]) {
        let surveys = self.surveys.get_or_insert_default();
        surveys.finished = number;
        if synced {
            surveys.finished_synced = number;
        }
        self.has_foreign |= queue::has_foreign(children);
        let names = queue::in_order(children);
        let mut listed = 0;
        let mut found: Vec<(i32, Before)> = Vec::new();
        for (index, name) in names.iter().enumerate() {
            let Some(sequence) = nodes::sequence(name) else { continue };
            let is_waiting = self.waiting.get(&sequence).is_some_and(|waiter| waiter.who.is_named(name));
            listed += usize::from(is_waiting || self.holder == Some(sequence));
            if !is_waiting {
                continue;
            }
            let ahead = |distance: usize| names.get(index.checked_sub(distance)?).copied();
            let before = match ahead(1) {
                None => {
                    self.done = Some(sequence.wrapping_sub(1));
                    Before::Ours(sequence.wrapping_sub(1))
                }
                Some(name) => {
                    let theirs = || {
                        Before::Theirs(Theirs {
                            name: name.into(),
                            is_first: index == 1,
                            ahead: ahead(2).map(Into::into),
                        })
                    };
                    nodes::sequence(name)
                        .and_then(|previous| self.ours(previous))
                        .map_or_else(theirs, Before::Ours)
                }
            };
            found.push((sequence, before));
        }
        self.has_others |= listed < names.len();
        let mut found = found.into_iter().peekable();
        for (sequence, waiter) in &mut self.waiting {
            while found.next_if(|(earlier, _)| earlier < sequence).is_some() {}
            let before = match found.next_if(|(same, _)| same == sequence) {
                Some((_, before)) => before,
                // It came later than the listing was asked for.
                None if waiter.since >= number => continue,
                None => Before::Missing,
            };
            waiter.is_behind(before);
        }
    }

    #[cfg(test)]
    pub(super) fn heard(&mut self, sequence: i32, hear: impl FnOnce(&mut W)) {
        if let Some(waiter) = self.waiting.get_mut(&sequence) {
            hear(&mut waiter.who);
        }
    }

    /// Counts them anew, when none is on its way.
    #[cfg(test)]
    pub(super) fn forget_surveys(&mut self) {
        self.surveys = None;
        self.waiting.values_mut().for_each(|waiter| waiter.since = 0);
    }

    fn insert(&mut self, sequence: i32, before: Before, who: W) {
        self.waiting.insert(sequence, Box::new(Waiter { who, before, since: self.surveys().started }));
    }

    fn surveys(&self) -> Surveys {
        self.surveys.as_deref().copied().unwrap_or_default()
    }

    fn take(&mut self, sequence: i32) -> Option<Box<Waiter<W>>> {
        let waiter = self.waiting.remove(&sequence);
        if self.waiting.is_empty() {
            // An empty map keeps its room.
            self.waiting = BTreeMap::new();
        }
        waiter
    }

    fn are_over(&mut self, up_to: i32) {
        self.done = Some(self.done.map_or(up_to, |done| done.max(up_to)));
    }

    /// The one behind `sequence`, if it is ours, has somebody else before it now.
    fn relink(&mut self, sequence: i32, before: Before) {
        let behind =
            self.waiting.range_mut(sequence..).find(|(_, waiter)| waiter.before == Before::Ours(sequence));
        if let Some((_, waiter)) = behind {
            waiter.is_behind(before);
        }
    }

    /// The one of ours that whoever is behind `sequence` waits for.
    fn ours(&self, sequence: i32) -> Option<i32> {
        if let Some(done) = self.done.filter(|done| is_in_order(sequence) && sequence <= *done) {
            return Some(done);
        }
        (self.holder == Some(sequence) || self.waiting.contains_key(&sequence)).then_some(sequence)
    }
}

impl<W: Waits> Waiter<W> {
    fn is_behind(&mut self, before: Before) {
        if self.before != before {
            self.before = before;
            self.who.stir();
        }
    }
}
