//! What an app does when its server stops.

use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
#[cfg(unix)]
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use filoplume_runtime::Stopping;

use super::App;
use crate::log::log_without_subscriber;

type Hook = Box<dyn FnOnce() + Send>;

/// The hooks of [`App::on_shutdown`], in the order in which they were added.
#[derive(Default)]
pub(super) struct ShutdownHooks(Mutex<Vec<Hook>>);

impl ShutdownHooks {
    fn add(&mut self, hook: Hook) {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner).push(hook);
    }

    /// Runs each hook once. A hook that panics does not keep the others from running.
    pub(super) fn run(&self) {
        let hooks = mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for hook in hooks {
            if catch_unwind(AssertUnwindSafe(hook)).is_err() {
                tracing::error!("a hook of `App::on_shutdown` panicked");
                log_without_subscriber("a hook of `App::on_shutdown` panicked");
            }
        }
    }
}

impl fmt::Debug for ShutdownHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShutdownHooks").finish_non_exhaustive()
    }
}

impl App {
    /// Calls `hook` when the server has stopped: after requests in progress were finished, and
    /// before [`listen`](Self::listen) returns. It is for what handlers use until the end, such as
    /// a queue that has to be written to disk. Hooks run in the order in which they were added, and
    /// the program waits for them.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use std::sync::mpsc;
    ///
    /// let (sender, receiver) = mpsc::channel();
    /// let app = App::new().get("/", || "hi").on_shutdown(move || _ = sender.send("flushed"));
    /// app.start("127.0.0.1:0")?.shutdown();
    /// assert_eq!(receiver.try_recv(), Ok("flushed"));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn on_shutdown(mut self, hook: impl FnOnce() + Send + 'static) -> Self {
        self.shutdown_hooks.add(Box::new(hook));
        self
    }

    /// Lets a new process of the program take over from a running one, without a refused
    /// connection and without closing idle ones. `path` is a Unix socket over which they find each
    /// other, such as `/run/app.sock`. Start the new version like the old one, and nothing else: it
    /// takes over the address, and the old one finishes its requests and ends. If the new process
    /// does not start, the old one continues. With a [`Listen`](crate::Listen) of your own, call
    /// [`Listen::hot_restart`](crate::Listen::hot_restart) instead.
    ///
    /// ```no_run
    /// use filoplume::prelude::*;
    ///
    /// fn main() -> filoplume::Result<()> {
    ///     App::new().get("/", || "Hello!").hot_restart("/run/app.sock").listen("0.0.0.0:5000")
    /// }
    /// ```
    #[cfg(unix)]
    pub fn hot_restart(mut self, path: impl Into<PathBuf>) -> Self {
        self.hot_restart = Some(path.into());
        self
    }

    /// Returns a token that tells when the server begins to stop, for threads that the program
    /// starts beside the app. Handlers extract it: see [`Stopping`].
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use std::time::Duration;
    ///
    /// let app = App::new().get("/", || "hi");
    /// let stopping = app.stopping();
    /// let cleaner = std::thread::spawn(move || {
    ///     while !stopping.wait_timeout(Duration::from_secs(60)) {
    ///         // .. what is due every minute
    ///     }
    /// });
    /// app.start("127.0.0.1:0")?.shutdown();
    /// cleaner.join().expect("it ends with the app");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn stopping(&self) -> Stopping {
        self.settings.stopping.clone()
    }
}
