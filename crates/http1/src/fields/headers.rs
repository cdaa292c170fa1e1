//! Fields of a message: one arena of bytes and an index, recycled on drop.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::fields::span::Span;
use crate::request::head::HeadParts;
use crate::syntax::{Class, TOKEN, VALUE, is_value, trim_ows};

/// A case-insensitive multimap of fields in order of arrival.
///
/// Names and values lie in one buffer with an index beside it, so a field costs no allocation of
/// its own; buffers return to a small stash of the thread when they are dropped. An empty map has no
/// buffer and is as large as two pointers. What is in the map can be sent as it is: names are tokens and values have no
/// control byte but HTAB.
///
/// ```
/// use filoplume_http1::Headers;
///
/// let mut headers = Headers::new();
/// headers.append("Accept", "text/html")?;
/// headers.append("accept", "*/*")?;
/// assert_eq!(headers.get_str("ACCEPT"), Some("text/html"));
/// assert_eq!(headers.get_all("accept").count(), 2);
/// assert!(headers.append("x", "two\r\nlines").is_err());
/// # Ok::<(), filoplume_http1::InvalidHeader>(())
/// ```
#[derive(Default)]
pub struct Headers {
    /// The first field, if it is one that needs no storage: most responses have no other.
    first: Option<&'static StaticField>,
    storage: Option<Box<Storage>>,
}

/// The arena and its index. Bytes between the spans (colons, line ends, a request line) belong to nobody.
pub(crate) struct Storage {
    pub(crate) bytes: Vec<u8>,
    /// Whether the arena is just what a response sends: the fields as lines, none removed, and none that
    /// decides anything (see [`is_deciding`]).
    pub(crate) is_wire: bool,
    pub(crate) fields: Vec<Field>,
    /// The target of a request that was parsed into this storage. It is here to be recycled with the rest, and it is
    /// a copy because a `str` that was checked once need not be checked at each look.
    pub(crate) target: String,
    /// What else that request's head says: here, so that a head is moved as a pointer.
    pub(crate) parts: HeadParts,
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            is_wire: true,
            fields: Vec::new(),
            target: String::new(),
            parts: HeadParts::NONE,
        }
    }
}

/// Whether a field of a response means something to the encoder, which then has to look at each.
const fn is_deciding(name: &[u8]) -> bool {
    match name.len() {
        4 => is_same_name(name, b"date"),
        7 => is_same_name(name, b"upgrade"),
        10 => is_same_name(name, b"connection") || is_same_name(name, b"keep-alive"),
        14 => is_same_name(name, b"content-length"),
        17 => is_same_name(name, b"transfer-encoding"),
        _ => false,
    }
}

/// `eq_ignore_ascii_case`, which is not `const` in the oldest Rust that we support.
const fn is_same_name(mut left: &[u8], mut right: &[u8]) -> bool {
    while let ([first, left_rest @ ..], [second, right_rest @ ..]) = (left, right) {
        if !first.eq_ignore_ascii_case(second) {
            return false;
        }
        left = left_rest;
        right = right_rest;
    }
    left.is_empty() && right.is_empty()
}

/// Where a field lies in the arena. Half the size of four `usize`; [`Headers::append`] keeps arenas below 4 GiB.
#[derive(Clone, Copy)]
pub(crate) struct Field {
    pub(crate) name: Span,
    pub(crate) value: Span,
}

impl Headers {
    /// Returns an empty map. It does not allocate.
    #[inline]
    pub const fn new() -> Self {
        Self { first: None, storage: None }
    }

    /// Returns the number of fields; one that occurs twice counts twice.
    #[inline]
    pub fn len(&self) -> usize {
        self.fields().len().saturating_add(usize::from(self.first.is_some()))
    }

