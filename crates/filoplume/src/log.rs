//! Output for people: how text is escaped in a log line, and the lines that are written even if no
//! `tracing` subscriber is installed.
//!
//! Most events are useful only to a subscriber. Few are needed without one: the address that the
//! app listens on, the causes of failed requests, and what is slow, refused or stuck. Without them
//! the first `cargo run` would be silent and the first `500` would have no visible reason.

use std::fmt::{self, Write as _};

/// Writes a line to stderr if no `tracing` subscriber is installed. With a subscriber, an event
/// next to each call carries the same information.
pub(crate) fn log_without_subscriber(text: &str) {
    if tracing::dispatcher::has_been_set() {
        return;
    }
    let mut line = String::with_capacity(text.len() + 1);
    escape(&mut line, text);
    line.push('\n');
    write_to_stderr(&line);
}

/// Writes a line, including its line feed, to stderr. It is written in one piece, so that the lines
/// of several threads do not mix.
#[allow(
    clippy::print_stderr,
    reason = "the one place that does; a `Stderr` is not captured by tests"
)]
pub(crate) fn write_to_stderr(line: &str) {
    eprint!("{}", IgnoreErrors(line));
}

/// Like [`write_to_stderr`], for stdout.
#[allow(
    clippy::print_stdout,
    reason = "the one place that does; a `Stdout` is not captured by tests"
)]
pub(crate) fn write_to_stdout(line: &str) {
    print!("{}", IgnoreErrors(line));
}

/// A line whose write errors are ignored.
///
/// Only `print!` and `eprint!` write to the output that libtest captures. They panic if the line
/// cannot be written, for example when the disk behind stderr is full. They learn of the failure
/// from `Display::fmt`, so this implementation always returns `Ok`: a failed log write cannot be
/// logged.
struct IgnoreErrors<'a>(&'a str);

impl fmt::Display for IgnoreErrors<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let _ = f.write_str(self.0);
        Ok(())
    }
}

/// Escapes text like Apache does: characters that could end a field or a line, or control a
/// terminal, become visible.
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
