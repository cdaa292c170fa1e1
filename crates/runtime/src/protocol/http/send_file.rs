//! Response bodies that are files: sent by the system where it can, and read otherwise.

use std::fs::File;
use std::io::{self, Read};

use super::send_framing::SendFraming;
use super::{Http, Stage};
use crate::service::file_body::FileBody;

/// Maximum number of bytes read from a body's reader at once.
pub(super) const PUMP_BYTES: usize = 64 * 1024;

/// Maximum number of bytes that the system sends at once. It sends them in some tens of
/// microseconds if they are in memory, and otherwise waits for the disk, as a read does.
const SEND_BYTES: u64 = 256 * 1024;

/// Where the body of a response comes from.
pub(super) enum Source {
    Reader(Box<dyn Read + Send>),
    /// A file. The system may send it. If `is_read`, the rest is read.
    File {
        content: Box<dyn FileBody>,
        is_read: bool,
    },
}

/// The result of sending a piece of a file.
pub(crate) enum FileSent {
    /// Some bytes were sent.
    Some,
    /// The socket takes no more at the moment.
    WouldBlock,
    /// The next piece has to be read.
    Unsupported,
    /// The response is broken off.
    Failed(io::Error),
}

impl Source {
    pub(super) fn reader(&mut self) -> &mut dyn Read {
        match self {
            Self::Reader(reader) => reader,
            Self::File { content, .. } => content,
        }
    }
}

impl Http {
    /// Lets `send` send the next piece of a file: it takes the file, an offset and a length, and
    /// returns how many bytes were sent. This runs the program's code, and may wait for the disk.
    ///
    /// The last piece is never sent like this. It is read, so that an error of the file that only
    /// shows then still breaks the response off.
    pub(crate) fn send_file(
        &mut self,
        send: impl FnOnce(&File, u64, usize) -> io::Result<usize>,
    ) -> FileSent {
        let Stage::Sending(sending) = &mut self.stage else { return FileSent::Unsupported };
        // Only a body with a length consists of nothing but bytes of the file.
        let (Source::File { content, is_read: is_read @ false }, SendFraming::Length { left }) =
            (&mut sending.source, &mut sending.framing)
        else {
            return FileSent::Unsupported;
        };
        let length = left.saturating_sub(PUMP_BYTES as u64).min(SEND_BYTES);
        let Some((file, offset)) = content.part().filter(|_| length > 0) else {
            return FileSent::Unsupported;
        };
        match send(file, offset, usize::try_from(length).unwrap_or(PUMP_BYTES)) {
            Ok(sent @ 1..) => {
                *left -= sent as u64;
                let Err(error) = content.advance(sent as u64) else { return FileSent::Some };
                self.break_off();
                FileSent::Failed(error)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => FileSent::WouldBlock,
            // The file is shorter than it was, the system cannot send it, or there is another
            // error. If the reason persists, the next read or the write after it fails, which shows
            // whether the file or the socket is the cause.
            Ok(0) | Err(_) => {
                *is_read = true;
                FileSent::Unsupported
            }
        }
    }
}
