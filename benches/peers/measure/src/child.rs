//! A program that is started, whose output is read, and that is waited for until a deadline.

use std::io::{self, Read};
use std::process::{self, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::proc::{CpuTime, ended_children, peak_kib};

/// How often the memory of the program is read. A program that ends between two reads may have used
/// a little more.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A running program.
#[derive(Debug)]
pub struct Child {
    process: process::Child,
    said: mpsc::Receiver<Said>,
    deadline: Instant,
}

/// The output of a program.
#[derive(Debug, Default)]
struct Said {
    output: String,
    errors: String,
}

/// A program that has ended.
#[derive(Debug)]
pub struct Ended {
    pub output: String,
    errors: String,
    pub cpu: CpuTime,
    /// The largest resident memory that was read.
    pub peak_kib: u64,
}

impl Child {
    pub fn spawn(command: &mut Command, within: Duration) -> io::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn()?;
        let mut output = process.stdout.take().expect("its output is piped");
        let mut errors = process.stderr.take().expect("its errors are piped");
        let (sender, said) = mpsc::channel();
        thread::spawn(move || {
            let complains = thread::spawn(move || text(&mut errors));
            let output = text(&mut output);
            let errors = complains.join().unwrap_or_default();
            // When the deadline has passed, nobody receives this.
            let _ = sender.send(Said { output, errors });
        });
        Ok(Self { process, said, deadline: Instant::now() + within })
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Waits until the program ends, and kills it at its deadline.
    pub fn finish(mut self) -> io::Result<Ended> {
        let mut peak = 0;
        let said = loop {
            match self.said.recv_timeout(LOOK_EVERY) {
                Ok(said) => break Some(said),
                Err(RecvTimeoutError::Timeout) if Instant::now() < self.deadline => {
                    peak = peak_kib(self.pid()).unwrap_or(0).max(peak);
                }
                Err(_) => break None,
            }
        };
        if said.is_none() {
            self.process.kill()?;
        }
        let before = ended_children();
        self.process.wait()?;
        let cpu = ended_children().since(before);
        let Said { output, errors } =
            said.ok_or_else(|| io::Error::other("the load did not end within its time"))?;
        Ok(Ended { output, errors, cpu, peak_kib: peak })
    }
}

impl Ended {
    /// The last line of its output: the reason, if the program gave no result.
    pub fn last_words(&self) -> String {
        let said = if self.errors.trim().is_empty() { &self.output } else { &self.errors };
        said.trim().lines().last().unwrap_or("nothing was said").to_owned()
    }
}

/// Reads all text. After a failure, this is the text that was read before it.
fn text(source: &mut impl Read) -> String {
    let mut text = Vec::new();
    let _ = source.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_and_spends_is_known() {
        let mut command = Command::new("sh");
        let child =
            Child::spawn(command.args(["-c", "echo out; echo why >&2"]), Duration::from_secs(60))
                .unwrap();
        let ended = child.finish().unwrap();
        assert_eq!((ended.output.as_str(), ended.last_words().as_str()), ("out\n", "why"));
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        let child =
            Child::spawn(Command::new("sleep").arg("600"), Duration::from_millis(50)).unwrap();
        assert!(child.finish().unwrap_err().to_string().contains("did not end"));
    }
}
