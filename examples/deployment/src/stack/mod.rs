//! Everything that the app needs, as processes of this machine: PostgreSQL, Redis, two instances,
//! haproxy, and Prometheus if it is installed. They listen on loopback only, keep their data and
//! logs in one folder, and end when the stack is dropped.

mod config;
mod process;
mod programs;

use std::collections::hash_map::RandomState;
use std::fs::{self, Permissions};
use std::hash::BuildHasher;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use filoplume::{Error, Result};

pub use self::config::LOG_FORMAT;
use self::process::{Process, postgres_folder};
use self::programs::{instance, start_balancer, start_postgres, start_prometheus, start_redis};

/// How often haproxy asks an instance whether it is ready, and after how many refusals it sends no
/// more requests to it.
pub const CHECK_INTERVAL: Duration = Duration::from_millis(200);
pub const FALL: u32 = 2;

/// How long an instance answers after SIGTERM: several times longer than haproxy needs to notice.
pub const LAME_DUCK: Duration = Duration::from_secs(2);

/// How long a process may take to start or to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Free ports are chosen from `PORTS_MAX` ports, of which this is the first.
const FIRST_PORT: u16 = 16_384;
const PORTS_MAX: u64 = 16_384;

const NAMES: [&str; 2] = ["first", "second"];

/// What to start, and where.
#[derive(Clone, Debug)]
pub struct Options {
    folder: PathBuf,
    program: PathBuf,
    port: u16,
    lame_duck: Duration,
    environment: Vec<(String, String)>,
}

impl Options {
    /// Data in `folder`, instances of `program`, and haproxy on any free port.
    pub fn new(folder: impl Into<PathBuf>, program: impl Into<PathBuf>) -> Self {
        let (folder, program) = (folder.into(), program.into());
        Self { folder, program, port: 0, lame_duck: LAME_DUCK, environment: Vec::new() }
    }

    /// Sets the port of haproxy.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Sets how long an instance answers after SIGTERM.
    #[must_use]
    pub fn lame_duck(mut self, time: Duration) -> Self {
        self.lame_duck = time;
        self
    }

    /// Sets the program of the instances.
    #[must_use]
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = program.into();
        self
    }

    /// Adds a variable to the environment of the instances.
    #[must_use]
    pub fn variable(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }
}

/// The running processes, and the addresses at which they listen.
#[derive(Debug)]
pub struct Stack {
    // The processes end in this order.
    prometheus: Option<Process>,
    _balancer: Process,
    instances: [Option<Process>; 2],
    redis: Option<Process>,
    postgres: Option<Process>,
    options: Options,
    addresses: Addresses,
    key: String,
}

#[derive(Clone, Copy, Debug)]
struct Addresses {
    balancer: SocketAddr,
    instances: [SocketAddr; 2],
    consoles: [SocketAddr; 2],
    redis: SocketAddr,
    postgres: SocketAddr,
    prometheus: SocketAddr,
}

