use std::{
    fmt::{Display, Write as _},
    ops::Range,
};

use sha2::{Digest, Sha256};

use super::{LockPath, look_alike};
use crate::{error::Error, private::Part};

/// Fills a template, whose texts the macro has checked. `values` holds one for each [`Part::Value`].
pub(crate) fn fill(template: &[&[Part]], values: &[&dyn Display]) -> Result<LockPath, Error> {
    let mut path = Encoder::default();
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
    path.finish()
}

/// Writes a path by the rules that the documentation of [`LockPath`] lists.
#[derive(Default)]
pub(super) struct Encoder {
    text: String,
    /// Where the current segment begins.
    segment: usize,
    /// Which of its bytes come from values.
    values: Vec<Range<usize>>,
    /// The value at hand, as text.
    raw: String,
}

impl Encoder {
    pub(super) fn begin_segment(&mut self) {
        self.text.push('/');
        self.segment = self.text.len();
        self.values.clear();
    }

    /// Appends a value of a segment that consists of `parts`.
    pub(super) fn value(
        &mut self,
        value: &dyn Display,
        parts: &[Part],
        argument: impl Fn() -> String,
    ) -> Result<(), Error> {
        let Self { text, values, raw, .. } = self;
        raw.clear();
        let written = write!(raw, "{value}");
        let reason = if written.is_err() {
            "its `Display` failed"
        } else if raw.is_empty() {
            "it is empty, and would be one lock for all; fill it in, or leave it out of the path"
        } else if raw.chars().all(char::is_whitespace) {
            "it is blank, and would be one lock for all; fill it in, or leave it out of the path"
        } else {
            let start = text.len();
            write_value(text, raw, |c| is_between_values(c, parts));
            values.push(start..text.len());
            return Ok(());
        };
        Err(Error::InvalidPath { path: raw.clone(), argument: Some(argument()), reason: reason.to_owned() })
    }

    pub(super) fn end_segment(&mut self) {
        let is_first = self.segment == 1;
        let segment = &self.text[self.segment..];
        if segment == "." || segment == ".." {
            let dots = self.segment..self.text.len();
            for at in
                dots.rev().filter(|at| self.values.iter().any(|value| value.contains(at))).collect::<Vec<_>>()
            {
                self.escape(at);
            }
        }
        while let Some(look) = look_alike(&self.text[self.segment..], is_first) {
            let look = look.start + self.segment..look.end + self.segment;
            let Some(at) = look.clone().find(|at| self.values.iter().any(|value| value.contains(at))) else {
                // All of it is the template's own text, which the macro has refused.
                break;
            };
            self.escape(at);
        }
    }

    /// Escapes the ASCII character at `at`, which comes from a value.
    fn escape(&mut self, at: usize) {
        let byte = self.text.as_bytes()[at];
        self.text.replace_range(at..=at, &format!("%{byte:02X}"));
        for value in &mut self.values {
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
        let kept = c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '@' | '+' | '=' | ',');
        if kept && !is_separator(c) {
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
