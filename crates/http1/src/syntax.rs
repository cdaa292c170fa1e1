//! Character classes of RFC 9110 section 5.6 and RFC 3986, as tables computed at compile time.

/// A set of bytes.
pub(crate) struct Class([bool; 256]);

impl Class {
    /// Returns whether the class has `byte`. The lookup needs no bounds check, because every `u8`
    /// is a valid index.
    #[inline]
    pub(crate) fn has(&self, byte: u8) -> bool {
        self.0.get(usize::from(byte)).copied().unwrap_or(false)
    }

    /// Returns the length of the longest prefix of `bytes` that is in the class.
    #[inline]
    pub(crate) fn span(&self, bytes: &[u8]) -> usize {
        // Eight bytes at a time without a branch between them.
        let mut eights = bytes.chunks_exact(8);
        let whole = eights
            .position(|eight| !eight.iter().fold(true, |all, &byte| all & self.has(byte)))
            .map_or(bytes.len() & !7, |at| at.saturating_mul(8));
        let rest = bytes.get(whole..).unwrap_or_default();
        rest.iter()
            .position(|&byte| !self.has(byte))
            .map_or(bytes.len(), |at| whole.saturating_add(at))
    }

    /// [`has`](Self::has) at compile time.
    #[expect(clippy::indexing_slicing, reason = "every byte is a valid index")]
    pub(crate) const fn has_const(&self, byte: u8) -> bool {
        self.0[byte as usize]
    }

    #[inline]
    pub(crate) fn has_all(&self, bytes: &[u8]) -> bool {
        // Eight bytes at a time without a branch between them.
        let mut eights = bytes.chunks_exact(8);
        eights.all(|eight| eight.iter().fold(true, |all, &byte| all & self.has(byte)))
            && eights.remainder().iter().all(|&byte| self.has(byte))
    }

    const fn alphanumeric_and(others: &[u8]) -> Self {
        let mut class = Self([false; 256]);
        let mut byte = 0u8;
        while byte < 128 {
            if byte.is_ascii_alphanumeric() {
                class = class.with(&[byte]);
            }
            byte = byte.wrapping_add(1);
        }
        class.with(others)
    }

    const fn no_controls_and(others: &[u8]) -> Self {
        let mut class = Self([true; 256]);
        let mut byte = 0u8;
        while byte < 128 {
            if byte.is_ascii_control() {
                class = class.set(byte, false);
            }
            byte = byte.wrapping_add(1);
        }
        class.with(others)
    }

    const fn with(mut self, mut bytes: &[u8]) -> Self {
        while let [byte, rest @ ..] = bytes {
            self = self.set(*byte, true);
            bytes = rest;
        }
        self
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "evaluated at compile time, and every byte is a valid index"
    )]
    const fn set(mut self, byte: u8, has: bool) -> Self {
        self.0[byte as usize] = has;
        self
    }
}

/// `tchar`: the bytes of methods, field names and codings.
pub(crate) static TOKEN: Class = Class::alphanumeric_and(b"!#$%&'*+-.^_`|~");

/// `unreserved / sub-delims`: a registered name, without its percent-encodings.
pub(crate) static REG_NAME: Class = Class::alphanumeric_and(b"-._~!$&'()*+,;=");

/// The bytes that are accepted in a path: see `request::target`.
pub(crate) static TARGET_PATH: Class = Class::alphanumeric_and(b"!\"$%&'()*+,-./:;<=>@[]^_`{|}~");

/// The bytes that are accepted in a field value: everything except controls, and HTAB. Bytes from
/// 0x80 (`obs-text`) are accepted as opaque data (RFC 9110 section 5.5).
pub(crate) static VALUE: Class = Class::no_controls_and(b"\t");

#[inline]
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && TOKEN.has_all(bytes)
}

/// Removes optional whitespace (only SP and HTAB) from both ends.
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

/// Returns the trimmed members of a comma-separated list (RFC 9110 section 5.6.1), including empty
/// ones.
pub(crate) fn list_members(value: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim_ows)
}
