//! What a thread waits for, according to `/proc` (`proc(5)`). A process may read all of this of
//! itself, except in some sandboxes.

mod locks;
mod memory;
mod sockets;
#[cfg(all(feature = "stacks", target_arch = "x86_64"))]
mod stack;
mod system_calls;

use std::fs;
use std::thread;
use std::time::Duration;

use super::wait::Wait;
use memory::Memory;
use sockets::Sockets;
use system_calls::Call;

/// How often a thread is looked at, and how long to wait before the next time. A thread that
/// computes may be in a short system call at one moment.
const LOOKS: usize = 5;
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// What a thread does at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// It runs, or is ready to run.
    AtWork,
    InCall(SystemCall),
    /// It waits outside of a system call, for a page of memory.
    PageFault,
}

/// A system call in which a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SystemCall {
    number: u64,
    args: [u64; 6],
    stack_pointer: u64,
    program_counter: u64,
}

/// Returns what a thread waits for most of the time, and its possible frames.
pub(super) fn look(thread: u32) -> (Wait, Vec<String>) {
    let memory = Memory::open();
    let locks = locks::sqlite_locks();
    let mut waits: Vec<(Wait, usize)> = Vec::new();
    for index in 0..LOOKS {
        if index > 0 {
            thread::sleep(LOOK_INTERVAL);
        }
        let wait = wait_of(thread, &memory, &Sockets::default());
        match waits.iter_mut().find(|(known, _)| *known == wait) {
            Some((_, times)) => *times += 1,
            None => waits.push((wait, 1)),
        }
    }
    let most = waits.into_iter().max_by_key(|(_, times)| *times);
    let wait = most.map_or(Wait::Unknown, |(wait, _)| wait);
    let wait = match wait {
        Wait::Sleep { time: Some(time) } if locks::is_busy_delay(time) => {
            locks::sqlite_wait(&locks).unwrap_or(wait)
        }
        wait => wait,
    };
    #[cfg(all(feature = "stacks", target_arch = "x86_64"))]
    if let Some(Moment::InCall(call)) = moment(thread) {
        let frames = stack::frames(&call, &memory);
        return (stack::refine(wait, &frames), frames);
    }
    (wait, Vec::new())
}

/// Returns what each of these threads waits for at this moment. It costs some 5 us per thread. If
/// one waits for a socket, the tables of sockets are read once. If one sleeps as long as SQLite
/// does, the locks of files are read twice.
pub(super) fn glance(threads: &[u32]) -> Vec<Wait> {
    let memory = Memory::open();
    let sockets = Sockets::default();
    let wait_of = |&thread: &u32| wait_of(thread, &memory, &sockets);
    let mut waits: Vec<Wait> = threads.iter().map(wait_of).collect();
    name_sqlite(&mut waits, || {
        let locks = locks::sqlite_locks();
        if locks.is_empty() {
            return None;
        }
        thread::sleep(LOOK_INTERVAL);
        locks::sqlite_wait(&locks)
    });
    waits
}

/// Replaces sleeps that may be those of SQLite by what `look` finds. It is called only if there are
/// such sleeps.
fn name_sqlite(waits: &mut [Wait], look: impl FnOnce() -> Option<Wait>) {
    let may_be_sqlite = |wait: &Wait| match wait {
        Wait::Sleep { time } => time.is_some_and(locks::is_busy_delay),
        _ => false,
    };
    if !waits.iter().any(may_be_sqlite) {
        return;
    }
    if let Some(sqlite) = look() {
        for wait in waits.iter_mut().filter(|wait| may_be_sqlite(wait)) {
            *wait = sqlite.clone();
        }
    }
}

fn wait_of(thread: u32, memory: &Memory, sockets: &Sockets) -> Wait {
    match moment(thread) {
        Some(Moment::AtWork) => Wait::Computing,
        Some(Moment::PageFault) => Wait::Disk,
        Some(Moment::InCall(call)) => system_calls::wait(&call, memory, sockets),
        None => by_channel(thread),
    }
}

