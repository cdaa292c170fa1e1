//! A handler learns that its client has gone.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::clock::TIMEOUT_MAX;
use crate::service::latch::{Latch, Registered, Registration, Set};

/// How often an interrupt is tried, and how long the first pause is. Each further one is twice as
/// long: 1.3 s in all.
const TRIES: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// Tells a handler that nobody waits for its response any more: its client has closed the
/// connection, or the server ends without waiting for the handler. Clones belong to the same
/// request, and may be used on any thread.
///
/// A handler that does not ask always finishes. A request asks by [its
/// plan](crate::Plan::cancellable), or with
/// [`IncomingRequest::cancel`](crate::IncomingRequest::cancel). Only such requests cost anything.
///
/// A client that closes only its sending direction, which RFC 9112 (section 9.6) permits, counts as
/// gone: until the response is sent, the network shows no difference between such a client and one
/// that has closed its socket. The response of a handler that finishes anyway is still sent. Over
/// TLS there is a difference: a client that sends `close_notify` and leaves its socket open has
/// ended only its own direction (RFC 8446, section 6.1). It waits for the response, and does not
/// count as gone.
///
/// ```
/// use filoplume_runtime::{Plan, Request, Response, Service};
/// use std::time::Duration;
///
/// struct Report;
///
/// impl Service for Report {
///     fn plan(&self, _: &mut Request) -> Plan {
///         Plan::new().cancellable()
///     }
///
///     fn call(&self, request: Request) -> Response {
///         let cancel = request.cancel();
///         for _step in 0..100 {
///             if cancel.is_cancelled() {
///                 return Response::new(499);
///             }
///             // .. one step of the work
///         }
///         Response::from("done")
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Cancel {
    latch: Arc<Latch>,
}

impl Cancel {
    pub(crate) fn new(latch: Arc<Latch>) -> Self {
        Self { latch }
    }

