//! G11: keys never alias.
use std::{collections::HashMap, fmt::Display};

use proptest::{collection::vec, prelude::*, sample::select};
use sha2::{Digest, Sha256};

use super::*;
use crate::private::Part::{self, Text, Value};

type Template = &'static [&'static [Part]];

const ONE: Template = &[&[Text("orders")], &[Value("a")]];
const FIRST: Template = &[&[Value("a")]];
const TWO_SEGMENTS: Template = &[&[Value("a")], &[Value("b")]];
const DASH: Template = &[&[Value("a"), Text("-"), Value("b")]];
/// The text between the values is made of what escapes and hashes are made of.
const HEX: Template = &[&[Text("x"), Value("a"), Text("2E6a"), Value("b"), Text("y")]];
const DOT: Template = &[&[Text("."), Value("a")], &[Value("b"), Text(".")]];
const LOCK: Template = &[&[Text("-lo"), Value("a"), Text("k-"), Value("b")]];
const PREFIX: Template = &[&[Text("_"), Value("a"), Text("_"), Value("b")]];
const TEMPLATES: [Template; 8] = [ONE, FIRST, TWO_SEGMENTS, DASH, HEX, DOT, LOCK, PREFIX];

fn filled(template: Template, values: &[&str]) -> Result<String, Error> {
    let values: Vec<&dyn Display> = values.iter().map(|value| value as &dyn Display).collect();
    fill(template, &values).map(|path| path.to_string())
}

fn one(value: &str) -> String {
    filled(ONE, &[value]).unwrap()
}

fn reason(path: &str) -> String {
    match LockPath::new(path) {
        Err(Error::InvalidPath { reason, .. }) => reason,
        other => panic!("{path:?}: {other:?}"),
    }
}

#[test]
fn the_encoding_is_the_documented_one() {
    assert_eq!(one("42"), "/orders/42");
    assert_eq!(one("Az09-_.:@+=,"), "/orders/Az09-_.:@+=,");
    assert_eq!(one("a/b"), "/orders/a%2Fb");
    assert_eq!(one("%2e"), "/orders/%252e");
    assert_eq!(one("%2E"), "/orders/%252E");
    assert_eq!(one("."), "/orders/%2E");
    assert_eq!(one(".."), "/orders/%2E%2E");
    assert_eq!(one("..."), "/orders/...");
    assert_eq!(one("~"), "/orders/%7E");
    assert_eq!(one("\0\n\u{7f}"), "/orders/%00%0A%7F");
    assert_eq!(one("\u{e000}"), "/orders/%EE%80%80");
    assert_eq!(one("😀"), "/orders/%F0%9F%98%80");
    assert_eq!(one(" a "), "/orders/%20a%20");
    assert_eq!(one("_c_..-lock-0000000001"), "/orders/%5Fc_..%2Dlock-0000000001");
    assert_eq!(one("a__READ__1"), "/orders/a%5F_READ__1");
    assert_eq!(one("a__WRIT__1"), "/orders/a%5F_WRIT__1");
    assert_eq!(one("zookeeper"), "/orders/zookeeper");
    assert_eq!(filled(FIRST, &["zookeeper"]).unwrap(), "/%7Aookeeper");
    assert_eq!(filled(DASH, &["a-b", "c"]).unwrap(), "/a%2Db-c");
    assert_eq!(filled(DASH, &["a", "b-c"]).unwrap(), "/a-b%2Dc");
    assert_eq!(filled(DOT, &[".", "."]).unwrap(), "/.%2E/%2E.");
    assert_eq!(filled(LOCK, &["c", "1"]).unwrap(), "/-lo%63k-1");
    assert_eq!(filled(PREFIX, &["c", "1"]).unwrap(), "/_%63_1");
}

#[test]
fn long_values_are_cut_and_hashed() {
    assert_eq!(one(&"x".repeat(128)), format!("/orders/{}", "x".repeat(128)));
    let long = "x".repeat(129);
    assert_eq!(one(&long), format!("/orders/{}~{:x}", "x".repeat(48), Sha256::digest(&long)));
    // An escape is not cut: 47 and then 3 would be 50.
    let long = format!("{}{}", "x".repeat(47), "/".repeat(80));
    assert_eq!(one(&long), format!("/orders/{}~{:x}", "x".repeat(47), Sha256::digest(&long)));
    // One that looks like what the long one became is another.
    assert_ne!(one(&one(&long)["/orders/".len()..]), one(&long));
}

#[test]
fn blank_values_name_their_argument() {
    for value in ["", " ", "\t\u{a0}\u{3000}"] {
        let Err(Error::InvalidPath { argument: Some(argument), .. }) = filled(TWO_SEGMENTS, &["x", value])
        else {
            panic!("{value:?}")
        };
        assert_eq!(argument, "b");
    }
    let error = LockPath::from_segments(["orders", ""]).unwrap_err();
    assert!(error.to_string().contains("segment 2"), "{error}");
    assert!(LockPath::from_segments([""; 0]).is_err());
}

