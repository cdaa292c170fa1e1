//! Runs the program and checks its output.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// A run that takes longer than this counts as hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// The interval of polls.
const LOOK_EVERY: Duration = Duration::from_millis(1);

pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

impl Outcome {
    /// The run, from `--format json`.
    #[track_caller]
    pub(crate) fn run(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}{}", self.stdout, self.stderr))
    }

    #[track_caller]
    pub(crate) fn assert_code(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "{}{}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn assert_says(&self, part: &str) -> &Self {
        assert!(self.stderr.contains(part), "{part:?} is not in {:?}", self.stderr);
        self
    }
}

/// Runs the program with the arguments in `line`, which are separated by spaces.
#[track_caller]
pub(crate) fn gust(line: &str) -> Outcome {
    gust_with(&line.split_whitespace().collect::<Vec<_>>())
}

/// Runs the program and returns its figures.
#[track_caller]
pub(crate) fn measure(line: &str) -> (Value, Outcome) {
    let outcome = gust(&format!("{line} --format json --quiet"));
    (outcome.run(), outcome)
}

#[track_caller]
pub(crate) fn gust_with(arguments: &[&str]) -> Outcome {
    let begun = Instant::now();
    let mut child = start(arguments);
    let (stdout, stderr) =
        (collect(child.stdout.take().unwrap()), collect(child.stderr.take().unwrap()));
    let code = wait(&mut child, arguments);
    Outcome {
        code,
        stdout: stdout.join().unwrap(),
        stderr: stderr.join().unwrap(),
        took: begun.elapsed(),
    }
}

pub(crate) fn start(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_gust"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[track_caller]
pub(crate) fn wait(child: &mut Child, arguments: &[&str]) -> Option<i32> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("gust {arguments:?} hangs");
        }
        // Polls: the standard library cannot wait for a process with a deadline.
        thread::sleep(LOOK_EVERY);
    }
}

/// Polls until the condition is true.
#[track_caller]
pub(crate) fn wait_until(is_true: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < end, "waited in vain");
        thread::sleep(LOOK_EVERY);
    }
}

pub(crate) fn collect(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).unwrap();
        text
    })
}

/// Returns a number in a run by its path, such as `connections.served`.
#[track_caller]
pub(crate) fn number(run: &Value, path: &str) -> f64 {
    let found = path.split('.').fold(run, |value, name| &value[name]);
    found.as_f64().unwrap_or_else(|| panic!("{path} is no number in {run}"))
}

/// Returns a count in a run by its path.
#[track_caller]
pub(crate) fn count(run: &Value, path: &str) -> u64 {
    let found = path.split('.').fold(run, |value, name| &value[name]);
    found.as_u64().unwrap_or_else(|| panic!("{path} is no count in {run}"))
}

/// Returns the sum of all errors of a run.
pub(crate) fn errors(run: &Value) -> u64 {
    run["errors"].as_object().unwrap().values().filter_map(Value::as_u64).sum()
}
