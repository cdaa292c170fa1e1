//! Files in a folder. Opening one never blocks and never leaves the root.

use std::fs::Metadata;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
#[cfg(unix)]
use std::time::Duration;
use std::time::SystemTime;

use super::content::{Content, Found, OpenFile, Source, Stored};
use crate::core::error::{Error, Result};
use crate::disk::File;
use crate::log::Throttle;
use crate::semantics::conditional::{EntityTag, Validators};

/// The coarsest timestamps of file systems with fractions of seconds: two timer ticks of 10 ms.
#[cfg(unix)]
const TICK: Duration = Duration::from_millis(20);

/// The coarsest timestamps in whole seconds; FAT has even seconds only.
#[cfg(unix)]
const COARSE_TICK: Duration = Duration::from_secs(2);

/// A folder that is served.
#[derive(Debug)]
pub(super) struct Folder {
    /// Resolved, without symbolic links.
    path: PathBuf,
    #[cfg(unix)]
    handle: File,
    symlinks: Symlinks,
}

/// Where symbolic links may lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Symlinks {
    Inside,
    Anywhere,
}

impl Folder {
    /// Opens the root. The same folder is used from then on, even if another one takes its name.
    pub(super) fn open(path: &Path, symlinks: Symlinks) -> io::Result<Self> {
        let path = path.canonicalize()?;
        if !path.metadata()?.is_dir() {
            return Err(ErrorKind::NotADirectory.into());
        }
        Ok(Self {
            #[cfg(unix)]
            handle: File::open(&path)?,
            path,
            symlinks,
        })
    }

    /// Opens a path if it is below the root.
    fn open_within(&self, path: &str) -> io::Result<File> {
        if self.symlinks == Symlinks::Anywhere {
            return self.open_anywhere(path);
        }
        match self.open_beneath(path) {
            Some(result) => result,
            None => self.open_and_compare(path),
        }
    }

    /// Opens a path with the system call that ensures at every step that it stays below the root.
    /// Returns `None` if the call is not supported, or if the path leaves the root on its way. An
    /// absolute link leaves the root, even if its target is inside.
    #[cfg(target_os = "linux")]
    fn open_beneath(&self, path: &str) -> Option<io::Result<File>> {
        use rustix::fs::{Mode, ResolveFlags, openat2};
        use rustix::io::Errno;

        match openat2(&self.handle, path, open_flags(), Mode::empty(), ResolveFlags::BENEATH) {
            Ok(handle) => Some(Ok(File::from(handle))),
            // Old kernels and sandboxes do not support the call. `AGAIN` means that a folder was
            // moved in the meantime.
            Err(Errno::XDEV | Errno::NOSYS | Errno::PERM | Errno::INVAL | Errno::AGAIN) => None,
            Err(error) => Some(Err(error.into())),
        }
    }

    #[cfg(not(target_os = "linux"))]
    #[allow(clippy::unused_self, reason = "the same on every system")]
    fn open_beneath(&self, _path: &str) -> Option<io::Result<File>> {
        None
    }

    /// Opens a path, resolves it, and compares the open file with the one that is below the root.
    /// So an attacker who exchanges a folder for a link between the two steps gains nothing.
    fn open_and_compare(&self, path: &str) -> io::Result<File> {
        let file = self.open_anywhere(path)?;
        let real = self.path.join(path).canonicalize()?;
        if real.starts_with(&self.path) && is_same(&file.metadata()?, &real.metadata()?) {
            Ok(file)
        } else {
            Err(ErrorKind::NotFound.into())
        }
    }

    #[cfg(unix)]
    fn open_anywhere(&self, path: &str) -> io::Result<File> {
        let handle =
            rustix::fs::openat(&self.handle, path, open_flags(), rustix::fs::Mode::empty())?;
        Ok(File::from(handle))
    }

    /// On this system, a folder cannot be opened like a file.
    #[cfg(not(unix))]
    fn open_anywhere(&self, path: &str) -> io::Result<File> {
        open_path(&self.path.join(path))
    }
}

/// Opening a FIFO would wait for its other end, and a terminal could become the controlling one.
/// These flags prevent both.
#[cfg(unix)]
fn open_flags() -> rustix::fs::OFlags {
    use rustix::fs::OFlags;

    OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC
}

#[cfg(unix)]
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;

    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// On this system, files have no number that std can read. Only the path can be checked.
#[cfg(not(unix))]
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    one.len() == other.len() && one.modified().ok() == other.modified().ok()
}

