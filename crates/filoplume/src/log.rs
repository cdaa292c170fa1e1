//! Output for people: how text is escaped in a log line, and the lines that are written even if no
//! `tracing` subscriber is installed.
//!
//! Most events are useful only to a subscriber. A few are needed without one: the address that the
//! app listens on, the causes of failed requests, and what is slow, refused or stuck. Without them
//! the first `cargo run` would be silent and the first `500` would have no visible reason.
//!
//! Lines that a stranger can cause at will have a [`Throttle`], so that they do not fill the disk.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How many lines a throttle admits at once: enough for the failures of one page, or of one test.
const BURST: u64 = 10;

/// Admits a burst of similar lines and then one per second, and counts the others.
pub(crate) struct Throttle(Mutex<Budget>);

/// A throttle for each route. The map has no more entries than the app has routes.
#[derive(Default)]
pub(crate) struct RouteThrottle(Mutex<HashMap<Box<str>, Budget>>);

/// The throttles of an app.
#[derive(Default)]
pub(crate) struct Throttles {
    pub(crate) failures: RouteThrottle,
    pub(crate) panics: RouteThrottle,
    pub(crate) bodies: RouteThrottle,
}

struct Budget {
    lines: u64,
    /// The time up to which lines were added.
    since: Option<Instant>,
    left_out: u64,
}

impl Throttle {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Budget::new()))
    }

    /// Asks for a line. Returns how many were left out since the last one, or `None` if this one is
    /// left out too.
    pub(crate) fn admit(&self) -> Option<LeftOut> {
        self.0.lock().admit(Instant::now())
    }
}

impl RouteThrottle {
    /// Like [`Throttle::admit`], for a line about this route.
    pub(crate) fn admit(&self, route: &str) -> Option<LeftOut> {
        let mut routes = self.0.lock();
        if let Some(budget) = routes.get_mut(route) {
            return budget.admit(Instant::now());
        }
        routes.entry(route.into()).or_insert(Budget::new()).admit(Instant::now())
    }
}

impl Budget {
    const fn new() -> Self {
        Self { lines: BURST, since: None, left_out: 0 }
    }

    fn admit(&mut self, now: Instant) -> Option<LeftOut> {
        let since = *self.since.get_or_insert(now);
        let seconds = now.saturating_duration_since(since).as_secs();
        if seconds > 0 {
            self.lines = self.lines.saturating_add(seconds).min(BURST);
            self.since = Some(since + Duration::from_secs(seconds));
        }
        let Some(lines) = self.lines.checked_sub(1) else {
            self.left_out += 1;
            return None;
        };
        self.lines = lines;
        Some(LeftOut(std::mem::take(&mut self.left_out)))
    }
}

/// How many lines were left out before this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut(u64);

impl LeftOut {
    /// Returns the value for a field of an event. The field is absent if no line was left out.
    pub(crate) fn field(self) -> Option<u64> {
        Some(self.0).filter(|left_out| *left_out > 0)
    }
}

/// Writes the text for the end of a line. It is empty if no line was left out.
impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.field().map_or(Ok(()), |left_out| write!(f, " ({left_out} more were left out)"))
    }
}

/// Writes a line to stderr if no `tracing` subscriber is installed. With a subscriber, an event
/// next to each call carries the same information.
pub(crate) fn log_without_subscriber(text: &str) {
    if tracing::dispatcher::has_been_set() {
        return;
    }
    write_to_stderr(&entry(text));
}

/// Returns an entry of the log for people, with its line feed. Errors may have several lines, such
/// as those of templates. All lines but the first are indented, so that a text of a peer, which an
/// error may quote, cannot look like a separate entry. Other control characters are escaped.
fn entry(text: &str) -> String {
    let mut entry = String::with_capacity(text.len() + 1);
    for (index, line) in text.trim_end().split('\n').enumerate() {
        if index > 0 {
            entry.push_str("\n    ");
        }
        for part in line.split_inclusive(['"', '\t']) {
            match part.strip_suffix(['"', '\t']) {
                Some(plain) => {
                    escape(&mut entry, plain);
                    entry.push_str(&part[plain.len()..]);
                }
                None => escape(&mut entry, part),
            }
        }
    }
    entry.push('\n');
    entry
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_admitted_and_then_one_line_per_second_with_the_count_of_the_others() {
        let (mut budget, start) = (Budget::new(), Instant::now());
        let mut admit = |milliseconds| budget.admit(start + Duration::from_millis(milliseconds));
        for _ in 0..BURST {
            assert_eq!(admit(0), Some(LeftOut(0)));
        }
        for _ in 0..500 {
            assert_eq!(admit(999), None);
        }
        assert_eq!(admit(1000), Some(LeftOut(500)));
        assert_eq!(admit(1999), None);
        assert_eq!(admit(2000), Some(LeftOut(1)), "the time of a line is not lost");
        for _ in 0..BURST {
            assert_eq!(admit(100_000), Some(LeftOut(0)));
        }
        assert_eq!(admit(100_000), None);
    }

    #[test]
    fn a_route_has_its_own_lines() {
        let throttle = RouteThrottle::default();
        let admitted = (0..500).filter(|_| throttle.admit("/busy").is_some()).count();
        assert!((10..100).contains(&admitted), "{admitted}");
        assert_eq!(throttle.admit("/other"), Some(LeftOut(0)));
    }

    #[test]
    fn an_entry_keeps_its_lines_and_quotes_but_no_control_characters() {
        for (text, expected) in [
            ("GET / failed: \"a\"", "GET / failed: \"a\"\n"),
            ("a\n 1 | {{ b }}\n", "a\n     1 | {{ b }}\n"),
            ("a\nGET /admin failed: x", "a\n    GET /admin failed: x\n"),
            ("a\r\nb\x1b[2J\u{2028}\\", "a\\x0d\n    b\\x1b[2J\\xe2\\x80\\xa8\\\\\n"),
            ("a\tb", "a\tb\n"),
            ("", "\n"),
        ] {
            assert_eq!(entry(text), expected);
        }
    }
}
