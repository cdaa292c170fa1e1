//! What a thread waits for in a system call.

use std::fs;
use std::time::Duration;

use super::SystemCall;
use super::memory::Memory;
use super::sockets::Sockets;
use crate::execution::stuck::wait::Wait;

/// What a system call does, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Read,
    Write,
    Receive,
    Send,
    Connect,
    Accept,
    Poll,
    Select,
    Epoll,
    Futex,
    /// The first argument is the time.
    Sleep,
    /// The third argument is the time.
    ClockSleep,
    Fcntl,
    FileLock,
    Sync,
    Open,
    Process,
    Yield,
}

/// The numbers of system calls, which are part of the kernel's stable interface: x86-64.
#[cfg(target_arch = "x86_64")]
const CALLS: &[(u64, Call)] = &[
    (0, Call::Read),
    (17, Call::Read),
    (19, Call::Read),
    (1, Call::Write),
    (18, Call::Write),
    (20, Call::Write),
    (40, Call::Write),
    (45, Call::Receive),
    (47, Call::Receive),
    (299, Call::Receive),
    (44, Call::Send),
    (46, Call::Send),
    (307, Call::Send),
    (42, Call::Connect),
    (43, Call::Accept),
    (288, Call::Accept),
    (7, Call::Poll),
    (271, Call::Poll),
    (23, Call::Select),
    (270, Call::Select),
    (232, Call::Epoll),
    (281, Call::Epoll),
    (441, Call::Epoll),
    (202, Call::Futex),
    (35, Call::Sleep),
    (230, Call::ClockSleep),
    (72, Call::Fcntl),
    (73, Call::FileLock),
    (74, Call::Sync),
    (75, Call::Sync),
    (162, Call::Sync),
    (306, Call::Sync),
    (2, Call::Open),
    (257, Call::Open),
    (437, Call::Open),
    (61, Call::Process),
    (247, Call::Process),
    (24, Call::Yield),
];

/// As above, for the architectures that use the kernel's generic table.
#[cfg(any(target_arch = "aarch64", target_arch = "riscv64", target_arch = "loongarch64"))]
const CALLS: &[(u64, Call)] = &[
    (63, Call::Read),
    (65, Call::Read),
    (67, Call::Read),
    (64, Call::Write),
    (66, Call::Write),
    (68, Call::Write),
    (71, Call::Write),
    (207, Call::Receive),
    (212, Call::Receive),
    (243, Call::Receive),
    (206, Call::Send),
    (211, Call::Send),
    (269, Call::Send),
    (203, Call::Connect),
    (202, Call::Accept),
    (242, Call::Accept),
    (73, Call::Poll),
    (72, Call::Select),
    (22, Call::Epoll),
    (441, Call::Epoll),
    (98, Call::Futex),
    (101, Call::Sleep),
    (115, Call::ClockSleep),
    (25, Call::Fcntl),
    (32, Call::FileLock),
    (81, Call::Sync),
    (82, Call::Sync),
    (83, Call::Sync),
    (267, Call::Sync),
    (56, Call::Open),
    (437, Call::Open),
    (260, Call::Process),
    (95, Call::Process),
    (124, Call::Yield),
];

/// Other architectures: the number is reported.
#[cfg(not(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "riscv64",
    target_arch = "loongarch64"
)))]
const CALLS: &[(u64, Call)] = &[];

/// Commands of `fcntl` that take a lock: `F_SETLK`, `F_SETLKW`, `F_OFD_SETLK`, `F_OFD_SETLKW`.
const LOCK_COMMANDS: [u64; 4] = [6, 7, 37, 38];

/// Maximum number of descriptors that are examined of a `poll` or `select`.
const POLLED_MAX: usize = 64;

impl Call {
    pub(super) fn doing(self) -> &'static str {
        match self {
            Self::Read | Self::Receive => "reads from",
            Self::Write | Self::Send => "writes to",
            Self::Connect => "connects",
            Self::Accept => "accepts from",
            Self::Open => "opens",
            _ => "waits for",
        }
    }
}

/// Returns what a thread waits for in this call.
pub(super) fn wait(system_call: &SystemCall, memory: &Memory, sockets: &Sockets) -> Wait {
    let SystemCall { number, args, .. } = *system_call;
    let known = CALLS.iter().find(|(known, _)| *known == number);
    let Some(&(_, call)) = known else { return Wait::SystemCall { number } };
    match call {
        Call::Read | Call::Write => descriptor(call, args[0], sockets),
        Call::Receive | Call::Send | Call::Connect | Call::Accept => {
            descriptor(call, args[0], sockets)
        }
        Call::Poll => polled(args[0], args[1], memory, sockets),
        Call::Select => selected(&args, memory, sockets),
        Call::Epoll => Wait::Descriptor { doing: call.doing(), what: "events (epoll)" },
        Call::Futex => Wait::Lock { kind: lock_kind(&args, memory) },
        Call::Sleep => Wait::Sleep { time: time_at(args[0], memory) },
        // With flags, the time is a point in time and no duration.
        Call::ClockSleep if args[1] != 0 => Wait::Sleep { time: None },
        Call::ClockSleep => Wait::Sleep { time: time_at(args[2], memory) },
        Call::Fcntl if !LOCK_COMMANDS.contains(&args[1]) => Wait::SystemCall { number },
        Call::Fcntl | Call::FileLock => Wait::FileLock,
        Call::Sync => Wait::Disk,
        Call::Open => Wait::Descriptor { doing: call.doing(), what: "a file" },
        Call::Process => Wait::Process,
        Call::Yield => Wait::Computing,
    }
}

