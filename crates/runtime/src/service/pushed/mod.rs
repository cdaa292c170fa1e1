//! Response bodies that other threads push.
//!
//! A handler makes a [`channel`], returns a response with the [`Pushed`] half, and keeps the
//! [`Sender`] or gives it away. The sender's bytes go to the client in chunks, in the order in
//! which they are sent. While nothing is sent, the connection waits on its event loop like an idle
//! one: it needs no thread and no buffer.
//!
//! ```
//! use filoplume_runtime::{Request, Response, pushed};
//! use std::thread;
//!
//! fn count(_: Request) -> Response {
//!     let (sender, body) = pushed::channel();
//!     thread::spawn(move || {
//!         for number in 0..3 {
//!             // Waits while the client is slow. An error says that it has gone.
//!             if sender.send(format!("{number}\n")).is_err() {
//!                 return;
//!             }
//!         }
//!         // Dropping the last sender completes the response.
//!     });
//!     let mut response = Response::default();
//!     response.set_pushed(body);
//!     response
//! }
//! # use filoplume_runtime::{Peer, ServerConfig, answer_in_process};
//! # let input = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
//! # let answer = answer_in_process(&count, Peer::Unix, input, &ServerConfig::default());
//! # assert!(answer.ends_with(b"\r\n0\r\n\r\n"));
//! ```

mod ended;
mod sender;
mod writer;

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread;
use std::time::Duration;

use bytes::Bytes;

use crate::budget::streams::OpenStream;
use crate::service::mailbox::{Mailbox, SendQueue};
use crate::service::panics::note_caught_panic;
use crate::service::request::Request;
use ended::Watch;
pub use ended::{Ended, Outcome};
pub use sender::{SendError, Sender};
pub use writer::StreamWriter;

/// The number of bytes that may wait for a client, unless [`Pushed::capacity`] says otherwise.
/// About as many bytes are in the buffers of the sockets anyway. With this bound, ten thousand
/// clients that do not read hold 640 MB.
pub const CAPACITY: usize = 64 * 1024;

/// Returns a sender and the body that it fills.
///
/// ```
/// use filoplume_runtime::{Response, pushed};
///
/// let (sender, body) = pushed::channel();
/// sender.try_send("first")?;
/// let mut response = Response::default();
/// response.set_pushed(body);
/// assert!(sender.is_open());
/// // The client has gone, or the response was not sent.
/// drop(response);
/// assert_eq!(sender.try_send("second"), Err(pushed::SendError::Gone));
/// # Ok::<(), pushed::SendError>(())
/// ```
pub fn channel() -> (Sender, Pushed) {
    let shared = Arc::new(Shared {
        mailbox: Mailbox::new(CAPACITY),
        senders: AtomicUsize::new(1),
        maker: thread::current().id(),
    });
    let body = Pushed {
        shared: Some(Arc::clone(&shared)),
        options: Options::default(),
        run: None,
        watch: None,
        beginning: None,
    };
    (Sender::new(shared), body)
}

/// What senders and the body share.
pub(crate) struct Shared {
    pub(crate) mailbox: Mailbox,
    senders: AtomicUsize,
    /// The thread that made the channel. It must not wait for room before the response has begun,
    /// because it is usually the one that has to return the response.
    maker: thread::ThreadId,
}

impl Shared {
    fn queue(&self) -> &SendQueue {
        &self.mailbox.queue
    }
}

/// A response body that [`Sender`]s fill. See
/// [`Response::set_pushed`](crate::Response::set_pushed).
///
/// ```
/// use filoplume_runtime::{Request, Response, pushed};
/// use std::time::Duration;
///
/// let service = |_: Request| {
///     let (sender, body) = pushed::channel();
///     let mut response = Response::default();
///     // A client that does not read may have 1 MiB waiting, and one that is idle gets a dot.
///     response.set_pushed(body.capacity(1 << 20).keep_alive(Duration::from_secs(30), "."));
///     std::thread::spawn(move || sender.send("later"));
///     response
/// };
/// # let _: Box<dyn filoplume_runtime::Service> = Box::new(service);
/// ```
#[must_use]
pub struct Pushed {
    /// `None` once the engine has taken it.
    shared: Option<Arc<Shared>>,
    pub(crate) options: Options,
    run: Option<Run>,
    watch: Option<Box<Watch>>,
    beginning: Option<Beginning>,
}

