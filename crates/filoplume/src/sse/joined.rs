//! Events between the hubs of several instances.

use std::time::Duration;

use super::Event;
use crate::instances::{Reader, Writer};

/// The kind of these messages.
pub(super) const KIND: u8 = 1;

/// Writes an event as its parts. They are encoded for clients by each instance, so that nothing in
/// a message can break a stream of events.
pub(super) fn write(event: &Event, message: &mut Writer) {
    for text in [&event.name, &event.id, &event.data, &event.comment] {
        message.byte(u8::from(text.is_some()));
        if let Some(text) = text {
            message.content(text.as_bytes());
        }
    }
    let retry = event.retry.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
    for number in [retry, event.key] {
        message.byte(u8::from(number.is_some()));
        if let Some(number) = number {
            message.number(number);
        }
    }
}

/// Reads an event, or returns `None` if the message is not a valid event.
pub(super) fn read(mut message: Reader<'_>) -> Option<Event> {
    let (name, id) = (text(&mut message)?, text(&mut message)?);
    let (data, comment) = (text(&mut message)?, text(&mut message)?);
    let (retry, key) = (number(&mut message)?, number(&mut message)?);
    message.end()?;
    let mut event = Event { data, comment, key, ..Event::default() };
    event.retry = retry.map(Duration::from_millis);
    if let Some(name) = name {
        event = event.event(name).ok()?;
    }
    if let Some(id) = id {
        event = event.id(id).ok()?;
    }
    Some(event)
}

fn text(message: &mut Reader<'_>) -> Option<Option<String>> {
    Some(if is_present(message)? { Some(message.text()?.to_owned()) } else { None })
}

fn number(message: &mut Reader<'_>) -> Option<Option<u64>> {
    Some(if is_present(message)? { Some(message.number()?) } else { None })
}

fn is_present(message: &mut Reader<'_>) -> Option<bool> {
    match message.byte()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed_on(event: &Event) -> Option<Event> {
        read(Reader::of_fields(&Writer::fields(|message| write(event, message))))
    }

    #[test]
    fn an_event_has_all_its_fields_on_another_instance() {
        let event = Event::new("21").event("price").and_then(|event| event.id("7")).unwrap();
        let rows = [
            event.clone().key("apples").retry(Duration::from_millis(1500)),
            event.key("pears"),
            Event::new("two\nlines").retry(Duration::ZERO),
            Event::comment("nothing new"),
            Event::default(),
        ];
        for event in rows {
            assert_eq!(passed_on(&event), Some(event));
        }
    }
    /// It may come from a later version, in which it means something else.
    #[test]
    fn a_message_of_another_form_is_no_event() {
        let fields = |bytes: &[u8]| {
            let bytes = bytes.to_vec();
            Writer::fields(|message| bytes.iter().for_each(|&byte| message.byte(byte)))
        };
        let is_read = |bytes: &[u8]| read(Reader::of_fields(&fields(bytes))).is_some();
        assert!(is_read(&[0; 6]));
        assert!(!is_read(&[0; 5]), "a field is missing");
        assert!(!is_read(&[0; 7]), "a byte follows");
        assert!(!is_read(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), "neither there nor absent");
    }
}
