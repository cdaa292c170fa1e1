//! Entity tags (RFC 9110, 8.8.3).

/// An entity tag (RFC 9110, 8.8.3). A strong tag identifies an exact sequence of bytes, a weak tag
/// identifies equivalent content.
///
/// ```
/// use filoplume::conditional::EntityTag;
///
/// let tag = EntityTag::parse(b"W/\"v7\"").unwrap();
/// assert!(tag.is_weak());
/// assert!(tag.matches_weakly(&EntityTag::strong("v7")));
/// assert!(!tag.matches_strongly(&EntityTag::strong("v7")));
/// ```
///
/// A tag is the value of a header as it is:
///
/// ```
/// use filoplume::conditional::EntityTag;
/// use filoplume::prelude::*;
///
/// let app = App::new().get("/", || ([("etag", EntityTag::strong("v7"))], "tea"));
/// app.test().get("/").send().assert_header("etag", "\"v7\"");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityTag {
    /// The value as it is sent.
    value: Vec<u8>,
    is_weak: bool,
}

impl EntityTag {
    /// Returns a strong tag. It must change whenever a byte of the content changes.
    ///
    /// # Panics
    ///
    /// If the text contains a quote, a space or a control character. For untrusted text use
    /// [`parse`](Self::parse), or a hash of it.
    pub fn strong(text: &str) -> Self {
        Self::made(&format!("\"{text}\""))
    }

    /// Returns a weak tag. It may stay the same as long as the content is equivalent.
    ///
    /// # Panics
    ///
    /// Like those of [`strong`](Self::strong).
    pub fn weak(text: &str) -> Self {
        Self::made(&format!("W/\"{text}\""))
    }

    fn made(value: &str) -> Self {
        match Self::parse(value.as_bytes()) {
            Some(tag) => tag,
            None => panic!("`{value}` is no entity tag"),
        }
    }

    /// Parses the value of an `ETag`. Returns `None` if it is invalid.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (tag, rest) = Tag::take(value)?;
        rest.is_empty().then(|| Self { value: value.to_vec(), is_weak: tag.is_weak })
    }

    /// Returns whether the tag is weak.
    pub fn is_weak(&self) -> bool {
        self.is_weak
    }

    /// Returns the tag as the value of an `ETag`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.value
    }

    /// Returns whether both tags identify the same bytes (RFC 9110, 8.8.3.2).
    pub fn matches_strongly(&self, other: &Self) -> bool {
        self.tag().matches_strongly(other.tag())
    }

    /// Returns whether both tags identify equivalent content (RFC 9110, 8.8.3.2).
    pub fn matches_weakly(&self, other: &Self) -> bool {
        self.tag().matches_weakly(other.tag())
    }

    pub(super) fn tag(&self) -> Tag<'_> {
        let quoted = if self.is_weak { self.value.get(2..) } else { Some(&*self.value) };
        Tag { is_weak: self.is_weak, quoted: quoted.unwrap_or_default() }
    }
}

/// The value of an `ETag`, so that a tag can be the value of a header.
impl AsRef<[u8]> for EntityTag {
    fn as_ref(&self) -> &[u8] {
        &self.value
    }
}

/// An entity tag within the value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag<'a> {
    is_weak: bool,
    quoted: &'a [u8],
}

impl<'a> Tag<'a> {
    /// Parses a tag at the start of the bytes: `[ "W/" ] DQUOTE *etagc DQUOTE`. There are no
    /// escapes, so a quote always ends it.
    pub(super) fn take(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (is_weak, rest) = match bytes.strip_prefix(b"W/") {
            Some(rest) => (true, rest),
            None => (false, bytes),
        };
        let inner = rest.strip_prefix(b"\"")?;
        let end = inner.iter().position(|&byte| !is_tag_byte(byte))?;
        if inner.get(end) != Some(&b'"') {
            return None;
        }
        let (quoted, rest) = rest.split_at_checked(end + 2)?;
        Some((Self { is_weak, quoted }, rest))
    }

    pub(super) fn matches_weakly(self, other: Tag<'_>) -> bool {
        self.quoted == other.quoted
    }

    pub(super) fn matches_strongly(self, other: Tag<'_>) -> bool {
        !self.is_weak && !other.is_weak && self.quoted == other.quoted
    }
}

/// `etagc` of RFC 9110, 8.8.3.
fn is_tag_byte(byte: u8) -> bool {
    matches!(byte, 0x21 | 0x23..=0x7E | 0x80..)
}
