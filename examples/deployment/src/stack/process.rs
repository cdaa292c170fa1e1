//! A process that ends with the stack, and writes its output into a file.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use filoplume::{Error, Result};

/// The user that a process runs as.
#[derive(Clone, Copy, Debug)]
pub(super) enum Owner {
    /// The user who starts the stack.
    Same,
    Other {
        user: u32,
        group: u32,
    },
}

impl Owner {
    /// Returns the owner of PostgreSQL, which refuses to run as root. Debian's package makes a user
    /// for it.
    pub(super) fn of_postgres() -> Self {
        let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
        let id = |option: &str| -> Option<u32> {
            let output = Command::new("id").args([option, "postgres"]).output().ok()?;
            String::from_utf8(output.stdout).ok()?.trim().parse().ok()
        };
        match (is_root, id("-u"), id("-g")) {
            (true, Some(user), Some(group)) => Self::Other { user, group },
            _ => Self::Same,
        }
    }

    /// Returns a command that also ends if this process is killed.
    pub(super) fn command(self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM"]);
        if let Self::Other { user, group } = self {
            command.args(["--reuid", &user.to_string(), "--regid", &group.to_string()]);
            command.arg("--clear-groups");
        }
        command.arg(program);
        command
    }
}

/// The folder with the programs of PostgreSQL, which Debian does not put into the path.
pub(super) fn postgres_folder() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let folders = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    folders.filter(|folder| folder.join("initdb").exists()).max()
}

/// A running process. It is stopped when this value is dropped.
#[derive(Debug)]
pub(super) struct Process {
    name: &'static str,
    /// The signal that stops the process.
    signal: &'static str,
    is_stopping: bool,
    child: Child,
}

impl Process {
    pub(super) fn start(
        name: &'static str,
        signal: &'static str,
        command: &mut Command,
        folder: &Path,
    ) -> Result<Self> {
        let log =
            File::options().create(true).append(true).open(folder.join(format!("{name}.log")))?;
        let child = command
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Ctrl-C goes to the whole group of the terminal. In a group of its own, the process
            // does not get it, and the stack ends all processes in order.
            .process_group(0)
            .spawn()
            .map_err(|error| Error::internal(format!("{name} cannot be started: {error}")))?;
        Ok(Self { name, signal, is_stopping: false, child })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    pub(super) fn signal(&self, signal: &str) -> Result<()> {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", signal, &id]).status()?;
        if status.success() { Ok(()) } else { Err(Error::internal("the signal was not sent")) }
    }

    /// Sends a signal to the process, and then to its children: PostgreSQL has one per connection,
    /// each in a group of its own. A stopped process makes no new ones.
    pub(super) fn signal_with_children(&self, signal: &str) -> Result<()> {
        self.signal(signal)?;
        let id = self.child.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
        for child in children.split_whitespace() {
            // The child may have ended.
            Command::new("kill").args(["-s", signal, child]).stderr(Stdio::null()).status()?;
        }
        Ok(())
    }

    /// Sends the signal that stops the process, and does not wait: the drop does.
    pub(super) fn begin_to_stop(&mut self) {
        // If it cannot be sent, the drop tries again.
        self.is_stopping = self.signal(self.signal).is_ok();
    }

    /// Sends the signal that stops the process, and waits until it has ended.
    pub(super) fn stop(mut self, patience: Duration) -> Result<()> {
        self.end(patience)
    }

    pub(super) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    fn end(&mut self, patience: Duration) -> Result<()> {
        if self.has_ended() {
            return Ok(());
        }
        // A second signal would end an instance at once.
        if !self.is_stopping {
            self.signal(self.signal)?;
        }
        let end = Instant::now() + patience;
        while !self.has_ended() {
            if Instant::now() >= end {
                self.kill()?;
                return Err(Error::internal(format!("{} had to be killed", self.name)));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A paused process ends only after it continues, and then waits for its children.
        if !self.has_ended() {
            let _ = self.signal_with_children("CONT");
        }
        let _ = self.end(Duration::from_secs(15));
    }
}
