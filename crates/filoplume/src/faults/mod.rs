//! Faults of the disk, for tests: the Nth read, write or creation of a file fails, or moves only
//! one byte.
//!
//! A plan belongs to a folder, so tests do not affect each other. None of this is compiled outside
//! of tests.
//!
//! The engine has a similar plan of its own. Sharing it would require a published crate for the
//! tests of both, for forty lines.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod client;
mod served;
mod uploads;

use std::fs::{self, Metadata};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::io::Errno;

/// A call on a file that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Create,
    Read,
    Write,
}

/// What happens instead of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The call fails.
    Error(Errno),
    /// The call moves one byte, although there is more.
    OneByte,
    /// The call moves nothing and reports success, like a file that ends early.
    Nothing,
}

/// Which calls on the files of a folder fail, and how.
#[derive(Debug)]
pub(crate) struct Plan {
    folder: PathBuf,
    call: Call,
    fault: Fault,
    /// The number of the first failing call, counted from 1, and how many fail from there.
    first: u64,
    times: u64,
    calls: AtomicU64,
    failures: AtomicU64,
}

/// The active plans.
static PLANS: Mutex<Vec<Arc<Plan>>> = Mutex::new(Vec::new());

/// A plan that is active until this is dropped.
pub(crate) struct ActivePlan(Arc<Plan>);

impl Plan {
    pub(crate) fn new(call: Call, first: u64, times: u64, fault: Fault) -> Self {
        let counter = AtomicU64::default;
        Self {
            folder: PathBuf::new(),
            call,
            fault,
            first,
            times,
            calls: counter(),
            failures: counter(),
        }
    }

    /// Makes calls on the files of a folder fail from now on.
    pub(crate) fn activate(mut self, folder: &Path) -> ActivePlan {
        self.folder = folder.canonicalize().unwrap();
        let plan = Arc::new(self);
        PLANS.lock().push(Arc::clone(&plan));
        ActivePlan(plan)
    }

    fn of(path: &Path) -> Option<Arc<Self>> {
        PLANS.lock().iter().find(|plan| path.starts_with(&plan.folder)).cloned()
    }

    /// Called before each call. Returns how many bytes it may move, or its error.
    fn before(&self, call: Call, length: usize) -> io::Result<usize> {
        if call != self.call {
            return Ok(length);
        }
        let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        if number < self.first || number - self.first >= self.times {
            return Ok(length);
        }
        self.failures.fetch_add(1, Ordering::SeqCst);
        match self.fault {
            Fault::Error(error) => Err(error.into()),
            Fault::OneByte => Ok(length.min(1)),
            Fault::Nothing => Ok(0),
        }
    }
}

impl ActivePlan {
    /// Returns how many calls the fault has changed.
    pub(crate) fn failures(&self) -> u64 {
        self.0.failures.load(Ordering::SeqCst)
    }
}

impl Drop for ActivePlan {
    fn drop(&mut self) {
        PLANS.lock().retain(|plan| !Arc::ptr_eq(plan, &self.0));
    }
}

/// A file whose calls fail according to the plan.
#[derive(Debug)]
pub(crate) struct File {
    file: fs::File,
    plan: Option<Arc<Plan>>,
}

impl File {
    pub(crate) fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        fs::File::open(path).map(Self::from)
    }

    pub(crate) fn create_new(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
        if let Some(plan) = folder.and_then(|folder| Plan::of(&folder)) {
            plan.before(Call::Create, 0)?;
        }
        Ok(fs::File::create_new(path)?.into())
    }

    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }

    fn before(&self, call: Call, length: usize) -> io::Result<usize> {
        self.plan.as_ref().map_or(Ok(length), |plan| plan.before(call, length))
    }
}

/// Returns the file in the form that the system can send, or `None` if a plan applies to it.
pub(crate) fn sendable(file: &File) -> Option<&fs::File> {
    file.plan.is_none().then_some(&file.file)
}

impl From<fs::File> for File {
    fn from(file: fs::File) -> Self {
        let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let plan = path.ok().and_then(|path| Plan::of(&path));
        Self { file, plan }
    }
}

impl From<OwnedFd> for File {
    fn from(handle: OwnedFd) -> Self {
        fs::File::from(handle).into()
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.before(Call::Read, buffer.len())?;
        self.file.read(&mut buffer[..length])
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.before(Call::Write, bytes.len())?;
        self.file.write(&bytes[..length])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for File {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.file.seek(position)
    }
}

#[test]
fn a_plan_makes_the_chosen_calls_fail() {
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan::new(Call::Write, 2, 1, Fault::Error(Errno::NOSPC)).activate(folder.path());
    let mut file = File::create_new(folder.path().join("a")).unwrap();
    assert_eq!(file.write(b"ab").unwrap(), 2);
    assert_eq!(file.write(b"cd").unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(file.write(b"ef").unwrap(), 2);
    assert_eq!(plan.failures(), 1);
    drop(plan);
    let elsewhere = tempfile::tempdir().unwrap();
    let _plan = Plan::new(Call::Write, 1, 9, Fault::OneByte).activate(folder.path());
    assert_eq!(File::create_new(elsewhere.path().join("a")).unwrap().write(b"ab").unwrap(), 2);
    assert_eq!(File::create_new(folder.path().join("b")).unwrap().write(b"ab").unwrap(), 1);
}
