//! A source of known length for an encoder.

use std::io::{self, Read};

/// A reader that fails if its source ends before `left` bytes were read. The client cannot notice
/// this itself, because a compressed response does not announce its length.
pub(super) struct ExactLengthReader {
    pub(super) reader: Box<dyn Read + Send>,
    pub(super) left: u64,
}

impl Read for ExactLengthReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let window = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if window == 0 {
            return Ok(0);
        }
        let read = self.reader.read(&mut buffer[..window])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left = self.left.saturating_sub(read as u64);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_ends_early_is_an_error() {
        let mut exact = ExactLengthReader { reader: Box::new(io::Cursor::new("abc")), left: 4 };
        assert_eq!(
            exact.read_to_end(&mut Vec::new()).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
        let mut exact = ExactLengthReader { reader: Box::new(io::Cursor::new("abcdef")), left: 4 };
        assert_eq!(io::read_to_string(&mut exact).unwrap(), "abcd");
    }
}
