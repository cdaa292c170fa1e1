//! The content of a request that comes from a reader of the program, such as a decoder.

use std::io::{self, Read};

use filoplume_http1::ParseError;
use parking_lot::Mutex;

use crate::buffers::Content;

/// A content of unknown length.
pub(super) struct ContentReader {
    /// Bytes that were read and put back.
    pub(super) prefix: Content,
    /// The lock is never taken. It makes a reader that is only `Send` also `Sync`.
    reader: Mutex<Box<dyn Read + Send>>,
    /// How many bytes may still be read.
    pub(super) bytes_left: u64,
    failed: bool,
}

impl ContentReader {
    pub(super) fn new(reader: Box<dyn Read + Send>) -> Self {
        Self {
            prefix: Content::default(),
            reader: Mutex::new(reader),
            bytes_left: u64::MAX,
            failed: false,
        }
    }

    fn read_unchecked(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = if self.prefix.is_empty() {
            self.reader.get_mut().read(buffer)?
        } else {
            let read = self.prefix.as_slice().read(buffer)?;
            self.prefix.advance(read);
            read
        };
        let too_long = || io::Error::new(io::ErrorKind::InvalidData, ParseError::ContentTooLong);
        self.bytes_left = self.bytes_left.checked_sub(read as u64).ok_or_else(too_long)?;
        Ok(read)
    }
}

impl Read for ContentReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.failed {
            return Err(io::Error::other("an earlier read of the content failed"));
        }
        let result = self.read_unchecked(buffer);
        self.failed =
            result.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::Interrupted);
        result
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::service::body::Body;

    fn read(body: &mut Body, length: usize) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; length];
        let read = body.read(&mut buffer)?;
        buffer.truncate(read);
        Ok(buffer)
    }

    #[test]
    fn a_bound_counts_what_is_read_and_what_is_put_back_is_read_again() {
        let mut body = Body::from_reader(Cursor::new(b"abcdefgh"));
        assert_eq!((body.len(), body.is_empty(), body.as_slice()), (None, false, None));
        body.bound(6);
        assert_eq!(read(&mut body, 3).unwrap(), b"abc");
        body.unread(b"bc");
        body.unread(b"a");
        assert_eq!(read(&mut body, 10).unwrap(), b"abc");
        assert_eq!(read(&mut body, 3).unwrap(), b"def");
        let error = read(&mut body, 1).unwrap_err();
        let parse_error = error.get_ref().and_then(|source| source.downcast_ref());
        assert_eq!(parse_error, Some(&ParseError::ContentTooLong));
        assert!(read(&mut body, 1).is_err(), "a failed content stays failed");
    }

    #[test]
    fn a_content_is_collected_up_to_its_limit() {
        let collected = |bytes_max| Body::from_reader(Cursor::new(b"abc")).into_bytes(bytes_max);
        assert_eq!(collected(3).unwrap(), "abc");
        assert_eq!(collected(2).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn an_interrupted_read_can_be_repeated() {
        struct Interrupted(bool);
        impl Read for Interrupted {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                if std::mem::replace(&mut self.0, false) {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                buffer[0] = b'a';
                Ok(1)
            }
        }
        let mut body = Body::from_reader(Interrupted(true));
        assert_eq!(read(&mut body, 1).unwrap_err().kind(), io::ErrorKind::Interrupted);
        assert_eq!(read(&mut body, 1).unwrap(), b"a");
    }
}
