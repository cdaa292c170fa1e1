//! Messages between the rooms of several instances.

use super::message::MessageRef;
use crate::instances::{Reader, Writer};

/// The kind of these messages.
pub(super) const KIND: u8 = 2;

const TEXT: u8 = 0;
const BINARY: u8 = 1;

/// Writes a message for a room. The name travels in the message and not in the name of a Redis
/// channel: peers often choose it, and could make instances subscribe to any number of channels.
pub(super) fn write(room: &str, message: MessageRef<'_>, wire: &mut Writer) {
    wire.content(room.as_bytes());
    match message {
        MessageRef::Text(text) => {
            wire.byte(TEXT);
            wire.content(text.as_bytes());
        }
        MessageRef::Binary(content) => {
            wire.byte(BINARY);
            wire.content(content);
        }
    }
}

/// Reads the name of a room and a message for it. Returns `None` if these are not valid.
pub(super) fn read<'a>(mut wire: Reader<'a>) -> Option<(&'a str, MessageRef<'a>)> {
    let room = wire.text()?;
    let message = match wire.byte()? {
        TEXT => MessageRef::Text(wire.text()?),
        BINARY => MessageRef::Binary(wire.content()?),
        _ => return None,
    };
    wire.end()?;
    Some((room, message))
}
