use std::{
    fmt::{Display, Write as _},
    ops::Range,
};

use sha2::{Digest, Sha256};

use super::{LockPath, look_alike};
use crate::{error::Error, private::Part};

/// Fills a template, whose texts the macro has checked. `values` holds one for each [`Part::Value`].
pub(crate) fn fill(template: &[&[Part]], values: &[&dyn Display]) -> Result<LockPath, Error> {
    let mut path = Encoder { text: scratch::take(), ..Encoder::default() };
    let mut values = values.iter();
    for parts in template {
        path.begin_segment();
        for part in *parts {
            match part {
                Part::Text(text) => path.text.push_str(text),
                // The macro passes as many as there are.
                Part::Value(name) => {
                    if let Some(value) = values.next() {
                        path.value(value, parts, || (*name).to_owned())?;
                    }
                }
            }
        }
        path.end_segment();
    }
    let filled = LockPath::filled(&path.text);
    scratch::give_back(path.text);
    filled
}

/// Where paths are written before they are known to be some: kept for the next one of the thread.
mod scratch {
    use std::cell::Cell;

    /// The longest path is far shorter.
    const KEPT: usize = 1024;

    thread_local! {
        static TEXT: Cell<String> = const { Cell::new(String::new()) };
    }

    pub(super) fn take() -> String {
        // Another one takes it meanwhile, where a `Display` makes a path itself: that one finds an empty text.
        TEXT.try_with(Cell::take).unwrap_or_default()
    }

    pub(super) fn give_back(mut text: String) {
        if text.capacity() <= KEPT {
            text.clear();
            // Not in a thread that ends, which has no use for it.
            let _ = TEXT.try_with(|kept| kept.set(text));
        }
    }
}

/// Writes a path by the rules that the documentation of [`LockPath`] lists.
#[derive(Default)]
pub(super) struct Encoder {
    text: String,
    /// Where the current segment begins.
    segment: usize,
    /// Which of its bytes come from values: there is seldom more than one.
    value: Option<Range<usize>>,
    more: Vec<Range<usize>>,
}

impl Encoder {
    pub(super) fn begin_segment(&mut self) {
        self.text.push('/');
        self.segment = self.text.len();
        self.value = None;
        self.more.clear();
    }

    /// Appends a value of a segment that consists of `parts`.
    pub(super) fn value(
        &mut self,
        value: &dyn Display,
        parts: &[Part],
        argument: impl Fn() -> String,
    ) -> Result<(), Error> {
        let text = &mut self.text;
        let start = text.len();
        let written = write!(text, "{value}");
        let raw = &text[start..];
        let reason = if written.is_err() {
            "its `Display` failed"
        } else if raw.is_empty() {
            "it is empty, and would be one lock for all; fill it in, or leave it out of the path"
        } else if raw.chars().all(char::is_whitespace) {
            "it is blank, and would be one lock for all; fill it in, or leave it out of the path"
        } else {
            let has_separators = parts.len() > 2;
            let is_separator = |c| has_separators && is_between_values(c, parts);
            // Most values stay as they are, where they are.
            if raw.len() > MAX_VALUE || !raw.chars().all(|c| is_kept(c) && !is_separator(c)) {
                let raw = text.split_off(start);
                write_value(text, &raw, is_separator);
            }
            let value = start..text.len();
            match self.value {
                None => self.value = Some(value),
                Some(_) => self.more.push(value),
            }
            return Ok(());
        };
        Err(Error::InvalidPath {
            path: raw.to_owned(),
            argument: Some(argument()),
            reason: reason.to_owned(),
        })
    }

    pub(super) fn end_segment(&mut self) {
        if self.value.is_none() {
            // All of it is the template's own text.
            return;
        }
        let is_first = self.segment == 1;
        let segment = &self.text[self.segment..];
        if segment == "." || segment == ".." {
            let dots = self.segment..self.text.len();
            for at in dots.rev() {
                if self.is_of_value(at) {
                    self.escape(at);
                }
            }
        }
        while let Some(look) = look_alike(&self.text[self.segment..], is_first) {
            let look = look.start + self.segment..look.end + self.segment;
            let Some(at) = look.clone().find(|at| self.is_of_value(*at)) else {
                // All of it is the template's own text, which the macro has refused.
                break;
            };
            self.escape(at);
        }
    }

    fn is_of_value(&self, at: usize) -> bool {
        self.value.iter().chain(&self.more).any(|value| value.contains(&at))
    }

    /// Escapes the ASCII character at `at`, which comes from a value.
    fn escape(&mut self, at: usize) {
        let byte = self.text.as_bytes()[at];
        self.text.replace_range(at..=at, &format!("%{byte:02X}"));
        for value in self.value.iter_mut().chain(&mut self.more) {
            if value.start > at {
                value.start += 2;
            }
            if value.end > at {
                value.end += 2;
            }
        }
    }

    pub(super) fn finish(self) -> Result<LockPath, Error> {
        LockPath::new(&self.text)
    }
}

const MAX_VALUE: usize = 128;
const KEPT_OF_LONG_VALUE: usize = 48;

/// Rules 1 to 3.
fn write_value(path: &mut String, raw: &str, is_separator: impl Fn(char) -> bool) {
    let start = path.len();
    let mut cut = start;
    for c in raw.chars() {
        if is_kept(c) && !is_separator(c) {
            path.push(c);
        } else {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                push_escaped(path, byte);
                if path.len() - start <= KEPT_OF_LONG_VALUE {
                    cut = path.len();
                }
            }
        }
        if path.len() - start <= KEPT_OF_LONG_VALUE {
            cut = path.len();
        }
        if path.len() - start > MAX_VALUE {
            path.truncate(cut);
            path.push('~');
            for byte in Sha256::digest(raw) {
                // Writing to a `String` does not fail.
                let _ = write!(path, "{byte:02x}");
            }
            return;
        }
    }
}

fn is_kept(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '@' | '+' | '=' | ',')
}

fn push_escaped(path: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    path.push('%');
    path.push(char::from(DIGITS[usize::from(byte >> 4)]));
    path.push(char::from(DIGITS[usize::from(byte & 15)]));
}

/// Whether `c` is in the text between two values: there it says where one ends.
fn is_between_values(c: char, parts: &[Part]) -> bool {
    let mut before = false;
    let mut seen = false;
    for part in parts {
        match part {
            Part::Value(_) => {
                if seen {
                    return true;
                }
                before = true;
            }
            Part::Text(text) => seen |= before && text.contains(c),
        }
    }
    false
}