impl Stack {
    /// Returns the first program that is needed and not installed.
    pub fn missing() -> Option<&'static str> {
        let is_missing = |program: &str| Command::new(program).arg("-v").output().is_err();
        if postgres_folder().is_none() {
            return Some("postgresql");
        }
        ["redis-server", "haproxy", "setpriv"].into_iter().find(|program| is_missing(program))
    }

    /// Starts everything, and returns when haproxy has found both instances ready.
    ///
    /// # Errors
    ///
    /// If a program is missing or does not start. The error names its log.
    pub fn start(options: &Options) -> Result<Self> {
        let folder = prepare(&options.folder)?;
        let options = Options { folder, ..options.clone() };
        let addresses = Addresses {
            balancer: address(options.port)?,
            instances: [address(0)?, address(0)?],
            consoles: [address(0)?, address(0)?],
            redis: address(0)?,
            postgres: address(0)?,
            prometheus: address(0)?,
        };
        let postgres = start_postgres(&options.folder, addresses.postgres)?;
        let redis = start_redis(&options.folder, addresses.redis)?;
        let key = secret_key(&options.folder)?;
        let [first, second] = [0, 1].map(|index| instance(&options, &addresses, &key, index));
        let instances = [Some(first?), Some(second?)];
        let balancer = start_balancer(&options.folder, &addresses)?;
        let prometheus = start_prometheus(&options.folder, &addresses)?;
        let mut stack = Self {
            prometheus,
            _balancer: balancer,
            instances,
            redis: Some(redis),
            postgres: Some(postgres),
            options,
            addresses,
            key,
        };
        for index in 0..2 {
            stack.wait_until_ready(index)?;
        }
        fs::write(stack.options.folder.join("addresses"), stack.list())?;
        Ok(stack)
    }

    /// Returns the address of haproxy.
    pub fn address(&self) -> SocketAddr {
        self.addresses.balancer
    }

    /// Returns the names and addresses of all parts, one a line. The file `addresses` of the folder
    /// has the same.
    pub fn list(&self) -> String {
        let Addresses { instances: [first, second], consoles, redis, .. } = self.addresses;
        let mut parts = vec![
            ("the app", format!("http://{}", self.address())),
            (NAMES[0], format!("http://{first}")),
            (NAMES[1], format!("http://{second}")),
            ("console of the first", format!("http://{}/console", consoles[0])),
            ("console of the second", format!("http://{}/console", consoles[1])),
            ("PostgreSQL", self.database()),
            ("Redis", format!("redis://{redis}/")),
        ];
        if let Some(address) = self.prometheus() {
            parts.push(("Prometheus", format!("http://{address}")));
        }
        parts.iter().map(|(name, address)| format!("{name}: {address}\n")).collect()
    }

    /// Returns the address of Prometheus, if it is installed.
    pub fn prometheus(&self) -> Option<SocketAddr> {
        self.prometheus.as_ref().map(|_| self.addresses.prometheus)
    }

    /// Returns the URL of the database.
    pub fn database(&self) -> String {
        config::database_url(self.addresses.postgres)
    }

    /// Returns the name of an instance, which its responses have as `x-instance`.
    pub fn name(&self, index: usize) -> &'static str {
        NAMES[index]
    }

    /// Returns the address of an instance.
    pub fn instance(&self, index: usize) -> SocketAddr {
        self.addresses.instances[index]
    }

    /// Returns the address of the console of an instance.
    pub fn console(&self, index: usize) -> SocketAddr {
        self.addresses.consoles[index]
    }

    /// Returns the number of the process of an instance, if it runs.
    pub fn instance_process(&self, index: usize) -> Option<u32> {
        self.instances[index].as_ref().map(Process::id)
    }

    /// Returns what a process has logged. `name` is its name, such as `haproxy`.
    ///
    /// # Errors
    ///
    /// If there is no such log.
    pub fn log(&self, name: &str) -> Result<String> {
        let bytes = fs::read(self.options.folder.join(format!("{name}.log")))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Stops an instance like a supervisor: SIGTERM, and a wait until it has ended.
    ///
    /// # Errors
    ///
    /// If it does not end in time.
    pub fn stop_instance(&mut self, index: usize) -> Result<()> {
        match self.instances[index].take() {
            Some(instance) => instance.stop(PATIENCE),
            None => Ok(()),
        }
    }

    /// Kills an instance with SIGKILL.
    ///
    /// # Errors
    ///
    /// If that is not possible.
    pub fn kill_instance(&mut self, index: usize) -> Result<()> {
        match self.instances[index].take() {
            Some(mut instance) => instance.kill(),
            None => Ok(()),
        }
    }

    /// Starts an instance that was stopped or killed, and waits until it is ready.
    ///
    /// # Errors
    ///
    /// If it does not start.
    pub fn start_instance(&mut self, index: usize) -> Result<()> {
        let started = instance(&self.options, &self.addresses, &self.key, index)?;
        self.instances[index] = Some(started);
        self.wait_until_ready(index)
    }

    /// Stops PostgreSQL. Its connections are closed, and new ones are refused.
    ///
    /// # Errors
    ///
    /// If it does not end in time.
    pub fn stop_postgres(&mut self) -> Result<()> {
        self.postgres.take().map_or(Ok(()), |postgres| postgres.stop(PATIENCE))
    }

    /// Starts PostgreSQL again, and returns when it accepts connections.
    ///
    /// # Errors
    ///
    /// If it does not start.
    pub fn start_postgres(&mut self) -> Result<()> {
        self.postgres = Some(start_postgres(&self.options.folder, self.addresses.postgres)?);
        Ok(())
    }

    /// Lets PostgreSQL answer nothing, or answer again. Its connections stay open.
    ///
    /// # Errors
    ///
    /// If the signals cannot be sent.
    pub fn pause_postgres(&self, is_paused: bool) -> Result<()> {
        let signal = if is_paused { "STOP" } else { "CONT" };
        self.postgres.as_ref().map_or(Ok(()), |postgres| postgres.signal_with_children(signal))
    }

    /// Changes a variable of the environment of instances that are started from now on.
    pub fn set_variable(&mut self, name: &str, value: &str) {
        self.options.environment.push((name.to_owned(), value.to_owned()));
    }

    /// Stops Redis. Its connections are closed, and new ones are refused.
    ///
    /// # Errors
    ///
    /// If it does not end in time.
    pub fn stop_redis(&mut self) -> Result<()> {
        self.redis.take().map_or(Ok(()), |redis| redis.stop(PATIENCE))
    }

    /// Starts Redis again with its data, and returns when it answers.
    ///
    /// # Errors
    ///
    /// If it does not start.
    pub fn start_redis(&mut self) -> Result<()> {
        self.redis = Some(start_redis(&self.options.folder, self.addresses.redis)?);
        Ok(())
    }

    /// Lets Redis answer nothing, or answer again. Its connections stay open.
    ///
    /// # Errors
    ///
    /// If the signal cannot be sent.
    pub fn pause_redis(&self, is_paused: bool) -> Result<()> {
        let signal = if is_paused { "STOP" } else { "CONT" };
        self.redis.as_ref().map_or(Ok(()), |redis| redis.signal(signal))
    }

    /// Waits until an instance is ready, and haproxy sends requests to it.
    fn wait_until_ready(&mut self, index: usize) -> Result<()> {
        let (own, balancer) = (self.addresses.instances[index], self.addresses.balancer);
        wait_for(NAMES[index], &self.options.folder, self.instances[index].as_mut(), || {
            get(own, "/ready").is_some_and(|response| response.starts_with("HTTP/1.1 200"))
        })?;
        let header = format!("x-instance: {}", NAMES[index]);
        wait_for("haproxy", &self.options.folder, None, || {
            get(balancer, "/live").is_some_and(|response| response.contains(&header))
        })
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // Both begin at once, because each still answers for its lame-duck time.
        for instance in self.instances.iter_mut().flatten() {
            instance.begin_to_stop();
        }
    }
}

