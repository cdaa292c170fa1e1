//! Reads the conformance corpus: cases in Markdown, in the format that `tests/corpus/README.md`
//! describes.
//!
//! `filoplume-http1` includes this file in its tests, so it uses only the standard library.

use std::fmt::{self, Write as _};
use std::fs;
use std::iter;
use std::ops::Range;
use std::path::Path;

/// One input and its expected events.
#[derive(Clone, Debug)]
pub struct Case {
    /// The name of its file.
    pub file: String,
    /// The line of its heading, counted from one.
    pub line: usize,
    /// Its heading.
    pub name: String,
    /// The bytes that the peer sends.
    pub input: Vec<u8>,
    /// The expected events, one per line.
    pub events: Vec<String>,
    /// The lines of the file in which the events are, counted from zero.
    pub events_at: Range<usize>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tests/corpus/{}:{} \"{}\"", self.file, self.line, self.name)
    }
}

impl Case {
    /// Returns the events of each message. The last event of a message is its outcome.
    pub fn messages(&self) -> impl Iterator<Item = &[String]> {
        self.events.split_inclusive(|event| Outcome::of(event).is_some())
    }
}

/// What happens to the connection after a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Another message may follow.
    KeepAlive,
    /// The message is accepted, and bytes after it are ignored.
    Close,
    /// The message is refused with this status, and bytes after it are ignored.
    Refused(u16),
    /// The input ends within a message.
    Waiting,
}

impl Outcome {
    /// Returns the outcome that an event states, if any.
    pub fn of(event: &str) -> Option<Self> {
        let mut words = event.split(' ');
        match words.next()? {
            "keep-alive" => Some(Self::KeepAlive),
            "close" => Some(Self::Close),
            "refused" => words.next()?.parse().ok().map(Self::Refused),
            "waiting" => Some(Self::Waiting),
            _ => None,
        }
    }
}

/// Returns all cases of a folder, ordered by file name.
///
/// # Panics
///
/// Panics if a file does not have the format, or two cases of a file have the same name.
pub fn read_corpus(folder: &Path) -> Vec<Case> {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut names: Vec<String> = entries
        .map(|entry| {
            entry.expect("a folder can be listed").file_name().to_string_lossy().into_owned()
        })
        .filter(|name| name.ends_with(".md") && name != "README.md")
        .collect();
    names.sort();
    names
        .iter()
        .flat_map(|name| {
            let text = fs::read_to_string(folder.join(name))
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            let cases = read_cases(name, &text);
            for (index, case) in cases.iter().enumerate() {
                let is_new = cases.iter().take(index).all(|other| other.name != case.name);
                assert!(is_new, "{case}: another case has this name");
            }
            cases
        })
        .collect()
}

/// Returns the cases of one file.
fn read_cases(file: &str, text: &str) -> Vec<Case> {
    let lines: Vec<&str> = text.lines().collect();
    let headings = (0..lines.len()).filter(|&at| lines[at].starts_with("### "));
    let ends = headings.clone().skip(1).chain(iter::once(lines.len()));
    headings.zip(ends).map(|(start, end)| read_case(file, &lines, start..end)).collect()
}

fn read_case(file: &str, lines: &[&str], section: Range<usize>) -> Case {
    let name = lines[section.start].trim_start_matches("### ").to_owned();
    let place = format!("tests/corpus/{file}:{} \"{name}\"", section.start + 1);
    let input_at =
        block(lines, section.clone(), "http").unwrap_or_else(|| panic!("{place}: no http block"));
    let events_at = block(lines, input_at.end..section.end, "events");
    let events_at = events_at.unwrap_or_else(|| panic!("{place}: no events block"));

    let mut prose =
        lines[section.start + 1..input_at.start - 1].iter().filter(|line| !line.is_empty());
    let reason = prose.next().unwrap_or_else(|| panic!("{place}: no reason"));
    let is_reason = reason.split_once(": ").is_some_and(|(section, why)| {
        section.starts_with("RFC ") && section.contains(", ") && why.ends_with(['.', '?'])
    });
    assert!(is_reason, "{place}: the reason is not \"RFC number, section: sentence.\"");

    let input = lines[input_at].concat();
    let input = unescape(&input).unwrap_or_else(|wrong| panic!("{place}: {wrong}"));
    let events = lines[events_at.clone()].iter().map(|&line| line.to_owned()).collect();
    Case { file: file.to_owned(), line: section.start + 1, name, input, events, events_at }
}

