use std::fmt;

/// A short list in place, so that a state is one flat value that is quickly copied and compared.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Fixed<T, const N: usize>([Option<T>; N]);

impl<T: Copy, const N: usize> Default for Fixed<T, N> {
    fn default() -> Self {
        Self([None; N])
    }
}

impl<T: Copy, const N: usize> Fixed<T, N> {
    pub(super) fn push(&mut self, item: T) {
        let free = self.0.iter_mut().find(|slot| slot.is_none());
        *free.expect("the model makes room for all that can be there") = Some(item);
    }

    pub(super) fn remove(&mut self, index: usize) -> Option<T> {
        let removed = self.0[index].take();
        self.0[index..].rotate_left(1);
        removed
    }

    /// Keeps the order.
    pub(super) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        for index in (0..N).rev() {
            if self.0[index].is_some_and(|item| !keep(&item)) {
                self.remove(index);
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().flatten()
    }

    pub(super) fn len(&self) -> usize {
        self.iter().count()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0[0].is_none()
    }
}

impl<T: fmt::Debug, const N: usize> fmt::Debug for Fixed<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().flatten()).finish()
    }
}
