mod encoding;
#[cfg(test)]
mod tests;

use std::{
    fmt::{self, Display},
    ops::Range,
    str::FromStr,
    sync::Arc,
};

use self::encoding::Encoder;
use crate::error::Error;

pub(crate) use self::encoding::fill;

/// Names one lock: an absolute path such as `/orders/42`.
///
/// Everybody who locks the same path waits for each other, in whatever process or language. A path is made from a
/// string that is one already ([`new`](Self::new), `parse`, `try_from`), from values ([`from_segments`](Self::from_segments)),
/// or by the template of an annotation. Cheap to clone.
///
/// ```
/// # use zklock_runtime as zklock;
/// use zklock::LockPath;
///
/// let ready = LockPath::new("/orders/42")?;
/// assert_eq!(LockPath::from_segments(["orders", "42"])?, ready);
/// assert_eq!("/orders/42".parse::<LockPath>()?, ready);
///
/// // A value stays in its segment, whatever is in it.
/// assert_eq!(LockPath::from_segments(["orders", "a/b"])?.as_str(), "/orders/a%2Fb");
/// # Ok::<_, zklock::Error>(())
/// ```
///
/// # What is a path
///
/// One or more segments, each behind a `/`. What ZooKeeper refuses is refused here too, and before anything is sent:
/// empty segments, `.` and `..`, a `/` at the end, the characters U+0000 to U+001F, U+007F to U+009F, U+E000 to U+F8FF
/// and all from U+FFF0 on (so all emoji: ZooKeeper looks at UTF-16 units), and `/zookeeper`, which belongs to the server.
/// Also refused are segments that look like those who wait for a lock (with `-lock-`, `__READ__` or `__WRIT__` inside, or
/// with `_c_` in front), since others would queue behind them, and paths of more than 480 bytes, since the database
/// keeps them as keys.
///
/// # How values are written (G11)
///
/// In a template and in [`from_segments`](Self::from_segments), a value becomes text by its [`Display`], and the text becomes part of a
/// segment as follows. The same rules in another language give the same path; they will not change.
///
/// 1. Of its UTF-8 bytes, `A` to `Z`, `a` to `z`, `0` to `9` and `- _ . : @ + = ,` stay as they are. Each other one is
///    written as `%` and two upper-case hexadecimal digits.
/// 2. In a segment with several values, the characters of the text between two of them are escaped so in every value of
///    the segment, though rule 1 would keep them.
/// 3. If more than 128 bytes have come out, they are cut to the first 48 (to fewer, where that would cut an escape), and
///    `~` and the SHA-256 of the value in lower-case hexadecimal are put behind.
/// 4. If the segment as a whole is `.` or `..`, its dots that come from values are written `%2E`.
/// 5. While the segment, as a whole, looks like a contender, or is `zookeeper` as the first of the path: the first
///    character of the first such place that comes from a value is escaped.
///
/// Two different lists of values therefore never give one path from one template. A value that is empty or all
/// white space is an error, since it would be one lock for all who forgot to fill it in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockPath(Arc<str>);

impl LockPath {
    /// Takes `path` as it stands, if it is one.
    ///
    /// Fails with [`Error::InvalidPath`].
    pub fn new(path: &str) -> Result<Self, Error> {
        match fault(path) {
            None => Ok(Self(path.into())),
            Some(reason) => Err(Error::InvalidPath { path: path.to_owned(), argument: None, reason }),
        }
    }

    /// Takes what a template came to: the macro has checked its texts and the encoder has written the values, so that only
    /// the length is left to look at.
    fn filled(path: &str) -> Result<Self, Error> {
        if path.len() > MAX_PATH {
            return Self::new(path);
        }
        debug_assert_eq!(fault(path), None, "{path}");
        Ok(Self(path.into()))
    }

    /// Makes a path of values, one a segment, each written so that it stays in its segment.
    ///
    /// Fails with [`Error::InvalidPath`] if there are none, if one is blank, or if the path gets too long.
    ///
    /// ```
    /// # use zklock_runtime as zklock;
    /// let path = zklock::LockPath::from_segments(["tenant", "Müller & Söhne"])?;
    /// assert_eq!(path.as_str(), "/tenant/M%C3%BCller%20%26%20S%C3%B6hne");
    /// # Ok::<_, zklock::Error>(())
    /// ```
    pub fn from_segments<S: Display>(segments: impl IntoIterator<Item = S>) -> Result<Self, Error> {
        let mut path = Encoder::default();
        for (index, segment) in segments.into_iter().enumerate() {
            path.begin_segment();
            path.value(&segment, &[], || format!("segment {}", index + 1))?;
            path.end_segment();
        }
        path.finish()
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same, for whoever keeps it: all that is kept of a lock shares one text.
    #[cfg(feature = "zookeeper")]
    pub(crate) fn shared(&self) -> &Arc<str> {
        &self.0
    }
}

impl Display for LockPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for LockPath {
    type Err = Error;

