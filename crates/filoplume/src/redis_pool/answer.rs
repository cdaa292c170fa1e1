//! Reads what a Redis server sends, within bounds.
//!
//! The parser of the `redis` crate collects a whole answer, however long it is: a server that never
//! ends a line, a text or an array would fill the memory. Here nothing is kept beyond a bound, and
//! no memory is given for a length that was only announced.

use std::io::{self, BufRead, Read};

use redis::{RedisError, RedisResult, Value};

/// Longest line: a number, a status or an error.
const LINE_BYTES_MAX: usize = 16 * 1024;

/// How deep arrays are nested at most. No command that is used here has arrays within arrays.
const DEPTH_MAX: usize = 4;

/// Longest name of a channel, and longest word that tells the kind of a message.
const NAME_BYTES_MAX: u64 = 16 * 1024;

/// Longest message of a channel that is skipped. Redis disconnects a subscriber for whom half as
/// many bytes wait.
const SKIPPED_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Reads one answer. It takes at most about this many bytes of memory.
///
/// # Errors
///
/// If the answer is too long or malformed, or cannot be read. The connection must not be used
/// again.
pub(super) fn read_answer(input: &mut impl BufRead, bytes_max: usize) -> RedisResult<Value> {
    Answer { input, bytes_left: bytes_max }.value(0)
}

/// What arrives on a connection with subscriptions.
#[derive(Debug, PartialEq)]
pub(crate) enum Event {
    Message {
        channel: String,
        content: Vec<u8>,
    },
    /// A message that was skipped.
    TooLong {
        channel: String,
        bytes: u64,
    },
    Subscribed(String),
    Unsubscribed,
    Pong,
}

/// Reads one event. A content that is longer than this many bytes is skipped.
///
/// # Errors
///
/// If it is malformed, far too long, or an error of the server, or if it cannot be read. The
/// connection must not be used again.
pub(super) fn read_event(input: &mut impl BufRead, bytes_max: usize) -> RedisResult<Event> {
    let mut answer = Answer { input, bytes_left: usize::MAX };
    let line = answer.line()?;
    match line.as_slice() {
        b"*3" | b"*2" => {}
        [b'-', ..] => return Err(server_error(&line)?.extract_error().err().unwrap_or_else(odd)),
        _ => return Err(odd()),
    }
    let kind = answer.text()?;
    match kind.as_str() {
        "message" => answer.message(bytes_max),
        "subscribe" => {
            let channel = answer.text()?;
            answer.line().map(|_| Event::Subscribed(channel))
        }
        "unsubscribe" => answer.text().and_then(|_| answer.line()).map(|_| Event::Unsubscribed),
        "pong" => answer.text().map(|_| Event::Pong),
        _ => Err(odd()),
    }
}

struct Answer<'a, R> {
    input: &'a mut R,
    /// How much memory the rest of the answer may take.
    bytes_left: usize,
}