#[test]
fn a_display_that_fails_is_an_error() {
    struct Fails;
    impl Display for Fails {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            Err(fmt::Error)
        }
    }
    assert!(LockPath::from_segments([Fails]).is_err());
}

#[test]
fn ready_paths_are_taken_as_they_stand_or_not_at_all() {
    for path in ["/a", "/a/b", "/ä b/%2F~", "/..a/...", "/zookeepers/zookeeper", "/a-lock", "/x_c_"] {
        assert_eq!(LockPath::new(path).unwrap().as_str(), path);
    }
    assert!(reason("").contains("begin with"));
    assert!(reason("a").contains("begin with"));
    assert!(reason("/").contains("root"));
    assert!(reason("/a/").contains("ends with"));
    assert!(reason("//a").contains("empty segment"));
    assert!(reason("/a/./b").contains("relative"));
    assert!(reason("/a/..").contains("relative"));
    for refused in
        ["/a\0", "/\u{1f}", "/\u{7f}", "/\u{9f}", "/\u{e000}", "/\u{f8ff}", "/\u{fff0}", "/\u{ffff}", "/😀"]
    {
        assert!(reason(refused).contains("does not take"), "{refused:?}");
    }
    for own in ["/zookeeper", "/zookeeper/quota"] {
        assert!(reason(own).contains("server"), "{own}");
    }
    for look in ["/a/_c_1", "/a/x-lock-1", "/a/__READ__1", "/a/__WRIT__1"] {
        assert!(reason(look).contains("contender"), "{look}");
    }
    assert!(LockPath::new(&format!("/{}", "a".repeat(479))).is_ok());
    assert!(reason(&format!("/{}", "a".repeat(480))).contains("480"));
    assert!(LockPath::from_segments(vec!["a".repeat(128); 4]).unwrap_err().to_string().contains("480"));
}

