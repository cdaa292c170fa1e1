//! What systemd and a service tell each other: sockets that systemd has bound, and messages about
//! the state of the service (`sd_listen_fds(3)`, `sd_notify(3)`, `sd_watchdog_enabled(3)`).

use std::env;
use std::io;
#[cfg(feature = "systemd")]
use std::net::TcpListener;
#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::Server;
use crate::engine::Engine;
#[cfg(feature = "systemd")]
use crate::engine::listener::Bound;
use crate::execution::scheduling::with_normal_policy;
use crate::metrics::Phase;

/// The socket to which messages for systemd go.
#[derive(Debug)]
struct Notifier {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl Notifier {
    /// Returns `None` if the program was not started by systemd, or not as a `Type=notify` service.
    fn from_env() -> io::Result<Option<Self>> {
        let Some(name) = env::var_os("NOTIFY_SOCKET") else { return Ok(None) };
        let name = name.as_encoded_bytes();
        let address = match name.strip_prefix(b"@") {
            Some(name) => abstract_address(name)?,
            None => {
                use std::os::unix::ffi::OsStrExt;
                SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name))?
            }
        };
        Ok(Some(Self { socket: UnixDatagram::unbound()?, address }))
    }

    fn send(&self, state: &str) {
        if let Err(error) = self.socket.send_to_addr(state.as_bytes(), &self.address) {
            tracing::warn!(%error, state, "systemd cannot be notified");
        }
    }
}

#[cfg(target_os = "linux")]
fn abstract_address(name: &[u8]) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn abstract_address(_: &[u8]) -> io::Result<SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Server {
    pub(super) fn notify(&self) -> io::Result<()> {
        let (Some(notifier), Some(engine)) = (Notifier::from_env()?, self.engine()) else {
            return Ok(());
        };
        let notifier = Arc::new(notifier);
        // The process ID matters after a restart in which another process took over.
        notifier.send(&format!("READY=1\nMAINPID={}", std::process::id()));
        let stopping = Arc::clone(&notifier);
        let served = Arc::downgrade(&engine);
        let tell = move || {
            if let Some(engine) = served.upgrade() {
                tell_of_end(&engine, &stopping);
            }
        };
        self.stopping().on_stopping(tell).keep();
        let [process, interval] = ["WATCHDOG_PID", "WATCHDOG_USEC"].map(|name| env::var(name).ok());
        if let Some(interval) = watchdog_interval(process.as_deref(), interval.as_deref()) {
            let name = format!("{}-notify", engine.config.thread_name);
            let run = with_normal_policy(move || keep_alive(&engine, &notifier, interval));
            thread::Builder::new().name(name).spawn(run)?;
        }
        Ok(())
    }
}

/// Tells systemd that the service ends. After a handover it continues in the next process.
fn tell_of_end(engine: &Engine, notifier: &Notifier) {
    if !engine.is_handing_over() {
        notifier.send("STOPPING=1");
    }
}

/// Returns how often systemd expects a message of this process, if it does.
fn watchdog_interval(process: Option<&str>, microseconds: Option<&str>) -> Option<Duration> {
    let is_ours = process.is_none_or(|process| process.parse() == Ok(std::process::id()));
    let microseconds: u64 = microseconds?.parse().ok()?;
    (is_ours && microseconds > 0).then(|| Duration::from_micros(microseconds))
}

/// Tells systemd regularly that all event loops respond, until the server has ended.
fn keep_alive(engine: &Engine, notifier: &Notifier, interval: Duration) {
    while engine.phase() != Phase::Stopped {
        tell_of_life(engine, notifier, interval / 4);
        // With the time of the check this is at most three quarters of the interval.
        thread::sleep(interval / 2);
    }
}

/// Tells systemd that all event loops have responded within this time, if they have.
fn tell_of_life(engine: &Engine, notifier: &Notifier, timeout: Duration) {
    if engine.responds_within(timeout) {
        notifier.send("WATCHDOG=1");
    } else {
        tracing::error!("an event loop does not respond: the watchdog of systemd is not told");
    }
}

