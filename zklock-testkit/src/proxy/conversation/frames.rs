/// Cuts a stream of bytes into the messages that were sent.
#[derive(Debug, Default)]
pub(crate) struct Frames(Vec<u8>);

impl Frames {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    /// The next whole message; `length` tells from its beginning how long it is in all, once enough
    /// of it is there.
    pub(crate) fn next(&mut self, length: impl FnOnce(&[u8]) -> Option<usize>) -> Option<Vec<u8>> {
        let length = length(&self.0)?;
        (length <= self.0.len()).then(|| self.0.drain(..length).collect())
    }

    /// What has come of a message that is not whole yet.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

/// A number from four bytes, the highest first.
pub(crate) fn number(bytes: &[u8]) -> Option<i32> {
    bytes.first_chunk().map(|bytes| i32::from_be_bytes(*bytes))
}

/// A text up to its zero byte, and what follows.
pub(crate) fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}
