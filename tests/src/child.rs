//! The examples as processes of their own.

use std::env;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use crate::client::Client;
use crate::process::Process;
use crate::wait::{eventually, eventually_within};

/// An example program, built as these tests are.
#[derive(Clone, Copy, Debug)]
pub struct Example(pub &'static str);

/// A running example. It ends with its test.
#[derive(Debug)]
pub struct Child {
    child: process::Child,
    address: SocketAddr,
}

impl Example {
    /// Where the program is.
    pub fn path(self) -> PathBuf {
        let path = profile_folder().join(self.0);
        build();
        assert!(path.exists(), "{} was not built", path.display());
        path
    }

    /// Starts it with a free address as its argument.
    #[track_caller]
    pub fn start(self) -> Child {
        self.start_with(&[])
    }

    /// Starts it with a free address and more as its arguments.
    #[track_caller]
    pub fn start_with(self, arguments: &[&str]) -> Child {
        let address = free_address();
        let mut command = Command::new(self.path());
        command.arg(address.to_string()).args(arguments);
        Child::start(command, address)
    }

    /// Starts it with a free address, and no more than so many descriptors.
    #[track_caller]
    pub fn start_with_descriptors(self, descriptors_max: usize) -> Child {
        let address = free_address();
        let mut command = Command::new("sh");
        let script = format!("ulimit -n {descriptors_max}; exec \"$0\" \"$1\"");
        command.arg("-c").arg(script).arg(self.path()).arg(address.to_string());
        Child::start(command, address)
    }

    /// Starts it as a user who may have no more than so many threads. `None`, and a word about it,
    /// if that cannot be arranged.
    #[track_caller]
    pub fn start_with_threads(self, threads_max: usize) -> Option<Child> {
        // A number that no user and no other run of the tests has, so that nobody else's threads
        // count.
        let number = (200_000 + process::id()).to_string();
        let user = ["--reuid", &number, "--clear-groups"];
        let path = self.path();
        let can_run = Command::new("setpriv")
            .args(user)
            .args(["test", "-x"])
            .arg(&path)
            .stderr(Stdio::null())
            .status();
        if !can_run.is_ok_and(|status| status.success()) {
            skip::because("only root, with setpriv, can limit the threads of a child");
            return None;
        }
        let address = free_address();
        let mut command = Command::new("setpriv");
        let script = format!("ulimit -u {threads_max}; exec \"$0\" \"$1\"");
        command.args(user).args(["bash", "-c"]).arg(script).arg(path).arg(address.to_string());
        Some(Child::start(command, address))
    }

    /// Starts it by a shell, `shell` with `-c` and a script that ends in `exec "$0" "$@"`, with a
    /// free address and more as its arguments.
    #[track_caller]
    pub fn start_by(self, shell: &[&str], script: &str, arguments: &[&str]) -> Child {
        let address = free_address();
        let (program, options) = shell.split_first().expect("a shell");
        let mut command = Command::new(program);
        command.args(options).arg(script).arg(self.path()).arg(address.to_string()).args(arguments);
        Child::start(command, address)
    }

    /// Starts one that is no web server, on a free port.
    #[track_caller]
    pub fn start_tcp(self, threads: usize) -> Child {
        let address = free_address();
        let mut command = Command::new(self.path());
        command.args(["-p", &address.port().to_string(), "-t", &threads.to_string()]);
        Child::start_until(command, address, || TcpStream::connect(address).is_ok())
    }

    /// Starts it where it always listens.
    #[track_caller]
    pub fn start_at(self, address: SocketAddr) -> Child {
        Child::start(Command::new(self.path()), address)
    }
}

impl Child {
    #[track_caller]
    fn start(command: Command, address: SocketAddr) -> Self {
        Self::start_until(command, address, || {
            let Ok(mut client) = Client::try_connect(address) else { return false };
            client.try_send("GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").is_ok()
                && client.try_response().is_ok()
        })
    }

    #[track_caller]
    fn start_until(
        mut command: Command,
        address: SocketAddr,
        mut answers: impl FnMut() -> bool,
    ) -> Self {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut started = Self { child, address };
        eventually("the example answers", || {
            assert!(started.exit_status().is_none(), "{command:?} ended by itself");
            answers()
        });
        started
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A new connection to it.
    #[track_caller]
    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// What the system knows of it.
    pub fn process(&self) -> Process {
        Process::new(self.child.id())
    }

    /// Sends a signal by its name, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let status =
            Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success(), "the signal was not sent");
    }

    /// How it ended, if it has.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits until it has ended.
    #[track_caller]
    pub fn ends_within(&mut self, deadline: Duration) -> ExitStatus {
        eventually_within(deadline, "the example ends", || {
            self.child.try_wait().unwrap().is_some()
        });
        self.child.wait().unwrap()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a program can be run; says that a test is skipped if not.
pub fn installed(program: &str) -> bool {
    let version = Command::new(program).arg("-V").stdin(Stdio::null()).output();
    if version.is_err() {
        skip::without(program);
    }
    version.is_ok()
}

/// An address that was free a moment ago.
pub fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The folder of this profile's programs: `target/debug`, say.
fn profile_folder() -> PathBuf {
    let test = env::current_exe().unwrap();
    test.parent()
        .and_then(|deps| deps.parent())
        .expect("tests lie in target/<profile>/deps")
        .to_owned()
}

/// Builds the examples, once per test program: they must not be older than the engine.
///
/// The whole workspace is named, and `--examples` with it, because cargo then chooses the same
/// features of all dependencies as `cargo test --workspace` does, and compiles none of them twice.
fn build() {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = profile_folder();
        let profile = match folder.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(profile) => profile,
        };
        let target = folder.parent().expect("a target folder");
        let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let built = Command::new(cargo)
            .args(["build", "--quiet", "--workspace", "--bins", "--examples", "--profile", profile])
            .arg("--target-dir")
            .arg(target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .unwrap();
        assert!(built.success(), "the examples do not build");
    });
}
