//! Saving a content as a file.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::{Body, ContentStream, Kind};
use crate::transport::splice::Pipe;

/// The size of the pieces that are read and written.
const PIECE_BYTES: usize = 64 * 1024;

/// Both ends of a pipe.
const PIPE_DESCRIPTORS: usize = 2;

/// The shortest rest of a content for which the system is asked to move it. A shorter rest is read
/// and written with as few calls as it takes to make a pipe.
const SPLICE_BYTES_MIN: u64 = 256 * 1024;

/// After a move of less than this, the thread pauses, so that the next one moves more. Otherwise it
/// wakes for each packet of a fast peer: on loopback that was a fifth slower, with four times as
/// many calls.
const FULL_MOVE_BYTES: usize = 128 * 1024;

/// The pause. It costs a slow peer nothing, since what it sends meanwhile waits in the socket.
const PAUSE: Duration = Duration::from_micros(50);

impl Body {
    /// Writes the rest of the content to a new file, and returns its length. An existing file is
    /// not overwritten. If writing fails, the new file is removed.
    ///
    /// Memory stays the same whatever the length. On Linux, the system moves a content of declared
    /// length from the socket into the file by itself if there is no TLS, which costs less than to
    /// read and write it.
    ///
    /// ```
    /// use filoplume_runtime::{Request, Response};
    ///
    /// fn store(mut request: Request) -> Response {
    ///     match request.body_mut().save_to("17.upload") { // a name of our own
    ///         Ok(length) => Response::from(format!("{length} bytes are kept")),
    ///         Err(_) => Response::new(500),
    ///     }
    /// }
    /// # let _service: Box<dyn filoplume_runtime::Service> = Box::new(store);
    /// ```
    ///
    /// # Errors
    ///
    /// If the file exists or cannot be written, and the errors of a read.
    /// [`ContentError`](crate::ContentError) tells them apart.
    pub fn save_to(&mut self, path: impl AsRef<Path>) -> io::Result<u64> {
        let path = path.as_ref();
        let file = File::create_new(path).map_err(|error| at(path, "create", &error))?;
        let saved = self.copy_to(&file, path);
        if saved.is_err() {
            drop(file);
            // The handler receives the first error.
            if let Err(error) = fs::remove_file(path) {
                let path = path.display();
                tracing::warn!(%path, %error, "an incomplete upload could not be removed");
            }
        }
        saved
    }

    fn copy_to(&mut self, mut file: &File, path: &Path) -> io::Result<u64> {
        #[cfg(feature = "spool")]
        if let Some(Kind::Spooled(spooled)) = self.kind.as_deref_mut() {
            return spooled.copy_to(file).map_err(|error| at(path, "write", &error));
        }
        let mut copied = 0;
        let mut piece = vec![0; PIECE_BYTES];
        let mut is_spliced = false;
        loop {
            // Not at first, because the start of the content is in memory.
            if !is_spliced && self.at_socket() >= SPLICE_BYTES_MIN {
                is_spliced = true;
                copied += self.splice_to(file, path)?;
            }
            let read = self.read(&mut piece)?;
            if read == 0 {
                return Ok(copied);
            }
            let piece = piece.get(..read).unwrap_or_default();
            file.write_all(piece).map_err(|error| at(path, "write", &error))?;
            copied += read as u64;
        }
    }

    /// Returns how many bytes the system could move, because they are not in memory yet.
    fn at_socket(&self) -> u64 {
        match self.kind.as_deref() {
            Some(Kind::Stream(stream)) => stream.at_socket(),
            _ => 0,
        }
    }

    /// Lets the system move the content into a file as far as it can. The rest has to be read.
    fn splice_to(&mut self, file: &File, path: &Path) -> io::Result<u64> {
        let Some(Kind::Stream(stream)) = self.kind.as_deref_mut() else { return Ok(0) };
        let Ok(mut pipe) = Pipe::new() else { return Ok(0) };
        if let Some(held) = stream.held_mut() {
            held.add(PIPE_DESCRIPTORS);
        }
        let moved = move_through(&mut pipe, stream, file, path);
        drop(pipe);
        if let Some(held) = stream.held_mut() {
            held.remove(PIPE_DESCRIPTORS);
        }
        moved
    }
}

/// Adds the path to an error. The system's message does not contain it.
fn at(path: &Path, verb: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {verb} {}: {error}", path.display()))
}

fn move_through(
    pipe: &mut Pipe,
    stream: &mut ContentStream,
    file: &File,
    path: &Path,
) -> io::Result<u64> {
    let mut moved = 0;
    while pipe.is_of_use() {
        let Some(length) = stream.splice(pipe)? else { break };
        pipe.empty_into(file, length).map_err(|error| at(path, "write", &error))?;
        moved += length as u64;
        if length < FULL_MOVE_BYTES && stream.at_socket() > 0 {
            thread::sleep(PAUSE);
        }
    }
    Ok(moved)
}
