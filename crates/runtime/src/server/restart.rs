//! A new process takes over from a running one.
//!
//! ```text
//!   new process                                   old process
//!   connects to the control socket  ------------> checks that the user is the same
//!                                   <------------ its listeners and the control socket itself
//!   starts its event loops
//!   `ready`                         ------------>
//!                                   <------------ `yours`; stops accepting
//!                                   <------------ each connection as soon as it is idle
//!                                   <------------ closes the control connection, and ends
//! ```
//!
//! Until `yours` the old process is in charge: if the new one fails before, nothing has changed.
//! Both accept from the same sockets meanwhile, so there is no moment at which nobody does.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use socket2::{SockRef, Socket};

use super::passing::{Item, receive, send_connection, send_end, send_socket};
use crate::budget::descriptors::{limit, raise_limit};
use crate::engine::Engine;
use crate::engine::listener::{UnixPath, bind_unix_listener};
use crate::execution::scheduling::with_normal_policy;

/// How long a new process may take from its connection until it serves. It loads its state
/// meanwhile.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a message between the processes may take. Short in tests.
const MESSAGE_TIMEOUT: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 10_000 });

/// Descriptors that a new process may need beside those of the connections.
const DESCRIPTORS_EXTRA: usize = 256;

/// Maximum number of descriptors for which room is made in advance: 8 MiB of the kernel's memory.
const DESCRIPTORS_MAX: usize = 1024 * 1024;

const READY: [u8; 6] = *b"ready\n";
const YOURS: [u8; 6] = *b"yours\n";

/// The control socket of a server that can be taken over.
#[derive(Debug)]
pub(super) struct Restart {
    path: PathBuf,
    /// The running server, if there is one.
    predecessor: Option<Predecessor>,
}

#[derive(Debug)]
struct Predecessor {
    stream: UnixStream,
    control: OwnedFd,
}

