//! The only place where threads are started.

use std::io;

use crate::execution::scheduling::with_normal_policy;
use crate::sync::thread;

/// The parameters of a new thread.
pub(super) struct ThreadStart {
    pub(super) name: String,
    pub(super) stack_size: Option<usize>,
    pub(super) body: Box<dyn FnOnce() + Send>,
}

/// Starts threads. Tests replace [`start_thread`] to simulate a system without free threads.
pub(super) type Spawner = Box<dyn Fn(ThreadStart) -> io::Result<thread::Thread> + Send + Sync>;

/// Starts a detached thread. The ledger knows which workers are alive.
pub(super) fn start_thread(start: ThreadStart) -> io::Result<thread::Thread> {
    let mut builder = thread::Builder::new().name(start.name);
    if let Some(stack_size) = start.stack_size {
        builder = builder.stack_size(stack_size);
    }
    let handle = builder.spawn(with_normal_policy(start.body))?;
    Ok(handle.thread().clone())
}
