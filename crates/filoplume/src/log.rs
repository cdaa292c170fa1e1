//! Lines for eyes: how text goes into one, and what a program is told that has not set up `tracing`.
//!
//! Most of what is logged can wait until somebody listens. Where the app listens and why a request failed cannot: without
//! these two the first `cargo run` is silent, and the reason of the first `500` is nowhere.

use std::fmt::Write as _;
use std::io::{self, Write as _};

/// Writes a line to stderr, unless `tracing` was set up: then the event that stands beside the call says the same.
pub(crate) fn tell_without_subscriber(text: &str) {
    if tracing::dispatcher::has_been_set() {
        return;
    }
    let mut line = String::with_capacity(text.len() + 1);
    escape(&mut line, text);
    line.push('\n');
    // In one piece, so that lines of several threads do not mix. There is nowhere to tell that it cannot be written.
    let _ = io::stderr().lock().write_all(line.as_bytes());
}

/// As Apache escapes: what could end a field, a line, or be a command to a terminal, becomes visible.
pub(crate) fn escape(line: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '"' | '\\' => line.extend(['\\', character]),
            ' '..='~' => line.push(character),
            _ => {
                for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                    let _ = write!(line, "\\x{byte:02x}");
                }
            }
        }
    }
}