    fn from_str(path: &str) -> Result<Self, Error> {
        Self::new(path)
    }
}

impl TryFrom<&str> for LockPath {
    type Error = Error;

    fn try_from(path: &str) -> Result<Self, Error> {
        Self::new(path)
    }
}

impl TryFrom<String> for LockPath {
    type Error = Error;

    fn try_from(path: String) -> Result<Self, Error> {
        Self::new(&path)
    }
}

impl TryFrom<&String> for LockPath {
    type Error = Error;

    fn try_from(path: &String) -> Result<Self, Error> {
        Self::new(path)
    }
}

impl From<&LockPath> for LockPath {
    fn from(path: &LockPath) -> Self {
        path.clone()
    }
}

impl AsRef<str> for LockPath {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// What the `path` of an annotation may be where it is no template.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a lock path",
    label = "neither a `LockPath` nor a `Result` with one",
    note = "write the path as a string literal, which may hold arguments: `path = \"/orders/{{id}}\"`",
    note = "or make it of values: `path = LockPath::from_segments([\"orders\", &id])`"
)]
pub trait IntoLockPath {
    /// The path, if it is one.
    fn into_lock_path(self) -> Result<LockPath, Error>;
}

#[diagnostic::do_not_recommend]
impl IntoLockPath for LockPath {
    fn into_lock_path(self) -> Result<LockPath, Error> {
        Ok(self)
    }
}

#[diagnostic::do_not_recommend]
impl IntoLockPath for &LockPath {
    fn into_lock_path(self) -> Result<LockPath, Error> {
        Ok(self.clone())
    }
}

#[diagnostic::do_not_recommend]
impl IntoLockPath for Result<LockPath, Error> {
    fn into_lock_path(self) -> Result<LockPath, Error> {
        self
    }
}

/// Where a segment looks like a contender for a lock, or like the server's own part of the tree.
fn look_alike(segment: &str, is_first: bool) -> Option<Range<usize>> {
    if is_first && segment == RESERVED {
        return Some(0..segment.len());
    }
    if segment.starts_with(CONTENDER_PREFIX) {
        return Some(0..CONTENDER_PREFIX.len());
    }
    // By hand: every segment of every path comes here, and a searcher takes longer to set up than this to end.
    let bytes = segment.as_bytes();
    let mut starts = (0..bytes.len()).filter(|&at| matches!(bytes[at], b'-' | b'_'));
    starts.find_map(|at| {
        let infix = CONTENDER_INFIXES.iter().find(|infix| bytes[at..].starts_with(infix.as_bytes()))?;
        Some(at..at + infix.len())
    })
}

const RESERVED: &str = "zookeeper";
/// In front of the names that Curator gives to protected nodes, and so do we.
const CONTENDER_PREFIX: &str = "_c_";
/// Inside the names of contenders: Curator's and ours, and those of Curator's read-write lock.
const CONTENDER_INFIXES: [&str; 3] = ["-lock-", "__READ__", "__WRIT__"];

/// The fence table keeps paths in a column of 512.
const MAX_PATH: usize = 480;

/// What is wrong with a path. First the rules of ZooKeeper's `PathUtils.validatePath`.
fn fault(path: &str) -> Option<String> {
    let Some(inner) = path.strip_prefix('/') else {
        return Some("it does not begin with `/`".to_owned());
    };
    if inner.is_empty() {
        return Some("the root cannot be locked; name something below it".to_owned());
    }
    if inner.ends_with('/') {
        return Some("it ends with `/`".to_owned());
    }
    let is_plain = path.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if !is_plain && let Some(c) = path.chars().find(|&c| is_refused(c)) {
        return Some(format!(
            "ZooKeeper does not take the character {c:?}; `LockPath::from_segments` escapes it"
        ));
    }
    // Not by the character itself: a search for one takes longer to set up than most segments are.
    for (index, segment) in inner.split(['/']).enumerate() {
        if segment.is_empty() {
            return Some("it has an empty segment (`//`)".to_owned());
        }
        if segment == "." || segment == ".." {
            return Some(format!("it has a relative segment (`{segment}`)"));
        }
        if let Some(look) = look_alike(segment, index == 0) {
            let look = &segment[look];
            return Some(if look == RESERVED {
                "`/zookeeper` belongs to the server itself".to_owned()
            } else {
                format!("`{look}` in `{segment}` looks like a contender for a lock")
            });
        }
    }
    if path.len() > MAX_PATH {
        return Some(format!("it has {} bytes, and {MAX_PATH} is the limit", path.len()));
    }
    None
}

/// ZooKeeper looks at UTF-16 units, where all past U+FFFF is made of surrogates (U+D800 to U+DFFF), which it refuses.
fn is_refused(c: char) -> bool {
    matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}