    /// Returns whether there is no field.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first.is_none() && self.fields().is_empty()
    }

    /// Returns the first value of a name, in any case.
    #[inline]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.get_all(name).next()
    }

    /// Returns the first value of a name if it is UTF-8.
    pub fn get_str(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.get(name)?).ok()
    }

    /// Returns all values of a name in order of arrival.
    #[inline]
    pub fn get_all(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        let bytes = self.bytes();
        let first = self.first.filter(|first| first.is_named(name)).map(StaticField::value);
        let others = self.fields().iter().filter(move |field| is_named(bytes, field, name));
        first.into_iter().chain(others.map(|field| field.value.of(bytes)))
    }

    /// Returns whether a name occurs.
    #[inline]
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Returns all fields in order of arrival, names as they were written.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.iter_bytes().map(|(name, value)| (std::str::from_utf8(name).unwrap_or_default(), value))
    }

    /// Adds a field behind those that are there.
    ///
    /// # Errors
    ///
    /// The name is no token, or the value has a control byte other than HTAB: with CR or LF in it, a value could
    /// end the field and begin another one.
    pub fn append(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), InvalidHeader> {
        let value = trim_ows(value.as_ref());
        validate(name.as_bytes(), value)?;
        self.append_valid(name.as_bytes(), value)
    }

    /// Replaces all fields of a name by one, which is the last field then.
    ///
    /// # Errors
    ///
    /// As for [`append`](Self::append); the map is then as before.
    pub fn insert(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), InvalidHeader> {
        let value = trim_ows(value.as_ref());
        validate(name.as_bytes(), value)?;
        self.remove(name);
        self.append_valid(name.as_bytes(), value)
    }

    /// Removes all fields of a name and returns whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        let was_first = self.first.take_if(|first| first.is_named(name)).is_some();
        let Some(storage) = &mut self.storage else {
            return was_first;
        };
        let before = storage.fields.len();
        let bytes = &storage.bytes;
        storage.fields.retain(|field| !is_named(bytes, field, name));
        let removed = storage.fields.len() != before;
        if storage.fields.is_empty() {
            // Otherwise a map that is filled and emptied in turn would grow for ever.
            storage.bytes.clear();
        }
        storage.is_wire = storage.fields.is_empty() || (storage.is_wire && !removed);
        removed || was_first
    }

    /// Removes all fields.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// An arena that already has an index, e.g. of a parsed head.
    #[inline]
    pub(crate) fn from_storage(storage: Box<Storage>) -> Self {
        Self { first: None, storage: Some(storage) }
    }

    /// The target of the request that these are the fields of, if they were parsed.
    #[inline]
    pub(crate) fn target(&self) -> &str {
        self.storage.as_ref().map_or("", |storage| &storage.target)
    }

    /// What that request's head says beside its fields.
    #[inline]
    pub(crate) fn parts(&self) -> &HeadParts {
        self.storage.as_ref().map_or(&HeadParts::NONE, |storage| &storage.parts)
    }

    /// The whole arena, with what lies between the fields.
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.storage.as_ref().map_or(&[], |storage| &storage.bytes)
    }

    #[inline]
    fn fields(&self) -> &[Field] {
        self.storage.as_ref().map_or(&[], |storage| &storage.fields)
    }

    #[inline]
    pub(crate) fn iter_bytes(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let bytes = self.bytes();
        let first = self.first.map(|first| (first.name().as_bytes(), first.value()));
        let others = self.fields().iter().map(move |field| (field.name.of(bytes), field.value.of(bytes)));
        first.into_iter().chain(others)
    }

    /// All fields as lines, in two pieces, if no field among them decides anything.
    #[inline]
    pub(crate) fn wire_lines(&self) -> Option<(&[u8], &[u8])> {
        let first: &[u8] = match self.first {
            None => &[],
            Some(first) if first.is_deciding => return None,
            Some(first) => first.line.as_bytes(),
        };
        match &self.storage {
            None => Some((first, &[])),
            Some(storage) => storage.is_wire.then_some((first, &storage.bytes)),
        }
    }

    /// Calls `keep` with every name and writes the fields it returns `true` for as lines.
    #[inline]
    pub(crate) fn write_lines(&self, out: &mut Vec<u8>, mut keep: impl FnMut(&[u8], &[u8]) -> bool) {
        if let Some(first) = self.first {
            if keep(first.name().as_bytes(), first.value()) {
                out.extend_from_slice(first.line.as_bytes());
            }
        }
        let bytes = self.bytes();
        for field in self.fields() {
            let (name, value) = (field.name.of(bytes), field.value.of(bytes));
            if !keep(name, value) {
                continue;
            }
            // Most fields lie in the arena as the line they become: one copy instead of four.
            match bytes.get(field.name.start as usize..field.value.end().saturating_add(2)) {
                Some(line @ [.., b'\r', b'\n']) => out.extend_from_slice(line),
                _ => {
                    out.extend_from_slice(name);
                    out.extend_from_slice(b": ");
                    out.extend_from_slice(value);
                    out.extend_from_slice(b"\r\n");
                }
            }
        }
    }

    /// Replaces all fields of a name by one that was validated when the program was built.
    ///
    /// ```
    /// use filoplume_http1::{Headers, StaticField};
    ///
    /// static PLAIN: StaticField = StaticField::new("content-type: text/plain\r\n");
    ///
    /// let mut headers = Headers::new();
    /// headers.insert_static(&PLAIN);
    /// assert_eq!(headers.get_str("Content-Type"), Some("text/plain"));
    /// ```
    #[inline]
    pub fn insert_static(&mut self, field: &'static StaticField) {
        if self.is_empty() {
            self.first = Some(field);
        } else {
            self.insert_static_behind(field);
        }
    }

    fn insert_static_behind(&mut self, field: &'static StaticField) {
        self.remove(field.name());
        if self.is_empty() {
            self.first = Some(field);
        } else {
            // Valid, and only a map of 4 GiB has no room for it.
            let _ = self.append_valid(field.name().as_bytes(), field.value());
        }
    }

    pub(crate) fn append_valid(&mut self, name: &[u8], value: &[u8]) -> Result<(), InvalidHeader> {
        let storage = self.storage.get_or_insert_with(Storage::take);
        let start = storage.bytes.len();
        let value_start = start.saturating_add(name.len()).saturating_add(2);
        let end = value_start.saturating_add(value.len()).saturating_add(2);
        if end > Span::ARENA_BYTES_MAX {
            return Err(InvalidHeader::TooLong);
        }
        // Laid out as the line it is on the wire: see `write_lines`.
        storage.bytes.reserve(end.saturating_sub(start));
        storage.bytes.extend_from_slice(name);
        storage.bytes.extend_from_slice(b": ");
        storage.bytes.extend_from_slice(value);
        storage.bytes.extend_from_slice(b"\r\n");
        let field = Field { name: Span::new(start, name.len()), value: Span::new(value_start, value.len()) };
        storage.fields.push(field);
        storage.is_wire &= !is_deciding(name);
        Ok(())
    }
}

