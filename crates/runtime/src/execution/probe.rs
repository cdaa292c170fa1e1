//! Measures one call: how long it took, and how much of that its thread waited.
//!
//! A thread that is preempted is not waiting: it could run, and others run instead. So what is left
//! of the time when the thread's own CPU time is taken off is only an upper bound. Linux says
//! exactly how long a thread stood in line for a processor, in `/proc/thread-self/schedstat`. A
//! leader looks there; a thread of the pool does not, since that would be a descriptor for each.

use std::time::{Duration, Instant};

use super::policy::{Look, Took};

/// A thread of the pool measures one of so many calls closely.
pub(crate) const CALLS_PER_CLOSE_LOOK: u32 = 16;

/// The clocks of one thread. They belong to it alone.
#[derive(Debug, Default)]
pub(crate) struct Clocks {
    line: Line,
    /// Calls and dispatches to come before one is measured: [`CALLS_PER_CLOSE_LOOK`] on average,
    /// and never in step with clients that alternate.
    left: u32,
    chance: u32,
}

/// A call that is being measured.
#[derive(Debug)]
pub(crate) struct Probe {
    started: Instant,
    before: Option<Spent>,
}

/// What a thread has spent since it began.
#[derive(Clone, Copy, Debug)]
struct Spent {
    on_processor: Duration,
    in_line: Duration,
}

impl Clocks {
    /// Begins to measure.
    pub(crate) fn begin(&self, look: Look) -> Probe {
        let before = if look == Look::Close { self.spent() } else { None };
        Probe { started: Instant::now(), before }
    }

    /// Ends it.
    pub(crate) fn end(&self, probe: &Probe) -> Took {
        let wall = probe.started.elapsed();
        let spent = probe.before.zip(self.spent_since(probe));
        let ran =
            spent.map(|(before, after)| after.on_processor.saturating_sub(before.on_processor));
        let waited = spent.zip(ran).map(|((before, after), ran)| {
            let stood_in_line = after.in_line.saturating_sub(before.in_line);
            wall.saturating_sub(ran + stood_in_line)
        });
        Took { wall, waited, ran }
    }

    /// Begins to measure a call on the pool. The time in line is not asked for there.
    pub(crate) fn begin_on_pool(&self, is_close: bool) -> Probe {
        let before = if is_close { on_processor() } else { None };
        let before = before.map(|on_processor| Spent { on_processor, in_line: Duration::ZERO });
        Probe { started: Instant::now(), before }
    }

    /// Ends it.
    pub(crate) fn end_on_pool(&self, probe: &Probe) -> Took {
        let wall = probe.started.elapsed();
        let ran = probe
            .before
            .and_then(|before| Some(on_processor()?.saturating_sub(before.on_processor)));
        Took { wall, waited: ran.map(|ran| wall.saturating_sub(ran)), ran }
    }

    /// Counts one more, and returns whether it is to be measured. The first one is.
    pub(crate) fn is_due(&mut self) -> bool {
        if self.left > 0 {
            self.left -= 1;
            return false;
        }
        // The constants of a linear congruential generator (Numerical Recipes, 7.1).
        self.chance = self.chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.left = self.chance >> 16 & (2 * CALLS_PER_CLOSE_LOOK - 1);
        true
    }

    /// The same for a thread that begins to lead. It has a descriptor more until it does not.
    pub(crate) fn with_line(self) -> Self {
        Self { line: Line::of_this_thread(), ..self }
    }

    /// The same for a thread that no longer leads.
    pub(crate) fn without_line(self) -> Self {
        Self { line: Line::default(), ..self }
    }

    /// The system's number of the current thread, or 0.
    pub(crate) fn thread(&self) -> u32 {
        thread_number()
    }

    fn spent_since(&self, probe: &Probe) -> Option<Spent> {
        probe.before?;
        self.spent()
    }

    fn spent(&self) -> Option<Spent> {
        Some(Spent { on_processor: on_processor()?, in_line: self.line.stood() })
    }
}

