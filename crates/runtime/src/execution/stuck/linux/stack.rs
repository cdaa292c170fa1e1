//! The functions that a thread is in, according to its stack and the unwind tables of the
//! executables.
//!
//! The system reports the stack pointer and the program counter of a thread that waits, but no
//! other register. The tables say for most functions where the caller's frame is, relative to the
//! stack pointer. Some functions need the frame pointer. If it is unknown, the stack is searched
//! for the next word that looks like the return address of such a frame, which may be an old one.

use std::cell::OnceCell;
use std::fs::{self, File};
use std::path::PathBuf;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, NativeEndian, Register, RegisterRule, UnwindContext,
    UnwindSection, X86_64,
};
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadCache};

use super::SystemCall;
use super::memory::Memory;
use crate::execution::stuck::wait::Wait;

/// Maximum number of frames that are unwound. A framework with its middleware has some fifty.
const UNWOUND_MAX: usize = 128;

/// Maximum number of frames that are reported.
const FRAMES_MAX: usize = 24;

/// How far the next frame is searched for, in bytes.
const SEARCH_BYTES: u64 = 16 * 1024;

/// Executables with larger unwind tables are not unwound, because the whole table would have to be
/// read.
const TABLE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The code that calls handlers and middleware. What is outside of it is always the same, and it
/// would hide the functions of the program.
const CALLERS: [&str; 4] = [
    "filoplume_runtime::engine::",
    "filoplume::core::handler::",
    "filoplume::core::middleware::Next",
    "filoplume::core::middleware::Added",
];

/// Returns whether a function is one of those that call handlers and middleware.
fn calls_the_program(name: &str) -> bool {
    CALLERS.iter().any(|caller| name.contains(caller))
}

/// Returns the names of the functions that a thread may be in, innermost first.
pub(super) fn frames(call: &SystemCall, memory: &Memory) -> Vec<String> {
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return Vec::new() };
    let mappings: Vec<Mapping> = maps.lines().filter_map(Mapping::parse).collect();
    let is_stack = |map: &&Mapping| map.contains(call.stack_pointer);
    let Some(stack) = mappings.iter().find(is_stack).map(|map| map.end) else {
        return Vec::new();
    };
    let executable = mappings.iter().filter(|map| map.is_executable);
    let modules: Vec<Module<'_>> = executable.filter_map(Module::of).collect();
    let mut frame = Frame {
        program_counter: call.program_counter,
        stack_pointer: call.stack_pointer,
        base: None,
    };
    let mut names = Vec::new();
    for index in 0..UNWOUND_MAX {
        // A return address may be behind the last instruction of its function.
        let at = frame.program_counter - u64::from(index > 0);
        let Some(module) = modules.iter().find(|module| module.mapping.contains(at)) else { break };
        if let Some(name) = module.function(at) {
            if calls_the_program(&name) {
                break;
            }
            names.push(name);
        }
        let caller = match module.caller(at, &frame, memory) {
            Step::Caller(caller) => Some(caller),
            Step::NeedsBase => search(&frame, stack, &modules, memory),
            Step::End => None,
        };
        // The frame of a caller is always at a higher address.
        let Some(caller) = caller.filter(|caller| caller.stack_pointer > frame.stack_pointer)
        else {
            break;
        };
        frame = caller;
    }
    names.dedup();
    program_first(names)
}

/// Drops the frames between the program and its caller, and limits the others. The outermost
/// function is the most important one: it is the handler.
fn program_first(mut names: Vec<String>) -> Vec<String> {
    // The handler itself is missing if the compiler has inlined it.
    let handler = names.iter().rposition(|name| !is_of_standard_library(name) && is_rust(name));
    names.truncate(handler.map_or(names.len(), |at| at + 1));
    if names.len() > FRAMES_MAX {
        names.drain(FRAMES_MAX / 2..names.len() - FRAMES_MAX / 2);
    }
    names
}

