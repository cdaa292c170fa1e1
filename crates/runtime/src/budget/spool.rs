//! The files in which long contents wait until they are complete. All of them share one budget of
//! disk space.
//!
//! A content reserves its announced length when its file is created, so that what has begun can
//! also end; one of unknown length reserves each part before it is written. When half of the space
//! is reserved, slow uploads lose their connections, as if memory were short, and those that have
//! reserved much have to be faster than others.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;

use crate::budget::clients::ClientConnection;
use crate::budget::descriptors::HeldDescriptor;
use crate::budget::disk::Disk;
use crate::budget::freed::Freed;
use crate::budget::line::Line;
use crate::budget::memory::Memory;
use crate::budget::throttle::Throttle;

/// How many threads write to files at once. A disk is hardly faster with more, and one that hangs
/// holds up no more than these.
pub(crate) const WRITERS_MAX: usize = 4;

/// How many threads close long files. One at a time, because it is work for the disk.
pub(crate) const CLOSERS_MAX: usize = 1;

/// A client, if clients are counted, may reserve at most the whole space divided by this.
const CLIENT_SHARE: u64 = 4;

/// From this length on, a file is closed by a thread of its own: the file system may take tens of
/// milliseconds to free it, and the thread that drops it may be an event loop. Low in tests.
const LONG_BYTES: u64 = if cfg!(test) { 1 << 20 } else { 64 << 20 };

/// The disk space for contents that arrive, and the connections whose parts are written.
pub(crate) struct Spool<T> {
    pub(crate) space: Arc<SpoolSpace>,
    pub(crate) line: Line<T>,
    /// Long files that wait until a thread closes them.
    pub(crate) closing: Line<Box<Stored>>,
}

/// Hands a long file to a thread that closes it.
type Closer = Box<dyn Fn(Box<Stored>) + Send + Sync>;

/// The disk space for contents that arrive.
pub(crate) struct SpoolSpace {
    folder: PathBuf,
    bytes_max: u64,
    /// Whether the files lie in memory, and take much of it.
    is_memory: bool,
    /// The lock is held until the memory knows whether the space is short, so that the last of
    /// several changes decides.
    reserved: Mutex<u64>,
    written: AtomicU64,
    /// Is told when the space is short.
    memory: Arc<Memory>,
    closer: OnceLock<Closer>,
    /// For contents that cannot be written.
    log: Throttle,
    /// Locked once per file, when it is dropped, and for refusals.
    freed: Mutex<Freed>,
    started_at: Instant,
}

/// A content in a file without a name. Dropping it frees its space.
#[derive(Debug)]
pub(crate) struct SpoolFile {
    /// `None` only in `drop`.
    stored: Option<Box<Stored>>,
}

/// The file of a content, and what it takes. Dropped in this order.
#[derive(Debug)]
pub(crate) struct Stored {
    file: File,
    _held: HeldDescriptor,
    reservation: Reservation,
}

/// Disk space for a content. Dropping it gives the space back.
#[derive(Debug)]
struct Reservation {
    space: Arc<SpoolSpace>,
    /// The client that the bytes count for, if clients are counted.
    client: Option<Arc<ClientConnection>>,
    bytes: u64,
    /// How many of them are in the file.
    written: u64,
}

/// Why a content cannot be written to its file.
#[derive(Debug)]
pub(crate) enum SpoolError {
    /// The space is used up, or the share of the client.
    Full,
    /// There is no descriptor for the file.
    NoDescriptor,
    Failed(io::Error),
}

impl<T> Spool<T> {
    pub(crate) fn new(
        folder: Option<PathBuf>,
        bytes_max: Option<u64>,
        memory: &Arc<Memory>,
    ) -> Self {
        let space = SpoolSpace::new(folder, bytes_max, memory);
        space.warn_of_memory();
        Self {
            space,
            // No more can wait than there are connections.
            line: Line::new(WRITERS_MAX, usize::MAX),
            closing: Line::new(CLOSERS_MAX, usize::MAX),
        }
    }
}

impl<T> fmt::Debug for Spool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spool").field("space", &self.space).finish_non_exhaustive()
    }
}

