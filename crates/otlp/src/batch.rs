//! The content of a request: `ExportTraceServiceRequest`, and its response.

use crate::protobuf::{self, Read};
use crate::value::Value;

/// The name of the instrumentation scope, which every batch has.
const SCOPE: &str = "filoplume-otlp";

/// Encodes the resource: the attributes that all spans of this process have.
pub(crate) fn resource(attributes: &[(String, String)]) -> Vec<u8> {
    let mut out = Vec::new();
    protobuf::message(&mut out, 1, |out| {
        for (key, value) in attributes {
            Value::Text(value.clone()).write(out, 1, key);
        }
    });
    out
}

/// Encodes a request with these spans.
pub(crate) fn request(resource: &[u8], spans: &[Box<[u8]>]) -> Vec<u8> {
    let length: usize = spans.iter().map(|span| span.len() + 6).sum();
    let mut out = Vec::with_capacity(resource.len() + length + 128);
    protobuf::message(&mut out, 1, |out| {
        out.extend_from_slice(resource);
        protobuf::message(out, 2, |out| {
            protobuf::message(out, 1, |out| {
                protobuf::bytes(out, 1, SCOPE.as_bytes());
                protobuf::bytes(out, 2, env!("CARGO_PKG_VERSION").as_bytes());
            });
            for span in spans {
                protobuf::bytes(out, 2, span);
            }
        });
    });
    out
}

/// Returns how many spans a collector has rejected, according to the content of its response. A
/// response that cannot be parsed rejects nothing.
pub(crate) fn rejected(response: &[u8]) -> u64 {
    let Some(Read::Bytes(partial)) = field(response, 1) else { return 0 };
    match field(partial, 1) {
        Some(Read::Int(rejected)) => rejected,
        _ => 0,
    }
}

fn field(mut message: &[u8], number: u64) -> Option<Read<'_>> {
    while let Some((found, value, rest)) = protobuf::read(message) {
        if found == number {
            return Some(value);
        }
        message = rest;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_rejected_spans_is_read() {
        let mut response = Vec::new();
        assert_eq!(rejected(&response), 0);
        protobuf::message(&mut response, 1, |out| {
            protobuf::bytes(out, 2, b"too long");
            protobuf::int(out, 1, 300);
        });
        assert_eq!(rejected(&response), 300);
        for end in 0..response.len() {
            assert!(rejected(&response[..end]) <= 300);
        }
        assert_eq!(rejected(b"{\"partialSuccess\":{}}"), 0);
    }
}
