use std::fmt::Display;

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

/// Every mistake of one annotation, reported together.
#[derive(Default)]
pub(crate) struct Errors(Option<syn::Error>);

impl Errors {
    pub(crate) fn push(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(all) => all.combine(error),
            none => *none = Some(error),
        }
    }

    pub(crate) fn at(&mut self, place: impl ToTokens, message: impl Display) {
        self.push(syn::Error::new_spanned(place, message));
    }

    pub(crate) fn on(&mut self, span: Span, message: impl Display) {
        self.push(syn::Error::new(span, message));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The errors behind `item`, which goes first so that they do not hide it.
    pub(crate) fn beside(self, mut item: TokenStream) -> TokenStream {
        item.extend(self.0.map(syn::Error::into_compile_error));
        item
    }
}

/// "; did you mean `near`?", or else the list of what there is.
pub(crate) fn suggestion(word: &str, known: &[&str]) -> String {
    match nearest(word, known) {
        Some(near) => format!("; did you mean `{near}`?"),
        None => format!("; there are `{}`", known.join("`, `")),
    }
}

/// The nearest of `known`, if it is near enough to be what was meant.
fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|known| (distance(word, known), *known))
        .filter(|&(distance, known)| distance <= 1 + known.len().max(word.len()) / 4)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, known)| known)
}

/// Edits between two words, where swapping two neighbours is one edit.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (i, &a) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &b) in to.iter().enumerate() {
            let mut best = (row[j] + 1).min(last[j + 1] + 1).min(last[j] + usize::from(a != b));
            if i > 0 && j > 0 && a == to[j - 1] && from[i - 1] == b {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_is_what_was_meant() {
        let known = ["path", "fair", "timeout", "wait"];
        assert_eq!(nearest("pth", &known), Some("path"));
        assert_eq!(nearest("fiar", &known), Some("fair"));
        assert_eq!(nearest("timout", &known), Some("timeout"));
        assert_eq!(nearest("retries", &known), None);
        assert_eq!(distance("", "wait"), 4);
    }
}
