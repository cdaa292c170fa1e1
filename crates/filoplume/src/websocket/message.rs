//! Messages, and the types that closures send and receive them as.

use std::io;

use bytes::Bytes;
use filoplume_websocket::CloseCode;

use super::socket::SendError;
use crate::core::error::Error;
#[cfg(feature = "json")]
use crate::extract::Json;

/// A message of a WebSocket.
///
/// ```
/// use filoplume::websocket::Message;
///
/// let message = Message::from("hello");
/// assert_eq!(message.as_text(), Some("hello"));
/// assert_eq!(message.as_bytes(), b"hello");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// Text, which is UTF-8.
    Text(String),
    /// Any bytes.
    Binary(Bytes),
}

impl Message {
    /// Returns the text of a text message.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Binary(_) => None,
        }
    }

    /// Returns the content.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Binary(bytes) => bytes,
        }
    }
}

/// A message that is borrowed.
///
/// ```
/// use filoplume::websocket::{AsMessage, Message, MessageRef};
///
/// assert_eq!("hello".as_message(), MessageRef::Text("hello"));
/// assert_eq!(MessageRef::Text("hello").to_owned(), Message::from("hello"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageRef<'a> {
    /// Text, which is UTF-8.
    Text(&'a str),
    /// Any bytes.
    Binary(&'a [u8]),
}

impl MessageRef<'_> {
    /// Copies the message.
    pub fn to_owned(self) -> Message {
        match self {
            Self::Text(text) => Message::Text(text.to_owned()),
            Self::Binary(bytes) => Message::Binary(Bytes::copy_from_slice(bytes)),
        }
    }

    pub(super) const fn len(self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Binary(bytes) => bytes.len(),
        }
    }
}

/// A type that can be sent as a message: strings as text, bytes as binary, and a [`Message`] as
/// what it is.
///
/// ```
/// use filoplume::websocket::{AsMessage, MessageRef};
///
/// /// A position that is sent as text.
/// struct Position(u32, u32, String);
///
/// impl Position {
///     fn new(x: u32, y: u32) -> Self {
///         Self(x, y, format!("{x},{y}"))
///     }
/// }
///
/// impl AsMessage for Position {
///     fn as_message(&self) -> MessageRef<'_> {
///         MessageRef::Text(&self.2)
///     }
/// }
///
/// assert_eq!(Position::new(3, 4).as_message(), MessageRef::Text("3,4"));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be sent as a message: send a text, bytes or a `Message`, and other \
               values by `send_json(&value)` or `broadcast_json(.., &value)`",
    label = "neither text nor bytes",
    note = "a number is sent as a text, `number.to_string()`"
)]
pub trait AsMessage {
    /// Returns the message.
    fn as_message(&self) -> MessageRef<'_>;
}

macro_rules! as_message {
    ($($type:ty: $variant:ident),*) => {
        $(impl AsMessage for $type {
            fn as_message(&self) -> MessageRef<'_> {
                MessageRef::$variant(self)
            }
        })*
    };
}

as_message!(str: Text, &str: Text, String: Text, &String: Text);
as_message!([u8]: Binary, &[u8]: Binary, Vec<u8>: Binary, &Vec<u8>: Binary);
as_message!(Bytes: Binary, &Bytes: Binary);

impl<const N: usize> AsMessage for &[u8; N] {
    fn as_message(&self) -> MessageRef<'_> {
        MessageRef::Binary(*self)
    }
}

impl AsMessage for Message {
    fn as_message(&self) -> MessageRef<'_> {
        match self {
            Self::Text(text) => MessageRef::Text(text),
            Self::Binary(bytes) => MessageRef::Binary(bytes),
        }
    }
}

impl AsMessage for &Message {
    fn as_message(&self) -> MessageRef<'_> {
        (*self).as_message()
    }
}

impl AsMessage for MessageRef<'_> {
    fn as_message(&self) -> MessageRef<'_> {
        *self
    }
}

macro_rules! into_message {
    ($($type:ty),*) => {
        $(impl From<$type> for Message {
            fn from(message: $type) -> Self {
                message.as_message().to_owned()
            }
        })*
    };
}

into_message!(&str, String, &String, &[u8], Vec<u8>, &Vec<u8>, Bytes, &Bytes);

impl<const N: usize> From<&[u8; N]> for Message {
    fn from(message: &[u8; N]) -> Self {
        message.as_message().to_owned()
    }
}

/// Why a message does not have the type that a closure takes. The socket is closed with this.
///
/// ```
/// use filoplume::websocket::{CloseCode, FromMessage, MessageRef};
///
/// let binary = MessageRef::Binary(b"?");
/// assert_eq!(String::from_message(binary).unwrap_err().code, CloseCode::UNSUPPORTED_DATA);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unacceptable {
    /// The code of the close frame.
    pub code: CloseCode,
    /// The text of the close frame, at most 123 bytes.
    pub reason: String,
}