/// Returns the next piece of what precedes the bytes of senders.
type Beginning = Box<dyn FnMut() -> Option<Bytes> + Send>;

/// Code that fills a body. Its argument counts its thread, and is `None` without a server.
pub(crate) type Run = Box<dyn FnOnce(Option<OpenStream>) + Send>;

/// How a pushed body is sent.
#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) is_endless: bool,
    pub(crate) keep_alive: Option<KeepAlive>,
    pub(crate) sends_trailers: bool,
}

/// Bytes that are sent when nothing else was sent for a while.
#[derive(Debug)]
pub(crate) struct KeepAlive {
    pub(crate) interval: Duration,
    pub(crate) bytes: Bytes,
}

impl Pushed {
    /// Returns a body that `write` writes, on a thread of the pool. It begins when the response's
    /// head is sent, and waits while the client is slow. Bodies that are written and upgraded
    /// connections hold at most half of [`threads_max`](crate::ServerConfig::threads_max) together,
    /// and those of one client an eighth. Without a free thread the response is a `503`. While half
    /// of the threads wait for peers, a client that takes nothing for two seconds is cut off. If
    /// `write` returns an error or panics, the client sees a response that is cut short. `?`
    /// converts the errors of many libraries that write into an [`io::Error`]; others need
    /// `.map_err(io::Error::other)?`.
    ///
    /// On Linux, the code of these bodies and of upgraded connections computes in turns, on as many
    /// threads at a time as keep the processors busy. Code that waits for a client, or for anything
    /// else, delays nobody.
    ///
    /// Prefer a [`channel`] for bodies that are silent for long: they need no thread.
    ///
    /// ```
    /// use filoplume_runtime::{Request, Response, pushed::Pushed};
    /// use std::io::Write;
    ///
    /// let service = |_: Request| {
    ///     let mut response = Response::default();
    ///     response.set_pushed(Pushed::written(|out| {
    ///         for number in 1..=3 {
    ///             writeln!(out, "line {number}")?;
    ///         }
    ///         Ok(())
    ///     }));
    ///     response
    /// };
    /// # use filoplume_runtime::{Peer, ServerConfig, answer_in_process};
    /// # let input = b"GET / HTTP/1.0\r\n\r\n";
    /// # let answer = answer_in_process(&service, Peer::Unix, input, &ServerConfig::default());
    /// # assert!(answer.ends_with(b"\r\n\r\nline 1\nline 2\nline 3\n"));
    /// ```
    pub fn written(
        write: impl FnOnce(&mut StreamWriter) -> io::Result<()> + Send + 'static,
    ) -> Self {
        let (sender, mut body) = channel();
        body.run = Some(Box::new(move |open| writer::run(sender, open, write)));
        body
    }

    /// Sets how many bytes may wait for the client. The default is [`CAPACITY`].
    pub fn capacity(self, bytes: usize) -> Self {
        if let Some(shared) = &self.shared {
            shared.queue().set_bytes_max(bytes);
        }
        self
    }

    /// Says that the body has no end of its own, like a stream of events. When the server shuts
    /// down, it completes the response, and senders get [`SendError::Stopping`]. Without this,
    /// senders have the drain time to complete the response; they can ask [`Sender::is_stopping`].
    pub fn endless(mut self) -> Self {
        self.options.is_endless = true;
        self
    }

    /// Sends `bytes` whenever nothing else was sent for `interval`, so that proxies do not close
    /// the connection and a client that has vanished is noticed. The event loop does this without a
    /// thread. A zero interval is ignored.
    pub fn keep_alive(mut self, interval: Duration, bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let is_valid = !interval.is_zero() && !bytes.is_empty();
        self.options.keep_alive = is_valid.then_some(KeepAlive { interval, bytes });
        self
    }

    /// Sends the fields of [`Sender::finish_with`] as trailers, if the client said `TE: trailers`
    /// (RFC 9110, section 6.5.1). Otherwise they are dropped. The caller declares their names with
    /// a `Trailer` header.
    pub fn trailers(mut self, request: &Request) -> Self {
        self.options.sends_trailers = request.accepts_trailers();
        self
    }

