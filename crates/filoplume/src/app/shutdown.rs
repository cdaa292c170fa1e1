//! What an app does when its server stops.

use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
#[cfg(unix)]
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use filoplume_runtime::Stopping;

use super::App;
use crate::log::log_without_subscriber;

type Hook = Box<dyn FnOnce() + Send>;

/// How long a hook may run before it is reported. It is the default of
/// [`drain_timeout`](crate::ServerConfig::drain_timeout), the time that handlers have.
const HOOK_TIME: Duration = Duration::from_secs(10);

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

/// Calls a hook, and reports once if it takes longer than `time`.
///
/// The hook blocks the calling thread, so another thread waits for the time. If that thread cannot
/// be started, there is no report.
fn watched(hook: impl FnOnce(), time: Duration, report: impl FnOnce() + Send + 'static) {
    // Dropped when the hook has returned or panicked.
    let (_running, ended) = mpsc::channel::<()>();
    let watch = move || {
        if ended.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
            report();
        }
    };
    let _ = thread::Builder::new().name("filoplume-hook".to_owned()).spawn(watch);
    hook();
}

#[cold]
fn report_blocked(written_at: &Location<'_>) {
    let text = format!(
        "a hook of `App::on_shutdown` ({written_at}) has not returned for {HOOK_TIME:?}: the \
         program waits for it"
    );
    tracing::warn!("{text}");
    log_without_subscriber(&text);
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
    /// the program waits for them. The log names a hook that takes longer than 10 seconds.
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
    #[track_caller]
    pub fn on_shutdown(self, hook: impl FnOnce() + Send + 'static) -> Self {
        self.add_hook(hook, HOOK_TIME, report_blocked)
    }

    #[track_caller]
    fn add_hook(
        mut self,
        hook: impl FnOnce() + Send + 'static,
        time: Duration,
        report: impl FnOnce(&Location<'_>) + Send + 'static,
    ) -> Self {
        let written_at = Location::caller();
        // The watch is added here and not where hooks run, so that a program without hooks has no
        // code for it.
        self.shutdown_hooks.add(Box::new(move || watched(hook, time, || report(written_at))));
        self
    }

    /// Lets a new process of the program take over from a running one, without a refused
    /// connection and without closing idle ones. `path` is a Unix socket over which they find each
    /// other, such as `/run/app/restart.sock`. Start the new version like the old one, and nothing
    /// else: it takes over the address, and the old one finishes its requests and ends. If the new
    /// process does not start, the old one continues. With a [`Listen`](crate::Listen) of your own,
    /// call [`Listen::hot_restart`](crate::Listen::hot_restart) instead.
    ///
    /// ```no_run
    /// use filoplume::prelude::*;
    ///
    /// fn main() -> filoplume::Result<()> {
    ///     App::new()
    ///         .get("/", || "Hello!")
    ///         .hot_restart("/run/app/restart.sock")
    ///         .listen("0.0.0.0:5000")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_that_blocks_is_reported_once_with_its_line() {
        let (reporter, reports) = mpsc::channel();
        let (seen, was_seen) = mpsc::channel();
        // The hook returns when it has been reported, and there is no second report.
        let hook = move || {
            let first = reports.recv();
            let _ = seen.send((first, reports.recv().is_err()));
        };
        let report = move |at: &Location<'_>| {
            let _ = reporter.send((at.file().ends_with("shutdown.rs"), at.line()));
        };
        let app = App::new().get("/", || "");
        let (line, app) = (line!(), app.add_hook(hook, Duration::from_millis(1), report));
        app.start("127.0.0.1:0").expect("it starts").shutdown();
        assert_eq!(was_seen.recv(), Ok((Ok((true, line)), true)));
    }

    #[test]
    fn a_hook_that_returns_is_not_reported() {
        let (reporter, reports) = mpsc::channel();
        let report = move || {
            let _ = reporter.send("blocked");
        };
        watched(|| {}, Duration::from_secs(3600), report);
        // The other thread has ended.
        assert!(reports.recv().is_err(), "there is no report");
    }
}