impl<R: BufRead> Answer<'_, R> {
    fn value(&mut self, depth: usize) -> RedisResult<Value> {
        self.take(size_of::<Value>())?;
        let line = self.line()?;
        let Some((kind, rest)) = line.split_first() else { return Err(odd()) };
        match kind {
            b'+' if rest == b"OK" => Ok(Value::Okay),
            b'+' => Ok(Value::SimpleString(String::from_utf8_lossy(rest).into_owned())),
            b'-' => server_error(&line),
            b':' => Ok(Value::Int(number(rest)?)),
            b'$' => match length_in(rest)? {
                Some(bytes) => self.content(bytes).map(Value::BulkString),
                None => Ok(Value::Nil),
            },
            b'*' if depth < DEPTH_MAX => match length_in(rest)? {
                Some(count) => (0..count)
                    .map(|_| self.value(depth + 1))
                    .collect::<RedisResult<_>>()
                    .map(Value::Array),
                None => Ok(Value::Nil),
            },
            _ => Err(odd()),
        }
    }

    fn message(&mut self, bytes_max: usize) -> RedisResult<Event> {
        let channel = self.text()?;
        let bytes = self.length()?.ok_or_else(odd)?;
        if bytes > bytes_max as u64 {
            self.skip(bytes)?;
            return Ok(Event::TooLong { channel, bytes });
        }
        Ok(Event::Message { channel, content: self.content(bytes)? })
    }

    /// Reads a line, without its end.
    fn line(&mut self) -> RedisResult<Vec<u8>> {
        let mut line = Vec::new();
        self.input.by_ref().take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\r\n") {
            let is_cut = line.len() < LINE_BYTES_MAX && !line.ends_with(b"\n");
            return Err(if is_cut { ended() } else { odd() });
        }
        line.truncate(line.len() - 2);
        self.take(line.len())?;
        Ok(line)
    }

    /// Reads the line before a content. Returns `None` for one that is absent.
    fn length(&mut self) -> RedisResult<Option<u64>> {
        let line = self.line()?;
        let length = line.strip_prefix(b"$").ok_or_else(odd)?;
        length_in(length)
    }

    /// Reads a short text.
    fn text(&mut self) -> RedisResult<String> {
        let bytes = self.length()?.ok_or_else(odd)?;
        if bytes > NAME_BYTES_MAX {
            return Err(too_long());
        }
        String::from_utf8(self.content(bytes)?).map_err(|_| odd())
    }

    /// Reads a content and the end of its line.
    fn content(&mut self, bytes: u64) -> RedisResult<Vec<u8>> {
        self.take(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        let mut content = Vec::new();
        self.input.by_ref().take(bytes).read_to_end(&mut content)?;
        if (content.len() as u64) < bytes {
            return Err(ended());
        }
        self.end_line()?;
        Ok(content)
    }

    fn skip(&mut self, bytes: u64) -> RedisResult<()> {
        if bytes > SKIPPED_BYTES_MAX {
            return Err(too_long());
        }
        if io::copy(&mut self.input.by_ref().take(bytes), &mut io::sink())? < bytes {
            return Err(ended());
        }
        self.end_line()
    }

    fn end_line(&mut self) -> RedisResult<()> {
        let mut end = [0; 2];
        self.input.read_exact(&mut end)?;
        if end == *b"\r\n" { Ok(()) } else { Err(odd()) }
    }

    fn take(&mut self, bytes: usize) -> RedisResult<()> {
        self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or_else(too_long)?;
        Ok(())
    }
}

fn number(text: &[u8]) -> RedisResult<i64> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(odd)
}

/// Returns `None` for a negative length, which stands for something that is absent.
fn length_in(text: &[u8]) -> RedisResult<Option<u64>> {
    number(text).map(|length| u64::try_from(length).ok())
}

/// Returns an error that the server has answered. Only the `redis` crate can make one.
fn server_error(line: &[u8]) -> RedisResult<Value> {
    redis::parse_redis_value(&[line, b"\r\n"].concat())
}

fn too_long() -> RedisError {
    invalid("its answer is too long")
}

fn odd() -> RedisError {
    invalid("its answer is not one of Redis")
}

fn ended() -> RedisError {
    io::Error::from(io::ErrorKind::UnexpectedEof).into()
}