    /// Sends what `next` returns before anything that senders send, until it returns `None`. The
    /// event loop calls it whenever the client has taken what came before, so that a slow client
    /// holds one piece at most, however much it will get. It must not wait, and an empty piece ends
    /// the beginning.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use filoplume_runtime::{Request, Response, pushed};
    ///
    /// fn history(_: Request) -> Response {
    ///     let (sender, body) = pushed::channel();
    ///     let mut kept = ["one ", "two "].into_iter().map(Bytes::from);
    ///     let mut response = Response::default();
    ///     response.set_pushed(body.begin_with(move || kept.next()));
    ///     let _ = sender.send("three");
    ///     response
    /// }
    /// # use filoplume_runtime::{Peer, ServerConfig, answer_in_process};
    /// # let input = b"GET / HTTP/1.0\r\n\r\n";
    /// # let answer = answer_in_process(&history, Peer::Unix, input, &ServerConfig::default());
    /// # assert!(answer.ends_with(b"\r\n\r\none two three"));
    /// ```
    pub fn begin_with(mut self, next: impl FnMut() -> Option<Bytes> + Send + 'static) -> Self {
        self.beginning = Some(Box::new(next));
        self
    }

    /// Returns the next piece of the beginning, until it is over or the body ends.
    pub(crate) fn next_of_beginning(&mut self) -> io::Result<Option<Bytes>> {
        let Some(mut next) = self.beginning.take() else { return Ok(None) };
        let stops = |shared: &Arc<Shared>| shared.queue().is_stopping();
        let is_over = self.options.is_endless && self.shared.as_ref().is_some_and(stops);
        // `next` is code of the program, and so is what runs when it is dropped.
        let taken = catch_unwind(AssertUnwindSafe(move || {
            let piece = if is_over { None } else { next() };
            let piece = piece.filter(|piece| !piece.is_empty())?;
            Some((piece, next))
        }));
        match taken {
            Ok(Some((piece, next))) => {
                self.beginning = Some(next);
                Ok(Some(piece))
            }
            Ok(None) => Ok(None),
            Err(_) => {
                note_caught_panic();
                Err(io::Error::other("the beginning of the body panicked"))
            }
        }
    }

    /// Calls `tell` when the body has ended, or when nothing of it will be sent. It is for logs,
    /// and may run on an event loop: it must not wait. Functions that were given earlier are called
    /// first.
    ///
    /// ```
    /// use filoplume_runtime::{Request, Response, pushed};
    ///
    /// fn count(_: Request) -> Response {
    ///     let (sender, body) = pushed::channel();
    ///     let _ = sender.try_send("1 2 3");
    ///     let mut response = Response::default();
    ///     response.set_pushed(body.on_end(|ended| println!("{} bytes", ended.bytes)));
    ///     response
    /// }
    /// # use filoplume_runtime::{Peer, ServerConfig, answer_in_process};
    /// # let input = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    /// # answer_in_process(&count, Peer::Unix, input, &ServerConfig::default());
    /// ```
    pub fn on_end(mut self, tell: impl FnOnce(&Ended<'_>) + Send + 'static) -> Self {
        let watch = Watch::new(tell);
        self.watch = Some(Box::new(match self.watch.take() {
            Some(first) => watch.behind(*first),
            None => watch,
        }));
        self
    }

    /// Counts bytes that are passed on to the client.
    pub(crate) fn count(&mut self, bytes: usize) {
        if let Some(watch) = &mut self.watch {
            watch.bytes += bytes as u64;
        }
    }

    /// Calls the functions of [`on_end`](Self::on_end). Later ends are ignored.
    pub(crate) fn ended(&mut self, outcome: Outcome<'_>) {
        if let Some(watch) = self.watch.take() {
            watch.tell(outcome);
        }
    }

    /// Takes the code that fills the body, which the engine must run.
    pub(crate) fn take_run(&mut self) -> Option<Run> {
        self.run.take()
    }

    pub(crate) fn mailbox(&self) -> Option<&Mailbox> {
        self.shared.as_deref().map(|shared| &shared.mailbox)
    }
}

impl Drop for Pushed {
    fn drop(&mut self) {
        // The response is complete, the client has gone, or nothing of the body is sent.
        if let Some(shared) = self.shared.take() {
            shared.queue().close();
        }
        let is_end = self.options.is_endless;
        self.ended(if is_end { Outcome::Complete } else { Outcome::Gone });
    }
}

impl fmt::Debug for Pushed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pushed").field("options", &self.options).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;
    use crate::service::mailbox::{End, Rest};

