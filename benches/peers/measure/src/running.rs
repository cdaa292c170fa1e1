//! A server process: started, waited for until it is ready, and ended.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::build::Program;
use crate::proc;
use crate::server::Speech;

const READY_WITHIN: Duration = Duration::from_secs(20);

/// A server under valgrind takes seconds to start.
const READY_UNDER_TOOL_WITHIN: Duration = Duration::from_secs(60);

/// When a first request that was lost is repeated. astra loses some.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// When a server that got a signal to end is killed.
const ENDED_WITHIN: Duration = Duration::from_secs(2);

/// What a server answers when it is ready.
const EXPECTED: &[u8] = b"Hello, World!";

/// The request that a server gets until it is ready.
const fn question(speech: Speech) -> Option<&'static [u8]> {
    match speech {
        Speech::Http => Some(b"GET /plaintext HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        Speech::Echo => Some(EXPECTED),
        Speech::Other => None,
    }
}

/// A server process. It is ended when this is dropped, or by the kernel when `measure` itself ends.
#[derive(Debug)]
pub struct Running {
    child: Child,
    pub address: SocketAddr,
    speech: Speech,
    is_script: bool,
    ended: bool,
}

impl Running {
    /// Starts the server on a free port and waits until it answers.
    pub fn start(program: &Program) -> io::Result<Self> {
        let mut command = guarded(&program.path, if program.is_script { "TERM" } else { "KILL" });
        Self::spawn(&mut command, program)?.until_ready(
            Duration::from_millis(2),
            ASK_AGAIN_AFTER,
            READY_WITHIN,
        )
    }

    /// Starts the profiling build under a tool, such as `valgrind --tool=callgrind`, which reads
    /// the names in it.
    pub fn start_under(tool: &[OsString], program: &Program) -> io::Result<Self> {
        let (tool, options) = tool.split_first().expect("a tool has a name");
        let mut command = guarded(Path::new(tool), "KILL");
        command.args(options).arg(&program.profiling);
        Self::spawn(&mut command, program)?.until_ready(
            Duration::from_millis(20),
            READY_UNDER_TOOL_WITHIN,
            READY_UNDER_TOOL_WITHIN,
        )
    }

    /// Starts the server without the program `setpriv` before it, whose start would count.
    pub fn start_bare(program: &Program, ask_every: Duration) -> io::Result<Self> {
        Self::spawn(&mut Command::new(&program.path), program)?.until_ready(
            ask_every,
            ASK_AGAIN_AFTER,
            READY_WITHIN,
        )
    }

    fn spawn(command: &mut Command, program: &Program) -> io::Result<Self> {
        let address = free_address()?;
        command.args(program.command_line(address)).envs(program.environment.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let (speech, is_script) = (program.speech, program.is_script);
        Ok(Self { child: command.spawn()?, address, speech, is_script, ended: false })
    }

    /// Sends requests until the server answers.
    fn until_ready(
        mut self,
        pause: Duration,
        patience: Duration,
        within: Duration,
    ) -> io::Result<Self> {
        let deadline = Instant::now() + within;
        loop {
            if is_answering(self.address, self.speech, patience) {
                return Ok(self);
            }
            if let Some(status) = self.child.try_wait()? {
                self.ended = true;
                return Err(io::Error::other(format!("the server ended with {status}")));
            }
            if Instant::now() > deadline {
                return Err(io::Error::other("the server does not answer"));
            }
            thread::sleep(pause);
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops the server until [`go_on`](Self::go_on).
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    pub fn go_on(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Fails only if the process has ended, and then the next request fails as well.
    fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), signal);
    }

    /// Ends the server and returns the number of its context switches. Only the kernel's account of
    /// ended children includes those of threads that have ended.
    pub fn end(mut self) -> u64 {
        let live = proc::live_switches(self.pid()).unwrap_or(0);
        let before = proc::switches_of_ended_children();
        self.stop();
        let ended = proc::switches_of_ended_children().saturating_sub(before);
        // That account does not include processes that the server itself has started.
        if self.is_script { live } else { ended }
    }

    fn stop(&mut self) {
        self.ended = true;
        if self.is_script {
            self.signal(Signal::SIGTERM);
            let deadline = Instant::now() + ENDED_WITHIN;
            while Instant::now() < deadline {
                if !matches!(self.child.try_wait(), Ok(None)) {
                    return;
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            self.stop();
        }
    }
}

/// A command whose process gets this signal from the kernel when `measure` ends for any reason.
pub fn guarded(program: &Path, signal: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", signal]).arg(program);
    command
}

/// A loopback address with a port that is free at this moment.
pub fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

fn is_answering(address: SocketAddr, speech: Speech, patience: Duration) -> bool {
    let ask = || -> io::Result<bool> {
        let mut stream = TcpStream::connect(address)?;
        let Some(question) = question(speech) else { return Ok(true) };
        stream.set_read_timeout(Some(patience))?;
        stream.write_all(question)?;
        let mut answer = Vec::new();
        let mut piece = [0; 1024];
        while !answer.windows(EXPECTED.len()).any(|bytes| bytes == EXPECTED) {
            match stream.read(&mut piece)? {
                0 => return Ok(false),
                read => answer.extend_from_slice(&piece[..read]),
            }
        }
        Ok(true)
    };
    ask().unwrap_or(false)
}
