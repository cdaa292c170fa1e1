//! A new process takes over from a running one, and no client notices.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use filoplume_tests::{Client, Example, Load, eventually, free_address, one_at_a_time};

/// The number of restarts in a row.
const RESTARTS: usize = 20;

/// A running process. It ends with its test.
struct Instance(Child);

impl Instance {
    fn start(address: SocketAddr, control: &Path) -> Self {
        let mut command = Command::new(Example("restarts").path());
        command.arg(address.to_string()).arg(control);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    fn name(&self) -> String {
        format!("process {}", self.0.id())
    }

    fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    #[track_caller]
    fn ends(&mut self) -> bool {
        eventually("the process ends", || !self.is_running());
        self.0.wait().unwrap().success()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Server {
    instance: Instance,
    address: SocketAddr,
    control: PathBuf,
    _folder: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (address, control) = (free_address(), folder.path().join("control.sock"));
        let instance = Instance::start(address, &control);
        eventually("it answers", || Client::try_connect(address).is_ok() && control.exists());
        Self { instance, address, control, _folder: folder }
    }

    /// Starts a new process, and waits until the old one has ended.
    #[track_caller]
    fn restart(&mut self) {
        let next = Instance::start(self.address, &self.control);
        assert!(self.instance.ends(), "the old process ends in an orderly way");
        self.instance = next;
    }

    fn client(&self) -> Client {
        Client::connect(self.address)
    }
}

#[test]
fn restarts_under_load_are_noticed_by_no_connection() {
    let _alone = one_at_a_time();
    const IDLE: usize = 300;
    let mut server = Server::start();
    let mut idle: Vec<Client> = (0..IDLE).map(|_| server.client()).collect();
    for client in &mut idle {
        assert_eq!(client.get("/").status, 200);
    }
    // Connections without a request, and heads that have begun.
    let mut silent: Vec<Client> = (0..20).map(|_| server.client()).collect();
    let mut half: Vec<Client> = (0..20).map(|_| server.client()).collect();
    for client in &mut half {
        assert_eq!(client.get("/").status, 200);
    }
    // Each client keeps its connection, and each response must be a 200.
    let load = Load::start(server.address, 8, "/");
    load.each_reaches(10);
    for round in 0..RESTARTS {
        let half = &mut half[round];
        half.send("GET / HTTP/1.1\r\nHo");
        server.restart();
        half.send("st: t\r\n\r\n");
        assert_eq!(half.response().text(), server.instance.name(), "round {round}");
        assert_eq!(silent[round].get("/").text(), server.instance.name(), "round {round}");
        load.each_reaches(10 * (round + 2));
    }
    load.stop();
    for client in &mut idle {
        let response = client.get("/");
        assert_eq!((response.text(), response.closes()), (&*server.instance.name(), false));
    }
}

#[test]
fn a_new_process_that_fails_to_start_changes_nothing() {
    let _alone = one_at_a_time();
    let mut server = Server::start();
    let mut client = server.client();
    let name = server.instance.name();
    assert_eq!(client.get("/").text(), name);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    for _ in 0..3 {
        let mut failing = Instance::start(taken.local_addr().unwrap(), &server.control);
        assert!(!failing.ends(), "its address is in use");
        assert_eq!(client.get("/").text(), name);
        assert_eq!(server.client().get("/").text(), name);
    }
    // A process that is killed between two messages.
    let mut stream = UnixStream::connect(&server.control).unwrap();
    stream.read_exact(&mut [0; 10]).unwrap();
    drop(stream);
    assert_eq!(client.get("/").text(), name);
    server.restart();
    assert_eq!(client.get("/").text(), server.instance.name());
}

#[test]
fn only_the_user_can_connect_to_the_control_socket_and_its_file_goes_with_the_server() {
    let _alone = one_at_a_time();
    let mut server = Server::start();
    for _ in 0..2 {
        let mode = server.control.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        server.restart();
    }
    let kill = Command::new("kill").arg(server.instance.0.id().to_string()).status().unwrap();
    assert!(kill.success());
    assert!(server.instance.ends());
    assert!(!server.control.exists());
}