/// Returns what a thread waits for, more exactly if the name of a function on its stack shows it.
pub(super) fn refine(wait: Wait, frames: &[String]) -> Wait {
    const LOCKS: [(&str, &str); 9] = [
        ("condvar", "a condition variable"),
        ("Condvar", "a condition variable"),
        ("raw_rwlock", "a read-write lock"),
        ("rwlock", "a read-write lock"),
        ("raw_mutex", "a mutex"),
        ("::mutex::", "a mutex"),
        ("mpmc", "a channel"),
        ("crossbeam_channel", "a channel"),
        ("JoinHandle", "another thread to end"),
    ];
    match wait {
        Wait::Sleep { .. } if frames.iter().any(|name| name == "sqliteDefaultBusyCallback") => {
            Wait::Sqlite { file: None, holder: None }
        }
        Wait::Lock { kind } => {
            let of = |name: &String| LOCKS.iter().find(|(part, _)| name.contains(part));
            Wait::Lock { kind: frames.iter().find_map(of).map(|(_, kind)| *kind).or(kind) }
        }
        wait => wait,
    }
}

/// Returns whether a function may be of the program: those of C have no path.
fn is_rust(name: &str) -> bool {
    name.contains("::")
}

/// Returns whether a function is of the standard library, such as the call of a closure.
fn is_of_standard_library(name: &str) -> bool {
    let name = name.trim_start_matches(['<', '&']);
    ["core::", "alloc::", "std::", "__rust_"].iter().any(|prefix| name.starts_with(prefix))
}

/// Where a function is, and its stack. `base` is the frame pointer, if it is known.
#[derive(Clone, Copy, Debug)]
struct Frame {
    program_counter: u64,
    stack_pointer: u64,
    base: Option<u64>,
}

enum Step {
    Caller(Frame),
    /// The frame pointer is needed.
    NeedsBase,
    End,
}

/// Searches for the next frame of a function that uses the frame pointer: the saved pointer, which
/// leads further up, and after it a return address, which follows a call.
fn search(frame: &Frame, stack: u64, modules: &[Module<'_>], memory: &Memory) -> Option<Frame> {
    let end = stack.min(frame.stack_pointer.saturating_add(SEARCH_BYTES));
    (frame.stack_pointer..end.saturating_sub(16)).step_by(8).find_map(|address| {
        let base = memory.u64(address)?;
        if base <= address || base >= stack || base % 8 != 0 {
            return None;
        }
        let program_counter = memory.u64(address + 8)?;
        let is_code = modules.iter().any(|module| module.mapping.contains(program_counter));
        (is_code && follows_call(program_counter, memory)).then_some(Frame {
            program_counter,
            stack_pointer: address + 16,
            base: Some(base),
        })
    })
}

/// Returns whether there is a call instruction before an address: relative, or by a register or by
/// memory.
fn follows_call(address: u64, memory: &Memory) -> bool {
    let mut bytes = [0; 7];
    let Some(&[.., b5, b4, b3, b2, b1]) =
        Some(memory.read(address.wrapping_sub(7), &mut bytes)).filter(|read| read.len() == 7)
    else {
        return false;
    };
    let is_call = |modrm: u8| modrm >> 3 & 7 == 2;
    b5 == 0xe8
        || b2 == 0xff && is_call(b1)
        || b3 == 0xff && is_call(b2)
        || b4 == 0xff && is_call(b3)
        || bytes[1] == 0xff && is_call(b5)
        || bytes[0] == 0xff && is_call(bytes[1])
}

/// A part of the address space.
#[derive(Clone, Debug)]
struct Mapping {
    start: u64,
    end: u64,
    is_executable: bool,
    offset: u64,
    path: PathBuf,
}

impl Mapping {
    /// Reads a line such as `7f1c0000-7f1d0000 r-xp 00001000 08:01 5678    /usr/lib/libc.so.6`.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let (start, end) = words.next()?.split_once('-')?;
        let is_executable = words.next()?.contains('x');
        let offset = hex(words.next()?)?;
        let path = PathBuf::from(words.skip(2).collect::<Vec<_>>().join(" "));
        Some(Self { start: hex(start)?, end: hex(end)?, is_executable, offset, path })
    }

    fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// A mapping with its executable, which is opened when it is needed.
struct Module<'a> {
    mapping: &'a Mapping,
    cache: ReadCache<File>,
    table: OnceCell<Option<Table>>,
}

/// The unwind table of an executable.
struct Table {
    bytes: Vec<u8>,
    bases: BaseAddresses,
}

impl<'a> Module<'a> {
    fn of(mapping: &'a Mapping) -> Option<Self> {
        let is_file = mapping.path.is_absolute();
        let file = is_file.then(|| File::open(&mapping.path).ok()).flatten()?;
        Some(Self { mapping, cache: ReadCache::new(file), table: OnceCell::new() })
    }