/// Makes the folder. Other users have to get through it, because PostgreSQL does not run as root.
fn prepare(folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder)?;
    fs::set_permissions(folder, Permissions::from_mode(0o755))?;
    Ok(fs::canonicalize(folder)?)
}

/// Returns the key of the sessions, which both instances and the next start need.
fn secret_key(folder: &Path) -> Result<String> {
    let path = folder.join("secret.key");
    if !path.exists() {
        let mut bytes = [0; 32];
        fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let key: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        fs::write(&path, key)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    }
    Ok(fs::read_to_string(path)?)
}

/// Returns a loopback address whose port was free a moment ago.
///
/// For port 0 it chooses a port below those that the system gives to outgoing connections, because
/// such a connection could take the port of an instance that is about to start.
fn address(port: u16) -> Result<SocketAddr> {
    static FIRST: OnceLock<u64> = OnceLock::new();
    static TRIED: AtomicU64 = AtomicU64::new(0);

    if port != 0 {
        return Ok(TcpListener::bind(("127.0.0.1", port))?.local_addr()?);
    }
    let first = *FIRST.get_or_init(|| RandomState::new().hash_one("ports"));
    for _ in 0..PORTS_MAX {
        let tried = TRIED.fetch_add(1, Ordering::Relaxed);
        let port = FIRST_PORT + u16::try_from(first.wrapping_add(tried) % PORTS_MAX)?;
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return Ok(listener.local_addr()?);
        }
    }
    Err(Error::internal("no port is free"))
}

/// Waits until `is_done` returns `true`. Fails if the process has ended, or after half a minute.
fn wait_for(
    name: &str,
    folder: &Path,
    mut process: Option<&mut Process>,
    mut is_done: impl FnMut() -> bool,
) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while !is_done() {
        let has_ended = process.as_mut().is_some_and(|process| process.has_ended());
        if has_ended || Instant::now() >= end {
            let log = folder.join(format!("{name}.log"));
            return Err(Error::internal(format!("{name} did not start: see {}", log.display())));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn get(address: SocketAddr, path: &str) -> Option<String> {
    exchange(address, &format!("GET {path} HTTP/1.1\r\nHost: app\r\nConnection: close\r\n\r\n"))
}

fn exchange(address: SocketAddr, request: &str) -> Option<String> {
    let exchange = || -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    exchange().ok()
}
