//! The servers that handlers call: started for a run on loopback addresses, and ended with it.

use std::env;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, geteuid};

use crate::build::{Program, output_folder};
use crate::running::{free_address, guarded};
use crate::server::Server;

const READY_WITHIN: Duration = Duration::from_secs(20);
const ENDED_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The deadline for the answer to a ping of a started server.
const PONG_WITHIN: Duration = Duration::from_secs(1);

/// More than the pool of one server, because the pool of the previous one may still be closing.
const POSTGRES_CONNECTIONS_MAX: u32 = 300;

/// The system's user for PostgreSQL, which refuses to run as root.
const POSTGRES_USER: &str = "postgres";

/// The start of the folder's name, below the output folder. The ID of the process follows.
const FOLDER: &str = "backends-";

/// Something that a handler calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    Redis,
    Postgres,
    /// No server, but a file.
    Sqlite,
    Http,
}

impl Backend {
    fn name(self) -> &'static str {
        match self {
            Self::Redis => "Redis",
            Self::Postgres => "PostgreSQL",
            Self::Sqlite => "SQLite",
            Self::Http => "slow_http",
        }
    }

    /// The environment variable that tells a server where the backend is.
    fn variable(self) -> &'static str {
        match self {
            Self::Redis => "REDIS_ADDRESS",
            Self::Postgres => "POSTGRES_ADDRESS",
            Self::Sqlite => "SQLITE_FILE",
            Self::Http => "HTTP_ADDRESS",
        }
    }

    fn start(self, folder: &Path) -> io::Result<Started> {
        match self {
            Self::Redis => start_redis(folder),
            Self::Postgres => start_postgres(folder),
            Self::Sqlite => Ok(Started {
                backend: self,
                place: folder.join("items.sqlite").display().to_string(),
                version: String::new(),
                process: None,
            }),
            Self::Http => start_slow_http(folder),
        }
    }
}

/// The backends that were started. They end when this is dropped, or by the kernel when `measure`
/// ends.
#[derive(Debug, Default)]
pub struct Backends {
    started: Vec<Started>,
    /// Dropped last, when no backend writes into the folder any more.
    _folder: Option<Folder>,
}

#[derive(Debug)]
struct Started {
    backend: Backend,
    place: String,
    /// Empty if the backend is ours, or part of the servers that are measured.
    version: String,
    process: Option<Process>,
}

impl Backends {
    /// Starts these backends. Returns a line for each one that could not be started.
    pub fn start(wanted: &[Backend]) -> io::Result<(Self, String)> {
        if wanted.is_empty() {
            return Ok((Self::default(), String::new()));
        }
        let folder = Folder::create()?;
        let mut started: Vec<Started> = Vec::new();
        let mut absent = String::new();
        for backend in wanted {
            eprintln!("starting {}", backend.name());
            match backend.start(&folder.0) {
                Ok(backend) => started.push(backend),
                Err(error) => {
                    absent.push_str(&format!("- skipped: {} ({error})\n", backend.name()))
                }
            }
        }
        Ok((Self { started, _folder: Some(folder) }, absent))
    }

    pub fn has(&self, backend: Backend) -> bool {
        self.started.iter().any(|started| started.backend == backend)
    }

    /// The environment variables that tell a server where the backends are.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        self.started
            .iter()
            .map(|started| (started.backend.variable(), started.place.clone()))
            .collect()
    }

    /// The processes of the backends. Their CPU time counts neither as that of the server nor as
    /// that of others.
    pub fn pids(&self) -> Vec<u32> {
        self.started
            .iter()
            .filter_map(|started| Some(started.process.as_ref()?.child.id()))
            .collect()
    }

    /// A Markdown line with the versions that are not in the lock file. Empty if there are none.
    pub fn describe(&self) -> String {
        let versions: Vec<&str> =
            self.started.iter().map(|started| started.version.as_str()).collect();
        let versions =
            versions.into_iter().filter(|version| !version.is_empty()).collect::<Vec<_>>();
        if versions.is_empty() {
            String::new()
        } else {
            format!("- backends: {}\n", versions.join(", "))
        }
    }
}

