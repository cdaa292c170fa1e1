//! Takes a form apart as it arrives (RFC 2046, 5.1.1), in constant memory.
//!
//! A delimiter is `CRLF "--" boundary` wherever it stands: RFC 2046 wants no more than the
//! beginning of a line to be equal. If neither the end of the line nor `--` follows, the form is
//! refused: whoever looked at it before, such as a filter, may have read it the other way.

use std::io::{ErrorKind, Read};

use memchr::{memmem, memrchr};

use super::super::ContentRejection;
use super::head::PartHead;
use super::limits::MultipartLimits;
use super::rejection::{MultipartProblem, MultipartRejection};

/// Bytes asked for at once: as many as the engine reads ahead.
const READ_BYTES: usize = 16 * 1024;

/// Most white space behind a boundary. Gateways of mail once added some; nobody sends more than a
/// few bytes.
const PADDING_BYTES_MAX: usize = 256;

const CRLF: &[u8] = b"\r\n";

type Result<T> = std::result::Result<T, MultipartRejection>;

/// A form on its way in.
pub(super) struct Parser<R> {
    reader: R,
    pub(super) limits: MultipartLimits,
    /// Finds `CRLF "--" boundary`.
    delimiter: memmem::Finder<'static>,
    buffer: Vec<u8>,
    /// What was read and not used: from here to the end of the buffer.
    start: usize,
    /// Bytes used before `start`, the `CRLF` that is put before the content included.
    used: u64,
    /// Bytes that came from the reader.
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
    /// In the content of a part; before the first part in the preamble, which is skipped as an
    /// unread part is.
    Content {
        /// So many of the next bytes are content.
        ready: usize,
        /// Behind them stands a delimiter.
        is_delimited: bool,
    },
    /// Behind the final delimiter. What follows means nothing.
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
            // The first delimiter may stand at the very beginning.
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

    /// Goes to the next part; `false` if there is none.
    pub(super) fn next_part(&mut self) -> Result<bool> {
        self.guard(Self::go_to_part)
    }

    /// Returns content of the part that is there already, or reads some first; empty at its end.
    pub(super) fn content(&mut self) -> Result<&[u8]> {
        let ready = self.guard(Self::ready)?;
        Ok(&self.buffer[self.start..self.start + ready])
    }

    /// Says how much of the [content](Self::content) was used.
    pub(super) fn consume(&mut self, count: usize) {
        let State::Content { ready, .. } = &mut self.state else { return };
        let count = count.min(*ready);
        *ready -= count;
        self.advance(count);
        self.field_bytes += count as u64;
    }

    /// Nothing goes on after a failure: what follows would be read as something that it is not.
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

    fn go_to_part(&mut self) -> Result<bool> {
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

    /// Reads what stands behind a delimiter: `--`, or white space up to the end of the line, which
    /// is left there.
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

    /// Reads the head, which begins with the end of the delimiter's line, up to its empty line.
    fn read_head(&mut self) -> Result<()> {
        let mut seen: usize = 0;
        let end = loop {
            // The end may have begun in what was seen before.
            let from = seen.saturating_sub(3);
            let unread = self.unread();
            let found = memmem::find(&unread[from..], b"\r\n\r\n").map(|at| from + at);
            // The first line end is the delimiter's. The last three bytes may be those of the end.
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

    /// Goes behind the empty line, unless it is the beginning of a delimiter: then there is no
    /// content.
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

    /// Returns how many of the next bytes are content, some if there are any.
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
            let ready = found.unwrap_or_else(|| self.unread().len() - self.begun_delimiter());
            self.state = State::Content { ready, is_delimited: found.is_some() };
            if ready == 0 && found.is_none() {
                self.fill()?;
            }
        }
    }

    /// How many bytes at the end may be the beginning of a delimiter. It has one CR, at its
    /// beginning: only the last one can be that.
    fn begun_delimiter(&self) -> usize {
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

    /// Reads more, at least one byte.
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
