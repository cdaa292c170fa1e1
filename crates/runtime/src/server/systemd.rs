//! What systemd and a service tell each other: sockets that systemd has bound, and messages about
//! the state of the service (`sd_listen_fds(3)`, `sd_notify(3)`, `sd_watchdog_enabled(3)`).

use std::env;
use std::io;
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
            // After a handover the service continues in the next process.
            if served.upgrade().is_some_and(|engine| !engine.is_handing_over()) {
                stopping.send("STOPPING=1");
            }
        };
        self.stopping().on_stopping(tell).keep();
        if let Some(interval) = watchdog_interval() {
            let name = format!("{}-notify", engine.config.thread_name);
            let run = with_normal_policy(move || keep_alive(&engine, &notifier, interval));
            thread::Builder::new().name(name).spawn(run)?;
        }
        Ok(())
    }
}

/// Returns how often systemd expects a message, if it does.
fn watchdog_interval() -> Option<Duration> {
    let is_ours =
        env::var("WATCHDOG_PID").map_or(true, |process| process.parse() == Ok(std::process::id()));
    let microseconds: u64 = env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
    (is_ours && microseconds > 0).then(|| Duration::from_micros(microseconds))
}

/// Tells systemd regularly that all event loops respond, until the server has ended.
fn keep_alive(engine: &Engine, notifier: &Notifier, interval: Duration) {
    while engine.phase() != Phase::Stopped {
        if engine.responds_within(interval / 4) {
            notifier.send("WATCHDOG=1");
        } else {
            tracing::error!("an event loop does not respond: the watchdog of systemd is not told");
        }
        // With the time of the check this is at most three quarters of the interval.
        thread::sleep(interval / 2);
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
            bound.push(Bound::from_std(listener)?.alone());
        } else if let Some(listener) = passed.take_unix_listener(index)? {
            bound.push(Bound::from_unix_std(listener)?);
        }
    }
    Ok(bound)
}
