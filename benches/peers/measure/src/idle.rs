//! The cost of connections that are open and silent.

use std::io;
use std::thread;
use std::time::Duration;

use crate::clients::{Clients, Question};
use crate::proc::{CpuTime, Size, live_switches};
use crate::report::{Column, Figures, Show};
use crate::running::Running;
use crate::scenario::{MEMORY, Run, THREADS, column};
use crate::strace::Strace;

const CONNECTIONS: usize = 10_000;

/// The time in which a server may free the threads and buffers of a burst before it counts as idle.
const SETTLE: Duration = Duration::from_secs(1);
const CPU_OVER: Duration = Duration::from_secs(5);
const CALLS_OVER: Duration = Duration::from_secs(3);

/// The deadline for all answers. Some servers answer only a few of so many connections.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

const QUESTION: Question = Question::Get("/plaintext");

pub const COLUMNS: &[Column] = &[
    column("per connection", "RSS KiB/connection", 2, Show::Median),
    MEMORY,
    THREADS,
    column("cpu", "CPU ms in 5 s", 0, Show::Median),
    column("switches", "context switches in 5 s", 0, Show::Median),
    column("calls", "system calls in 3 s", 0, Show::Median),
    column("by name", "which", 0, Show::Text),
];

pub fn measure(run: &Run<'_>) -> io::Result<Figures> {
    let server = Running::start(run.program)?;
    // Memory that only the first requests allocate does not count for the connections.
    Clients::connect(server.address, 64, ANSWERED_WITHIN)?.ask_each(QUESTION, 10);
    let before = Size::of(server.pid())?;
    let (mut clients, answered) =
        Clients::connect_answered(server.address, CONNECTIONS, QUESTION, ANSWERED_WITHIN);
    thread::sleep(SETTLE);
    let cpu_before = CpuTime::of(server.pid())?;
    let switches_before = live_switches(server.pid())?;
    thread::sleep(CPU_OVER);
    let switches = live_switches(server.pid())?.saturating_sub(switches_before);
    let cpu = CpuTime::of(server.pid())?.since(cpu_before);
    let size = Size::of(server.pid())?;
    // Attaching interrupts every wait, which may wake the server. The switches were counted before.
    let strace = Strace::attach(server.pid())?;
    thread::sleep(CALLS_OVER);
    let calls = strace.finish()?;
    // Some servers close idle connections after a while. Then the memory per connection is wrong.
    let lost = clients.closed_by_server();
    let grown = size.resident_kib.saturating_sub(before.resident_kib) as f64;
    let mut problems = Vec::new();
    if answered < CONNECTIONS as u64 {
        problems.push(format!("only {answered} were answered"));
    }
    if lost > 0 {
        problems.push(format!("{lost} were closed by the server"));
    }
    let figures = Figures::default()
        .number("per connection", grown / answered.max(1) as f64)
        .number("memory", size.resident_kib as f64 / 1024.0)
        .number("threads", size.threads as f64)
        .number("cpu", cpu.total().as_secs_f64() * 1_000.0)
        .number("switches", switches as f64)
        .number("calls", calls.total() as f64)
        .text("by name", calls.list(1.0));
    Ok(figures.problems(problems))
}