/// A type that closures receive messages as.
///
/// It is implemented for [`Message`], `String` and `Vec<u8>`, and for `Json<T>`. A socket whose
/// peer sends something else is closed: with 1003 if it is text instead of bytes or the reverse,
/// and with 1007 if the text is not the expected JSON.
///
/// ```
/// use filoplume::websocket::{CloseCode, FromMessage, MessageRef, Unacceptable};
///
/// /// A number as text.
/// struct Number(u64);
///
/// impl FromMessage for Number {
///     fn from_message(message: MessageRef<'_>) -> Result<Self, Unacceptable> {
///         let text = String::from_message(message)?;
///         let refuse = |_| Unacceptable {
///             code: CloseCode::INVALID_DATA,
///             reason: "send a number".to_owned(),
///         };
///         text.parse().map(Self).map_err(refuse)
///     }
/// }
///
/// assert!(Number::from_message(MessageRef::Text("17")).is_ok());
/// assert!(Number::from_message(MessageRef::Text("many")).is_err());
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the message of a closure",
    label = "not a type of messages",
    note = "the closure is `|socket: &Socket, message: String|`, or with a `Vec<u8>`, a `Message` \
            or a `Json<T>` in place of the `String`"
)]
pub trait FromMessage: Sized {
    /// Converts a message.
    ///
    /// # Errors
    ///
    /// If the message has another type. The socket is closed then.
    fn from_message(message: MessageRef<'_>) -> Result<Self, Unacceptable>;
}

impl FromMessage for Message {
    fn from_message(message: MessageRef<'_>) -> Result<Self, Unacceptable> {
        Ok(message.to_owned())
    }
}

impl FromMessage for String {
    fn from_message(message: MessageRef<'_>) -> Result<Self, Unacceptable> {
        match message {
            MessageRef::Text(text) => Ok(text.to_owned()),
            MessageRef::Binary(_) => Err(unsupported("only text messages are accepted")),
        }
    }
}

impl FromMessage for Vec<u8> {
    fn from_message(message: MessageRef<'_>) -> Result<Self, Unacceptable> {
        match message {
            MessageRef::Binary(bytes) => Ok(bytes.to_vec()),
            MessageRef::Text(_) => Err(unsupported("only binary messages are accepted")),
        }
    }
}

#[cfg(feature = "json")]
impl<T: serde::de::DeserializeOwned> FromMessage for Json<T> {
    fn from_message(message: MessageRef<'_>) -> Result<Self, Unacceptable> {
        let MessageRef::Text(text) = message else {
            return Err(unsupported("only JSON as text is accepted"));
        };
        serde_json::from_str(text).map(Json).map_err(|error| {
            tracing::debug!(%error, "a message is not the expected JSON");
            Unacceptable {
                code: CloseCode::INVALID_DATA,
                reason: "the message is not the expected JSON".to_owned(),
            }
        })
    }
}

fn unsupported(reason: &str) -> Unacceptable {
    Unacceptable { code: CloseCode::UNSUPPORTED_DATA, reason: reason.to_owned() }
}

/// The result of a closure that handles an event of a socket: nothing, or a `Result` whose error
/// closes the socket with 1011 and is logged. An error of sending to a socket that has closed is
/// not logged.
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::websocket::{Socket, WebSocketUpgrade};
///
/// let app = App::new().websocket("/sum", |upgrade: WebSocketUpgrade| {
///     let mut sum = 0;
///     upgrade.on_message(move |socket: &Socket, text: String| -> filoplume::Result<()> {
///         sum += text.parse::<i64>()?;
///         Ok(socket.send(sum.to_string())?)
///     })
/// });
/// # app.test();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the result of a closure of a WebSocket",
    label = "neither `()` nor a `Result<(), _>`",
    note = "end the closure with `socket.send(..)` or with a semicolon; use \
            `filoplume::Result<()>` for errors of other crates"
)]
pub trait SocketResult {
    /// Returns the error, if there is one.
    fn into_error(self) -> Option<Error>;
}

impl SocketResult for () {
    fn into_error(self) -> Option<Error> {
        None
    }
}

/// For closures of [`WebSocketUpgrade::on_thread`](super::WebSocketUpgrade::on_thread). An error of
/// the socket itself, which a peer has caused, is not logged.
impl SocketResult for io::Result<()> {
    fn into_error(self) -> Option<Error> {
        self.err().map(Error::from)
    }
}

impl SocketResult for Result<(), SendError> {
    fn into_error(self) -> Option<Error> {
        match self {
            Ok(()) | Err(SendError::Closed) => None,
            Err(error) => Some(Error::from(error)),
        }
    }
}

impl SocketResult for Result<(), Error> {
    fn into_error(self) -> Option<Error> {
        let error = self.err()?;
        let is_closed = matches!(error.downcast_ref::<SendError>(), Some(SendError::Closed));
        (!is_closed).then_some(error)
    }
}
