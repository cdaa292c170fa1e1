//! Character classes of RFC 9110 section 5.6 and RFC 3986, as tables made at compile time.

/// A set of bytes.
pub(crate) struct Class([bool; 256]);

impl Class {
    /// A table lookup without a branch: every `u8` is a valid index.
    #[inline]
    pub(crate) fn has(&self, byte: u8) -> bool {
        self.0.get(usize::from(byte)).copied().unwrap_or(false)
    }

    #[inline]
    pub(crate) fn has_all(&self, bytes: &[u8]) -> bool {
        // Eight at a time without a branch between them: half the instructions of a byte at a time.
        let mut eights = bytes.chunks_exact(8);
        eights.all(|eight| eight.iter().fold(true, |all, &byte| all & self.has(byte)))
            && eights.remainder().iter().all(|&byte| self.has(byte))
    }

    #[expect(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "evaluated at compile time, where a panic is a build error"
    )]
    const fn alphanumeric_and(others: &[u8]) -> Self {
        let mut table = [false; 256];
        let mut index = 0;
        while index < 256 {
            #[expect(clippy::cast_possible_truncation, reason = "index is below 256")]
            let byte = index as u8;
            table[index] = byte.is_ascii_alphanumeric();
            index += 1;
        }
        index = 0;
        while index < others.len() {
            table[others[index] as usize] = true;
            index += 1;
        }
        Self(table)
    }
}

/// `tchar`: what methods, field names and codings are made of.
pub(crate) static TOKEN: Class = Class::alphanumeric_and(b"!#$%&'*+-.^_`|~");

/// `unreserved / sub-delims`: a registered name, without its percent-encodings.
pub(crate) static REG_NAME: Class = Class::alphanumeric_and(b"-._~!$&'()*+,;=");

/// What a path may have in it here: see [`parse_target`](crate::target::parse_target).
pub(crate) static TARGET_PATH: Class = Class::alphanumeric_and(b"!\"$%&'()*+,-./:;<=>@[]^_`{|}~");

/// Returns the first byte that may not stand in a field value: a control other than HTAB.
/// Bytes from 0x80 (`obs-text`) are let through as opaque data (RFC 9110 section 5.5).
pub(crate) fn invalid_in_value(value: &[u8]) -> Option<(usize, u8)> {
    // Folded without an early exit, so that it is done many bytes at a time.
    let clean = value.iter().fold(true, |clean, &byte| clean & is_value_byte(byte));
    if clean {
        return None;
    }
    value.iter().copied().enumerate().find(|&(_, byte)| !is_value_byte(byte))
}

#[inline]
fn is_value_byte(byte: u8) -> bool {
    (byte >= 0x20 && byte != 0x7f) | (byte == b'\t')
}

#[inline]
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && TOKEN.has_all(bytes)
}

/// Removes optional whitespace (SP and HTAB, nothing else) from both ends.
#[inline]
pub(crate) fn trim_ows(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Returns the members of a comma-separated list (RFC 9110 section 5.6.1), trimmed; empty ones too.
pub(crate) fn list_members(value: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim_ows)
}