impl Source for Folder {
    fn find(&self, path: &str) -> Result<Found> {
        let opened = self
            .open_within(path)
            .and_then(|file| file.metadata().map(|metadata| (file, metadata)));
        match opened {
            Ok((file, metadata)) => Ok(found(file, &metadata, path)),
            Err(error) => open_error(error, path),
        }
    }
}

/// Describes an open file.
pub(super) fn found(file: File, metadata: &Metadata, path: &str) -> Found {
    if metadata.is_dir() {
        return Found::Folder;
    }
    // FIFOs, sockets and devices are closed without reading them.
    if !metadata.is_file() {
        return Found::Nothing;
    }
    let validators = validators(metadata, path, SystemTime::now());
    let length = metadata.len();
    Found::File(Stored {
        content: Content::File(OpenFile::new(file, metadata)),
        length,
        validators,
    })
}

/// Opens a path, wherever it leads.
#[cfg(unix)]
pub(super) fn open_path(path: &Path) -> io::Result<File> {
    Ok(File::from(rustix::fs::open(path, open_flags(), rustix::fs::Mode::empty())?))
}

#[cfg(not(unix))]
pub(super) fn open_path(path: &Path) -> io::Result<File> {
    if path.metadata()?.is_dir() { Err(ErrorKind::IsADirectory.into()) } else { File::open(path) }
}

/// Decides what an error of opening a path means.
fn open_error(error: io::Error, path: &str) -> Result<Found> {
    if error.kind() == ErrorKind::IsADirectory {
        return Ok(Found::Folder);
    }
    if error.kind() == ErrorKind::PermissionDenied {
        // Clients must not learn what exists, but the operator should know.
        static LOG: Throttle = Throttle::new();
        if let Some(left_out) = LOG.admit() {
            let left_out = left_out.field();
            tracing::warn!(path, left_out, "a static file cannot be read: permission denied");
        }
        return Ok(Found::Nothing);
    }
    if is_not_found(&error) { Ok(Found::Nothing) } else { Err(Error::internal(error)) }
}

/// Returns whether an error means that there is no such file.
pub(super) fn is_not_found(error: &io::Error) -> bool {
    if matches!(
        error.kind(),
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidInput
    ) {
        return true;
    }
    #[cfg(unix)]
    {
        use rustix::io::Errno;

        // A loop of links; a socket, or a device without a driver; names that this file system does
        // not allow.
        let nothings =
            [Errno::LOOP, Errno::XDEV, Errno::NXIO, Errno::NODEV, Errno::NAMETOOLONG, Errno::ILSEQ];
        nothings.iter().any(|nothing| error.raw_os_error() == Some(nothing.raw_os_error()))
    }
    #[cfg(not(unix))]
    false
}

/// Returns the validators of a file.
///
/// The tag is strong if it is certain to change with the content. Size and modification time are
/// not enough: the modification time can be set, and archives and packages give all files the same
/// one. So the tag also includes the inode number and the change time, which cannot be set, unless
/// the last change is so recent that another one could have the same time. The parts are hashed,
/// because clients should not learn inode numbers.
#[cfg(unix)]
fn validators(metadata: &Metadata, _path: &str, now: SystemTime) -> Validators {
    use std::os::unix::fs::MetadataExt;

    let changed = (metadata.ctime(), metadata.ctime_nsec());
    let modified = (metadata.mtime(), metadata.mtime_nsec());
    let tag = tag_text(metadata.len(), (metadata.dev(), metadata.ino(), modified, changed));
    let age = age_of(changed, now);
    let is_settled = age.is_some_and(|age| age > if changed.1 == 0 { COARSE_TICK } else { TICK });
    let etag = if is_settled { EntityTag::strong(&tag) } else { EntityTag::weak(&tag) };
    // The date identifies the content: a later write would have a later date, and the date is that
    // of the last change, so it was not set by hand.
    let is_date_strong = is_settled
        && changed.0 == modified.0
        && age.is_some_and(|age| age > Duration::from_secs(1));
    with_date(Validators::new().etag(etag), metadata, now).date_is_strong(is_date_strong)
}

/// This system has only the size and a time that can be set, so the tag is weak. The extension
/// distinguishes precompressed variants.
#[cfg(not(unix))]
fn validators(metadata: &Metadata, path: &str, now: SystemTime) -> Validators {
    let ending = path.rsplit('.').next();
    let tag = tag_text(metadata.len(), (metadata.modified().ok(), ending));
    with_date(Validators::new().etag(EntityTag::weak(&tag)), metadata, now)
}

