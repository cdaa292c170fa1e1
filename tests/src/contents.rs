//! Contents to send, and sites that read them in one way only.

use filoplume_runtime::{Plan, Request, Response, Service};

use crate::server::site;

/// Returns binary data with a long period.
pub fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 31 + n / 251).to_le_bytes()[0]).collect()
}

/// Bytes that stay as long if they are compressed.
pub fn incompressible(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// Returns the content in chunks of at most `chunk` bytes, and the last chunk.
pub fn chunked(content: &[u8], chunk: usize) -> Vec<u8> {
    let mut encoded = Vec::new();
    for chunk in content.chunks(chunk) {
        encoded.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
        encoded.extend(chunk);
        encoded.extend(b"\r\n");
    }
    encoded.extend(b"0\r\n\r\n");
    encoded
}

/// A site that reads contents only as streams.
#[derive(Clone, Copy, Debug)]
pub struct Streamed;

impl Service for Streamed {
    fn plan(&self, _: &mut Request) -> Plan {
        Plan::new().streamed()
    }

    fn call(&self, request: Request) -> Response {
        site(request)
    }
}

/// A site that reads contents only as a whole.
#[derive(Clone, Copy, Debug)]
pub struct Buffered;

impl Service for Buffered {
    fn plan(&self, _: &mut Request) -> Plan {
        Plan::new().buffered()
    }

    fn call(&self, request: Request) -> Response {
        assert!(request.body().as_slice().is_some(), "the content is in memory");
        site(request)
    }
}