/// A field that is known when the program is built, and valid if it builds.
///
/// ```
/// use filoplume_http1::{Headers, StaticField};
///
/// // What is no field line is an error of the compiler.
/// static NO_STORE: StaticField = StaticField::new("cache-control: no-store\r\n");
///
/// let mut headers = Headers::new();
/// headers.insert_static(&NO_STORE);
/// assert_eq!(headers.get_str("cache-control"), Some("no-store"));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct StaticField {
    line: &'static str,
    name_len: usize,
    is_deciding: bool,
}

impl StaticField {
    /// Returns the field of a whole line, such as `"content-type: text/html\r\n"`: a name, a colon and one space, a
    /// value, a line end.
    ///
    /// # Panics
    ///
    /// The line is not of that form. In a `const` that is an error of the compiler.
    pub const fn new(line: &'static str) -> Self {
        let mut rest = line.as_bytes();
        let mut name_len: usize = 0;
        while let [byte, tail @ ..] = rest {
            if *byte == b':' {
                break;
            }
            assert!(TOKEN.has_const(*byte), "a field name has a byte that is no token byte");
            name_len = name_len.saturating_add(1);
            rest = tail;
        }
        assert!(name_len > 0, "a field has a name");
        let [b':', b' ', value @ .., b'\r', b'\n'] = rest else {
            panic!("a field line has a colon and a space, and ends in CR LF");
        };
        let mut value = value;
        while let [byte, tail @ ..] = value {
            assert!(VALUE.has_const(*byte), "a field value has a control byte");
            value = tail;
        }
        let (name, _) = line.as_bytes().split_at(name_len);
        Self { line, name_len, is_deciding: is_deciding(name) }
    }