/// Returns the lines of the first fenced block of that language.
fn block(lines: &[&str], section: Range<usize>, language: &str) -> Option<Range<usize>> {
    let fence = format!("```{language}");
    let start = section.clone().find(|&at| lines[at] == fence)? + 1;
    let end = (start..section.end).find(|&at| lines[at] == "```")?;
    Some(start..end)
}

/// Returns the bytes of escaped text.
fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at + 1..];
        let (escape, behind) = rest.split_at_checked(1).ok_or("a backslash at the end")?;
        rest = behind;
        match escape {
            "r" => bytes.push(b'\r'),
            "n" => bytes.push(b'\n'),
            "t" => bytes.push(b'\t'),
            "0" => bytes.push(0),
            "\\" => bytes.push(b'\\'),
            "x" => {
                let (digits, behind) = rest.split_at_checked(2).ok_or("\\x without two digits")?;
                bytes.push(
                    u8::from_str_radix(digits, 16)
                        .map_err(|error| format!("\\x{digits}: {error}"))?,
                );
                rest = behind;
            }
            "(" => {
                let (repeated, behind) = rest.split_once(')').ok_or("\\( without an end")?;
                let (times, piece) = repeated.split_once(' ').ok_or("\\( without a number")?;
                let times: usize = times.parse().map_err(|error| format!("\\({times}: {error}"))?;
                bytes.extend(unescape(piece)?.repeat(times));
                rest = behind;
            }
            other => return Err(format!("\\{other} is no escape")),
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    if text.is_ascii() { Ok(bytes) } else { Err("a byte outside of ASCII".into()) }
}

/// Longer values are shown by their length.
const SHOWN_BYTES_MAX: usize = 80;

/// Returns bytes as an event shows them.
pub fn shown(bytes: &[u8]) -> String {
    if bytes.len() > SHOWN_BYTES_MAX {
        return format!("({} bytes)", bytes.len());
    }
    let mut text = String::new();
    for &byte in bytes {
        match byte {
            b'\r' => text.push_str("\\r"),
            b'\n' => text.push_str("\\n"),
            b'\t' => text.push_str("\\t"),
            b'\\' => text.push_str("\\\\"),
            0 => text.push_str("\\0"),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => write!(text, "\\x{byte:02x}").expect("a string takes all"),
        }
    }
    text
}

/// Returns the event of a complete content.
pub fn shown_content(content: &[u8]) -> String {
    if content.is_empty() {
        "content 0".into()
    } else {
        format!("content {} {}", content.len(), shown(content))
    }
}

/// Returns the event of a field, or `None` for a field whose meaning is an event of its own.
pub fn shown_field(kind: &str, name: &str, value: &[u8]) -> Option<String> {
    let is_shown = !["host", "content-length", "transfer-encoding"]
        .iter()
        .any(|meaning| name.eq_ignore_ascii_case(meaning));
    let event = format!("{kind} {}: {}", shown(name.as_bytes()), shown(value));
    is_shown.then(|| event.trim_end().to_owned())
}

/// Returns the first events of a message: its request line and its host.
pub fn shown_head(
    method: &str,
    target: &str,
    minor_version: u8,
    authority: Option<&str>,
) -> Vec<String> {
    let line = format!("head {method} {} HTTP/1.{minor_version}", shown(target.as_bytes()));
    iter::once(line)
        .chain(authority.map(|host| format!("host {}", shown(host.as_bytes()))))
        .collect()
}
