//! A thread that another one asks about.

#[cfg(target_os = "linux")]
use super::linux as system;
#[cfg(not(target_os = "linux"))]
use super::other as system;
use super::wait::Wait;
use crate::execution::probe::thread_number;

/// A handle to a thread, by which other threads find out what it waits for. It is for work that
/// runs apart from requests and may hang, such as a health check. Handlers are watched by the
/// engine itself: see [`Stuck`](crate::Stuck).
///
/// ```
/// use filoplume_runtime::WatchedThread;
/// use std::sync::mpsc;
/// use std::thread;
///
/// let (tell, told) = mpsc::channel();
/// let (release, hold) = mpsc::channel::<()>();
/// let worker = thread::spawn(move || {
///     tell.send(WatchedThread::current()).expect("somebody asks");
///     let _ = hold.recv();
/// });
/// // On Linux such as "its thread waits for a condition variable".
/// println!("the worker is here, and {}", told.recv()?.wait());
/// drop(release);
/// worker.join().expect("it does not panic");
/// # Ok::<(), mpsc::RecvError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchedThread {
    id: u32,
}

impl WatchedThread {
    /// Returns the thread that calls this.
    pub fn current() -> Self {
        Self { id: thread_number() }
    }

    /// Returns what the thread waits for at this moment. It costs some microseconds, or
    /// milliseconds if it waits for a socket or a lock of SQLite. The system may have given the ID
    /// of a thread that has ended to another one of the process, so ask only while it runs.
    pub fn wait(&self) -> Wait {
        system::glance(&[self.id]).pop().unwrap_or(Wait::Unknown)
    }
}