fn tag_text(length: u64, rest: impl Hash) -> String {
    // The hash has no random key: a file has the same tag after a restart.
    let mut hasher = DefaultHasher::new();
    rest.hash(&mut hasher);
    format!("{length:x}-{:016x}", hasher.finish())
}

/// Returns how long ago a time of the file system is, if it is in the past.
#[cfg(unix)]
fn age_of((seconds, nanoseconds): (i64, i64), now: SystemTime) -> Option<Duration> {
    let seconds = u64::try_from(seconds).ok()?;
    let nanoseconds =
        u32::try_from(nanoseconds).ok().filter(|nanoseconds| *nanoseconds < 1_000_000_000)?;
    let time = SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds))?;
    now.duration_since(time).ok()
}

/// A time in the future is sent as the current time (RFC 9110, 8.8.2.1).
fn with_date(validators: Validators, metadata: &Metadata, now: SystemTime) -> Validators {
    match metadata.modified() {
        Ok(modified) => validators.last_modified(modified.min(now)),
        Err(_) => validators,
    }
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn nobody_waits_for_the_other_side_of_a_fifo() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let (tell, is_open) = std::sync::mpsc::channel();
        std::thread::spawn(move || tell.send(open_path(&path).is_ok()));
        assert_eq!(is_open.recv_timeout(Duration::from_secs(60)), Ok(true));
    }

    /// Tests that run as root can read all files, so no file has most of these errors.
    #[test]
    fn only_an_error_of_the_system_itself_is_an_error_of_the_server() {
        use rustix::io::Errno;

        let opened = |error: Errno| match open_error(error.into(), "/a") {
            Ok(Found::Nothing) => "nothing",
            Ok(Found::Folder) => "a folder",
            Ok(_) => "a file",
            Err(error) => {
                assert_eq!(error.status(), 500);
                "an error"
            }
        };
        for nothing in
            [Errno::NOENT, Errno::NOTDIR, Errno::ACCESS, Errno::PERM, Errno::LOOP, Errno::NXIO]
        {
            assert_eq!(opened(nothing), "nothing", "{nothing:?}");
        }
        assert_eq!(opened(Errno::ISDIR), "a folder");
        for error in [Errno::IO, Errno::MFILE, Errno::NOMEM, Errno::STALE] {
            assert_eq!(opened(error), "an error", "{error:?}");
        }
    }

    /// Creates a root with links of all kinds, and a secret outside of it.
    fn root() -> (tempfile::TempDir, Folder) {
        let outside = tempfile::tempdir().unwrap();
        let root = outside.path().join("site");
        fs::create_dir_all(root.join("real")).unwrap();
        fs::write(outside.path().join("secret"), "secret").unwrap();
        fs::write(root.join("real/a"), "a").unwrap();
        symlink("real", root.join("relative")).unwrap();
        symlink(root.join("real"), root.join("absolute")).unwrap();
        symlink("../secret", root.join("out")).unwrap();
        symlink(outside.path().join("secret"), root.join("absolutely-out")).unwrap();
        symlink("..", root.join("up")).unwrap();
        symlink("../site/real/a", root.join("out-and-in")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let folder = Folder::open(&root, Symlinks::Inside).unwrap();
        (outside, folder)
    }

    #[test]
    fn files_that_may_not_be_read_are_logged_a_few_times_per_second() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let writer = std::sync::Mutex::new(log.reopen().unwrap());
        let subscriber = tracing_subscriber::fmt().with_writer(writer).finish();
        let begun = std::time::Instant::now();
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..300 {
                let error = ErrorKind::PermissionDenied.into();
                assert!(matches!(open_error(error, "a"), Ok(Found::Nothing)));
            }
        });
        let lines = fs::read_to_string(log.path()).unwrap().lines().count();
        let lines_max = 11 + usize::try_from(begun.elapsed().as_secs()).unwrap();
        assert!((1..=lines_max).contains(&lines), "{lines}");
    }

    #[test]
    fn links_lead_inside_only_with_and_without_help_of_the_system() {
        let (_outside, folder) = root();
        let ways = [Folder::open_within, Folder::open_and_compare];
        for open in ways {
            for path in ["real/a", "relative/a", "absolute/a", "out-and-in"] {
                assert!(open(&folder, path).is_ok(), "{path}");
            }
            for path in
                ["out", "absolutely-out", "up", "up/secret", "loop", "../secret", "/etc/passwd"]
            {
                let error = open(&folder, path).unwrap_err();
                assert!(is_not_found(&error), "{path}: {error:?}");
            }
        }
    }

    #[test]
    fn links_may_lead_anywhere_if_allowed() {
        let (outside, _) = root();
        let folder = Folder::open(&outside.path().join("site"), Symlinks::Anywhere).unwrap();
        for path in ["real/a", "out", "absolutely-out", "up/secret"] {
            assert!(folder.open_within(path).is_ok(), "{path}");
        }
    }

    #[test]
    fn the_opened_root_stays_in_use_when_it_is_replaced() {
        let (outside, folder) = root();
        fs::rename(outside.path().join("site"), outside.path().join("moved")).unwrap();
        fs::create_dir_all(outside.path().join("site/real")).unwrap();
        fs::write(outside.path().join("site/real/b"), "b").unwrap();
        assert!(folder.open_anywhere("real/a").is_ok());
        assert!(folder.open_within("real/b").is_err());
    }

    #[test]
    fn a_file_without_permissions_is_not_found_and_a_broken_disk_is_a_500() {
        use rustix::io::Errno;

        for errno in [
            Errno::ACCESS,
            Errno::NOENT,
            Errno::NOTDIR,
            Errno::NAMETOOLONG,
            Errno::LOOP,
            Errno::NXIO,
        ] {
            assert!(matches!(open_error(errno.into(), "a"), Ok(Found::Nothing)), "{errno:?}");
        }
        for errno in [Errno::IO, Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            let error = open_error(errno.into(), "a").err().unwrap();
            assert_eq!(error.status(), 500, "{errno:?}");
        }
    }

    fn tag_of(folder: &Path, after: Duration) -> EntityTag {
        let metadata = folder.join("file").metadata().unwrap();
        let validators = validators(&metadata, "file", metadata.modified().unwrap() + after);
        EntityTag::parse(validators.etag_value().unwrap()).unwrap()
    }

    #[test]
    fn a_tag_is_strong_once_no_other_change_can_have_the_same_time() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "a").unwrap();
        let fresh = tag_of(folder.path(), Duration::ZERO);
        let settled = tag_of(folder.path(), Duration::from_secs(3));
        assert!(fresh.is_weak() && !settled.is_weak());
        assert!(fresh.matches_weakly(&settled), "it is the same content");
        // A clock that was set back.
        assert!(age_of((i64::MAX, 0), SystemTime::now()).is_none());
        assert!(age_of((-1, 0), SystemTime::now()).is_none());
    }

    #[test]
    fn a_tag_changes_even_if_size_and_time_are_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let set_time = |path: &Path| {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
            fs::OpenOptions::new().write(true).open(path).unwrap().set_modified(time).unwrap();
        };
        fs::write(&path, "a").unwrap();
        set_time(&path);
        let before = tag_of(folder.path(), Duration::ZERO);
        fs::write(folder.path().join("new"), "b").unwrap();
        set_time(&folder.path().join("new"));
        fs::rename(folder.path().join("new"), &path).unwrap();
        assert!(!before.matches_weakly(&tag_of(folder.path(), Duration::ZERO)));
    }

    #[test]
    fn a_date_that_was_set_by_hand_does_not_distinguish_versions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "a").unwrap();
        let later = |path: &Path| {
            let metadata = path.metadata().unwrap();
            validators(&metadata, "file", SystemTime::now() + Duration::from_secs(10))
        };
        let written = later(&path);
        assert_eq!(written.clone().date_is_strong(true), written);
        let time = SystemTime::now() - Duration::from_secs(1000);
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_modified(time).unwrap();
        let set = later(&path);
        assert_ne!(set.clone().date_is_strong(true), set);
    }

    #[test]
    fn times_before_1970_and_in_the_future_are_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "a").unwrap();
        let now = SystemTime::now();
        let date_of = |time: SystemTime| {
            fs::OpenOptions::new().write(true).open(&path).unwrap().set_modified(time).unwrap();
            validators(&path.metadata().unwrap(), "file", now).last_modified_value()
        };
        assert_eq!(date_of(SystemTime::UNIX_EPOCH - Duration::from_secs(1000)), None);
        assert_eq!(date_of(now + Duration::from_secs(1000)), Some(httpdate::fmt_http_date(now)));
    }

    /// `Last-Modified` has whole seconds.
    #[test]
    fn a_date_distinguishes_versions_only_after_a_second() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "a").unwrap();
        let metadata = path.metadata().unwrap();
        let written = metadata.modified().unwrap();
        for (after, is_strong) in [(500, false), (999, false), (2500, true)] {
            let validators = validators(&metadata, "file", written + Duration::from_millis(after));
            assert_eq!(validators.clone().date_is_strong(true) == validators, is_strong, "{after}");
        }
    }
}
