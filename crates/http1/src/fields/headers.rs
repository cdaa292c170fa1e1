//! The public map of fields.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::fields::hex::hex_digits;
use crate::fields::invalid::{InvalidHeader, validate};
use crate::fields::parts::HeadParts;
use crate::fields::secret::{self, redacted};
use crate::fields::span::Span;
use crate::fields::static_field::{StaticField, is_encoder_field};
use crate::fields::storage::{Field, Storage};
use crate::fields::value::AsHeaderValue;
use crate::syntax::trim_ows;

/// A case-insensitive multimap of fields in order of arrival.
///
/// Names and values are stored in one buffer with an index, so a field needs no allocation of its
/// own. Dropped buffers return to a small pool of the thread. An empty map has no buffer and has
/// the size of two pointers. All fields in the map are valid to send: names are tokens, and values
/// have no control byte except HTAB.
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
    /// The first field, if it is static and so needs no storage. Most responses have no other
    /// field.
    first: Option<&'static StaticField>,
    storage: Option<Box<Storage>>,
}

impl Headers {
    /// Returns an empty map. This does not allocate.
    #[inline]
    pub const fn new() -> Self {
        Self { first: None, storage: None }
    }

    /// Returns the number of fields. A name that occurs twice counts twice.
    #[inline]
    pub fn len(&self) -> usize {
        self.fields().len().saturating_add(usize::from(self.first.is_some()))
    }