    fn name(&self) -> &'static str {
        self.line.get(..self.name_len).unwrap_or_default()
    }

    fn value(&self) -> &'static [u8] {
        let line = self.line.as_bytes();
        line.get(self.name_len.saturating_add(2)..line.len().saturating_sub(2)).unwrap_or_default()
    }

    fn is_named(&self, name: &str) -> bool {
        self.name().eq_ignore_ascii_case(name)
    }
}

impl Drop for Headers {
    #[inline]
    fn drop(&mut self) {
        if let Some(storage) = self.storage.take() {
            storage.give_back();
        }
    }
}

impl Clone for Headers {
    fn clone(&self) -> Self {
        let Some(storage) = &self.storage else {
            return Self { first: self.first, storage: None };
        };
        let mut copy = Storage::take();
        copy.bytes.extend_from_slice(&storage.bytes);
        copy.fields.extend_from_slice(&storage.fields);
        copy.is_wire = storage.is_wire;
        Self { first: self.first, storage: Some(copy) }
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.iter().map(|(name, value)| (name, String::from_utf8_lossy(value))))
            .finish()
    }
}

impl PartialEq for Headers {
    /// The same fields in the same order, names in any case.
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self
                .iter_bytes()
                .zip(other.iter_bytes())
                .all(|(left, right)| left.0.eq_ignore_ascii_case(right.0) && left.1 == right.1)
    }
}

impl Eq for Headers {}

impl From<&HeaderMap> for Headers {
    fn from(map: &HeaderMap) -> Self {
        let mut headers = Self::new();
        for (name, value) in map {
            // Valid by type; only a map of 4 GiB would lose the rest.
            let _ = headers.append_valid(name.as_str().as_bytes(), trim_ows(value.as_bytes()));
        }
        headers
    }
}

impl From<&Headers> for HeaderMap {
    fn from(headers: &Headers) -> Self {
        let mut map = Self::new();
        for (name, value) in headers.iter_bytes() {
            // A name over 64 KiB or the 32,768th field does not fit into a `HeaderMap`.
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
                let _ = map.try_append(name, value);
            }
        }
        map
    }
}

/// Why a field cannot be sent.
///
/// ```
/// use filoplume_http1::Headers;
///
/// let error = Headers::new().append("content type", "text/html").unwrap_err();
/// assert_eq!(error.to_string(), "field name has byte 0x20 at 7");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidHeader {
    /// The name is empty.
    NameEmpty,
    /// The name has a byte that is no token byte (RFC 9110 section 5.6.2).
    Name {
        /// The byte.
        byte: u8,
        /// Its position in the name.
        at: usize,
    },
    /// The value has a control byte (RFC 9110 section 5.5).
    Value {
        /// The byte.
        byte: u8,
        /// Its position in the value, behind leading whitespace.
        at: usize,
    },
    /// All fields together would exceed 4 GiB.
    TooLong,
}

impl fmt::Display for InvalidHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NameEmpty => f.write_str("field name is empty"),
            Self::Name { byte, at } => write!(f, "field name has byte {byte:#04x} at {at}"),
            Self::Value { byte, at } => write!(f, "field value has byte {byte:#04x} at {at}"),
            Self::TooLong => f.write_str("fields are too long together"),
        }
    }
}

impl Error for InvalidHeader {}

