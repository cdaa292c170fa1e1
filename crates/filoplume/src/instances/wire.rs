//! The form of messages between instances.
//!
//! ```text
//! version (1 byte) | kind (1) | origin (8) | fields of the kind
//! ```
//!
//! Numbers are big-endian. A text or content has its length in front, as 8 bytes. Anyone with
//! access to Redis can send anything, so a reader trusts no length and returns `None` instead.

/// The version of this form. Instances of another version ignore the message.
const VERSION: u8 = 1;

/// Writes a message.
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn new(kind: u8, origin: u64) -> Self {
        let mut writer = Self { bytes: vec![VERSION, kind] };
        writer.number(origin);
        writer
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_be_bytes());
    }

    pub(crate) fn content(&mut self, content: &[u8]) {
        self.number(content.len() as u64);
        self.bytes.extend_from_slice(content);
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// Reads a message. Each method returns `None` if the bytes are not what it reads.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

/// Who sent a message, and what it is.
pub(super) struct Header {
    pub(super) kind: u8,
    pub(super) origin: u64,
}

impl<'a> Reader<'a> {
    /// Reads the beginning of a message.
    pub(super) fn open(bytes: &'a [u8]) -> Option<(Header, Self)> {
        let mut reader = Self { rest: bytes };
        if reader.byte()? != VERSION {
            return None;
        }
        let header = Header { kind: reader.byte()?, origin: reader.number()? };
        Some((header, reader))
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*byte)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u64::from_be_bytes(*number))
    }

    pub(crate) fn content(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (content, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(content)
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.content()?).ok()
    }

    /// Returns `Some` if nothing is left.
    pub(crate) fn end(&self) -> Option<()> {
        self.rest.is_empty().then_some(())
    }
}

/// For tests of the fields that other modules write and read, without a header.
#[cfg(test)]
impl Writer {
    pub(crate) fn fields(write: impl FnOnce(&mut Self)) -> Vec<u8> {
        let mut writer = Self { bytes: Vec::new() };
        write(&mut writer);
        writer.finish()
    }
}

#[cfg(test)]
impl<'a> Reader<'a> {
    pub(crate) fn of_fields(rest: &'a [u8]) -> Self {
        Self { rest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Vec<u8> {
        let mut writer = Writer::new(7, 42);
        writer.byte(3);
        writer.content(b"text");
        writer.finish()
    }

    fn read(bytes: &[u8]) -> Option<(u8, u64, u8, String)> {
        let (header, mut fields) = Reader::open(bytes)?;
        let read = (header.kind, header.origin, fields.byte()?, fields.text()?.to_owned());
        fields.end()?;
        Some(read)
    }

    #[test]
    fn a_message_is_read_as_it_was_written() {
        assert_eq!(read(&message()), Some((7, 42, 3, "text".to_owned())));
    }

    #[test]
    fn a_message_that_is_cut_longer_or_lies_about_a_length_is_refused() {
        let whole = message();
        for end in 0..whole.len() {
            assert_eq!(read(&whole[..end]), None, "{end}");
        }
        let mut longer = whole.clone();
        longer.push(0);
        assert_eq!(read(&longer), None);
        let changes: [(usize, u8); 4] = [(0, 2), (11, 0xff), (18, 5), (19, 0xff)];
        for (at, byte) in changes {
            let mut changed = whole.clone();
            changed[at] = byte;
            assert_eq!(read(&changed), None, "{at}");
        }
    }
}
