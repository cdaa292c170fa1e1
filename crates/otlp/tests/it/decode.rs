//! A decoder of our own, for what the foreign one does not show: the bytes of each field.

use std::collections::BTreeMap;

/// A field of a message.
#[derive(Clone, Debug)]
pub(crate) enum Field {
    Int(u64),
    Bytes(Vec<u8>),
}

/// A message of protobuf: the values of each field, by its number.
pub(crate) type Message = BTreeMap<u64, Vec<Field>>;

/// A span, as far as tests look at it.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) trace_id: String,
    pub(crate) span_id: String,
    pub(crate) parent_id: String,
    pub(crate) state: String,
    pub(crate) name: String,
    pub(crate) kind: u64,
    pub(crate) started: u64,
    pub(crate) ended: u64,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) events: Vec<(String, BTreeMap<String, String>)>,
    pub(crate) dropped_events: u64,
    pub(crate) status: u64,
    pub(crate) flags: u64,
}

/// Decodes a request: the attributes of its resource, and its spans.
pub(crate) fn request(content: &[u8]) -> (BTreeMap<String, String>, Vec<Span>) {
    let resource_spans = only(&message(content), 1);
    let resource = attributes(&only(&resource_spans, 1), 1);
    let scope_spans = only(&resource_spans, 2);
    assert_eq!(text(&only(&scope_spans, 1), 1), "filoplume-otlp");
    (resource, messages(&scope_spans, 2).iter().map(span).collect())
}

fn span(span: &Message) -> Span {
    let event = |event: &Message| {
        assert!(int(event, 1) > 0, "an event has a time");
        (text(event, 2), attributes(event, 3))
    };
    let (started, ended) = (int(span, 7), int(span, 8));
    assert!(started > 0 && started <= ended, "a span ends after it starts: {started}, {ended}");
    Span {
        trace_id: hex(span, 1),
        span_id: hex(span, 2),
        state: text(span, 3),
        parent_id: hex(span, 4),
        name: text(span, 5),
        kind: int(span, 6),
        started,
        ended,
        attributes: attributes(span, 9),
        events: messages(span, 11).iter().map(event).collect(),
        dropped_events: int(span, 12),
        status: messages(span, 15).first().map_or(0, |status| int(status, 3)),
        flags: int(span, 16),
    }
}

fn attributes(of: &Message, field: u64) -> BTreeMap<String, String> {
    let pairs = messages(of, field);
    let read: BTreeMap<_, _> = pairs
        .iter()
        .map(|pair| {
            let value = only(pair, 2);
            let (kind, field) = value.iter().next().unwrap();
            let value = match (kind, &field[0]) {
                (1, Field::Bytes(text)) => String::from_utf8(text.clone()).unwrap(),
                (2, Field::Int(value)) => (*value != 0).to_string(),
                (3, Field::Int(value)) => i64::from_ne_bytes(value.to_ne_bytes()).to_string(),
                (4, Field::Int(value)) => f64::from_bits(*value).to_string(),
                other => panic!("{other:?}"),
            };
            (text(pair, 1), value)
        })
        .collect();
    assert_eq!(read.len(), pairs.len(), "keys are unique");
    read
}

fn message(mut input: &[u8]) -> Message {
    let mut message = Message::new();
    while !input.is_empty() {
        let tag = varint(&mut input);
        let field = match tag & 7 {
            0 => Field::Int(varint(&mut input)),
            1 => Field::Int(u64::from_le_bytes(take(&mut input, 8).try_into().unwrap())),
            2 => {
                let length = varint(&mut input);
                Field::Bytes(take(&mut input, usize::try_from(length).unwrap()).to_vec())
            }
            5 => Field::Int(u32::from_le_bytes(take(&mut input, 4).try_into().unwrap()).into()),
            other => panic!("a field of kind {other}"),
        };
        message.entry(tag >> 3).or_default().push(field);
    }
    message
}

fn take<'a>(input: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(length);
    *input = rest;
    taken
}

fn varint(input: &mut &[u8]) -> u64 {
    let mut value = 0;
    for at in 0.. {
        let byte = take(input, 1)[0];
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

fn all(of: &Message, field: u64) -> &[Field] {
    of.get(&field).map(Vec::as_slice).unwrap_or_default()
}

fn messages(of: &Message, field: u64) -> Vec<Message> {
    all(of, field)
        .iter()
        .map(|field| match field {
            Field::Bytes(bytes) => message(bytes),
            Field::Int(value) => panic!("{value} is no message"),
        })
        .collect()
}

fn only(of: &Message, field: u64) -> Message {
    let mut messages = messages(of, field);
    assert_eq!(messages.len(), 1, "field {field}");
    messages.remove(0)
}

fn int(of: &Message, field: u64) -> u64 {
    match all(of, field) {
        [Field::Int(value)] => *value,
        [] => 0,
        other => panic!("{other:?}"),
    }
}

fn bytes(of: &Message, field: u64) -> Vec<u8> {
    match all(of, field) {
        [Field::Bytes(bytes)] => bytes.clone(),
        [] => Vec::new(),
        other => panic!("{other:?}"),
    }
}

fn text(of: &Message, field: u64) -> String {
    String::from_utf8(bytes(of, field)).unwrap()
}

fn hex(of: &Message, field: u64) -> String {
    bytes(of, field).iter().map(|byte| format!("{byte:02x}")).collect()
}
