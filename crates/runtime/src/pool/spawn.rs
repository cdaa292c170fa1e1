//! The one place where a thread is started.

use std::io;

use crate::execution::scheduling::as_usual;
use crate::sync::thread;

/// A thread to be.
pub(super) struct ThreadStart {
    pub(super) name: String,
    pub(super) stack_size: Option<usize>,
    pub(super) body: Box<dyn FnOnce() + Send>,
}

/// Starts threads. Another one than [`start_thread`] stands in for a system that has none left.
pub(super) type Spawner = Box<dyn Fn(ThreadStart) -> io::Result<thread::Thread> + Send + Sync>;

/// Starts a thread that nobody joins: the ledger knows which workers are alive.
pub(super) fn start_thread(start: ThreadStart) -> io::Result<thread::Thread> {
    let mut builder = thread::Builder::new().name(start.name);
    if let Some(stack_size) = start.stack_size {
        builder = builder.stack_size(stack_size);
    }
    let handle = builder.spawn(as_usual(start.body))?;
    Ok(handle.thread().clone())
}