fn moment(thread: u32) -> Option<Moment> {
    parse_moment(&fs::read_to_string(format!("/proc/self/task/{thread}/syscall")).ok()?)
}

/// Reads the number of the call, its six arguments, the stack pointer and the program counter.
fn parse_moment(text: &str) -> Option<Moment> {
    let mut words = text.split_ascii_whitespace();
    let first = words.next()?;
    if first == "running" {
        return Some(Moment::AtWork);
    }
    if first == "-1" {
        return Some(Moment::PageFault);
    }
    let number = first.parse().ok()?;
    let mut hex = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let args = [hex()?, hex()?, hex()?, hex()?, hex()?, hex()?];
    let (stack_pointer, program_counter) = (hex()?, hex()?);
    Some(Moment::InCall(SystemCall { number, args, stack_pointer, program_counter }))
}

/// Returns what a thread waits for where the system does not tell its system call: by its state,
/// and by the name of the kernel's function that waits, if that is reported.
fn by_channel(thread: u32) -> Wait {
    if crate::execution::probe::is_at_work(thread) == Some(true) {
        return Wait::Computing;
    }
    let channel = fs::read_to_string(format!("/proc/self/task/{thread}/wchan"));
    let channel = channel.unwrap_or_default();
    let call = [
        ("futex", Call::Futex),
        ("nanosleep", Call::Sleep),
        ("poll", Call::Poll),
        ("select", Call::Poll),
        ("unix_stream_read", Call::Receive),
        ("wait_woken", Call::Receive),
        ("sk_wait_data", Call::Receive),
        ("inet_stream_connect", Call::Connect),
        ("inet_csk_accept", Call::Accept),
        ("locks_lock", Call::FileLock),
        ("do_wait", Call::Process),
    ];
    let call = call.into_iter().find(|(name, _)| channel.contains(name));
    call.map_or(Wait::Unknown, |(_, call)| match call {
        Call::Futex => Wait::Lock { kind: None },
        Call::Sleep => Wait::Sleep { time: None },
        Call::Poll => Wait::Descriptor { doing: "waits for", what: "descriptors" },
        Call::FileLock => Wait::FileLock,
        Call::Process => Wait::Process,
        other => Wait::Socket { doing: other.doing(), peer: None },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_system_call_is_read() {
        let call = |number, args| {
            let (stack_pointer, program_counter) = (0x7fff, 0x7fb2);
            Some(Moment::InCall(SystemCall { number, args, stack_pointer, program_counter }))
        };
        for (text, expected) in [
            ("running\n", Some(Moment::AtWork)),
            ("-1 0x7ffd 0x7f1c\n", Some(Moment::PageFault)),
            ("230 0x0 0x1 0x7fffb62b1100 0x0 0x0 0xff 0x7fff 0x7fb2\n", {
                call(230, [0, 1, 0x7fff_b62b_1100, 0, 0, 255])
            }),
            ("", None),
            ("230", None),
            ("230 0x0 0x1 0x7fffb62b1100 0x0 0x0\n", None),
            ("0x0 1 2 3 4 5 6 7 8", None),
        ] {
            assert_eq!(parse_moment(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_sleep_of_sqlite_is_named_whatever_else_waits() {
        let sleep = |millis| Wait::Sleep { time: Some(Duration::from_millis(millis)) };
        let sqlite = Wait::Sqlite { file: None, holder: Some(1) };
        let mut waits = [Wait::Disk, sleep(25), sleep(26)];
        name_sqlite(&mut waits, || Some(sqlite.clone()));
        assert_eq!(waits, [Wait::Disk, sqlite, sleep(26)]);
        name_sqlite(&mut [Wait::Disk, sleep(26)], || panic!("there is nothing to look for"));
    }

    #[test]
    fn a_thread_that_has_ended_is_unknown() {
        assert_eq!(look(0).0, Wait::Unknown);
    }
}
