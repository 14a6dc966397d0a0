/// Choices that depend on the seed alone (`SplitMix64`).
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    /// Independent choices for each part of a run.
    pub(super) fn new(seed: u64, part: &[u64]) -> Self {
        let mut random = Self(seed);
        for number in part {
            random.0 = random.next() ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
        random
    }

    /// From `low` to below `high`.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low)
    }

    /// Below `count`.
    pub(super) fn index(&mut self, count: usize) -> usize {
        // The remainder of a usize is one.
        usize::try_from(self.next() % count as u64).unwrap_or_default()
    }

    pub(super) fn percent(&mut self, percent: u64) -> bool {
        self.between(0, 100) < percent
    }

    /// All of them, in any order.
    pub(super) fn shuffled<T: Clone>(&mut self, all: &[T]) -> Vec<T> {
        let mut all = all.to_vec();
        for end in (1..all.len()).rev() {
            all.swap(end, self.index(end + 1));
        }
        all
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

/// Kinds of things to do, each as often as it is in the deck before any comes again: so that a short run has all of
/// them.
#[derive(Debug)]
pub(super) struct Deck<T: 'static> {
    all: &'static [T],
    left: Vec<T>,
}

impl<T: Clone> Deck<T> {
    pub(super) fn new(all: &'static [T]) -> Self {
        Self { all, left: Vec::new() }
    }

    /// # Panics
    ///
    /// If nothing is in it.
    pub(super) fn draw(&mut self, random: &mut Random) -> T {
        if self.left.is_empty() {
            self.left = random.shuffled(self.all);
        }
        self.left.pop().expect("a deck has cards")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deck_gives_all_before_any_comes_again() {
        let (mut deck, mut random) = (Deck::new(&[1, 2, 3, 3]), Random::new(5, &[]));
        for _ in 0..10 {
            let mut drawn = [(); 4].map(|()| deck.draw(&mut random));
            drawn.sort_unstable();
            assert_eq!(drawn, [1, 2, 3, 3]);
        }
    }
}