/// All short texts of the characters that matter: no two lists of them meet.
#[test]
fn g11_no_two_lists_of_short_values_meet() {
    const ALPHABET: [&str; 9] = ["-", "_", "c", ".", "%", "2", "E", "6", "/"];
    let mut texts: Vec<String> = ALPHABET.map(str::to_owned).to_vec();
    for _ in 0..2 {
        let longer = texts.iter().flat_map(|text| ALPHABET.map(|c| format!("{text}{c}")));
        texts = texts.iter().cloned().chain(longer).collect();
    }
    texts.sort();
    texts.dedup();
    texts.extend(["-lock-", "lock", "ock-", "READ__", "zookeeper"].map(str::to_owned));
    let few: Vec<&String> = texts.iter().filter(|text| text.len() < 3).collect();
    for template in TEMPLATES {
        let mut seen: HashMap<String, Vec<&str>> = HashMap::new();
        let mut meet = |values: Vec<&'static str>| {
            let path = filled(template, &values).unwrap();
            assert_safe(&path, template.len());
            if let Some(other) = seen.insert(path.clone(), values.clone()) {
                assert_eq!(other, values, "both are {path}");
            }
        };
        let leak = |text: &String| -> &'static str { Box::leak(text.clone().into_boxed_str()) };
        if template.iter().flat_map(|parts| *parts).filter(|part| matches!(part, Value(_))).count() == 1 {
            for text in &texts {
                meet(vec![leak(text)]);
            }
        } else {
            for first in &few {
                for second in &few {
                    meet(vec![leak(first), leak(second)]);
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn g11_values_can_be_read_back(
        template in select(&TEMPLATES[..]),
        first in nasty(),
        second in nasty(),
    ) {
        let values = if template.iter().flat_map(|parts| *parts).filter(|part| matches!(part, Value(_))).count() == 1 {
            vec![&*first]
        } else {
            vec![&*first, &*second]
        };
        let path = match filled(template, &values) {
            Ok(path) => path,
            Err(Error::InvalidPath { argument: Some(_), .. }) => {
                prop_assert!(values.iter().any(|value| value.trim().is_empty()));
                return Ok(());
            }
            Err(error) => panic!("{error}"),
        };
        assert_safe(&path, template.len());
        let read: Vec<Read> = path[1..]
            .split('/')
            .zip(template)
            .flat_map(|(segment, parts)| read_segment(segment, parts))
            .collect();
        let expected: Vec<Read> = values
            .iter()
            .zip(&read)
            .map(|(value, read)| match read {
                Read::Whole(_) => Read::Whole(value.as_bytes().to_vec()),
                Read::Hash(_) => Read::Hash(format!("{:x}", Sha256::digest(value))),
            })
            .collect();
        prop_assert_eq!(read, expected);
        // And the path is one: what is made can be passed on as text.
        let again = LockPath::new(&path).unwrap();
        prop_assert_eq!(again.as_str(), &path);
    }

    #[test]
    fn the_verdict_is_the_servers(path in "/?([a.~/ä]|\\PC|\u{0}|\u{e000}|\u{fff0}|😀|//|/\\./|/\\.\\./){0,6}") {
        prop_assert_eq!(LockPath::new(&path).is_ok(), validate_path(&path), "{:?}", path);
    }
}

/// Texts in which whatever could go wrong is likely.
fn nasty() -> impl Strategy<Value = String> {
    let pieces = select(vec![
        "a/b",
        "..",
        ".",
        "%2e",
        "%2E",
        "\0",
        "\u{7f}",
        "\u{e000}",
        "😀",
        "_c_",
        "-lock-",
        "-lo",
        "ck-",
        "__READ__",
        "READ",
        "__",
        "zookeeper",
        "~",
        " ",
        "\t",
        "2E6a",
        "-",
        "_",
        "c",
        "6",
        "a",
        "ä",
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    ]);
    prop_oneof![
        4 => vec(pieces, 0..8).prop_map(|pieces| pieces.concat()),
        1 => any::<String>(),
        1 => "[a-z~%/-]{100,200}",
    ]
}

/// What a reader finds in the place of a value.
#[derive(Debug, PartialEq)]
enum Read {
    Whole(Vec<u8>),
    Hash(String),
}

/// Reads a segment from left to right, knowing the template but not the values.
fn read_segment(segment: &str, parts: &[Part]) -> Vec<Read> {
    let between: String = parts
        .iter()
        .enumerate()
        .filter(|(at, _)| parts[..*at].iter().any(is_value) && parts[*at..].iter().any(is_value))
        .filter_map(|(_, part)| if let Text(text) = part { Some(*text) } else { None })
        .collect();
    let mut rest = segment;
    let mut read = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        if let Text(text) = part {
            rest = rest.strip_prefix(text).unwrap_or_else(|| panic!("{text:?} is not in front of {rest:?}"));
            continue;
        }
        let is_last = !parts[index + 1..].iter().any(is_value);
        let end = match parts.get(index + 1) {
            Some(Text(text)) if is_last => rest.strip_suffix(text).map(str::len),
            _ => None,
        };
        let mut bytes = Vec::new();
        let mut hash = None;
        let whole = rest;
        while let Some(c) = rest.chars().next() {
            if end.is_some_and(|end| whole.len() - rest.len() >= end) || (!is_last && between.contains(c)) {
                break;
            }
            match c {
                '~' => {
                    hash = Some(rest[1..65].to_owned());
                    rest = &rest[65..];
                    break;
                }
                '%' => {
                    bytes.push(u8::from_str_radix(&rest[1..3], 16).unwrap());
                    rest = &rest[3..];
                }
                c => {
                    bytes.push(u8::try_from(c).unwrap());
                    rest = &rest[1..];
                }
            }
        }
        read.push(hash.map_or(Read::Whole(bytes), Read::Hash));
    }
    assert_eq!(rest, "", "of {segment}");
    read
}

fn is_value(part: &Part) -> bool {
    matches!(part, Value(_))
}

/// What no value may break.
fn assert_safe(path: &str, segments: usize) {
    assert!(validate_path(path), "{path}");
    assert!(path.is_ascii(), "{path}");
    assert_eq!(path.matches('/').count(), segments, "{path}");
    for segment in path[1..].split('/') {
        assert!(!segment.starts_with("_c_"), "{path}");
        assert!(!["-lock-", "__READ__", "__WRIT__"].iter().any(|look| segment.contains(look)), "{path}");
    }
    assert!(path != "/zookeeper" && !path.starts_with("/zookeeper/"), "{path}");
}

/// ZooKeeper's `PathUtils.validatePath`, told from its source, without the root, which it takes.
fn validate_path(path: &str) -> bool {
    let units: Vec<u16> = path.encode_utf16().collect();
    let (slash, dot) = (u16::from(b'/'), u16::from(b'.'));
    if units.first() != Some(&slash) || units.len() == 1 || units.last() == Some(&slash) {
        return false;
    }
    for (i, &c) in units.iter().enumerate().skip(1) {
        let last = units[i - 1];
        let ends = |at: usize| at + 1 == units.len() || units[at + 1] == slash;
        if c == 0 || (c == slash && last == slash) {
            return false;
        }
        if c == dot && last == dot {
            if units[i - 2] == slash && ends(i) {
                return false;
            }
        } else if c == dot {
            if last == slash && ends(i) {
                return false;
            }
        } else if matches!(c, 0x01..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..=0xffff) {
            return false;
        }
    }
    true
}
