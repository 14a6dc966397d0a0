use std::{
    fmt,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::options::LockOptions;

/// A new id of an attempt, which nothing else anywhere has.
///
/// Drawn once for the process and counted from there: to draw each of them asks the system, which costs as much as a good
/// part of the rest of a call.
pub(super) fn attempt() -> Uuid {
    static FIRST: LazyLock<(u64, u64)> = LazyLock::new(|| Uuid::new_v4().as_u64_pair());
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let (high, low) = *FIRST;
    // The two highest bits of the lower half say which kind of uuid it is.
    let random = low.wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed)) & (u64::MAX >> 2);
    Uuid::from_u64_pair(high, random | (low & !(u64::MAX >> 2)))
}

/// The name of a contender: the layout of Curator's `InterProcessMutex`, so that Java and Rust services exclude each other
/// on one path.
///
/// Kept as what it is made of: the text would be a tenth of what a lock weighs that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    /// Of the attempt that made it.
    pub(super) uuid: Uuid,
    pub(super) sequence: i32,
}

impl Name {
    /// `None` for a child that is no contender.
    ///
    /// The server prints Java's `%010d`: ten digits, or a sign and nine or ten of them.
    pub(super) fn read(name: &str) -> Option<Self> {
        let (uuid, rest) = name.strip_prefix("_c_")?.split_at_checked(uuid::fmt::Hyphenated::LENGTH)?;
        let sequence = rest.strip_prefix("-lock-")?;
        let uuid = Uuid::try_parse(uuid).ok()?;
        let digits = sequence.strip_prefix('-').unwrap_or(sequence);
        if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        Some(Self { uuid, sequence: sequence.parse().ok()? })
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:010}", prefix(self.uuid), self.sequence)
    }
}

/// What the name of a contender starts with, up to its sequence.
pub(super) fn prefix(uuid: Uuid) -> String {
    format!("_c_{}-lock-", uuid.hyphenated())
}

/// The sequence of a contender; `None` for a child that is none.
pub(super) fn sequence(name: &str) -> Option<i32> {
    Name::read(name).map(|name| name.sequence)
}

/// What stands in a node, for operators, for the next in line, and to know our own again. Never the arguments of
/// the call: they may be secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Tag {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) identity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) function: Option<String>,
    /// Milliseconds since 1970, by the clock of the machine that wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
    /// For how long it may be held, in milliseconds, from the grant on.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    /// This attempt and no other: a uuid. A fair contender has it in its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<String>,
}

impl Tag {
    /// How much of a text is kept: the node is read by every waiter behind it.
    const LONGEST: usize = 200;

    pub(super) fn new(identity: &str, options: &LockOptions, attempt: Uuid) -> Self {
        let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).ok();
        Self {
            identity: Some(shortened(identity)),
            function: Some(shortened(options.function)),
            since: SystemTime::now().duration_since(UNIX_EPOCH).ok().and_then(milliseconds),
            limit: options.timeout.and_then(milliseconds),
            attempt: (!options.fair).then(|| attempt.to_string()),
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        // Texts and numbers only, so that this does not fail; a node without its tag would still work.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Of whatever stands in a node, which may be another program's.
    pub(super) fn read(data: &[u8]) -> Self {
        let mut tag: Self = serde_json::from_slice(data).unwrap_or_default();
        // They go into messages and logs.
        for text in [&mut tag.identity, &mut tag.function].into_iter().flatten() {
            text.retain(|c| !c.is_control());
            *text = shortened(text);
        }
        tag
    }

    pub(super) fn is_of(&self, attempt: Uuid) -> bool {
        self.attempt.as_ref().is_some_and(|written| *written == attempt.to_string())
    }

    pub(super) fn since(&self) -> Option<SystemTime> {
        UNIX_EPOCH.checked_add(Duration::from_millis(self.since?))
    }
}

fn shortened(text: &str) -> String {
    let end = (0..=Tag::LONGEST.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    text[..end.unwrap_or_default()].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_was_made_and_written_as_it_was_read() {
        let uuid = Uuid::new_v4();
        for (text, number) in [
            ("0000000000", 0),
            ("0000000042", 42),
            ("2147483647", i32::MAX),
            ("-2147483648", i32::MIN),
            ("-000000001", -1),
        ] {
            let text = format!("{}{text}", prefix(uuid));
            let name = Name { uuid, sequence: number };
            assert_eq!(Name::read(&text), Some(name));
            assert_eq!(name.to_string(), text);
        }
        for text in ["", "-", "+1", " 1", "1 ", "x", "2147483648", "--1"] {
            assert_eq!(sequence(&format!("{}{text}", prefix(uuid))), None, "{text}");
        }
    }

    #[test]
    fn no_two_attempts_have_one_id() {
        let all: std::collections::HashSet<Uuid> = (0..10_000).map(|_| attempt()).collect();
        assert_eq!(all.len(), 10_000);
        assert!(all.iter().all(|id| id.get_version_num() == 4));
    }

    #[test]
    fn a_tag_is_read_leniently() {
        let options = LockOptions {
            fair: false,
            timeout: Some(Duration::from_secs(5)),
            wait: None,
            function: "shop::pay",
        };
        let uuid = Uuid::new_v4();
        let tag = Tag::new("shop-1", &options, uuid);
        assert_eq!(Tag::read(&tag.to_bytes()), tag);
        assert!(tag.is_of(uuid) && !tag.is_of(Uuid::new_v4()));
        assert!(tag.since().unwrap() <= SystemTime::now());
        for other in ["", "10.0.0.1", "{", "[]", "null", "{\"identity\":1}"] {
            assert_eq!(Tag::read(other.as_bytes()), Tag::default(), "{other}");
        }
        assert_eq!(Tag::read(b"{\"identity\":\"a\",\"new\":1}").identity.as_deref(), Some("a"));
    }

    #[test]
    fn what_others_wrote_is_harmless() {
        let tag = Tag::read(br#"{"identity":"a\nERROR b\u001b[2J"}"#);
        assert_eq!(tag.identity.as_deref(), Some("aERROR b[2J"));
        let long = format!(r#"{{"function":"{}"}}"#, "x".repeat(10_000));
        assert_eq!(Tag::read(long.as_bytes()).function.map(|text| text.len()), Some(Tag::LONGEST));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let options = LockOptions { fair: true, timeout: None, wait: None, function: "f" };
        let tag = Tag::new(&"\u{20ac}".repeat(1000), &options, Uuid::new_v4());
        assert!(tag.to_bytes().len() < 400);
        assert_eq!(tag.identity.unwrap().len(), 198);
    }
}
