//! Lines for eyes: how text goes into one, and what a program is told that has not set up
//! `tracing`.
//!
//! Most of what is logged can wait until somebody listens. Where the app listens and why a request
//! failed cannot: without these two the first `cargo run` is silent, and the reason of the first
//! `500` is nowhere.

use std::fmt::{self, Write as _};

/// Writes a line to stderr, unless `tracing` was set up: then the event that stands beside the call
/// says the same.
pub(crate) fn tell_without_subscriber(text: &str) {
    if tracing::dispatcher::has_been_set() {
        return;
    }
    let mut line = String::with_capacity(text.len() + 1);
    escape(&mut line, text);
    line.push('\n');
    write_to_stderr(&line);
}

/// Writes a line, with its end, to stderr. In one piece, so that lines of several threads do not
/// mix.
#[allow(
    clippy::print_stderr,
    reason = "the one place that does; a `Stderr` is not captured by tests"
)]
pub(crate) fn write_to_stderr(line: &str) {
    eprint!("{}", Unfailing(line));
}

/// As [`write_to_stderr`], to stdout.
#[allow(
    clippy::print_stdout,
    reason = "the one place that does; a `Stdout` is not captured by tests"
)]
pub(crate) fn write_to_stdout(line: &str) {
    print!("{}", Unfailing(line));
}

/// A line that is written as well as possible.
///
/// Only `print!` and `eprint!` write into what libtest captures, and they panic if the line cannot
/// be written, such as when the disk behind stderr is full. They learn of that from what is
/// formatted, and this says that all is well: there is nowhere to tell that a log cannot be
/// written.
struct Unfailing<'a>(&'a str);

impl fmt::Display for Unfailing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let _ = f.write_str(self.0);
        Ok(())
    }
}

/// As Apache escapes: what could end a field, a line, or be a command to a terminal, becomes
/// visible.
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