    /// Returns whether nobody waits for the response any more.
    ///
    /// ```
    /// use filoplume_runtime::{Body, Request};
    ///
    /// let request = Request::try_from(http::Request::get("/").body(Body::default())?)?;
    /// assert!(!request.cancel().is_cancelled());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_cancelled(&self) -> bool {
        self.latch.is_set()
    }

    /// Calls `callback` once when nobody waits for the response any more. It interrupts what the
    /// handler waits for: a database query, a read of another socket.
    ///
    /// It runs on a thread of its own while the handler is blocked. If the request is already
    /// cancelled, it runs at once on this thread. It never begins after the handler has returned.
    /// Dropping the guard removes the callback, and waits for it if it is running: after that it
    /// cannot interrupt the next user of the same database connection.
    ///
    /// At most four callbacks run at a time, so one should not take long.
    ///
    /// Some interrupts have no effect if they come before what they should end, such as those of
    /// SQLite and PostgreSQL. [`interruptible`](Self::interruptible) is for these.
    ///
    /// ```
    /// use filoplume_runtime::Request;
    /// use std::io::Read;
    /// use std::net::{Shutdown, TcpStream};
    ///
    /// fn fetch(request: &Request, mut upstream: TcpStream) -> std::io::Result<String> {
    ///     let socket = upstream.try_clone()?;
    ///     let _guard = request.cancel().on_cancel(move || {
    ///         let _ = socket.shutdown(Shutdown::Both); // ends the read below
    ///     });
    ///     let mut text = String::new();
    ///     upstream.read_to_string(&mut text)?;
    ///     // The shutdown looks like the end of the stream, so the text may be incomplete.
    ///     if request.cancel().is_cancelled() {
    ///         return Err(std::io::Error::other("nobody waits for the text any more"));
    ///     }
    ///     Ok(text)
    /// }
    /// ```
    pub fn on_cancel(&self, callback: impl FnOnce() + Send + 'static) -> CallbackGuard {
        CallbackGuard::new(self.latch.register(callback))
    }

    /// Runs `work`, and calls `interrupt` when nobody waits for the response any more. Returns
    /// `None` without running it if that is so already.
    ///
    /// An interrupt that comes a moment before the query that it should end has no effect in most
    /// databases. So `interrupt` is called again, after pauses from 10 ms on, until `work` has
    /// returned or 1.3 seconds have passed. It never runs after that, so it cannot interrupt the
    /// next user of the same connection. Otherwise it is called like a callback of
    /// [`on_cancel`](Self::on_cancel).
    ///
    /// ```
    /// use filoplume_runtime::Cancel;
    ///
    /// # struct Database;
    /// # struct Interrupt;
    /// # impl Interrupt { fn interrupt(&self) {} }
    /// # impl Database {
    /// #     fn get_interrupt_handle(&self) -> Interrupt { Interrupt }
    /// #     fn count(&self) -> Result<u64, String> { Ok(17) }
    /// # }
    /// fn count(cancel: &Cancel, database: &Database) -> Result<u64, String> {
    ///     let handle = database.get_interrupt_handle();   // that of `rusqlite`, for example
    ///     cancel
    ///         .interruptible(move || handle.interrupt(), || database.count())
    ///         .ok_or("nobody waits for it")?
    /// }
    /// # use filoplume_runtime::{Body, Request};
    /// # let request = Request::try_from(http::Request::get("/").body(Body::default()).unwrap());
    /// # assert_eq!(count(&request.unwrap().cancel(), &Database), Ok(17));
    /// ```
    pub fn interruptible<T>(
        &self,
        interrupt: impl FnMut() + Send + 'static,
        work: impl FnOnce() -> T,
    ) -> Option<T> {
        let guard = self.interrupt_with(interrupt)?;
        let result = work();
        drop(guard);
        Some(result)
    }

    /// Calls `interrupt` from now on when nobody waits for the response any more. Returns `None` if
    /// that is so already, and does not call it then.
    fn interrupt_with(&self, mut interrupt: impl FnMut() + Send + 'static) -> Option<Ending> {
        let ended = Arc::new(Latch::new());
        let (caller, ends) = (thread::current().id(), Arc::clone(&ended));
        let registered = self.on_cancel(move || {
            // The request was cancelled before the registration, and the work does not begin.
            if thread::current().id() == caller {
                return;
            }
            let mut pause = FIRST_PAUSE;
            for _ in 0..TRIES {
                interrupt();
                if ends.wait_until(Instant::now() + pause) {
                    return;
                }
                pause *= 2;
            }
        });
        let guard = Ending { ended, _registered: registered };
        (!self.is_cancelled()).then_some(guard)
    }

    /// Waits until the request is cancelled, for `timeout` at most. Returns whether it is
    /// cancelled. It replaces a `sleep` in a handler.
    ///
    /// ```
    /// use filoplume_runtime::{Body, Request};
    /// use std::time::Duration;
    ///
    /// let request = Request::try_from(http::Request::get("/").body(Body::default())?)?;
    /// assert!(!request.cancel().wait_timeout(Duration::from_millis(1)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.latch.wait_until(Instant::now() + timeout.min(TIMEOUT_MAX))
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel").field("is_cancelled", &self.is_cancelled()).finish()
    }
}

/// Ends the interrupts of work that has ended.
struct Ending {
    ended: Arc<Latch>,
    /// Dropped after the latch is set.
    _registered: CallbackGuard,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let set = self.ended.set();
        debug_assert_eq!(set, Set::Alone, "it has no callbacks");
    }
}

/// Keeps a callback of [`Cancel::on_cancel`] registered. Dropping
/// it removes the callback, and waits for it if it is running on another thread.
///
/// ```
/// use filoplume_runtime::{Body, Request};
///
/// let request = Request::try_from(http::Request::get("/").body(Body::default())?)?;
/// let guard = request.cancel().on_cancel(|| println!("interrupted"));
/// // .. what may take long
/// drop(guard);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "the callback is removed when this is dropped"]
pub struct CallbackGuard {
    /// `None` if the callback has run already, or never runs.
    registration: Option<Registration>,
}

impl CallbackGuard {
    pub(crate) fn new(registered: Registered) -> Self {
        let registration = match registered {
            Registered::Waiting(registration) => Some(registration),
            Registered::Ran | Registered::TooLate => None,
        };
        Self { registration }
    }