fn start_redis(folder: &Path) -> io::Result<Started> {
    let program =
        in_path("redis-server").ok_or_else(|| io::Error::other("redis-server is not installed"))?;
    let address = free_address()?;
    let port = address.port().to_string();
    let mut command = guarded(&program, "KILL");
    command.args([
        "--bind",
        "127.0.0.1",
        "--port",
        &port,
        "--save",
        "",
        "--appendonly",
        "no",
        "--dir",
    ]);
    command.arg(folder);
    let process = Process::start(&mut command, &folder.join("redis.log"), Signal::SIGTERM, || {
        is_redis(address)
    })?;
    Ok(Started {
        backend: Backend::Redis,
        place: address.to_string(),
        version: version(&program),
        process: Some(process),
    })
}

fn is_redis(address: SocketAddr) -> bool {
    let ping = || -> io::Result<bool> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PONG_WITHIN))?;
        stream.write_all(b"PING\r\n")?;
        let mut pong = [0; 5];
        stream.read_exact(&mut pong)?;
        Ok(&pong == b"+PONG")
    };
    ping().unwrap_or(false)
}

fn start_postgres(folder: &Path) -> io::Result<Started> {
    let programs =
        postgres_programs().ok_or_else(|| io::Error::other("PostgreSQL is not installed"))?;
    let data = folder.join("postgres");
    fs::create_dir(&data)?;
    let user = user_for_postgres()?;
    if let Some(user) = &user {
        chown(&data, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
    }
    let command = |program: &str| {
        let mut command = as_user(user.as_ref(), &programs.join(program), "QUIT");
        command.current_dir(&data).arg("-D").arg(&data);
        command
    };
    let mut initdb = command("initdb");
    initdb.args([
        "--username",
        "postgres",
        "--auth",
        "trust",
        "--no-sync",
        "--locale",
        "C",
        "-E",
        "UTF8",
    ]);
    let made = initdb.stdin(Stdio::null()).output()?;
    if !made.status.success() {
        return Err(io::Error::other(format!("initdb: {}", last_line(&made.stderr))));
    }
    let address = free_address()?;
    let mut postgres = command("postgres");
    for setting in [
        "listen_addresses=127.0.0.1".to_owned(),
        format!("port={}", address.port()),
        "unix_socket_directories=".to_owned(),
        format!("max_connections={POSTGRES_CONNECTIONS_MAX}"),
        // The autovacuum would start by itself in some rounds and not in others.
        "autovacuum=off".to_owned(),
    ] {
        postgres.args(["-c", &setting]);
    }
    let pg_isready = programs.join("pg_isready");
    let port = address.port().to_string();
    let is_ready = || {
        let mut asks = Command::new(&pg_isready);
        asks.args(["-q", "-h", "127.0.0.1", "-p", &port])
            .status()
            .is_ok_and(|status| status.success())
    };
    let process =
        Process::start(&mut postgres, &folder.join("postgres.log"), Signal::SIGQUIT, is_ready)?;
    Ok(Started {
        backend: Backend::Postgres,
        place: address.to_string(),
        version: version(&programs.join("postgres")),
        process: Some(process),
    })
}

/// Debian keeps the programs of each version out of the path.
fn postgres_programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let folders = versions.filter_map(|entry| {
        let version: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((version, entry.path().join("bin")))
    });
    let newest = folders.filter(|(_, folder)| folder.join("postgres").exists()).max();
    newest.map(|(_, folder)| folder).or_else(|| Some(in_path("postgres")?.parent()?.to_owned()))
}

/// The user that PostgreSQL runs as. `None` if it can run as the user of `measure`.
fn user_for_postgres() -> io::Result<Option<User>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let user = User::from_name(POSTGRES_USER)?;
    user.map(Some).ok_or_else(|| io::Error::other(format!("there is no user {POSTGRES_USER}")))
}

/// A command that runs as this user, and whose process the kernel ends when `measure` ends.
fn as_user(user: Option<&User>, program: &Path, signal: &str) -> Command {
    let Some(user) = user else { return guarded(program, signal) };
    let mut command = Command::new("setpriv");
    let (uid, gid) = (user.uid.to_string(), user.gid.to_string());
    command
        .args(["--reuid", &uid, "--regid", &gid, "--clear-groups", "--pdeathsig", signal])
        .arg(program);
    command
}

fn start_slow_http(folder: &Path) -> io::Result<Started> {
    let program = Program::of(&Server::slow_http(), false).map_err(io::Error::other)?;
    let address = free_address()?;
    let mut command = guarded(&program.path, "KILL");
    command.arg(address.to_string());
    let is_ready = || TcpStream::connect(address).is_ok();
    let process =
        Process::start(&mut command, &folder.join("slow_http.log"), Signal::SIGTERM, is_ready)?;
    Ok(Started {
        backend: Backend::Http,
        place: address.to_string(),
        version: String::new(),
        process: Some(process),
    })
}