/// Returns what a descriptor is.
fn descriptor(call: Call, descriptor: u64, sockets: &Sockets) -> Wait {
    let doing = call.doing();
    let target = fs::read_link(format!("/proc/self/fd/{descriptor}"));
    let target = target.unwrap_or_default();
    let target = target.to_string_lossy();
    if let Some(inode) = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')) {
        return Wait::Socket { doing, peer: sockets.peer(inode) };
    }
    let what = match &*target {
        "" => "a descriptor",
        target if target.starts_with("pipe:") => "a pipe",
        target if target.starts_with("anon_inode:") => "a descriptor of the kernel",
        target if target.starts_with("/dev/") => "a device",
        _ => "a file",
    };
    Wait::Descriptor { doing, what }
}

/// Returns the first socket of several descriptors, or what the first of them is.
fn first_of(descriptors: &[u64], sockets: &Sockets) -> Wait {
    let wait = |&number: &u64| descriptor(Call::Poll, number, sockets);
    let mut waits = descriptors.iter().map(wait).peekable();
    let Some(first) = waits.peek().cloned() else { return Wait::Sleep { time: None } };
    waits.find(|wait| matches!(wait, Wait::Socket { .. })).unwrap_or(first)
}

/// Reads an array of `struct pollfd`: a descriptor and two sets of events, 8 bytes.
fn polled(address: u64, count: u64, memory: &Memory, sockets: &Sockets) -> Wait {
    let mut bytes = [0; 8 * POLLED_MAX];
    let length = usize::try_from(count).unwrap_or(usize::MAX).min(POLLED_MAX) * 8;
    let polled = memory.read(address, &mut bytes[..length]);
    let numbers = polled.chunks_exact(8).filter_map(|entry| entry.first_chunk());
    // Negative ones are ignored.
    let numbers = numbers.filter_map(|&bytes| u64::try_from(i32::from_ne_bytes(bytes)).ok());
    first_of(&numbers.collect::<Vec<_>>(), sockets)
}

/// Reads the sets of a `select`: descriptors to read, and to write.
fn selected(args: &[u64; 6], memory: &Memory, sockets: &Sockets) -> Wait {
    let mut numbers = Vec::new();
    for address in [args[1], args[2]].into_iter().filter(|&address| address != 0) {
        let mut bytes = [0; 128];
        let length = usize::try_from(args[0].div_ceil(8)).unwrap_or(usize::MAX).min(bytes.len());
        let set = memory.read(address, &mut bytes[..length]);
        let bits = (0..8 * set.len()).filter(|bit| set[bit / 8] >> (bit % 8) & 1 == 1);
        numbers.extend(bits.take(POLLED_MAX).map(|bit| bit as u64));
    }
    first_of(&numbers, sockets)
}

fn time_at(address: u64, memory: &Memory) -> Option<Duration> {
    // `struct timespec` has other sizes on other systems.
    if cfg!(not(target_pointer_width = "64")) {
        return None;
    }
    let (seconds, nanos) = (memory.u64(address)?, memory.u64(address + 8)?);
    let nanos = u32::try_from(nanos).ok().filter(|&nanos| nanos < 1_000_000_000)?;
    i64::try_from(seconds).ok()?;
    Some(Duration::new(seconds, nanos))
}

/// Tells kinds of locks apart by the value that the word of a futex must have while a thread waits.
/// The values are those of Rust's standard library, of glibc, and of `parking_lot`. They may change
/// with these; then the kind is reported less exactly, or at worst as another kind of lock.
fn lock_kind(args: &[u64; 6], memory: &Memory) -> Option<&'static str> {
    const WAIT: u64 = 0;
    const WAIT_BITSET: u64 = 9;
    const LOCK_PI: u64 = 6;
    /// Without the flags for private futexes and for the clock.
    const OPERATION: u64 = 0x7f;
    const IS_PRIVATE: u64 = 0x80;
    let operation = args[1] & OPERATION;
    #[expect(clippy::cast_possible_truncation, reason = "the word has 32 bits")]
    let expected = args[2] as u32;
    if args[1] & IS_PRIVATE == 0 && is_thread(expected) && memory.u32(args[0]) == Some(expected) {
        return Some("another thread to end");
    }
    match (operation, expected) {
        (LOCK_PI, _) => Some("a mutex"),
        (WAIT | WAIT_BITSET, 2) => Some("a mutex"),
        (WAIT_BITSET, u32::MAX) => Some("another thread, by a channel or `park`"),
        (WAIT_BITSET, word) if word >> 30 != 0 => Some("a read-write lock"),
        (WAIT, 1) => Some("a mutex or another lock"),
        (WAIT_BITSET, _) => Some("a condition variable or another thread"),
        _ => None,
    }
}

fn is_thread(id: u32) -> bool {
    id > 1 && fs::exists(format!("/proc/self/task/{id}")).unwrap_or(false)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_accept_wait_for_a_client() {
        // `accept` and `accept4`. No process has that many descriptors.
        for number in [43, 288] {
            let args = [u64::MAX, 0, 0, 0, 0, 0];
            let call = SystemCall { number, args, stack_pointer: 0, program_counter: 0 };
            let wait = wait(&call, &Memory::open(), &Sockets::default());
            assert_eq!(wait, Wait::Descriptor { doing: "accepts from", what: "a descriptor" });
        }
    }
}
