//! The servers that can be measured: how each is built, started, found ready, and ended.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::proc::{self, Ended};

/// A server under valgrind takes seconds to start.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Where a server's binary comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A package of this workspace.
    Package(&'static str),
    /// An example of the main workspace.
    Example(&'static str),
    /// A binary that was built before, such as ours before a change.
    Binary(PathBuf),
}

/// How a server must be told that a handler blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocking {
    /// It must be marked: `/sleep` is, `/sleep_unmarked` is not.
    Marked,
    /// A sleep can be marked, work cannot: it stops a worker.
    Cooperative,
    /// Nothing is marked: `/sleep` is a plain blocking handler.
    Plain,
    /// It has no answer to a blocking handler: nothing of the kind is asked of it.
    Never,
}

/// One server that can be measured.
#[derive(Clone, Debug)]
pub struct Server {
    pub name: String,
    pub source: Source,
    pub blocking: Blocking,
    /// Whether it honours `Connection: close`.
    pub closes: bool,
}

/// The name of the reference in the reports and on the command line.
pub const REFERENCE: &str = "raw_httparse";

/// Our framework with 200 routes and two middlewares.
pub const ROUTES: &str = "framework_routes";

/// The peer that sleeping handlers are compared with.
pub const MAY: &str = "may_server";

/// The peer that computing handlers are compared with.
pub const ACTIX: &str = "actix_server";

impl Server {
    /// Every server that is known by name, in the order of the reports.
    pub fn all() -> Vec<Self> {
        let server =
            |name: &str, source, blocking, closes| Self { name: name.to_owned(), source, blocking, closes };
        vec![
            server("raw_epoll", Source::Package("raw_epoll"), Blocking::Never, false),
            server(REFERENCE, Source::Package(REFERENCE), Blocking::Never, true),
            server("ours", Source::Example("bench_engine"), Blocking::Plain, true),
            server("framework", Source::Example("bench_server"), Blocking::Plain, true),
            server(ROUTES, Source::Package(ROUTES), Blocking::Never, true),
            server(MAY, Source::Package(MAY), Blocking::Cooperative, false),
            server(ACTIX, Source::Package(ACTIX), Blocking::Marked, true),
            server("axum_server", Source::Package("axum_server"), Blocking::Marked, true),
            server("hyper_server", Source::Package("hyper_server"), Blocking::Marked, true),
            server("ntex_server", Source::Package("ntex_server"), Blocking::Marked, true),
            server("feather_server", Source::Package("feather_server"), Blocking::Cooperative, true),
            server("khttp_server", Source::Package("khttp_server"), Blocking::Plain, true),
            server("tiny_http_server", Source::Package("tiny_http_server"), Blocking::Plain, true),
            server("rouille_server", Source::Package("rouille_server"), Blocking::Plain, true),
            server("astra_server", Source::Package("astra_server"), Blocking::Plain, true),
        ]
    }

    /// The server of this name, or `name=path` for a binary that behaves like ours.
    pub fn named(name: &str) -> Result<Self, String> {
        if let Some((name, path)) = name.split_once('=') {
            return Ok(Self {
                name: name.to_owned(),
                source: Source::Binary(PathBuf::from(path)),
                blocking: Blocking::Plain,
                closes: true,
            });
        }
        let all = Self::all();
        let known: Vec<_> = all.iter().map(|server| server.name.clone()).collect();
        all.into_iter().find(|server| server.name == name).ok_or_else(|| {
            format!("no server is called {name}; there are {}, and name=path/to/binary", known.join(", "))
        })
    }

    /// Builds the binary and returns where it lies.
    pub fn build(&self, profile: &str) -> Result<PathBuf, String> {
        let mut cargo = Command::new("cargo");
        cargo.arg("build").arg("--message-format=json-render-diagnostics");
        match &self.source {
            Source::Package(package) => {
                cargo.args(["--release", "--package", package]).current_dir(peers_folder());
            }
            Source::Example(example) => {
                cargo
                    .args(["--workspace", "--profile", profile, "--example", example])
                    .current_dir(main_folder());
            }
            Source::Binary(path) => return Ok(path.clone()),
        }
        eprintln!("building {}", self.name);
        let output = cargo.stderr(Stdio::piped()).output().map_err(|error| format!("cargo: {error}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let error = said.lines().find(|line| line.starts_with("error")).unwrap_or("cargo build failed");
            return Err(error.to_owned());
        }
        let messages = String::from_utf8_lossy(&output.stdout);
        let executable = messages.lines().rev().find_map(|line| {
            let (_, rest) = line.split_once("\"executable\":\"")?;
            Some(PathBuf::from(rest.split_once('"')?.0))
        });
        executable.ok_or_else(|| "cargo named no executable".to_owned())
    }
}

/// The workspace this crate is in.
pub fn peers_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in the workspace of the peers")
}

/// The main workspace.
pub fn main_folder() -> &'static Path {
    peers_folder().ancestors().nth(2).expect("the peers are in benches/ of the main workspace")
}

/// A server process. It is killed when this is dropped, or when `measure` itself ends.
#[derive(Debug)]
pub struct Running {
    child: Child,
    pub address: SocketAddr,
    ended: bool,
}

impl Running {
    /// Starts the binary on a free port and waits for its first answer.
    pub fn start(binary: &Path) -> io::Result<Self> {
        Self::start_under(&[], binary)
    }

    /// Starts the binary under a tool, such as valgrind.
    pub fn start_under(tool: &[OsString], binary: &Path) -> io::Result<Self> {
        let running = Self::spawn(tool, binary)?;
        running.until_ready(Duration::from_millis(5))
    }

    /// Spawns the binary on a free port; nothing is known of it yet.
    pub fn spawn(tool: &[OsString], binary: &Path) -> io::Result<Self> {
        let address = free_address()?;
        let mut words = tool.iter().map(OsString::as_os_str).chain([binary.as_os_str()]);
        let mut command = Command::new(words.next().expect("the binary is a word"));
        command.args(words).arg(address.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        end_with_us(&mut command);
        Ok(Self { child: command.spawn()?, address, ended: false })
    }

    /// Asks for `/plaintext` until it is answered.
    pub fn until_ready(mut self, pause: Duration) -> io::Result<Self> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            if is_answering(self.address) {
                return Ok(self);
            }
            if let Some(status) = self.child.try_wait()? {
                self.ended = true;
                return Err(io::Error::other(format!("the server ended with {status}")));
            }
            if Instant::now() > deadline {
                return Err(io::Error::other("the server does not answer GET /plaintext"));
            }
            thread::sleep(pause);
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills the server and returns what the kernel counted over its life.
    pub fn end(mut self) -> Ended {
        self.ended = true;
        // It can only fail when the process is gone, and then it is waited for just the same.
        let _ = self.child.kill();
        proc::wait_for(self.child.id())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Has the kernel kill the command's process when this one ends, however it ends.
pub fn end_with_us(command: &mut Command) {
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
}

/// A loopback address whose port nobody has at this moment.
fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

fn is_answering(address: SocketAddr) -> bool {
    let ask = || -> io::Result<bool> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(READY_WITHIN))?;
        stream.write_all(b"GET /plaintext HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut answer = Vec::new();
        let mut piece = [0; 1024];
        while !answer.ends_with(b"Hello, World!") {
            match stream.read(&mut piece)? {
                0 => return Ok(false),
                read => answer.extend_from_slice(&piece[..read]),
            }
        }
        Ok(true)
    };
    ask().unwrap_or(false)
}
