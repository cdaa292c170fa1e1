//! Parses a form as it arrives (RFC 2046, 5.1.1), in constant memory.
//!
//! A delimiter is `CRLF "--" boundary` at any position: RFC 2046 compares only the beginning of a
//! line. If neither the end of the line nor `--` follows, the form is rejected, because another
//! reader, such as a filter, may have interpreted it the other way.

use std::io::{ErrorKind, Read};

use memchr::{memmem, memrchr};

use super::super::ContentRejection;
use super::head::PartHead;
use super::limits::MultipartLimits;
use super::rejection::{MultipartProblem, MultipartRejection};

/// The number of bytes that are read at once, which is what the engine reads ahead.
const READ_BYTES: usize = 16 * 1024;

/// The maximum whitespace after a boundary. Mail gateways used to add some; clients send a few
/// bytes at most.
const PADDING_BYTES_MAX: usize = 256;

const CRLF: &[u8] = b"\r\n";

type Result<T> = std::result::Result<T, MultipartRejection>;

/// A form that is being parsed.
pub(super) struct Parser<R> {
    reader: R,
    pub(super) limits: MultipartLimits,
    /// Finds `CRLF "--" boundary`.
    delimiter: memmem::Finder<'static>,
    buffer: Vec<u8>,
    /// The start of the unread input, which extends to the end of the buffer.
    start: usize,
    /// The number of bytes used before `start`, including the `CRLF` that is inserted before the
    /// content.
    used: u64,
    /// The number of bytes from the reader.
    received: u64,
    state: State,
    /// The number of the part, from 1.
    part: usize,
    /// The head of the part.
    pub(super) head: PartHead,
    /// How much of the part's content was used.
    field_bytes: u64,
}

enum State {
    /// In the content of a part. Before the first part, in the preamble, which is skipped like an
    /// unread part.
    Content {
        /// How many of the next bytes are content.
        ready: usize,
        /// Whether a delimiter follows them.
        is_delimited: bool,
    },
    /// After the final delimiter. The rest has no meaning.
    Complete,
    Failed(MultipartRejection),
}

const UNSEEN: State = State::Content { ready: 0, is_delimited: false };

impl<R: Read> Parser<R> {
    pub(super) fn new(reader: R, boundary: &str, limits: MultipartLimits) -> Self {
        let delimiter = [CRLF, b"--", boundary.as_bytes()].concat();
        Self {
            reader,
            limits,
            delimiter: memmem::Finder::new(&delimiter).into_owned(),
            // The first delimiter may be at the very beginning.
            buffer: CRLF.to_vec(),
            start: 0,
            used: 0,
            received: 0,
            state: UNSEEN,
            part: 0,
            head: PartHead::default(),
            field_bytes: 0,
        }
    }

    /// Advances to the next part. Returns `false` if there is none.
    pub(super) fn next_part(&mut self) -> Result<bool> {
        self.guard(Self::advance_to_part)
    }

    /// Returns buffered content of the part, and reads more if there is none. The result is empty
    /// at the end of the part.
    pub(super) fn content(&mut self) -> Result<&[u8]> {
        let ready = self.guard(Self::ready)?;
        Ok(&self.buffer[self.start..self.start + ready])
    }

    /// Marks bytes of the [content](Self::content) as used.
    pub(super) fn consume(&mut self, count: usize) {
        let State::Content { ready, .. } = &mut self.state else { return };
        let count = count.min(*ready);
        *ready -= count;
        self.advance(count);
        self.field_bytes += count as u64;
    }

    /// After a failure every call fails, because the following bytes could be misinterpreted.
    fn guard<T>(&mut self, step: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if let State::Failed(rejection) = &self.state {
            return Err(rejection.clone());
        }
        let result = step(self);
        if let Err(rejection) = &result {
            self.state = State::Failed(rejection.clone());
        }
        result
    }

    fn advance_to_part(&mut self) -> Result<bool> {
        if matches!(self.state, State::Complete) {
            return Ok(false);
        }
        loop {
            match self.ready()? {
                0 => break,
                skipped => self.consume(skipped),
            }
        }
        self.advance(self.delimiter.needle().len());
        if self.is_final()? {
            self.state = State::Complete;
            return Ok(false);
        }
        if self.part == self.limits.parts_max {
            return Err(MultipartRejection::TooManyParts { parts_max: self.limits.parts_max });
        }
        self.part += 1;
        self.read_head()?;
        self.begin_content()?;
        Ok(true)
    }

    /// Returns whether a delimiter is the final one, which `--` follows. After any other one,
    /// whitespace is skipped up to the end of the line, which is not consumed.
    fn is_final(&mut self) -> Result<bool> {
        loop {
            let unread = self.unread();
            if unread.starts_with(b"--") {
                return Ok(true);
            }
            let padding = unread.iter().take_while(|&&byte| byte == b' ' || byte == b'\t').count();
            let rest = &unread[padding..];
            if rest.starts_with(CRLF) && padding <= PADDING_BYTES_MAX {
                self.advance(padding);
                return Ok(false);
            }
            let may_go_on = rest.is_empty() || rest == b"\r" || (rest == b"-" && padding == 0);
            if !may_go_on || padding > PADDING_BYTES_MAX {
                return Err(self.malformed(MultipartProblem::Boundary));
            }
            self.fill()?;
        }
    }