impl Restart {
    /// Connects to the control socket at `path`. Returns the listeners of the running server, if
    /// there is one.
    pub(super) fn prepare(path: &Path) -> io::Result<(Self, Vec<Socket>)> {
        use io::ErrorKind::{ConnectionRefused, NotFound};

        let path = path.to_owned();
        let mut stream = match UnixStream::connect(&path) {
            Ok(stream) => stream,
            Err(error) if matches!(error.kind(), ConnectionRefused | NotFound) => {
                return Ok((Self { path, predecessor: None }, Vec::new()));
            }
            Err(error) => return Err(at_path(&path, &error)),
        };
        check_user(&stream)?;
        stream.set_read_timeout(Some(MESSAGE_TIMEOUT))?;
        stream.set_write_timeout(Some(MESSAGE_TIMEOUT))?;
        let (mut listeners, mut control) = (Vec::new(), None);
        loop {
            match receive(&mut stream).map_err(no_answer)? {
                Item::Listener(socket) => listeners.push(Socket::from(socket)),
                Item::Control(socket) => control = Some(socket),
                Item::End { connections } => {
                    reserve_descriptors(&stream, connections);
                    break;
                }
                Item::Connection(_) => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        let control = control.ok_or(io::ErrorKind::InvalidData)?;
        let predecessor = Some(Predecessor { stream, control });
        Ok((Self { path, predecessor }, listeners))
    }

    /// Takes over from the running server, if there is one, and waits for the next process.
    /// `engine` serves already.
    pub(super) fn complete(self, engine: &Arc<Engine>) -> io::Result<()> {
        let (control, predecessor) = match self.predecessor {
            Some(Predecessor { stream, control }) => (UnixListener::from(control), Some(stream)),
            None => {
                let bound = bind_control(&self.path);
                (bound.map_err(|error| at_path(&self.path, &error))?, None)
            }
        };
        // The non-blocking mode belongs to the socket: if the old process had set it, it would
        // apply here too.
        control.set_nonblocking(false)?;
        let wakes = control.try_clone()?;
        // The threads are started before the old process gives anything up. They wait for what they
        // need, and end if that never comes.
        let name = engine.config.thread_name.clone();
        let (offer, offered) = later::<(Arc<Offer>, UnixPath)>();
        let waits = Arc::clone(engine);
        spawn(&name, "control", move || {
            if let Some((offer, path)) = offered.wait() {
                wait_for_successor(&waits, &control, path, &offer);
            }
        })?;
        if let Some(mut stream) = predecessor {
            let (receive, received) = later();
            let receiver = Arc::clone(engine);
            spawn(&name, "takeover", move || {
                if let Some(stream) = received.wait() {
                    receive_connections(&receiver, stream);
                    receiver.end_receiving();
                }
            })?;
            stream.write_all(&READY)?;
            expect(&mut stream, YOURS).map_err(no_answer)?;
            tracing::info!("took over from the running server");
            // The old process may have long requests to finish.
            stream.set_read_timeout(None)?;
            engine.begin_receiving();
            receive.give(stream);
        }
        let stops = Arc::new(Offer::default());
        offer.give((Arc::clone(&stops), UnixPath::new(self.path)));
        engine.on_begin_to_stop(move || {
            // Wakes the thread that accepts.
            if stops.end() {
                let _ = SockRef::from(&wakes).shutdown(std::net::Shutdown::Both);
            }
        });
        Ok(())
    }
}

/// What a thread gets after it was started. A channel does the same, and would make each program
/// larger by 15 KB for each type.
struct Later<T> {
    value: Mutex<Value<T>>,
    given: Condvar,
}

enum Value<T> {
    Awaited,
    Given(T),
    /// It never comes.
    Over,
}

struct Giver<T>(Arc<Later<T>>);

struct Waiter<T>(Arc<Later<T>>);

fn later<T>() -> (Giver<T>, Waiter<T>) {
    let later = Arc::new(Later { value: Mutex::new(Value::Awaited), given: Condvar::new() });
    (Giver(Arc::clone(&later)), Waiter(later))
}

impl<T> Giver<T> {
    fn give(self, value: T) {
        *self.0.value.lock() = Value::Given(value);
    }
}

impl<T> Drop for Giver<T> {
    fn drop(&mut self) {
        let mut value = self.0.value.lock();
        if matches!(*value, Value::Awaited) {
            *value = Value::Over;
        }
        drop(value);
        self.0.given.notify_one();
    }
}

impl<T> Waiter<T> {
    /// Returns `None` if the giver was dropped.
    fn wait(self) -> Option<T> {
        let mut value = self.0.value.lock();
        self.0.given.wait_while(&mut value, |value| matches!(value, Value::Awaited));
        match std::mem::replace(&mut *value, Value::Over) {
            Value::Given(value) => Some(value),
            Value::Awaited | Value::Over => None,
        }
    }
}

/// Decides whether the control socket may be shut down. As soon as it is offered to a new process,
/// it belongs to both processes, and a shutdown would end it for both.
#[derive(Debug, Default)]
struct Offer(Mutex<Offered>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Offered {
    #[default]
    No,
    /// It is offered to a process that has not failed.
    Yes,
    /// It will never be offered, because the server stops.
    Never,
}

impl Offer {
    /// Returns whether a new process may be offered the socket.
    fn begin(&self) -> bool {
        let mut offered = self.0.lock();
        if *offered == Offered::No {
            *offered = Offered::Yes;
        }
        *offered == Offered::Yes
    }

    /// Records that the new process has failed.
    fn fail(&self) {
        *self.0.lock() = Offered::No;
    }

    /// Records that the server stops. Returns whether the socket may be shut down.
    fn end(&self) -> bool {
        let mut offered = self.0.lock();
        if *offered == Offered::No {
            *offered = Offered::Never;
        }
        *offered == Offered::Never
    }
}

fn spawn(prefix: &str, name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let name = format!("{prefix}-{name}");
    thread::Builder::new().name(name).spawn(with_normal_policy(run)).map(drop)
}

/// Binds the control socket. Only this user may connect: see also [`check_user`], because the mode
/// is set after the socket is bound.
fn bind_control(path: &Path) -> io::Result<UnixListener> {
    let listener = bind_unix_listener(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Says which file an error is about.
fn at_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("control socket {}: {error}", path.display()))
}

/// Says what it means that the running server is silent. The system only says that there is nothing
/// to read.
fn no_answer(error: io::Error) -> io::Error {
    if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) {
        return error;
    }
    let reason = "the running server does not answer; it is being taken over by another process, \
                  or it hangs. Try again later";
    io::Error::new(io::ErrorKind::TimedOut, reason)
}

/// Fails if the peer runs as another user.
fn check_user(stream: &UnixStream) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        let peer = rustix::net::sockopt::socket_peercred(stream)?;
        if peer.uid != rustix::process::geteuid() {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the process at the control socket runs as another user",
            ));
        }
    }
    let _ = stream;
    Ok(())
}