    /// Returns whether the map has no fields.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first.is_none() && self.fields().is_empty()
    }

    /// Returns the first value of a name. Case is ignored.
    #[inline]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.get_all(name).next()
    }

    /// Returns the first value of a name, if it is UTF-8.
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

    /// Returns whether a field of this name may hold a credential. This is so if the name contains
    /// `auth`, `cookie`, `token`, `secret`, `password`, `key`, `session`, `credential` or
    /// `signature`, in any case. `Debug` hides the values of such fields.
    ///
    /// ```
    /// use filoplume_http1::Headers;
    ///
    /// let mut headers = Headers::new();
    /// headers.append("Cookie", "session=17")?;
    /// assert!(Headers::is_secret("cookie") && Headers::is_secret("X-Api-Key"));
    /// assert_eq!(format!("{headers:?}"), r#"{"Cookie": "(hidden, 10 bytes)"}"#);
    /// # Ok::<(), filoplume_http1::InvalidHeader>(())
    /// ```
    pub fn is_secret(name: &str) -> bool {
        secret::is_secret(name)
    }

    /// Returns whether a name occurs.
    #[inline]
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Returns all fields in order of arrival. Names keep the case in which they were written.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.iter_bytes()
            .map(|(name, value)| (std::str::from_utf8(name).unwrap_or_default(), value))
    }

    /// Adds a field at the end.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is not a token, or if the value has a control byte other than
    /// HTAB. A value with CR or LF could end the field and begin another one.
    #[allow(clippy::needless_pass_by_value, reason = "a text is passed as it is")]
    pub fn append(&mut self, name: &str, value: impl AsHeaderValue) -> Result<(), InvalidHeader> {
        let value = trim_ows(value.as_header_value());
        validate(name.as_bytes(), value)?;
        self.append_valid(name.as_bytes(), value)
    }

    /// Replaces all fields of a name by one field at the end.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`append`](Self::append). The map is unchanged then.
    #[allow(clippy::needless_pass_by_value, reason = "a text is passed as it is")]
    pub fn insert(&mut self, name: &str, value: impl AsHeaderValue) -> Result<(), InvalidHeader> {
        let value = trim_ows(value.as_header_value());
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
            // Otherwise a map that is filled and emptied repeatedly would grow without end.
            storage.bytes.clear();
        }
        storage.is_wire_format = storage.fields.is_empty() || (storage.is_wire_format && !removed);
        removed || was_first
    }

    /// Removes all fields.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Returns a map for an arena that already has an index, e.g. of a parsed head.
    #[inline]
    pub(crate) fn from_storage(storage: Box<Storage>) -> Self {
        Self { first: None, storage: Some(storage) }
    }

    /// Returns how many bytes of memory the fields take, without static ones.
    pub(crate) fn memory(&self) -> usize {
        self.storage.as_ref().map_or(0, |storage| storage.memory())
    }

    /// Returns the target of the request that the fields were parsed from, or an empty string.
    #[inline]
    pub(crate) fn target(&self) -> &str {
        self.storage.as_ref().map_or("", |storage| &storage.target)
    }

    /// Returns the other parts of the head that the fields were parsed from.
    #[inline]
    pub(crate) fn parts(&self) -> &HeadParts {
        self.storage.as_ref().map_or(&HeadParts::NONE, |storage| &storage.parts)
    }

    #[inline]
    pub(crate) fn parts_and_target(&self) -> (&HeadParts, &str) {
        self.storage
            .as_ref()
            .map_or((&HeadParts::NONE, ""), |storage| (&storage.parts, &storage.target))
    }

    /// Returns the complete arena, including the bytes between the fields.
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
        let others =
            self.fields().iter().map(move |field| (field.name.of(bytes), field.value.of(bytes)));
        first.into_iter().chain(others)
    }

    /// Returns all fields as encoded lines, in two pieces, unless the encoder has to handle one of
    /// them.
    #[inline]
    pub(crate) fn wire_lines(&self) -> Option<(&[u8], &[u8])> {
        let first: &[u8] = match self.first {
            None => &[],
            Some(first) if first.is_encoder_field => return None,
            Some(first) => first.line.as_bytes(),
        };
        match &self.storage {
            None => Some((first, &[])),
            Some(storage) => storage.is_wire_format.then_some((first, &storage.bytes)),
        }
    }

    /// Calls `keep` with every field and appends the fields for which it returns `true`, as lines.
    #[inline]
    pub(crate) fn write_lines(
        &self,
        out: &mut Vec<u8>,
        mut keep: impl FnMut(&[u8], &[u8]) -> bool,
    ) {
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
            // Most fields are already stored as a line, which takes one copy instead of four.
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

    /// Replaces all fields of a name by a field that was validated at compile time.
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
            self.insert_static_cold(field);
        }
    }

    fn insert_static_cold(&mut self, field: &'static StaticField) {
        self.remove(field.name());
        if self.is_empty() {
            self.first = Some(field);
        } else {
            // The field is valid. This fails only if the map has 4 GiB.
            let _ = self.append_valid(field.name().as_bytes(), field.value());
        }
    }

    /// Replaces all fields of a name by one whose value is a number as 32 hexadecimal digits. This
    /// costs less than [`insert`](Self::insert), because such a field is always valid. It is meant
    /// for the IDs of requests and traces.
    ///
    /// ```
    /// use filoplume_http1::Headers;
    /// use http::HeaderName;
    ///
    /// let mut headers = Headers::new();
    /// headers.insert_hex(&HeaderName::from_static("x-request-id"), 0x17f);
    /// assert_eq!(headers.get_str("x-request-id"), Some("0000000000000000000000000000017f"));
    /// ```
    pub fn insert_hex(&mut self, name: &HeaderName, number: u128) {
        let name = name.as_str();
        if !self.is_empty() {
            self.remove(name);
        }
        // The rest of the line has a known length, so it is copied with few instructions.
        let mut rest = *b": 00000000000000000000000000000000\r\n";
        if let Some(value) = rest.get_mut(2..34) {
            value.copy_from_slice(&hex_digits(number));
        }
        // This fails only if the map has 4 GiB.
        if let Ok(line) = self.begin_line(name.as_bytes(), rest.len().saturating_sub(4)) {
            line.extend_from_slice(&rest);
        }
    }

    pub(crate) fn append_valid(&mut self, name: &[u8], value: &[u8]) -> Result<(), InvalidHeader> {
        let line = self.begin_line(name, value.len())?;
        line.extend_from_slice(b": ");
        line.extend_from_slice(value);
        line.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// Adds the index of a field and the name of its line, and returns the arena with room for the
    /// rest: colon and space, value, line end. Fields are stored as encoded lines: see
    /// [`write_lines`](Self::write_lines).
    #[inline]
    fn begin_line(&mut self, name: &[u8], value_len: usize) -> Result<&mut Vec<u8>, InvalidHeader> {
        let storage = self.storage.get_or_insert_with(Storage::take);
        let start = storage.bytes.len();
        let value_start = start.saturating_add(name.len()).saturating_add(2);
        let end = value_start.saturating_add(value_len).saturating_add(2);
        if end > Span::ARENA_BYTES_MAX {
            return Err(InvalidHeader::TooLong);
        }
        storage.fields.push(Field {
            name: Span::new(start, name.len()),
            value: Span::new(value_start, value_len),
        });
        storage.is_wire_format &= !is_encoder_field(name);
        storage.bytes.reserve(end.saturating_sub(start));
        storage.bytes.extend_from_slice(name);
        Ok(&mut storage.bytes)
    }
}

impl Drop for Headers {
    #[inline]
    fn drop(&mut self) {
        if let Some(storage) = self.storage.take() {
            storage.recycle();
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
        copy.is_wire_format = storage.is_wire_format;
        Self { first: self.first, storage: Some(copy) }
    }
}

/// Shows all fields. For [secret](Headers::is_secret) ones it shows only the length of the value.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.iter().map(|(name, value)| (name, redacted(name, value))))
            .finish()
    }
}

impl PartialEq for Headers {
    /// Two maps are equal if they have the same fields in the same order. The case of names is
    /// ignored.
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
            // The type guarantees valid fields. This fails only if the map has 4 GiB.
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
            if let (Ok(name), Ok(mut value)) =
                (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
            {
                // `Debug` of `HeaderMap` hides sensitive values.
                value.set_sensitive(Headers::is_secret(name.as_str()));
                let _ = map.try_append(name, value);
            }
        }
        map
    }
}

#[inline]
fn is_named(bytes: &[u8], field: &Field, name: &str) -> bool {
    field.name.len as usize == name.len()
        && field.name.of(bytes).eq_ignore_ascii_case(name.as_bytes())
}

#[cfg(test)]
#[path = "headers_tests.rs"]
mod tests;