/// Whether a thread of this process runs, or could run: it computes, or others have its processor.
/// `None` if the system does not say.
#[cfg(target_os = "linux")]
pub(super) fn is_at_work(thread: u32) -> Option<bool> {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    // The name before the state is in brackets, and may have brackets in it.
    let (_, behind_name) = stat.rsplit_once(") ")?;
    Some(behind_name.starts_with('R'))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn is_at_work(_thread: u32) -> Option<bool> {
    None
}

#[cfg(target_os = "linux")]
fn thread_number() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

#[cfg(not(target_os = "linux"))]
fn thread_number() -> u32 {
    0
}

/// The CPU time of the current thread.
#[cfg(unix)]
fn on_processor() -> Option<Duration> {
    use rustix::time::{ClockId, clock_gettime};

    #[cfg(test)]
    if tests::HAS_NO_CLOCK.get() {
        return None;
    }
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

#[cfg(not(unix))]
fn on_processor() -> Option<Duration> {
    None
}

/// Where Linux says how long the current thread has stood in line for a processor.
#[derive(Debug, Default)]
struct Line {
    /// `None` while the thread does not lead, and where there is no such file: with another kernel,
    /// or in a sandbox without `/proc`.
    #[cfg(target_os = "linux")]
    file: Option<std::fs::File>,
}

#[cfg(target_os = "linux")]
impl Line {
    fn of_this_thread() -> Self {
        Self { file: std::fs::File::open("/proc/thread-self/schedstat").ok() }
    }

    fn stood(&self) -> Duration {
        use std::os::unix::fs::FileExt;

        let mut text = [0; 64];
        let read = self.file.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        second_number(&text[..read]).map_or(Duration::ZERO, Duration::from_nanos)
    }
}

#[cfg(not(target_os = "linux"))]
impl Line {
    fn of_this_thread() -> Self {
        Self::default()
    }

    fn stood(&self) -> Duration {
        Duration::ZERO
    }
}

/// The time in line is the second of three numbers. Read by hand: it is asked twice for each close
/// look.
#[cfg(target_os = "linux")]
fn second_number(text: &[u8]) -> Option<u64> {
    let second = text.iter().position(|&byte| byte == b' ')? + 1;
    let mut number: Option<u64> = None;
    for &byte in text.get(second..)? {
        match byte {
            b'0'..=b'9' => {
                number =
                    Some(number.unwrap_or(0).checked_mul(10)?.checked_add(u64::from(byte - b'0'))?);
            }
            b' ' => return number,
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::thread;

    use super::*;

    thread_local! {
        /// A system that cannot tell.
        pub(super) static HAS_NO_CLOCK: Cell<bool> = const { Cell::new(false) };
    }

    fn measure(code: impl FnOnce()) -> Took {
        let clocks = Clocks::default().with_line();
        let probe = clocks.begin(Look::Close);
        code();
        clocks.end(&probe)
    }

    fn compute(time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {}
    }

    #[test]
    #[cfg(unix)]
    fn waiting_is_seen() {
        let took = measure(|| thread::sleep(Duration::from_millis(20)));
        assert!(took.waited.unwrap() >= Duration::from_millis(15), "{took:?}");
        assert!(took.waited.unwrap() <= took.wall, "{took:?}");
    }

    /// The machine of a test is busy: the thread stands in line, and that must not look like
    /// waiting.
    #[test]
    #[cfg(target_os = "linux")]
    fn computing_and_standing_in_line_are_not_waiting() {
        let computing: Vec<_> = (0..8)
            .map(|_| thread::spawn(|| measure(|| compute(Duration::from_millis(50)))))
            .collect();
        let mut all: Vec<Took> =
            computing.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(all.iter().all(|took| took.wall >= Duration::from_millis(50)), "{all:?}");
        // A virtual machine may be stopped for some milliseconds, which nobody within it accounts
        // for: it hits few of them.
        all.sort_by_key(|took| took.waited);
        assert!(all[all.len() / 2].waited.unwrap() < Duration::from_millis(10), "{all:?}");
    }

    #[test]
    fn a_brief_look_tells_what_it_can() {
        let clocks = Clocks::default();
        let probe = clocks.begin(Look::Brief);
        compute(Duration::from_millis(1));
        let took = clocks.end(&probe);
        assert!(took.wall >= Duration::from_millis(1));
        assert_eq!(took.waited, None);
    }

    /// Clients that alternate between routes would otherwise have one of them measured always, and
    /// the others never.
    #[test]
    fn the_measured_calls_are_in_step_with_no_clients() {
        for routes in [2_usize, 3, 4, 5, 8, 16, 32] {
            let mut clocks = Clocks::default();
            let mut looks = vec![0_usize; routes];
            for call in 0..routes * 16_000 {
                looks[call % routes] += usize::from(clocks.is_due());
            }
            // One in 16.5 of 16,000 calls of each route: 970.
            assert!(looks.iter().all(|looks| (700..1300).contains(looks)), "{looks:?}");
        }
    }

    #[test]
    fn a_system_without_thread_clocks_says_so() {
        HAS_NO_CLOCK.set(true);
        assert_eq!(measure(|| {}).waited, None);
        let clocks = Clocks::default();
        let probe = clocks.begin_on_pool(true);
        assert_eq!(clocks.end_on_pool(&probe).waited, None);
        HAS_NO_CLOCK.set(false);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_thread_that_waits_is_told_from_one_at_work() {
        use std::sync::mpsc;

        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let waiting = thread::Builder::new().name("R) brackets (".to_owned()).spawn(move || {
            tell.send(thread_number()).unwrap();
            let _ = ended.recv();
        });
        let number = told.recv().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while is_at_work(number) == Some(true) && Instant::now() < deadline {
            thread::yield_now();
        }
        assert_eq!(is_at_work(number), Some(false));
        assert_eq!(is_at_work(thread_number()), Some(true));
        drop(end);
        waiting.unwrap().join().unwrap();
        assert_eq!(is_at_work(0), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_time_in_line_is_the_second_number() {
        assert_eq!(second_number(b"773636845 645209 4\n"), Some(645_209));
        for text in [
            &b""[..],
            b"7",
            b"7 ",
            b"7 x 4",
            b"7 1",
            b"7  1",
            b"\xff 1",
            b"7 99999999999999999999 1",
        ] {
            assert_eq!(second_number(text), None);
        }
    }
}