/// A process that is ended when this is dropped.
#[derive(Debug)]
struct Process {
    child: process::Child,
    ending: Signal,
}

impl Process {
    /// Starts the command and waits until it is ready. Its output is in a log.
    fn start(
        command: &mut Command,
        log: &Path,
        ending: Signal,
        is_ready: impl Fn() -> bool,
    ) -> io::Result<Self> {
        let file = File::create(log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let mut process = Self { child: command.spawn()?, ending };
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            if let Some(status) = process.child.try_wait()? {
                let said = last_line(&fs::read(log)?);
                return Err(io::Error::other(format!("it ended with {status}: {said}")));
            }
            if is_ready() {
                return Ok(process);
            }
            if Instant::now() > deadline {
                return Err(io::Error::other("it does not answer"));
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let is_running = |child: &mut process::Child| matches!(child.try_wait(), Ok(None));
        if !is_running(&mut self.child) {
            return;
        }
        // The process is our child and was not waited for, so no other process has its ID.
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), self.ending);
        let deadline = Instant::now() + ENDED_WITHIN;
        while is_running(&mut self.child) {
            if Instant::now() > deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

/// A folder that is removed when this is dropped.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    /// Creates the folder of this run, and removes those of runs that were killed.
    fn create() -> io::Result<Self> {
        let parent = output_folder().map_err(io::Error::other)?;
        for entry in fs::read_dir(&parent)?.flatten() {
            let name = entry.file_name();
            if is_left_over(&name.to_string_lossy(), |pid| Path::new("/proc").join(pid).exists()) {
                // A folder that cannot be removed does no harm.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let folder = Self(parent.join(format!("{FOLDER}{}", process::id())));
        fs::create_dir_all(&folder.0)?;
        Ok(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether this is the name of the folder of a process that has ended.
fn is_left_over(name: &str, lives: impl Fn(&str) -> bool) -> bool {
    name.strip_prefix(FOLDER).is_some_and(|pid| !lives(pid))
}

fn in_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// The first line of what `--version` prints, without the details of the build.
fn version(program: &Path) -> String {
    let output = Command::new(program).arg("--version").output();
    let said = output
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    short_version(&said)
}

fn short_version(said: &str) -> String {
    let words: Vec<&str> = said.lines().next().unwrap_or("").split_whitespace().take(3).collect();
    words
        .join(" ")
        .replace("v=", "")
        .replace("postgres (PostgreSQL)", "PostgreSQL")
        .replace(" server", "")
}

fn last_line(said: &[u8]) -> String {
    String::from_utf8_lossy(said)
        .trim()
        .lines()
        .last()
        .unwrap_or("it said nothing")
        .trim()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_ended_runs_are_left_over() {
        let is_left_over = |name| is_left_over(name, |pid| pid == "7");
        assert!(is_left_over("backends-8"));
        assert!(!is_left_over("backends-7"));
        assert!(!is_left_over("body"));
    }

    #[test]
    fn versions_are_short() {
        let redis = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=ae4d";
        assert_eq!(short_version(redis), "Redis 7.0.15");
        assert_eq!(
            short_version("postgres (PostgreSQL) 15.18 (Debian 15.18-0)\n"),
            "PostgreSQL 15.18"
        );
    }

    #[test]
    fn a_process_that_ends_at_once_is_told_with_its_last_words() {
        let log = env::temp_dir().join(format!("measure-backends-{}", process::id()));
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo no memory >&2; exit 3"]);
        let error = Process::start(&mut command, &log, Signal::SIGTERM, || false).unwrap_err();
        fs::remove_file(&log).unwrap();
        assert_eq!(error.to_string(), "it ended with exit status: 3: no memory");
    }

    #[test]
    fn a_process_ends_when_it_is_dropped() {
        let log = env::temp_dir().join(format!("measure-process-{}", process::id()));
        let mut command = Command::new("sleep");
        let process = Process::start(command.arg("600"), &log, Signal::SIGTERM, || true).unwrap();
        let proc = Path::new("/proc").join(process.child.id().to_string());
        assert!(proc.exists());
        drop(process);
        fs::remove_file(&log).unwrap();
        assert!(!proc.exists());
    }
}
