//! Memory that code of the program needs for a request.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use crate::budget::account::{Account, Charge};
use crate::budget::clients::ClientId;
use crate::budget::estimates::Estimate;
use crate::budget::turns::{Turn, Turns};
use crate::service::request::Request;

thread_local! {
    /// The turn in which this thread computes. Code that it calls then needs no other one: if all
    /// turns were taken by threads that wait for a second one, none would go on.
    static TURN: RefCell<Option<Turn>> = const { RefCell::new(None) };
}

/// Memory that counts in the [budget](crate::ServerConfig::memory_max) for as long as this is held:
/// see [`Request::hold_memory`].
///
/// ```
/// use filoplume_runtime::{HeldMemory, Request};
///
/// /// A decoder that owns what it has counted.
/// struct Decoder {
///     window: Vec<u8>,
///     _memory: HeldMemory,
/// }
///
/// fn decoder(request: &Request) -> Option<Decoder> {
///     let _memory = request.hold_memory(1 << 20)?;
///     Some(Decoder { window: vec![0; 1 << 20], _memory })
/// }
/// # let request = Request::try_from(http::Request::new(Vec::new()))?;
/// # assert_eq!(decoder(&request).unwrap().window.len(), 1 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct HeldMemory {
    held: Held,
}

/// What counts until it is dropped.
enum Held {
    Charge(Charge),
    Estimate(Estimate),
}

impl Held {
    fn bytes(&self) -> usize {
        match self {
            Self::Charge(charge) => charge.bytes(),
            Self::Estimate(estimate) => estimate.bytes(),
        }
    }

    fn account(&self) -> Option<&Account> {
        match self {
            Self::Charge(charge) => charge.account(),
            Self::Estimate(estimate) => Some(estimate.account()),
        }
    }
}

impl Request {
    /// Counts memory that the handling of this request will take, such as the window of a decoder,
    /// in the budget for all clients and in the share of this one. Returns `None` if there is no
    /// memory for it: answer with a `503`. The [plan](crate::Plan::holds_memory) must ask for it;
    /// otherwise, and without a server, nothing is counted.
    ///
    /// ```
    /// use filoplume_runtime::{Plan, Request, Response, Service};
    ///
    /// struct Unpack;
    ///
    /// impl Service for Unpack {
    ///     fn plan(&self, _: &mut Request) -> Plan {
    ///         Plan::new().holds_memory()
    ///     }
    ///     fn call(&self, request: Request) -> Response {
    ///         let Some(_window) = request.hold_memory(8 << 20) else { return Response::new(503) };
    ///         // .. decodes the content
    ///         Response::from("unpacked")
    ///     }
    /// }
    /// # let _: &dyn Service = &Unpack;
    /// ```
    pub fn hold_memory(&self, bytes: usize) -> Option<HeldMemory> {
        let mut charge = self.account().map(Charge::of).unwrap_or_default();
        charge.try_set(bytes).then_some(HeldMemory { held: Held::Charge(charge) })
    }

    /// As [`hold_memory`](Self::hold_memory), if the number of bytes is only an estimate, such as
    /// that of a value which a parser will make of a content. Estimates have a budget of their own,
    /// as large as [`memory_max`](crate::ServerConfig::memory_max), because one that is too high
    /// must take nothing from contents and responses. If others have all of it, this waits for up
    /// to a second, but only a few threads do so, and none that computes [in
    /// turn](Self::compute_in_turn): call this before. One estimate counts as a quarter of the
    /// budget at most, so that none is refused for ever.
    ///
    /// ```
    /// # let request = filoplume_runtime::Request::try_from(http::Request::new(Vec::new()))?;
    /// assert!(request.hold_estimated_memory(100 << 20).is_some(), "there is no server");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn hold_estimated_memory(&self, bytes: usize) -> Option<HeldMemory> {
        let Some(account) = self.account() else { return self.hold_memory(bytes) };
        Estimate::hold(account, bytes, !has_turn())
            .map(|estimate| HeldMemory { held: Held::Estimate(estimate) })
    }

    /// Runs code that computes for long on a content that has arrived, such as a parser, when it is
    /// the turn of this request. One thread per processor has a turn, for all servers of the
    /// process, and clients take turns. So a flood of such contents does not keep other requests
    /// from the processors, or from the system's lock on the memory of the process. Clients are
    /// told apart if the [plan](crate::Plan::holds_memory) asks for their memory to be counted. The
    /// code should not wait for anything. What it calls may call this again, which does nothing
    /// more.
    ///
    /// ```
    /// # let request = filoplume_runtime::Request::try_from(http::Request::new(b"1 2".to_vec()))?;
    /// let content = request.body().as_slice().unwrap_or_default();
    /// let sum: u32 = request.compute_in_turn(|| content.iter().copied().map(u32::from).sum());
    /// assert_eq!(sum, 131);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn compute_in_turn<T>(&self, compute: impl FnOnce() -> T) -> T {
        in_turn(self.account().map(|account| &**account), compute)
    }
}

