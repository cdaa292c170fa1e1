//! Counts that need no quiet machine: system calls and instructions of a request.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::build::Program;
use crate::clients::{Clients, Question};
use crate::report::{Column, Figures, Show};
use crate::running::Running;
use crate::scenario::Run;
use crate::strace::Strace;

pub const CONNECTIONS: usize = 64;

/// Requests per connection before counting begins: one-time work is not part of a request.
const WARM_UP: u64 = 20;

/// Requests per connection while system calls are counted.
const TRACED: u64 = 200;

/// Requests per connection under callgrind. Then twice as many follow, and the difference of both
/// counts has no constant part.
const COUNTED: u64 = 100;

/// A long deadline, because strace and callgrind make a server much slower.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);

pub const SYSCALL_COLUMNS: &[Column] = &[
    Column { key: "calls", title: "system calls/request", digits: 3, show: Show::Compared },
    Column { key: "by name", title: "which", digits: 0, show: Show::Text },
];

pub const INSTRUCTION_COLUMNS: &[Column] = &[Column {
    key: "instructions",
    title: "instructions/request",
    digits: 0,
    show: Show::Compared,
}];

/// Counts the system calls of one question, which this many connections ask in step.
pub fn syscalls(run: &Run<'_>, question: Question, connections: usize) -> io::Result<Figures> {
    let server = Running::start(run.program)?;
    let mut clients = Clients::connect(server.address, connections, ANSWERED_WITHIN)?;
    clients.ask_each_and_expect(question, WARM_UP)?;
    let strace = Strace::attach(server.pid())?;
    clients.ask_each_and_expect(question, TRACED)?;
    let calls = strace.finish()?;
    let requests = (TRACED * connections as u64) as f64;
    Ok(Figures::default()
        .number("calls", calls.total() as f64 / requests)
        .text("by name", calls.list(requests)))
}

pub fn instructions(run: &Run<'_>, target: &'static str) -> io::Result<Figures> {
    let folder = std::env::temp_dir().join(format!("measure-callgrind-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let result = count_instructions(run.program, &folder, target);
    fs::remove_dir_all(&folder)?;
    Ok(Figures::default().number("instructions", result?))
}

fn count_instructions(program: &Program, folder: &Path, target: &'static str) -> io::Result<f64> {
    let output = folder.join("out");
    let mut option = OsString::from("--callgrind-out-file=");
    option.push(&output);
    let tool = [OsString::from("valgrind"), OsString::from("--tool=callgrind"), option];
    let server = Running::start_under(&tool, program)?;
    let mut clients = Clients::connect(server.address, CONNECTIONS, ANSWERED_WITHIN)?;
    clients.ask_each_and_expect(Question::Get(target), WARM_UP)?;
    dump(&server, &output, 1)?;
    clients.ask_each_and_expect(Question::Get(target), COUNTED)?;
    let once = dump(&server, &output, 2)?;
    clients.ask_each_and_expect(Question::Get(target), 2 * COUNTED)?;
    let twice = dump(&server, &output, 3)?;
    Ok((twice - once) / (COUNTED * CONNECTIONS as u64) as f64)
}

/// Makes callgrind write what it counted since the last dump, and reads the sum.
fn dump(server: &Running, output: &Path, part: u32) -> io::Result<f64> {
    let asked = Command::new("vgdb").arg(format!("--pid={}", server.pid())).arg("dump").output()?;
    let mut path = output.as_os_str().to_owned();
    path.push(format!(".{part}"));
    let text = fs::read_to_string(PathBuf::from(path)).map_err(|error| {
        io::Error::other(format!(
            "callgrind wrote nothing: {error} {}",
            String::from_utf8_lossy(&asked.stderr)
        ))
    })?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("totals:").or_else(|| line.strip_prefix("summary:")));
    line.and_then(|total| total.trim().parse().ok())
        .ok_or_else(|| io::Error::other("callgrind wrote no total"))
}
