//! Events, and how they are encoded.

use std::error::Error as StdError;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use bytes::Bytes;

/// An event of an event stream (WHATWG HTML, section 9.2).
///
/// ```
/// use filoplume::sse::Event;
/// use std::time::Duration;
///
/// let event = Event::new("two\nlines").event("news")?.id("17")?.retry(Duration::from_secs(3));
/// assert_eq!(
///     event.encode(),
///     "event: news\nid: 17\nretry: 3000\ndata: two\ndata: lines\n\n"
/// );
/// # Ok::<(), filoplume::sse::InvalidEvent>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Event {
    pub(super) name: Option<String>,
    pub(super) id: Option<String>,
    pub(super) retry: Option<Duration>,
    pub(super) data: Option<String>,
    pub(super) comment: Option<String>,
    pub(super) key: Option<u64>,
}

/// The name or the ID of an event has a character that would end it.
///
/// ```
/// use filoplume::sse::Event;
///
/// let error = Event::new("").id("7\ndata: forged").unwrap_err();
/// assert_eq!(error.to_string(), "the id of an event has a line end or a zero");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidEvent {
    field: &'static str,
}

impl fmt::Display for InvalidEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} of an event has a line end or a zero", self.field)
    }
}

impl StdError for InvalidEvent {}

impl Event {
    /// Returns an event with data. Each line end in it, of any kind, arrives as a line feed.
    pub fn new(data: impl Into<String>) -> Self {
        Self { data: Some(data.into()), ..Self::default() }
    }

    /// Returns an event whose data is a value as JSON.
    ///
    /// ```
    /// use filoplume::sse::Event;
    ///
    /// assert_eq!(Event::json(&[1, 2])?.encode(), "data: [1,2]\n\n");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the value cannot be serialized.
    #[cfg(feature = "json")]
    #[cfg_attr(docsrs, doc(cfg(feature = "json")))]
    pub fn json(value: &impl serde::Serialize) -> Result<Self, serde_json::Error> {
        serde_json::to_string(value).map(Self::new)
    }

    /// Returns a comment, which clients ignore.
    pub fn comment(text: impl Into<String>) -> Self {
        Self { comment: Some(text.into()), ..Self::default() }
    }

    /// Sets the type of the event. Browsers dispatch it to the listeners of this type, and events
    /// without one to those of `message`.
    ///
    /// # Errors
    ///
    /// If it has a line end.
    pub fn event(mut self, name: impl Into<String>) -> Result<Self, InvalidEvent> {
        self.name = Some(valid("name", name.into())?);
        Ok(self)
    }

    /// Sets the ID. A client that connects again sends the last one that it has got, as
    /// [`LastEventId`](super::LastEventId).
    ///
    /// # Errors
    ///
    /// If it has a line end or a zero.
    pub fn id(mut self, id: impl Into<String>) -> Result<Self, InvalidEvent> {
        self.id = Some(valid("id", id.into())?);
        Ok(self)
    }

    /// Sets how long the client waits before it connects again.
    pub fn retry(mut self, after: Duration) -> Self {
        self.retry = Some(after);
        self
    }

    /// Sets what the event is about, for hubs that [coalesce](super::SlowClients::Coalesce): an
    /// event replaces one with an equal key that waits for a slow client. The key is not sent.
    pub fn key(mut self, key: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        self.key = Some(hasher.finish());
        self
    }

    /// Returns the event as it is sent.
    pub fn encode(&self) -> Bytes {
        let mut text = String::with_capacity(self.data.as_ref().map_or(0, String::len) + 32);
        if let Some(comment) = &self.comment {
            lines(comment).for_each(|line| field(&mut text, "", line));
        }
        if let Some(name) = &self.name {
            field(&mut text, "event", name);
        }
        if let Some(id) = &self.id {
            field(&mut text, "id", id);
        }
        if let Some(retry) = self.retry {
            field(&mut text, "retry", &retry.as_millis().to_string());
        }
        if let Some(data) = &self.data {
            lines(data).for_each(|line| field(&mut text, "data", line));
        }
        text.push('\n');
        Bytes::from(text)
    }

    pub(super) fn has_id(&self) -> bool {
        self.id.is_some()
    }

    pub(super) fn id_text(&self) -> Option<&str> {
        self.id.as_deref()
    }

    pub(super) fn set_valid_id(&mut self, id: String) {
        self.id = Some(id);
    }

    pub(super) fn key_hash(&self) -> Option<u64> {
        self.key
    }
}

impl<T: Into<String>> From<T> for Event {
    fn from(data: T) -> Self {
        Self::new(data)
    }
}

/// A type that can be sent as an event: an [`Event`], a text, and every other type that can be
/// converted into an event.
///
/// A value is sent as JSON by [`Event::json`]:
///
/// ```
/// use filoplume::sse::{Event, Hub};
///
/// let hub = Hub::new();
/// hub.send("a text");
/// hub.send(Event::json(&[1, 2])?);
/// # Ok::<(), filoplume::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be sent as an event: send a text or an `Event`, and other values as \
               JSON, by `Event::json(&value)?`",
    label = "neither a text nor an `Event`",
    note = "`Event::json` and other methods of `Event` return a `Result`: put a `?` behind them"
)]
pub trait IntoEvent {
    /// Returns the event.
    fn into_event(self) -> Event;
}

// Otherwise the compiler would explain that `String` lacks a conversion.
#[diagnostic::do_not_recommend]
impl<T: Into<Event>> IntoEvent for T {
    fn into_event(self) -> Event {
        self.into()
    }
}

fn valid(field: &'static str, value: String) -> Result<String, InvalidEvent> {
    if value.contains(['\r', '\n', '\0']) { Err(InvalidEvent { field }) } else { Ok(value) }
}

/// Splits a text at the line ends of event streams: LF, CR and CRLF. There is one more line than
/// line ends.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(end) = text.find(['\r', '\n']) else {
            rest = None;
            return Some(text);
        };
        let (line, behind) = text.split_at(end);
        rest = behind.strip_prefix("\r\n").or_else(|| behind.get(1..));
        Some(line)
    })
}

fn field(text: &mut String, name: &str, value: &str) {
    for part in [name, ": ", value, "\n"] {
        text.push_str(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_encoded_so_that_no_text_can_end_its_field() {
        let event = |data: &str| Event::new(data).encode();
        let rows = [
            (event("one"), "data: one\n\n"),
            (event(""), "data: \n\n"),
            (event("a\nb\r\nc\rd"), "data: a\ndata: b\ndata: c\ndata: d\n\n"),
            (event("a\n"), "data: a\ndata: \n\n"),
            (event("\n\nid: 7"), "data: \ndata: \ndata: id: 7\n\n"),
            (event(" leading space"), "data:  leading space\n\n"),
            (Event::comment("a\nb").encode(), ": a\n: b\n\n"),
            (Event::default().retry(Duration::from_millis(1500)).encode(), "retry: 1500\n\n"),
            (Event::new("x").key("k").encode(), "data: x\n\n"),
        ];
        for (encoded, expected) in rows {
            assert_eq!(encoded, expected);
        }
    }

    #[test]
    fn names_and_ids_that_would_end_their_line_are_refused() {
        for text in ["a\n", "\r", "a\0b", "a\r\nb"] {
            assert!(Event::new("").event(text).is_err(), "{text:?}");
            assert!(Event::new("").id(text).is_err(), "{text:?}");
        }
        assert!(Event::new("").id("").is_ok(), "an empty one resets the client's");
    }
}