impl SpoolSpace {
    /// Returns a budget of this many bytes, or of what the disk and the memory suggest.
    pub(crate) fn new(
        folder: Option<PathBuf>,
        bytes_max: Option<u64>,
        memory: &Arc<Memory>,
    ) -> Arc<Self> {
        let folder = folder.unwrap_or_else(std::env::temp_dir);
        let disk = Disk::of(&folder);
        // A program that chooses a smaller budget needs no warning.
        let suggested = disk.spooled_bytes_max(memory.bytes_max() as u64);
        let bytes_max = bytes_max.unwrap_or(suggested);
        Arc::new(Self {
            folder,
            bytes_max,
            is_memory: disk.is_memory && bytes_max >= suggested,
            reserved: Mutex::new(0),
            written: AtomicU64::new(0),
            memory: Arc::clone(memory),
            closer: OnceLock::new(),
            log: Throttle::new(),
            freed: Mutex::default(),
            started_at: Instant::now(),
        })
    }

    fn warn_of_memory(&self) {
        if self.is_memory {
            tracing::warn!(
                folder = %self.folder.display(),
                bytes_max = self.bytes_max,
                "long contents wait in memory: set `ServerConfig::spool_folder` to a folder on a \
                 disk"
            );
        }
    }

    /// Lets other threads close long files from now on.
    pub(crate) fn close_by(&self, closer: impl Fn(Box<Stored>) + Send + Sync + 'static) {
        let _ = self.closer.set(Box::new(closer));
    }

    /// Logs that a content could not be written, which any peer can cause while a disk is full.
    #[cold]
    pub(crate) fn note_failure(&self, error: &io::Error) {
        if let Some(left_out) = self.log.admit() {
            let folder = self.folder.display();
            tracing::error!(%error, %folder, left_out, "a content is not written");
        }
    }

    /// Returns how many bytes lie in files now.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Returns whether a content of this length would fit now. Nothing is reserved before its file
    /// is created.
    pub(crate) fn may_begin(&self, length: u64, client: Option<&Arc<ClientConnection>>) -> bool {
        let fits = |used: u64, max: u64| used.saturating_add(length) <= max;
        fits(*self.reserved.lock(), self.bytes_max)
            && client.is_none_or(|client| fits(client.spooled(), self.client_bytes_max()))
    }

    fn client_bytes_max(&self) -> u64 {
        self.bytes_max / CLIENT_SHARE
    }

    /// Returns in how many seconds a content of this length may fit.
    pub(crate) fn retry_after(
        &self,
        length: Option<u64>,
        client: Option<&Arc<ClientConnection>>,
    ) -> u64 {
        let length = length.unwrap_or(0);
        let missing = |used: u64, max: u64| used.saturating_add(length).saturating_sub(max);
        let of_client =
            client.map_or(0, |client| missing(client.spooled(), self.client_bytes_max()));
        let missing = missing(*self.reserved.lock(), self.bytes_max).max(of_client);
        self.freed.lock().retry_after(missing, self.started_at.elapsed())
    }

    /// Displays why a content of this length has no space: what all contents use, and those of this
    /// client.
    pub(crate) fn usage(
        &self,
        length: Option<u64>,
        client: Option<&Arc<ClientConnection>>,
    ) -> impl fmt::Display + use<> {
        let (used, max) = (*self.reserved.lock(), self.bytes_max);
        let length = length.map_or("unknown length".to_owned(), |length| format!("{length} bytes"));
        let mut usage = format!(
            "a content of {length} has no space: contents that wait in files have {used} of the \
             {max} bytes of `ServerConfig::spooled_bytes_max`"
        );
        if let Some(client) = client {
            let (used, max) = (client.spooled(), self.client_bytes_max());
            usage.push_str(&format!(", and those of this client {used} of its {max}"));
        }
        usage + "; if the disk is full or has failed, the log has the error"
    }

