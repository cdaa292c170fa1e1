//! A new process takes over from a running one, and no client notices.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(clippy::print_stdout, reason = "figures are for those who read the output of a test")]

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::{Request, Server as Bound, ServerConfig};
use filoplume_tests::{Client, Example, Load, eventually, free_address, one_at_a_time};

/// The number of restarts in a row.
const RESTARTS: usize = 20;

/// How long a head may take in either process. A restart on a busy machine may take longer. The
/// client then gets a 408, as it would without a restart.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

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
    let idle_count = setting("RESTART_IDLE", 300);
    let restarts = setting("RESTART_ROUNDS", RESTARTS);
    let mut server = Server::start();
    let mut idle: Vec<Client> = Vec::new();
    for _ in 0..idle_count {
        let mut client = server.client();
        assert_eq!(client.get("/").status, 200);
        idle.push(client);
    }
    // Clients that have sent half a head when a restart begins.
    let mut half: Vec<Client> = (0..restarts).map(|_| server.client()).collect();
    for client in &mut half {
        assert_eq!(client.get("/").status, 200);
    }
    // Each client keeps its connection, and each response must be a 200.
    let load = Load::start(server.address, 8, "/");
    load.each_reaches(10);
    let (mut longest, mut resumed) = (Duration::ZERO, 0);
    for round in 0..restarts {
        let half = &mut half[round];
        let began = Instant::now();
        // The time for its first head begins now, and goes on in the next process.
        let mut silent = server.client();
        half.send("GET / HTTP/1.1\r\nHo");
        server.restart();
        longest = longest.max(began.elapsed());
        // The server would close these two connections if the restart took about as long as a head
        // may.
        if began.elapsed() < HEAD_TIMEOUT / 2 {
            half.send("st: t\r\n\r\n");
            for response in [half.response(), silent.get("/")] {
                assert_eq!(response.text(), server.instance.name(), "round {round}");
            }
            resumed += 1;
        }
        load.each_reaches(10 * (round + 2));
    }
    load.stop();
    assert!(resumed > 0, "all restarts took seconds: {longest:?}");
    for client in &mut idle {
        let response = client.get("/");
        assert_eq!((response.text(), response.closes()), (&*server.instance.name(), false));
    }
    println!("{idle_count} idle connections, {restarts} restarts, the longest took {longest:?}");
}

/// Returns a number from the environment, for runs by hand with more connections.
fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[test]
fn restarts_do_not_extend_the_time_for_a_head() {
    let _alone = one_at_a_time();
    let mut server = Server::start();
    let mut slow = server.client();
    let mut new = server.client();
    assert_eq!(slow.get("/").status, 200);
    slow.send("GET / HTTP/1.1\r\nHo");
    let (began, mut last) = (Instant::now(), Instant::now());
    for _ in 0..3 {
        // Some of the time has to pass in each process.
        thread::sleep(HEAD_TIMEOUT / 5);
        last = Instant::now();
        server.restart();
    }
    let mut slow = slow.patience(HEAD_TIMEOUT * 3);
    assert_eq!(slow.response().status, 408);
    let took = began.elapsed();
    assert!(took >= HEAD_TIMEOUT.mul_f32(0.9), "it is refused early: {took:?}");
    assert!(last.elapsed() < HEAD_TIMEOUT, "the last restart began the time anew: {took:?}");
    // A connection that never sent anything ends at about the same time.
    new.is_closed();
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

/// Starts a server at a Unix socket and at an address that expects PROXY headers. It takes over
/// from the previous server.
fn start_in_process(folder: &Path, proxied: SocketAddr, name: &'static str) -> Bound {
    let server = Bound::builder()
        .hot_restart(folder.join("control.sock"))
        .and_then(|builder| builder.bind_unix(folder.join("app.sock")))
        .and_then(|builder| builder.bind(proxied))
        .and_then(|builder| builder.proxy_protocol())
        .and_then(|builder| builder.build())
        .unwrap();
    server.spawn(move |request: Request| format!("{name} {}", request.peer())).unwrap();
    server
}

#[test]
fn connections_over_unix_sockets_and_behind_proxies_are_handed_over_with_their_addresses() {
    let _alone = one_at_a_time();
    const HEADER: &str = "PROXY TCP4 192.0.2.9 192.0.2.1 4711 80\r\n";
    let folder = tempfile::tempdir().unwrap();
    let (path, proxied) = (folder.path().join("app.sock"), free_address());
    let mut server = start_in_process(folder.path(), proxied, "one");
    let mut unix = Client::connect_unix(&path);
    let mut behind = Client::connect(proxied);
    behind.send(HEADER);
    assert_eq!(unix.get("/").text(), "one unix");
    assert_eq!(behind.get("/").text(), "one 192.0.2.9:4711");
    // Connections whose header or head is not complete.
    let mut silent = Client::connect(proxied);
    let mut in_header = Client::connect(proxied);
    in_header.send(&HEADER[..20]);
    let mut in_head = Client::connect_unix(&path);
    in_head.send("GET / HTT");
    let accepted = || server.metrics().unwrap().accepted;
    eventually("all are accepted", || accepted() == 5);
    for name in ["two", "three"] {
        let next = start_in_process(folder.path(), proxied, name);
        server.wait();
        server = next;
        assert_eq!(unix.get("/").text(), format!("{name} unix"));
        assert_eq!(behind.get("/").text(), format!("{name} 192.0.2.9:4711"));
        // New connections come to the same addresses.
        assert_eq!(Client::connect_unix(&path).get("/").text(), format!("{name} unix"));
        assert_eq!(
            Client::connect(proxied).send(HEADER).get("/").text(),
            format!("{name} 192.0.2.9:4711")
        );
    }
    assert_eq!(silent.send(HEADER).get("/").text(), "three 192.0.2.9:4711");
    assert_eq!(in_header.send(&HEADER[20..]).get("/").text(), "three 192.0.2.9:4711");
    assert_eq!(in_head.send("P/1.1\r\nHost: t\r\n\r\n").response().text(), "three unix");
    server.shutdown_handle().shutdown_within(Duration::ZERO);
    server.wait();
    assert!(!path.exists(), "the last one removes the file");
}

/// A server that stops shuts its control socket down, unless another process has it by then.
#[test]
fn a_server_that_begins_to_stop_while_it_is_taken_over_leaves_a_control_socket_that_works() {
    let _alone = one_at_a_time();
    let folder = tempfile::tempdir().unwrap();
    let (control, address) = (folder.path().join("control.sock"), free_address());
    let bind = || {
        let config = ServerConfig::default().lame_duck(Duration::from_secs(30));
        let builder = Bound::builder().config(config).hot_restart(&control);
        builder.and_then(|builder| builder.bind(address)?.build()).unwrap()
    };
    let serve = |server: &Bound, name| server.spawn(move |_: Request| name).unwrap();
    let first = bind();
    serve(&first, "first");
    let second = bind();
    first.shutdown_handle().shutdown();
    serve(&second, "second");
    first.wait();
    let third = bind();
    serve(&third, "third");
    second.wait();
    assert_eq!(Client::connect(address).get("/").text(), "third");
    third.shutdown_handle().shutdown_within(Duration::ZERO);
    third.wait();
}