fn invalid(message: &str) -> RedisError {
    io::Error::new(io::ErrorKind::InvalidData, message).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(bytes: &str) -> Result<Value, String> {
        read_answer(&mut bytes.as_bytes(), 1000).map_err(|error| error.to_string())
    }

    #[test]
    fn answers_of_each_type_are_read() {
        let text = |text: &str| Value::BulkString(text.into());
        for (bytes, expected) in [
            ("+OK\r\n", Value::Okay),
            ("+PONG\r\n", Value::SimpleString("PONG".to_owned())),
            (":-7\r\n", Value::Int(-7)),
            ("$-1\r\n", Value::Nil),
            ("*-1\r\n", Value::Nil),
            ("$5\r\na\r\nbc\r\n", text("a\r\nbc")),
            (
                "*2\r\n*1\r\n$1\r\nx\r\n:1\r\n",
                Value::Array(vec![Value::Array(vec![text("x")]), Value::Int(1)]),
            ),
        ] {
            assert_eq!(answer(bytes), Ok(expected), "{bytes}");
        }
        let Ok(Value::ServerError(error)) = answer("-NOSCRIPT no such script\r\n") else {
            panic!()
        };
        assert_eq!((error.code(), error.details()), ("NOSCRIPT", Some("no such script")));
    }

    /// A server that sends something again and again, without an end.
    struct Endless {
        sent: Vec<u8>,
        at: usize,
        repeated_from: usize,
        read: usize,
    }

    impl Endless {
        fn new(beginning: &str, repeated: &str) -> io::BufReader<Self> {
            let sent = [beginning, &repeated.repeat(1000)].concat().into_bytes();
            let (at, read, repeated_from) = (0, 0, beginning.len());
            io::BufReader::new(Self { sent, at, repeated_from, read })
        }
    }

    impl Read for Endless {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            if self.at == self.sent.len() {
                self.at = self.repeated_from;
            }
            let count = (&self.sent[self.at..]).read(into)?;
            self.at += count;
            self.read += count;
            assert!(self.read < 1_000_000, "it reads on");
            Ok(count)
        }
    }

    /// Regression: the whole answer was collected, and filled the memory.
    #[test]
    fn an_answer_without_an_end_is_given_up() {
        for (beginning, repeated) in [
            ("+", "x"),
            ("-ERR ", "x"),
            (":", "1"),
            ("$400000000000\r\n", "x"),
            ("$9223372036854775807\r\n", "x"),
            ("*400000000000\r\n", ":1\r\n"),
            ("*9223372036854775807\r\n", "$-1\r\n"),
            ("*1000\r\n", "$900\r\nx"),
            ("", "*1\r\n"),
        ] {
            let error = read_answer(&mut Endless::new(beginning, repeated), 100_000).unwrap_err();
            assert!(error.is_io_error(), "{beginning}: {error}");
        }
        for (beginning, repeated) in [
            ("*3\r\n$", "1"),
            ("*3\r\n$7\r\nmessage\r\n$100000\r\n", "x"),
            ("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$100000000\r\n", "x"),
            ("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:", "1"),
        ] {
            let error = read_event(&mut Endless::new(beginning, repeated), 1000).unwrap_err();
            assert!(error.is_io_error(), "{beginning}: {error}");
        }
    }

    #[test]
    fn an_answer_that_is_malformed_or_cut_is_an_error() {
        let whole = "*2\r\n$3\r\nabc\r\n:12\r\n";
        assert!(answer(whole).is_ok());
        for end in 0..whole.len() {
            assert!(answer(&whole[..end]).is_err(), "{end}");
        }
        for bytes in ["\r\n", "x\r\n", ":x\r\n", "$3\r\nabcd\r\n", "%1\r\n+a\r\n+b\r\n", "$\r\n"] {
            assert!(answer(bytes).is_err(), "{bytes}");
        }
    }

    fn events(bytes: &str) -> Vec<Event> {
        let mut input = bytes.as_bytes();
        std::iter::from_fn(|| read_event(&mut input, 5).ok()).collect()
    }

    #[test]
    fn a_message_that_is_too_long_is_skipped_and_the_next_one_is_read() {
        let message = |content: &str| {
            format!("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n${}\r\n{content}\r\n", content.len())
        };
        let bytes = [
            "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n",
            &message("short"),
            &message("longer"),
            "*2\r\n$4\r\npong\r\n$0\r\n\r\n",
            &message(""),
            "*3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n",
        ];
        let channel = || "c".to_owned();
        assert_eq!(
            events(&bytes.concat()),
            [
                Event::Subscribed(channel()),
                Event::Message { channel: channel(), content: b"short".to_vec() },
                Event::TooLong { channel: channel(), bytes: 6 },
                Event::Pong,
                Event::Message { channel: channel(), content: Vec::new() },
                Event::Unsubscribed,
            ]
        );
    }

    #[test]
    fn an_error_instead_of_an_event_is_that_of_the_server() {
        let error = read_event(&mut &b"-NOPERM no channel\r\n"[..], 5).unwrap_err();
        assert_eq!((error.code(), error.detail()), (Some("NOPERM"), Some("no channel")));
    }

    #[test]
    fn the_name_of_a_channel_has_a_largest_length() {
        let of = |bytes: u64| {
            let name = "c".repeat(usize::try_from(bytes).unwrap());
            let event = format!("*3\r\n$7\r\nmessage\r\n${bytes}\r\n{name}\r\n$0\r\n\r\n");
            read_event(&mut event.as_bytes(), 5).is_ok()
        };
        assert!(of(NAME_BYTES_MAX) && !of(NAME_BYTES_MAX + 1));
    }
}