fn expect(mut stream: impl Read, expected: [u8; 6]) -> io::Result<()> {
    let mut received = [0; 6];
    stream.read_exact(&mut received)?;
    if received == expected { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Accepts processes at the control socket until one has taken over or the server stops.
fn wait_for_successor(engine: &Arc<Engine>, control: &UnixListener, path: UnixPath, state: &Offer) {
    loop {
        let stream = match control.accept() {
            Ok((stream, _)) => stream,
            // The server stops, or there is no descriptor left: then nobody can take over.
            Err(_) if engine.is_stopping() => return,
            Err(error) => {
                tracing::warn!(%error, "the control socket does not accept");
                thread::sleep(Duration::from_secs(1));
                continue;
            }
        };
        if !state.begin() {
            return;
        }
        match offer(engine, &stream, control) {
            Ok(()) => {
                // The file belongs to the new process.
                path.keep();
                give_connections(engine, &stream);
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "a new process failed to take over: this one continues");
                state.fail();
                // If this server began to stop meanwhile, the socket was not shut down, and
                // `accept` would wait for ever.
                if engine.is_stopping() {
                    return;
                }
            }
        }
    }
}

/// Passes the listeners on, and waits until the new process serves.
fn offer(engine: &Engine, mut stream: &UnixStream, control: &UnixListener) -> io::Result<()> {
    check_user(stream)?;
    stream.set_write_timeout(Some(MESSAGE_TIMEOUT))?;
    stream.set_read_timeout(Some(START_TIMEOUT))?;
    for listener in engine.clone_listeners() {
        send_socket(stream, listener.as_fd(), false)?;
    }
    send_socket(stream, control.as_fd(), true)?;
    let connections = engine.counters.connections.get();
    send_end(stream, usize::try_from(connections).unwrap_or(usize::MAX))?;
    expect(stream, READY).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), "it ended before it served"),
        _ => error,
    })?;
    if engine.is_draining() {
        return Err(io::Error::other("this server is draining already"));
    }
    stream.write_all(&YOURS)
}

/// Makes room for `connections` in the table of descriptors. While a process has several threads,
/// each doubling of the table takes the kernel an RCU grace period, which can be some hundred
/// milliseconds, and the connections would wait for all these periods.
fn reserve_descriptors(stream: &UnixStream, connections: usize) {
    raise_limit();
    let highest = connections.saturating_add(DESCRIPTORS_EXTRA);
    let highest = limit().map_or(highest, |limit| highest.min(limit.saturating_sub(1)));
    if let Ok(highest) = RawFd::try_from(highest.min(DESCRIPTORS_MAX)) {
        // The table does not shrink when the descriptor is closed.
        drop(rustix::io::fcntl_dupfd_cloexec(stream, highest));
    }
}

/// Sends connections to the new process until all are sent or closed.
fn give_connections(engine: &Engine, stream: &UnixStream) {
    tracing::info!(phase = "draining", "a new process has taken over: handing connections over");
    let (flushed, is_flushed) = crossbeam_channel::bounded(0);
    let (mut sent, mut lost) = (0_u64, 0_u64);
    for connection in engine.begin_handover(is_flushed) {
        // After an error a part of a message may have been sent, so nothing may follow it.
        if lost == 0 {
            match send_connection(stream, &connection) {
                Ok(()) => sent += 1,
                Err(error) => {
                    lost = 1;
                    tracing::warn!(%error, "the new process does not take connections any more");
                }
            }
        } else {
            lost += 1;
        }
    }
    drop(flushed);
    tracing::info!(sent, lost, "handed connections over");
}

/// Continues the connections of the old process until it has ended.
fn receive_connections(engine: &Engine, mut stream: UnixStream) {
    for number in 0.. {
        match receive(&mut stream) {
            Ok(Item::Connection(resumed)) => engine.resume(resumed, number),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return,
            Err(error) => {
                tracing::warn!(%error, "the old process is gone before its connections");
                return;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn a_running_server_that_does_not_answer_is_named_as_the_reason() {
        let path = std::env::temp_dir().join(format!("filoplume-silent-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let error = Restart::prepare(&path).unwrap_err();
        drop(listener);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("does not answer"), "{error}");
    }

    #[test]
    fn a_server_that_has_offered_its_sockets_stops_by_itself_only_if_the_offer_has_failed() {
        let offer = Offer::default();
        assert!(offer.begin());
        assert!(!offer.end(), "the next process may take over at any moment");
        offer.fail();
        assert!(offer.begin(), "another process may try");
        offer.fail();
        assert!(offer.end() && offer.end());
        assert!(!offer.begin(), "nothing is left to offer");
    }
}