/// Returns the sockets that systemd has bound for this process.
#[cfg(feature = "systemd")]
pub(super) fn sockets() -> io::Result<Vec<Bound>> {
    use listenfd::ListenFd;

    let mut passed = ListenFd::from_env();
    let mut bound = Vec::with_capacity(passed.len());
    for index in 0..passed.len() {
        if let Ok(Some(listener)) = passed.take_tcp_listener(index) {
            bound.push(of_systemd(listener)?);
        } else if let Some(listener) = passed.take_unix_listener(index)? {
            bound.push(Bound::from_unix_std(listener)?);
        }
    }
    Ok(bound)
}

/// Wraps a socket that systemd keeps open. With further sockets, requests would be lost at the end.
#[cfg(feature = "systemd")]
fn of_systemd(listener: TcpListener) -> io::Result<Bound> {
    Ok(Bound::from_std(listener)?.alone())
}

#[cfg(all(test, target_os = "linux", not(loom)))]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;
    use crate::config::ServerConfig;
    use crate::engine::tests::{event_loops, pulled};

    /// Returns a notifier, and where its messages arrive.
    fn notifier() -> (Notifier, UnixDatagram) {
        // The system chooses an abstract name.
        let messages = UnixDatagram::unbound().unwrap();
        let any = rustix::net::SocketAddrUnix::new_unnamed();
        rustix::net::bind(&messages, &any).unwrap();
        messages.set_nonblocking(true).unwrap();
        let address = messages.local_addr().unwrap();
        (Notifier { socket: UnixDatagram::unbound().unwrap(), address }, messages)
    }

    fn next(messages: &UnixDatagram) -> Option<String> {
        let mut buffer = [0; 64];
        let length = messages.recv(&mut buffer).ok()?;
        Some(String::from_utf8(buffer[..length].to_vec()).unwrap())
    }

    #[test]
    fn the_watchdog_expects_messages_of_its_process_only() {
        let own = std::process::id().to_string();
        let other = (std::process::id() + 1).to_string();
        for (process, microseconds, expected) in [
            (None, Some("200000"), Some(Duration::from_millis(200))),
            (Some(own.as_str()), Some("1"), Some(Duration::from_micros(1))),
            (Some(other.as_str()), Some("200000"), None),
            (Some("?"), Some("200000"), None),
            (None, Some("0"), None),
            (None, Some("?"), None),
            (None, None, None),
        ] {
            let interval = watchdog_interval(process, microseconds);
            assert_eq!(interval, expected, "{process:?} {microseconds:?}");
        }
    }

    #[test]
    fn systemd_is_not_told_while_a_loop_does_not_respond() {
        let engine = pulled(ServerConfig::default());
        // Nobody leads it.
        let [event_loop] = event_loops(&engine);
        let (notifier, messages) = notifier();
        tell_of_life(&engine, &notifier, Duration::from_millis(1));
        assert_eq!(next(&messages), None);
        drop(event_loop);
        tell_of_life(&engine, &notifier, Duration::from_secs(60));
        assert_eq!(next(&messages).unwrap(), "WATCHDOG=1");
    }

    #[test]
    fn a_service_that_goes_on_in_the_next_process_does_not_stop() {
        let engine = pulled(ServerConfig::default());
        let (notifier, messages) = notifier();
        tell_of_end(&engine, &notifier);
        assert_eq!(next(&messages).unwrap(), "STOPPING=1");
        let _connections = engine.begin_handover(crossbeam_channel::bounded(0).1);
        tell_of_end(&engine, &notifier);
        assert_eq!(next(&messages), None);
    }

    #[cfg(feature = "systemd")]
    #[test]
    fn a_socket_of_systemd_stays_the_only_one_of_its_address() {
        let bound = of_systemd(TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
        assert!(format!("{bound:?}").contains("is_alone: true"), "{bound:?}");
        assert_eq!(bound.listen(16, 2).unwrap().len(), 1);
    }
}
