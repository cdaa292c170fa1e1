//! What a thread waits for.

use std::fmt;
use std::time::Duration;

/// What a thread that does not return waits for, as the system reports it. Only Linux does.
///
/// ```
/// use filoplume_runtime::{Stuck, Wait};
///
/// fn is_our_fault(stuck: &Stuck) -> bool {
///     matches!(stuck.wait, Some(Wait::Computing | Wait::Lock { .. } | Wait::Sleep { .. }))
/// }
/// # let _ = is_our_fault;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// For nothing: it computes, or is ready to.
    Computing,
    /// For another thread of this process.
    Lock {
        /// What it waits for: a mutex, a condition variable, the end of a thread. `None` if the
        /// system does not tell.
        kind: Option<&'static str>,
    },
    /// For time to pass.
    Sleep {
        /// How long the current sleep lasts.
        time: Option<Duration>,
    },
    /// For a socket.
    Socket {
        /// Such as `reads` or `connects`.
        doing: &'static str,
        /// The address of the other side.
        peer: Option<String>,
    },
    /// For a file descriptor that is no socket.
    Descriptor {
        /// Such as `reads` or `writes`.
        doing: &'static str,
        /// Such as `a file` or `a pipe`. Names of files are not reported.
        what: &'static str,
    },
    /// For a lock on a file.
    FileLock,
    /// For a lock of an SQLite database: it sleeps and tries again, as SQLite does when it is busy.
    Sqlite {
        /// The name of the database's file, without its folder.
        file: Option<String>,
        /// The process that holds the lock.
        holder: Option<u32>,
    },
    /// For another process to end.
    Process,
    /// For the disk or for memory.
    Disk,
    /// For another system call.
    SystemCall {
        /// The number of the call.
        number: u64,
    },
    /// The system does not tell.
    Unknown,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Computing => f.write_str("it computes or waits for a core"),
            Self::Lock { kind: Some(kind) } => write!(f, "its thread waits for {kind}"),
            Self::Lock { kind: None } => f.write_str("its thread waits for another thread"),
            Self::Sleep { time: Some(time) } => write!(f, "its thread sleeps for {time:?}"),
            Self::Sleep { time: None } => f.write_str("its thread sleeps"),
            Self::Socket { doing, peer: Some(peer) } => {
                write!(f, "its thread {doing} a socket with {peer}")
            }
            Self::Socket { doing, peer: None } => write!(f, "its thread {doing} a socket"),
            Self::Descriptor { doing, what } => write!(f, "its thread {doing} {what}"),
            Self::FileLock => f.write_str("its thread waits for a lock on a file"),
            Self::Sqlite { file, holder } => {
                f.write_str("its thread waits for a lock of the SQLite database")?;
                if let Some(file) = file {
                    write!(f, " {file}")?;
                }
                match holder {
                    Some(holder) if *holder == std::process::id() => {
                        f.write_str(", which this process holds")
                    }
                    Some(holder) => write!(f, ", which process {holder} holds"),
                    None => Ok(()),
                }
            }
            Self::Process => f.write_str("its thread waits for another process to end"),
            Self::Disk => f.write_str("its thread waits for the disk or for memory"),
            Self::SystemCall { number } => write!(f, "its thread is in system call {number}"),
            Self::Unknown => f.write_str("the system does not tell what its thread waits for"),
        }
    }
}
