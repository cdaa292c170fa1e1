//! What systemd and a service tell each other: sockets, readiness, the end, and the watchdog.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{self, Child, Command, Stdio};
use std::time::{Duration, Instant};

use filoplume_tests::{Client, DEADLINE, Example, eventually};

/// A program that was started as systemd does it. It ends with its test.
struct Service(Child);

impl Service {
    /// Starts the program with a socket as descriptor 3.
    fn with_socket(socket: impl Into<OwnedFd>) -> Self {
        let script = "exec 3<&0 </dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$0\"";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(Example("restarts").path());
        Self::start(command.stdin(Stdio::from(socket.into())))
    }

    fn start(command: &mut Command) -> Self {
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn terminate(&mut self) {
        let kill = Command::new("kill").arg(self.0.id().to_string()).status().unwrap();
        assert!(kill.success());
    }

    fn ends(&mut self) {
        eventually("the service ends", || self.0.try_wait().unwrap().is_some());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn process_of(address: SocketAddr) -> String {
    Client::connect(address).get("/").text().to_owned()
}

#[test]
fn a_socket_of_systemd_is_served_and_outlives_the_service() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let mut processes = Vec::new();
    for _ in 0..2 {
        // This client connects before the service runs, and waits in the backlog.
        let mut early = Client::connect(address);
        let mut service = Service::with_socket(socket.try_clone().unwrap());
        processes.push(early.get("/").text().to_owned());
        assert_eq!(process_of(address), *processes.last().unwrap());
        service.terminate();
        service.ends();
    }
    assert_ne!(processes[0], processes[1]);
}

#[test]
fn a_unix_socket_of_systemd_is_served_and_its_file_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.sock");
    let socket = UnixListener::bind(&path).unwrap();
    let mut service = Service::with_socket(socket.try_clone().unwrap());
    let mut client = Client::connect_unix(&path);
    assert!(client.get("/").text().starts_with("process "));
    service.terminate();
    service.ends();
    assert!(path.exists(), "the file belongs to systemd");
}

#[test]
fn a_service_without_sockets_of_systemd_does_not_start() {
    let output = Command::new(Example("restarts").path()).stdin(Stdio::null()).output().unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("LISTEN_FDS") && text.contains(".socket"), "{text}");
}

fn next(notifications: &UnixDatagram) -> String {
    let mut buffer = [0; 256];
    let length = notifications.recv(&mut buffer).unwrap();
    String::from_utf8(buffer[..length].to_vec()).unwrap()
}

#[test]
fn systemd_is_told_that_the_service_is_ready_lives_and_stops() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify.sock");
    let name = format!("filoplume-test-{}", process::id());
    let abstract_address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let sockets = [
        (path.display().to_string(), UnixDatagram::bind(&path).unwrap()),
        (format!("@{name}"), UnixDatagram::bind_addr(&abstract_address).unwrap()),
    ];
    for (name, notifications) in sockets {
        notifications.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut command = Command::new(Example("restarts").path());
        command.arg("127.0.0.1:0").env("NOTIFY_SOCKET", name).env("WATCHDOG_USEC", "200000");
        let mut service = Service::start(&mut command);
        assert_eq!(next(&notifications), format!("READY=1\nMAINPID={}", service.0.id()));
        let started = Instant::now();
        for _ in 0..5 {
            assert_eq!(next(&notifications), "WATCHDOG=1");
        }
        assert!(started.elapsed() >= Duration::from_millis(300), "{:?}", started.elapsed());
        service.terminate();
        while next(&notifications) != "STOPPING=1" {}
        service.ends();
    }
}
