//! The program learns that its server stops.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock::TIMEOUT_MAX;
use crate::service::cancel::CallbackGuard;
use crate::service::latch::{Latch, Set};

/// Tells handlers, background threads and streams that the server has begun to stop. Clones are
/// handles to the same token.
///
/// [`Server::stopping`](crate::Server::stopping) returns the token of a server. Code that serves
/// clients for long, such as a stream of events, should end soon after that:
/// [`drain_timeout`](crate::ServerConfig::drain_timeout) is how long the server waits, after it has
/// waited for [`lame_duck`](crate::ServerConfig::lame_duck).
///
/// ```
/// use filoplume_runtime::{Request, Server};
/// use std::time::Duration;
///
/// let server = Server::bind("127.0.0.1:0")?;
/// let stopping = server.stopping();
/// let background = std::thread::spawn(move || {
///     while !stopping.wait_timeout(Duration::from_secs(60)) {
///         // .. what is due every minute
///     }
/// });
/// server.spawn(|_: Request| "Hello!")?;
/// server.shutdown_handle().shutdown();
/// background.join().expect("it ends with the server");
/// # Ok::<(), filoplume_runtime::Error>(())
/// ```
#[derive(Clone)]
pub struct Stopping {
    latch: Arc<Latch>,
}

impl Stopping {
    /// Returns a token that a [service](crate::Service::stopping) gives to its server.
    ///
    /// ```
    /// use filoplume_runtime::Stopping;
    ///
    /// assert!(!Stopping::new().is_stopping());
    /// ```
    pub fn new() -> Self {
        Self { latch: Arc::new(Latch::new()) }
    }

    /// Returns whether the server has begun to stop.
    pub fn is_stopping(&self) -> bool {
        self.latch.is_set()
    }

    /// Waits until the server begins to stop, for `timeout` at most. Returns whether it has begun.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.latch.wait_until(Instant::now() + timeout.min(TIMEOUT_MAX))
    }

    /// Calls `callback` once when the server begins to stop, on a thread of its own, which all
    /// callbacks share. If the server has begun to stop already, calls it at once on this thread.
    /// Dropping the guard removes the callback.
    ///
    /// ```
    /// use filoplume_runtime::Server;
    ///
    /// let server = Server::bind("127.0.0.1:0")?;
    /// server.stopping().on_stopping(|| println!("goodbye")).keep();
    /// # Ok::<(), filoplume_runtime::Error>(())
    /// ```
    pub fn on_stopping(&self, callback: impl FnOnce() + Send + 'static) -> CallbackGuard {
        CallbackGuard::new(self.latch.register(callback))
    }

    /// Tells everybody that it is time to stop. It is for a service that ends without a server, as
    /// in a test: [`ShutdownHandle`](crate::ShutdownHandle) stops a server, which does this by
    /// itself. Callbacks run on this thread.
    ///
    /// ```
    /// use filoplume_runtime::Stopping;
    /// use std::time::Duration;
    ///
    /// let stopping = Stopping::new();
    /// stopping.tell();
    /// assert!(stopping.wait_timeout(Duration::from_secs(60)));
    /// ```
    pub fn tell(&self) {
        if self.set() == Set::WithCallbacks {
            self.run_callbacks();
        }
    }

    pub(crate) fn set(&self) -> Set {
        self.latch.set()
    }

    /// Returns how many callbacks panicked.
    pub(crate) fn run_callbacks(&self) -> usize {
        self.latch.run_callbacks()
    }
}

impl Default for Stopping {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Stopping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stopping").field("is_stopping", &self.is_stopping()).finish()
    }
}