    /// An empty chunk would be the last one.
    #[test]
    fn nothing_is_no_sign_of_life() {
        let second = Duration::from_secs(1);
        let keeps = |interval, bytes: &'static str| {
            channel().1.keep_alive(interval, bytes).options.keep_alive.is_some()
        };
        assert!(keeps(second, "."));
        assert!(!keeps(second, ""));
        assert!(!keeps(Duration::ZERO, "."));
    }

    #[test]
    fn a_beginning_ends_with_an_empty_piece_and_when_an_endless_body_has_to() {
        let (_sender, body) = channel();
        let mut pieces = ["one", "", "two"].into_iter().map(Bytes::from);
        let mut body = body.begin_with(move || pieces.next());
        assert_eq!(body.next_of_beginning().unwrap(), Some(Bytes::from("one")));
        assert_eq!(body.next_of_beginning().unwrap(), None);
        assert_eq!(body.next_of_beginning().unwrap(), None);

        for is_endless in [true, false] {
            let (_sender, body) = channel();
            let mut body = body.begin_with(|| Some(Bytes::from("more")));
            body.options.is_endless = is_endless;
            body.mailbox().unwrap().queue.stop(is_endless);
            assert_eq!(body.next_of_beginning().unwrap().is_none(), is_endless);
        }
    }

    #[test]
    fn those_that_wait_for_the_end_are_told_in_their_order() {
        let (tell, told) = mpsc::channel();
        let (_sender, mut body) = channel();
        for number in 0..3 {
            let tell = tell.clone();
            body = body.on_end(move |_| tell.send(number).unwrap());
        }
        drop(body);
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn only_an_endless_body_is_complete_when_it_is_dropped() {
        for is_endless in [true, false] {
            let (tell, told) = mpsc::channel();
            let (_sender, mut body) = channel();
            body.options.is_endless = is_endless;
            drop(body.on_end(move |ended| {
                tell.send(matches!(ended.outcome, Outcome::Complete)).unwrap();
            }));
            assert_eq!(told.try_recv(), Ok(is_endless));
        }
    }

    #[test]
    fn the_last_sender_that_is_dropped_ends_the_body() {
        let (sender, body) = channel();
        let queue = &body.mailbox().unwrap().queue;
        let clone = sender.clone();
        drop(sender);
        assert!(queue.check().is_ok());
        drop(clone);
        assert!(queue.check().is_err());
    }

    /// Otherwise the client would take what is there for the whole response.
    #[test]
    fn a_thread_that_panics_with_a_sender_fails_the_body() {
        for others in [0, 1] {
            let (sender, body) = channel();
            let _others = vec![sender.clone(); others];
            let panicked = thread::spawn(move || {
                let _sender = sender;
                panic!("this is a test");
            });
            assert!(panicked.join().is_err());
            let queue = &body.mailbox().unwrap().queue;
            let (_, rest) = queue.take_framed(100, &mut Vec::new(), |_, _| ());
            assert!(matches!(rest, Rest::End(End::Failed(_))), "{others} others: {rest:?}");
        }
    }

    #[test]
    fn only_the_thread_that_has_to_return_the_response_never_waits() {
        let (sender, body) = channel();
        let _body = body.capacity(4);
        sender.try_send("full").unwrap();
        assert_eq!(sender.send("more"), Err(SendError::Full));
        let timeout = Duration::from_millis(20);
        thread::scope(|scope| {
            scope.spawn(|| {
                let started = Instant::now();
                assert_eq!(sender.send_timeout("more", timeout), Err(SendError::Full));
                assert!(started.elapsed() >= timeout, "it waits for room");
            });
        });
    }

    #[test]
    fn a_lack_of_room_or_memory_passes() {
        assert!(SendError::Full.is_temporary() && SendError::OutOfMemory.is_temporary());
        for lasting in [SendError::Gone, SendError::Stopping, SendError::Ended] {
            assert!(!lasting.is_temporary(), "{lasting}");
        }
    }
}