#[inline]
fn validate(name: &[u8], value: &[u8]) -> Result<(), InvalidHeader> {
    if !name.is_empty() && name.iter().all(|&byte| TOKEN.has(byte)) && is_value(value) {
        Ok(())
    } else {
        Err(reason(name, value))
    }
}

/// Finds what is wrong with a field that is known to be wrong.
#[cold]
fn reason(name: &[u8], value: &[u8]) -> InvalidHeader {
    let first_outside =
        |class: &Class, bytes: &[u8]| bytes.iter().copied().enumerate().find(|&(_, byte)| !class.has(byte));
    match (first_outside(&TOKEN, name), first_outside(&VALUE, value)) {
        (Some((at, byte)), _) => InvalidHeader::Name { byte, at },
        (None, Some((at, byte))) => InvalidHeader::Value { byte, at },
        (None, None) => InvalidHeader::NameEmpty,
    }
}

#[inline]
fn is_named(bytes: &[u8], field: &Field, name: &str) -> bool {
    field.name.len as usize == name.len() && field.name.of(bytes).eq_ignore_ascii_case(name.as_bytes())
}

/// Most buffers that a thread keeps: a head and a response for each request of a long pipeline.
const STASH_LEN_MAX: usize = 32;
/// Largest arena that is kept. Heads over it are rare, and a thread must not hoard them.
const STASH_BYTES_MAX: usize = 8 * 1024;
/// Largest index that is kept.
const STASH_FIELDS_MAX: usize = 128;

/// Storages that a thread keeps for later.
struct Stash {
    /// The one that was given back last. As long as requests come one after the other there is no second one.
    last: Cell<Option<Box<Storage>>>,
    #[expect(clippy::vec_box, reason = "what is stashed are the boxes: a map is as large as a pointer")]
    others: RefCell<Vec<Box<Storage>>>,
}

thread_local! {
    static STASH: Stash = const { Stash { last: Cell::new(None), others: RefCell::new(Vec::new()) } };
}

impl Stash {
    #[inline(never)]
    fn keep(&self, storage: Box<Storage>) {
        if let Ok(mut others) = self.others.try_borrow_mut() {
            if others.len().saturating_add(1) < STASH_LEN_MAX {
                others.push(storage);
            }
        }
    }
}

impl Storage {
    /// Returns an empty storage, used before if there is one. It need not come from the thread that dropped it.
    #[inline]
    pub(crate) fn take() -> Box<Self> {
        STASH.try_with(|stash| stash.last.take()).ok().flatten().unwrap_or_else(Self::take_other)
    }

    #[inline(never)]
    fn take_other() -> Box<Self> {
        STASH.try_with(|stash| stash.others.try_borrow_mut().ok()?.pop()).ok().flatten().unwrap_or_default()
    }

    /// Copies the target out of the request line at the start of the arena. Returns whether it is text.
    #[inline]
    pub(crate) fn keep_target(&mut self, start: usize, end: usize) -> bool {
        // Checked from the start of the allocation in whole blocks, as far as the line goes: there the check takes
        // sixteen bytes at a time, and elsewhere one.
        let blocks = self.bytes.get(..end.next_multiple_of(16)).unwrap_or(&self.bytes);
        let target = std::str::from_utf8(blocks).ok().and_then(|text| text.get(start..end));
        self.target.push_str(target.unwrap_or_default());
        target.is_some()
    }

    #[inline(never)]
    pub(crate) fn give_back(mut self: Box<Self>) {
        let bytes = self.bytes.capacity().max(self.target.capacity());
        if bytes > STASH_BYTES_MAX || self.fields.capacity() > STASH_FIELDS_MAX {
            return;
        }
        self.bytes.clear();
        self.fields.clear();
        self.target.clear();
        self.is_wire = true;
        // Fails while the thread ends: then the storage is simply freed.
        let _ = STASH.try_with(|stash| {
            if let Some(other) = stash.last.replace(Some(self)) {
                stash.keep(other);
            }
        });
    }
}

#[cfg(test)]
#[path = "headers_tests.rs"]
mod tests;
