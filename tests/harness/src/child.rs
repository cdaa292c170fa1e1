//! Running the examples as separate processes.

use std::env;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use crate::client::Client;
use crate::free::free_address;
use crate::process::Process;
use crate::wait::{eventually, eventually_within};

/// An example program, built with the same profile as these tests.
#[derive(Clone, Copy, Debug)]
pub struct Example(pub &'static str);

/// A running example. It ends with its test.
#[derive(Debug)]
pub struct Child {
    child: process::Child,
    address: SocketAddr,
}

impl Example {
    /// Returns the path of the program.
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

    /// Starts it with a free address and further arguments.
    #[track_caller]
    pub fn start_with(self, arguments: &[&str]) -> Child {
        let address = free_address();
        let mut command = Command::new(self.path());
        command.arg(address.to_string()).args(arguments);
        Child::start(command, address)
    }

    /// Starts it with a free address and a limit of file descriptors.
    #[track_caller]
    pub fn start_with_descriptors(self, descriptors_max: usize) -> Child {
        let address = free_address();
        let mut command = Command::new("sh");
        let script = format!("ulimit -n {descriptors_max}; exec \"$0\" \"$1\"");
        command.arg("-c").arg(script).arg(self.path()).arg(address.to_string());
        Child::start(command, address)
    }

    /// Starts it as a user with a limit of threads. Returns `None`, and reports a skipped test, if
    /// that is not possible.
    #[track_caller]
    pub fn start_with_threads(self, threads_max: usize) -> Option<Child> {
        // A user ID that no other user and no other run of the tests has, so that no other threads
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
        match can_run {
            Ok(status) if status.success() => {}
            Ok(_) => {
                skip::because("only root can limit the threads of a child");
                return None;
            }
            Err(_) => {
                skip::without("setpriv");
                return None;
            }
        }
        let address = free_address();
        let mut command = Command::new("setpriv");
        let script = format!("ulimit -u {threads_max}; exec \"$0\" \"$1\"");
        command.args(user).args(["bash", "-c"]).arg(script).arg(path).arg(address.to_string());
        Some(Child::start(command, address))
    }

    /// Starts it from a shell, with a free address and further arguments. `shell` has `-c` and a
    /// script that ends with `exec "$0" "$@"`.
    #[track_caller]
    pub fn start_by(self, shell: &[&str], script: &str, arguments: &[&str]) -> Child {
        let address = free_address();
        let (program, options) = shell.split_first().expect("a shell");
        let mut command = Command::new(program);
        command.args(options).arg(script).arg(self.path()).arg(address.to_string()).args(arguments);
        Child::start(command, address)
    }

    /// Starts an example that is not a web server, on a free port.
    #[track_caller]
    pub fn start_tcp(self, threads: usize) -> Child {
        let address = free_address();
        let mut command = Command::new(self.path());
        command.args(["-p", &address.port().to_string(), "-t", &threads.to_string()]);
        Child::start_until(command, address, || TcpStream::connect(address).is_ok())
    }

    /// Starts an example with a fixed address.
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

    /// Returns the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connects to it.
    #[track_caller]
    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// Returns the process, to read its resource usage.
    pub fn process(&self) -> Process {
        Process::new(self.child.id())
    }

    /// Sends a signal by its name, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let status =
            Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success(), "the signal was not sent");
    }

    /// Returns its exit status if it has ended.
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

/// Returns whether a program can be run. Reports a skipped test if not.
pub fn installed(program: &str) -> bool {
    let version = Command::new(program).arg("-V").stdin(Stdio::null()).output();
    if version.is_err() {
        skip::without(program);
    }
    version.is_ok()
}

/// Returns the folder of this profile's programs, such as `target/debug`.
fn profile_folder() -> PathBuf {
    let test = env::current_exe().unwrap();
    test.parent()
        .and_then(|deps| deps.parent())
        .expect("tests lie in target/<profile>/deps")
        .to_owned()
}

/// Returns cargo as it is called from outside of a test. Cargo describes the package of a test in
/// variables, and some dependencies, such as ring, are compiled again when these change.
pub fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        let of_package = ["CARGO_MANIFEST_", "CARGO_PKG_"];
        if name.to_str().is_some_and(|name| of_package.iter().any(|of| name.starts_with(of))) {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Builds the examples, once per test program, because they must not be older than the engine.
///
/// Builds the whole workspace with `--examples`, because cargo then selects the same features of
/// all dependencies as `cargo test --workspace` does, and compiles none of them twice.
fn build() {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = profile_folder();
        let profile = match folder.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(profile) => profile,
        };
        let target = folder.parent().expect("a target folder");
        let built = cargo()
            .args(["build", "--quiet", "--workspace", "--bins", "--examples", "--profile", profile])
            .arg("--target-dir")
            .arg(target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .unwrap();
        assert!(built.success(), "the examples do not build");
    });
}