impl HeldMemory {
    /// As [`Request::compute_in_turn`], for code that does not have the request, such as a decoder
    /// of its content. The client is that of the request that holds the memory. A call should take
    /// a few milliseconds at most, because others wait meanwhile: divide long work into several
    /// calls.
    ///
    /// ```
    /// # let request = filoplume_runtime::Request::try_from(http::Request::new(Vec::new()))?;
    /// let memory = request.hold_memory(1 << 20).unwrap();
    /// drop(request);
    /// assert_eq!(memory.compute_in_turn(|| 1 + 1), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn compute_in_turn<T>(&self, compute: impl FnOnce() -> T) -> T {
        in_turn(self.held.account(), compute)
    }

    /// Passes the turn of this thread on, if it has lasted for some milliseconds and others wait,
    /// and waits for the next one. For a decoder within [`compute_in_turn`](Self::compute_in_turn)
    /// that may read much before it returns: call this between two pieces of its input. Does
    /// nothing in code that has no turn.
    ///
    /// ```
    /// # let request = filoplume_runtime::Request::try_from(http::Request::new(Vec::new()))?;
    /// use filoplume_runtime::HeldMemory;
    ///
    /// let memory = request.hold_memory(1 << 20).unwrap();
    /// let sum = memory.compute_in_turn(|| {
    ///     (1..=100).inspect(|_| HeldMemory::pass_turn_on()).sum::<u32>()
    /// });
    /// assert_eq!(sum, 5050);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pass_turn_on() {
        TURN.with_borrow_mut(|turn| {
            if let Some(turn) = turn {
                turn.pass_on();
            }
        });
    }
}

/// Runs code in a turn of this thread, which works for the client with this account.
fn in_turn<T>(account: Option<&Account>, compute: impl FnOnce() -> T) -> T {
    let client = account.and_then(Account::client).map(|connection| connection.client());
    in_turn_of(Turns::of_computing(), client, compute)
}

fn in_turn_of<T>(turns: &Arc<Turns>, client: Option<ClientId>, compute: impl FnOnce() -> T) -> T {
    if has_turn() {
        return compute();
    }
    TURN.set(Some(Turn::wait(turns, client)));
    let _end = EndTurn;
    compute()
}

fn has_turn() -> bool {
    TURN.with_borrow(Option::is_some)
}

/// Ends the turn of this thread when it is dropped, even by a panic.
struct EndTurn;

impl Drop for EndTurn {
    fn drop(&mut self) {
        TURN.take();
    }
}

impl fmt::Debug for HeldMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldMemory").field("bytes", &self.held.bytes()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::budget::memory::Memory;
    use crate::execution::probe;

    fn turns_of_this_thread() -> usize {
        let this = probe::thread_number();
        Turns::threads_computing().into_iter().filter(|thread| *thread == this).count()
    }

    #[test]
    fn code_that_computes_in_a_turn_gets_no_second_one() {
        let request = Request::try_from(http::Request::new(Vec::new())).unwrap();
        let memory = request.hold_memory(1).unwrap();
        request.compute_in_turn(|| {
            let one = turns_of_this_thread();
            assert_eq!(request.compute_in_turn(turns_of_this_thread), one);
            assert_eq!(memory.compute_in_turn(turns_of_this_thread), one);
            assert_eq!(turns_of_this_thread(), one, "the first turn lasts");
        });
        let panics = || request.compute_in_turn(|| panic!("the parser has a mistake"));
        catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
        assert!(!has_turn());
    }

    #[test]
    fn code_that_computes_for_long_passes_its_turn_on_before_it_returns() {
        let turns = Turns::new(1, |_| Some(true));
        // The same client: otherwise the second thread would get a turn because it is overdue.
        let client = Some("192.0.2.1".parse().unwrap());
        let is_done = AtomicBool::new(false);
        let end = Instant::now() + Duration::from_secs(30);
        thread::scope(|scope| {
            in_turn_of(&turns, client, || {
                scope.spawn(|| {
                    in_turn_of(&turns, client, || is_done.store(true, Ordering::Relaxed));
                });
                while !is_done.load(Ordering::Relaxed) {
                    assert!(Instant::now() < end, "the other thread gets no turn");
                    HeldMemory::pass_turn_on();
                }
                assert!(has_turn(), "it has got the next one");
            });
        });
    }

    #[test]
    fn memory_beyond_the_budget_is_not_held() {
        let (memory, mut request) =
            (Memory::new(Some(1000)), Request::try_from(http::Request::new(Vec::new())).unwrap());
        request.set_account(&Account::new(&memory, None));
        let held = request.hold_memory(1000).unwrap();
        assert!(request.hold_memory(1).is_none());
        assert_eq!((held.held.bytes(), memory.used()), (1000, 1000));
        drop(held);
        assert_eq!(memory.used(), 0);
    }
}