    /// Reads the head up to its empty line. It begins with the end of the delimiter's line.
    fn read_head(&mut self) -> Result<()> {
        let mut seen: usize = 0;
        let end = loop {
            // The end may have begun in the bytes that were searched before.
            let from = seen.saturating_sub(3);
            let unread = self.unread();
            let found = memmem::find(&unread[from..], b"\r\n\r\n").map(|at| from + at);
            // The first line end belongs to the delimiter. The last three bytes may belong to the
            // end.
            if found.unwrap_or(unread.len().saturating_sub(3))
                > self.limits.head_bytes_max.saturating_add(CRLF.len())
            {
                return Err(self.head_too_long());
            }
            if let Some(end) = found {
                break end;
            }
            seen = unread.len();
            self.fill()?;
        };
        match PartHead::parse(&self.unread()[..end]) {
            Ok(head) => self.head = head,
            Err(problem) => return Err(self.malformed(problem)),
        }
        self.field_bytes = 0;
        self.advance(end + CRLF.len());
        Ok(())
    }

    /// Consumes the empty line, unless it begins a delimiter: then there is no content.
    fn begin_content(&mut self) -> Result<()> {
        let is_delimiter = loop {
            let (unread, delimiter) = (self.unread(), self.delimiter.needle());
            let length = unread.len().min(delimiter.len());
            if unread[..length] != delimiter[..length] {
                break false;
            }
            if length == delimiter.len() {
                break true;
            }
            self.fill()?;
        };
        if !is_delimiter {
            self.advance(CRLF.len());
        }
        self.state = UNSEEN;
        Ok(())
    }

    /// Returns how many of the next bytes are content. It reads until there are some, or the
    /// content ends.
    fn ready(&mut self) -> Result<usize> {
        loop {
            let State::Content { ready, is_delimited } = self.state else { return Ok(0) };
            if ready > 0 || is_delimited {
                let bytes_max = self.limits.field();
                if self.part > 0 && self.field_bytes + ready as u64 > bytes_max {
                    let field = self.head.name.clone();
                    return Err(MultipartRejection::FieldTooLong { field, bytes_max });
                }
                return Ok(ready);
            }
            let found = self.delimiter.find(self.unread());
            let ready =
                found.unwrap_or_else(|| self.unread().len() - self.partial_delimiter_length());
            self.state = State::Content { ready, is_delimited: found.is_some() };
            if ready == 0 && found.is_none() {
                self.fill()?;
            }
        }
    }

    /// Returns how many bytes at the end may be the beginning of a delimiter. A delimiter contains
    /// one CR, at its beginning, so only the last CR can begin it.
    fn partial_delimiter_length(&self) -> usize {
        let unread = self.unread();
        let begun = memrchr(b'\r', unread).map(|at| &unread[at..]);
        begun.filter(|begun| self.delimiter.needle().starts_with(begun)).map_or(0, <[u8]>::len)
    }

    fn unread(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    fn advance(&mut self, count: usize) {
        self.start += count;
        self.used += count as u64;
    }

    /// Reads at least one byte.
    fn fill(&mut self) -> Result<()> {
        self.buffer.drain(..self.start);
        self.start = 0;
        let length = self.buffer.len();
        self.buffer.resize(length + READ_BYTES, 0);
        let result = loop {
            match self.reader.read(&mut self.buffer[length..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => break result,
            }
        };
        self.buffer.truncate(length + *result.as_ref().unwrap_or(&0));
        let total_bytes_max = self.limits.total();
        let read =
            result.map_err(|error| match ContentRejection::of_read(error, total_bytes_max) {
                ContentRejection::TooLong { bytes_max } => {
                    MultipartRejection::TooLong { bytes_max }
                }
                rejection => MultipartRejection::Content(rejection),
            })?;
        if read == 0 {
            return Err(self.malformed(MultipartProblem::EndsEarly));
        }
        self.received += read as u64;
        if self.received > total_bytes_max {
            return Err(MultipartRejection::TooLong { bytes_max: total_bytes_max });
        }
        Ok(())
    }

    fn head_too_long(&self) -> MultipartRejection {
        MultipartRejection::HeadTooLong { part: self.part, bytes_max: self.limits.head_bytes_max }
    }

    fn malformed(&self, problem: MultipartProblem) -> MultipartRejection {
        let at = match problem {
            MultipartProblem::EndsEarly => self.received,
            _ => self.used.saturating_sub(CRLF.len() as u64),
        };
        MultipartRejection::Malformed { part: self.part, at, problem }
    }
}

#[cfg(test)]
mod tests;