    /// Creates a file that no other user can read, for a content of this length. The system removes
    /// it with its last handle.
    pub(crate) fn create(
        self: &Arc<Self>,
        length: Option<u64>,
        client: Option<&Arc<ClientConnection>>,
        held: HeldDescriptor,
    ) -> Result<SpoolFile, SpoolError> {
        let client = client.map(Arc::clone);
        let mut reservation = Reservation::new(Arc::clone(self), client);
        reservation.grow(length.unwrap_or(0))?;
        let file = tempfile::tempfile_in(&self.folder).map_err(SpoolError::Failed)?;
        let stored = Box::new(Stored { file, _held: held, reservation });
        Ok(SpoolFile { stored: Some(stored) })
    }

    /// Reserves this many more bytes. Returns `false` if fewer are free.
    fn try_reserve(&self, more: u64) -> bool {
        let mut reserved = self.reserved.lock();
        let Some(sum) = reserved.checked_add(more).filter(|sum| *sum <= self.bytes_max) else {
            return false;
        };
        *reserved = sum;
        self.memory.set_disk_short(self.is_short(sum));
        true
    }

    fn give_back(&self, bytes: u64) {
        let mut reserved = self.reserved.lock();
        *reserved -= bytes;
        self.memory.set_disk_short(self.is_short(*reserved));
    }

    fn is_short(&self, reserved: u64) -> bool {
        reserved > 0 && reserved >= self.bytes_max / 2
    }
}

impl fmt::Debug for SpoolSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpoolSpace")
            .field("folder", &self.folder)
            .field("bytes_max", &self.bytes_max)
            .field("reserved", &*self.reserved.lock())
            .finish_non_exhaustive()
    }
}

impl Reservation {
    fn new(space: Arc<SpoolSpace>, client: Option<Arc<ClientConnection>>) -> Self {
        Self { space, client, bytes: 0, written: 0 }
    }

    /// Reserves this many more bytes, also in the share of the client.
    fn grow(&mut self, more: u64) -> Result<(), SpoolError> {
        let client_max = self.space.client_bytes_max();
        if self.client.as_ref().is_some_and(|client| !client.try_spool(more, client_max)) {
            return Err(SpoolError::Full);
        }
        if !self.space.try_reserve(more) {
            if let Some(client) = &self.client {
                client.release_spooled(more);
            }
            return Err(SpoolError::Full);
        }
        self.bytes += more;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.space.freed.lock().note(self.written, self.space.started_at.elapsed());
        self.space.written.fetch_sub(self.written, Ordering::Relaxed);
        self.space.give_back(self.bytes);
        if let Some(client) = &self.client {
            client.release_spooled(self.bytes);
        }
    }
}

impl SpoolFile {
    fn stored(&self) -> &Stored {
        self.stored.as_deref().expect("it is there until it is dropped")
    }

    fn stored_mut(&mut self) -> &mut Stored {
        self.stored.as_deref_mut().expect("it is there until it is dropped")
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), SpoolError> {
        let Stored { file, reservation, .. } = self.stored_mut();
        let more = bytes.len() as u64;
        let after = reservation.written + more;
        reservation.grow(after.saturating_sub(reservation.bytes))?;
        file.write_all(bytes).map_err(SpoolError::Failed)?;
        reservation.written = after;
        reservation.space.written.fetch_add(more, Ordering::Relaxed);
        Ok(())
    }

    /// Returns how much of the space it has, with what is still to come.
    pub(crate) fn reserved(&self) -> u64 {
        self.stored().reservation.bytes
    }

    /// Returns the number of bytes that were appended.
    pub(crate) fn length(&self) -> u64 {
        self.stored().reservation.written
    }

    /// Begins to read at the first byte.
    pub(crate) fn rewind(&mut self) -> io::Result<()> {
        self.stored_mut().file.seek(SeekFrom::Start(0)).map(drop)
    }

    pub(crate) fn file(&self) -> &File {
        &self.stored().file
    }
}

impl Read for SpoolFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stored_mut().file.read(buffer)
    }
}

impl Drop for SpoolFile {
    fn drop(&mut self) {
        let Some(stored) = self.stored.take() else { return };
        let space = Arc::clone(&stored.reservation.space);
        if stored.reservation.written < LONG_BYTES {
            return;
        }
        // Without a closer, the file is closed here.
        if let Some(close) = space.closer.get() {
            close(stored);
        }
    }
}

#[cfg(test)]
mod tests;
