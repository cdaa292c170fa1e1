//! Responses whose content is read while it is sent.

use std::fs::File;
use std::io::{self, Read};

use bytes::Bytes;
use filoplume_runtime::Response;
use filoplume_runtime::pushed::Pushed;

use crate::core::error::Result;
use crate::core::response::IntoResponse;

/// Content that is read from a reader while it is sent, in constant memory. The reader may block.
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::response::Reader;
/// use std::io::Cursor;
///
/// let app = App::new().get("/report", || Reader::new(Cursor::new("line by line")));
/// app.test().get("/report").send().assert_text("line by line");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Reader<R> {
    reader: R,
    length: Option<u64>,
}

impl<R: Read + Send + 'static> Reader<R> {
    /// Returns content of unknown length. It is sent in chunks until the reader ends.
    pub fn new(reader: R) -> Self {
        Self { reader, length: None }
    }

    /// Returns content of `length` bytes. If the reader ends early, the connection is closed, so
    /// that the client can detect it.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use filoplume::response::Reader;
    /// use std::io;
    ///
    /// let app = App::new().get("/zeros", || Reader::sized(io::repeat(b'0'), 3));
    /// app.test().get("/zeros").send().assert_header("content-length", "3").assert_text("000");
    /// ```
    pub fn sized(reader: R, length: u64) -> Self {
        Self { reader, length: Some(length) }
    }
}

impl<R: Read + Send + 'static> IntoResponse for Reader<R> {
    const SAYS_STATUS: bool = false;

    fn into_response(self) -> Result<Response> {
        let mut response = Response::default();
        match self.length {
            Some(length) => response.set_reader(self.reader, length),
            None => response.set_stream(self.reader),
        };
        Ok(response)
    }
}

/// The pieces of an iterator, sent in chunks. The iterator may block. It is asked for the next
/// piece when the client has taken the one before. An error cuts the response short, so that the
/// client can detect it.
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::response::Pieces;
///
/// let app =
///     App::new().get("/lines", || Pieces((1..=3).map(|number| Ok(format!("line {number}\n")))));
/// app.test().get("/lines").send().assert_text("line 1\nline 2\nline 3\n");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Pieces<I>(pub I);

impl<B, I> IntoResponse for Pieces<I>
where
    B: Into<Bytes>,
    I: IntoIterator<Item = io::Result<B>>,
    I::IntoIter: Send + 'static,
{
    const SAYS_STATUS: bool = false;

    fn into_response(self) -> Result<Response> {
        let mut response = Response::default();
        response.set_iterator(self.0);
        Ok(response)
    }
}

/// A body that other threads push. The handler sets the type: `([("content-type", ..)], body)`.
impl IntoResponse for Pushed {
    const SAYS_STATUS: bool = false;

    fn into_response(self) -> Result<Response> {
        let mut response = Response::default();
        response.set_pushed(self);
        Ok(response)
    }
}

/// Sends the content of the file from its current position. The handler sets the type:
/// `([("content-type", ..)], file)`.
impl IntoResponse for File {
    const SAYS_STATUS: bool = false;

    fn into_response(mut self) -> Result<Response> {
        let length = self.metadata()?.len();
        let position = io::Seek::stream_position(&mut self)?;
        let mut response = Response::default();
        response.set_file(self, position, length.saturating_sub(position));
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use std::io::{Seek, SeekFrom, Write};

    use filoplume_runtime::ResponseBody;

    use super::*;

    #[test]
    fn a_file_is_sent_from_its_position_to_its_end() {
        for (position, expected) in [(0, 5), (2, 3), (9, 0)] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(b"12345").unwrap();
            file.seek(SeekFrom::Start(position)).unwrap();
            let length = match file.into_response().unwrap().body() {
                ResponseBody::File { length, .. } | ResponseBody::Sized { length, .. } => *length,
                ResponseBody::Empty => 0,
                body => panic!("{body:?}"),
            };
            assert_eq!(length, expected, "from {position}");
        }
    }
}