    fn file(&self) -> Option<ElfFile64<'_, Endianness, &ReadCache<File>>> {
        ElfFile64::parse(&self.cache).ok()
    }

    /// Converts an address in memory to the one that the executable has for it.
    fn in_file(&self, address: u64) -> Option<u64> {
        let offset = (address - self.mapping.start).checked_add(self.mapping.offset)?;
        self.file()?.segments().find_map(|segment| {
            let (start, length) = segment.file_range();
            let within = offset.checked_sub(start).filter(|&within| within < length)?;
            segment.address().checked_add(within)
        })
    }

    /// Returns the name of the function at an address.
    fn function(&self, address: u64) -> Option<String> {
        let file = self.file()?;
        let address = self.in_file(address)?;
        let mut symbols = file.symbols().chain(file.dynamic_symbols());
        let found = symbols.find(|symbol| {
            let within = address.checked_sub(symbol.address());
            within.is_some_and(|within| within < symbol.size()) && symbol.is_definition()
        })?;
        Some(format!("{:#}", rustc_demangle::demangle(found.name().ok()?)))
    }

    fn table(&self) -> Option<&Table> {
        self.table.get_or_init(|| self.read_table()).as_ref()
    }

    fn read_table(&self) -> Option<Table> {
        let file = self.file()?;
        let section = file.section_by_name(".eh_frame")?;
        if section.size() > TABLE_BYTES_MAX {
            return None;
        }
        let mut bases = BaseAddresses::default().set_eh_frame(section.address());
        if let Some(text) = file.section_by_name(".text") {
            bases = bases.set_text(text.address());
        }
        Some(Table { bytes: section.data().ok()?.to_vec(), bases })
    }

    /// Finds the caller of a frame.
    fn caller(&self, at: u64, frame: &Frame, memory: &Memory) -> Step {
        let Some((table, at)) = self.table().zip(self.in_file(at)) else { return Step::End };
        let mut section = EhFrame::new(&table.bytes, NativeEndian);
        section.set_address_size(8);
        let mut context = UnwindContext::new();
        let row = section.unwind_info_for_address(
            &table.bases,
            &mut context,
            at,
            EhFrame::cie_from_offset,
        );
        let Ok(row) = row else { return Step::End };
        let (register, offset) = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => (*register, *offset),
            CfaRule::Expression(_) => return Step::End,
        };
        let start = match register {
            X86_64::RSP => Some(frame.stack_pointer),
            X86_64::RBP => frame.base,
            _ => return Step::End,
        };
        let Some(top) = start.and_then(|start| start.checked_add_signed(offset)) else {
            return Step::NeedsBase;
        };
        let saved = |register: Register| match row.register(register) {
            RegisterRule::Offset(offset) => {
                top.checked_add_signed(offset).and_then(|address| memory.u64(address))
            }
            _ => None,
        };
        let Some(program_counter) = saved(X86_64::RA).filter(|&address| address != 0) else {
            return Step::End;
        };
        let keeps_base =
            matches!(row.register(X86_64::RBP), RegisterRule::Undefined | RegisterRule::SameValue);
        let base = if keeps_base { frame.base } else { saved(X86_64::RBP) };
        Step::Caller(Frame { program_counter, stack_pointer: top, base })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_read() {
        let line = "7f1c0000-7f1d0000 r-xp 00001000 08:01 5678      /usr/lib/a library.so";
        let mapping = Mapping::parse(line).unwrap();
        assert_eq!(
            (mapping.start, mapping.end, mapping.offset),
            (0x7f1c_0000, 0x7f1d_0000, 0x1000)
        );
        assert!(mapping.is_executable && mapping.contains(0x7f1c_ffff));
        assert!(!mapping.contains(0x7f1d_0000));
        assert_eq!(mapping.path, PathBuf::from("/usr/lib/a library.so"));
        for line in ["", "7f1c0000 r-xp 0 08:01 1 /a", "x-y r-xp 0 08:01 1 /a", "1-2"] {
            assert!(Mapping::parse(line).is_none(), "{line}");
        }
    }

    /// The bytes before a return address, in all forms that a call has.
    #[test]
    fn what_follows_a_call_is_told_from_what_does_not() {
        const CALLS: [&[u8]; 8] = [
            &[0xe8, 1, 2, 3, 4],             // call .
            &[0xff, 0xd0],                   // call rax
            &[0x41, 0xff, 0xd3],             // call r11
            &[0xff, 0x50, 0x18],             // call [rax + 24]
            &[0xff, 0x54, 0x24, 0x08],       // call [rsp + 8]
            &[0xff, 0x15, 1, 2, 3, 4],       // call [rip + ..]
            &[0xff, 0x90, 0, 1, 0, 0],       // call [rax + 256]
            &[0xff, 0x94, 0x24, 0, 1, 0, 0], // call [rsp + 256]
        ];
        const OTHERS: [&[u8]; 6] = [
            &[0xe9, 1, 2, 3, 4],             // jmp .
            &[0xff, 0xe0],                   // jmp rax
            &[0xff, 0x60, 0x18],             // jmp [rax + 24]
            &[0xff, 0x25, 1, 2, 3, 4],       // jmp [rip + ..]
            &[0xff, 0x74, 0x24, 0x08],       // push [rsp + 8]
            &[0xff, 0xb4, 0x24, 0, 1, 0, 0], // push [rsp + 256]
        ];
        let memory = Memory::open();
        let follows = |code: &[u8]| {
            let bytes = [&[0x90; 16], code].concat();
            follows_call(bytes.as_ptr_range().end as u64, &memory)
        };
        assert!(CALLS.iter().all(|call| follows(call)), "{:?}", CALLS.map(follows));
        assert!(!OTHERS.iter().any(|other| follows(other)), "{:?}", OTHERS.map(follows));
        assert!(!follows_call(3, &memory), "there is nothing before it");
    }

    #[test]
    fn what_calls_the_handler_is_left_out_and_the_handler_never_is() {
        let check = |names: &[&str], expected: &[&str]| {
            assert_eq!(
                program_first(names.iter().map(|&name| name.to_owned()).collect()),
                expected
            );
        };
        check(
            &["syscall", "std::sync::mpsc::recv", "shop::list", "core::ops::function::Fn::call"],
            &["syscall", "std::sync::mpsc::recv", "shop::list"],
        );
        check(
            &["recv", "<shop::A as core::ops::Fn>::call"],
            &["recv", "<shop::A as core::ops::Fn>::call"],
        );
        check(
            &["syscall", "std::thread::park", "<core::A as B>::c"],
            &["syscall", "std::thread::park", "<core::A as B>::c"],
        );
        let deep: Vec<String> = (0..99).map(|number| format!("postgres::f{number}")).collect();
        let frames = program_first([deep, vec!["shop::list".to_owned()]].concat());
        assert_eq!((frames.len(), &*frames[0]), (FRAMES_MAX, "postgres::f0"));
        assert_eq!(frames.last().unwrap(), "shop::list");
    }

    #[test]
    fn a_stack_names_locks_and_sqlite() {
        let lock = |kind| Wait::Lock { kind };
        let sqlite = Wait::Sqlite { file: None, holder: None };
        let sleep = Wait::Sleep { time: None };
        for (wait, frames, expected) in [
            (lock(None), vec!["syscall"], lock(None)),
            (lock(Some("a mutex")), vec!["syscall"], lock(Some("a mutex"))),
            (lock(None), vec!["a", "parking_lot::raw_mutex::RawMutex::lock_slow"], {
                lock(Some("a mutex"))
            }),
            // The innermost function decides.
            (lock(None), vec!["parking_lot::condvar::Condvar::wait", "std::sync::mpmc::x"], {
                lock(Some("a condition variable"))
            }),
            (sleep.clone(), vec!["usleep", "sqliteDefaultBusyCallback"], sqlite),
            (sleep.clone(), vec!["std::thread::sleep"], sleep),
            (Wait::Disk, vec!["parking_lot::raw_mutex::lock"], Wait::Disk),
        ] {
            let names: Vec<String> = frames.iter().map(|&name| name.to_owned()).collect();
            assert_eq!(refine(wait, &names), expected, "{frames:?}");
        }
    }

    #[test]
    fn what_calls_middleware_is_not_part_of_the_program() {
        const TRAIT: &str = "filoplume::core::middleware::Middleware";
        let own = format!("<shop::Login as {TRAIT}>::handle");
        let added = format!("<filoplume::core::middleware::Added<shop::Login> as {TRAIT}>::handle");
        assert_eq!([calls_the_program(&own), calls_the_program(&added)], [false, true]);
    }
}