    /// Leaves the callback registered without the guard. It may still be running when a handler
    /// has returned.
    ///
    /// ```
    /// use filoplume_runtime::{Body, Request};
    ///
    /// let request = Request::try_from(http::Request::get("/").body(Body::default())?)?;
    /// request.cancel().on_cancel(|| println!("the client has gone")).keep();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn keep(mut self) {
        if let Some(registration) = self.registration.take() {
            registration.keep();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Something that can be interrupted only while it runs, such as a connection to a database.
    struct Work {
        is_running: Latch,
        interrupted: Latch,
        tries: AtomicUsize,
    }

    impl Work {
        fn new() -> Self {
            let tries = AtomicUsize::new(0);
            Self { is_running: Latch::new(), interrupted: Latch::new(), tries }
        }

        fn interrupt(&self) {
            self.tries.fetch_add(1, Ordering::SeqCst);
            if self.is_running.is_set() {
                let _ = self.interrupted.set();
            }
        }

        fn run(&self) -> bool {
            let _ = self.is_running.set();
            self.interrupted.wait_until(Instant::now() + Duration::from_secs(10))
        }
    }

    fn cancel_with_runner() -> (Cancel, impl FnOnce() + Send) {
        let latch = Arc::new(Latch::new());
        let cancels = Arc::clone(&latch);
        let run = move || {
            if cancels.set() == Set::WithCallbacks {
                assert_eq!(cancels.run_callbacks(), 0);
            }
        };
        (Cancel::new(latch), run)
    }

    #[test]
    fn an_interrupt_that_comes_too_early_comes_again() {
        let (cancel, runs) = cancel_with_runner();
        let work = Arc::new(Work::new());
        let (interrupted, client) = (Arc::clone(&work), std::cell::Cell::new(None));
        let result = cancel.interruptible(
            move || interrupted.interrupt(),
            || {
                // The client goes before the query has begun.
                client.set(Some(thread::spawn(runs)));
                while work.tries.load(Ordering::SeqCst) == 0 {
                    thread::yield_now();
                }
                work.run()
            },
        );
        assert_eq!(result, Some(true));
        client.take().unwrap().join().unwrap();
        let tries = work.tries.load(Ordering::SeqCst);
        assert!((2..=TRIES as usize).contains(&tries), "{tries}");
        thread::sleep(FIRST_PAUSE * 3);
        assert_eq!(work.tries.load(Ordering::SeqCst), tries, "it does not go on after the work");
    }

    #[test]
    fn work_does_not_begin_if_nobody_waits_for_it() {
        let (cancel, runs) = cancel_with_runner();
        runs();
        let result = cancel.interruptible(|| panic!("a test"), || panic!("a test"));
        assert_eq!(result, None::<()>);
    }

    #[test]
    fn a_thread_does_not_interrupt_itself() {
        let (cancel, runs) = cancel_with_runner();
        let result = cancel.interruptible(|| panic!("a test"), runs);
        assert_eq!(result, Some(()));
    }

    #[test]
    fn an_interrupt_without_effect_gives_up() {
        let (cancel, runs) = cancel_with_runner();
        let begun = Instant::now();
        let tries = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&tries);
        let interrupt = move || _ = counted.fetch_add(1, Ordering::SeqCst);
        // The callbacks end although the work does not.
        let result = cancel.interruptible(interrupt, || thread::spawn(runs).join().is_ok());
        assert_eq!(result, Some(true));
        assert_eq!(tries.load(Ordering::SeqCst), TRIES as usize);
        assert!(begun.elapsed() >= FIRST_PAUSE * ((1 << TRIES) - 1), "each pause is twice as long");
    }

    #[test]
    fn a_panic_of_the_work_ends_the_interrupts() {
        let (cancel, runs) = cancel_with_runner();
        let runner = std::cell::Cell::new(None);
        let work = std::panic::AssertUnwindSafe(|| {
            let _: Option<()> = cancel.interruptible(
                || {},
                || {
                    runner.set(Some(thread::spawn(runs)));
                    panic!("a test");
                },
            );
        });
        assert!(std::panic::catch_unwind(work).is_err());
        runner.take().unwrap().join().unwrap();
    }

    #[test]
    fn a_callback_that_is_kept_is_called_without_its_guard() {
        let (cancel, runs) = cancel_with_runner();
        let called = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let count = |index: usize| {
            let called = Arc::clone(&called);
            move || _ = called[index].fetch_add(1, Ordering::SeqCst)
        };
        cancel.on_cancel(count(0)).keep();
        drop(cancel.on_cancel(count(1)));
        runs();
        assert_eq!(called.each_ref().map(|calls| calls.load(Ordering::SeqCst)), [1, 0]);
    }

    #[test]
    fn a_wait_ends_when_the_request_is_cancelled() {
        let (cancel, runs) = cancel_with_runner();
        let waits = cancel.clone();
        let waiter = thread::spawn(move || waits.wait_timeout(Duration::from_secs(60)));
        // Gives the waiter a chance to begin. If it begins later, it finds the request cancelled.
        thread::sleep(Duration::from_millis(20));
        runs();
        assert!(waiter.join().unwrap());
    }
}
