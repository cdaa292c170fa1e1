//! Tests of a raw connection without a socket: its steps, and what each event leaves behind.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use super::*;
use crate::budget::memory::Memory;
use crate::buffers::Content;
use crate::clock::Clock;
use crate::service::response::Response;
use crate::{Request, tcp};

/// What a protocol was told, in order.
type Told = Arc<Mutex<Vec<String>>>;

/// A protocol that does as the bytes say.
struct Obeys {
    told: Told,
    name: &'static str,
}

impl Obeys {
    fn tell(&self, what: &str) {
        self.told.lock().push(format!("{}: {what}", self.name));
    }
}

impl Protocol for Obeys {
    fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
        self.tell(&format!("data {}", bytes.escape_ascii()));
        let Some(order) = bytes.strip_suffix(b"\n") else { return 0 };
        match order {
            b"close" => io.close(),
            b"pause" => io.pause(),
            b"ask to hear when it is sent" => io.notify_drained(),
            b"wait" => io.set_timeout(HOUR),
            b"hold" => assert!(io.set_held(10)),
            b"ask" => ask(io),
            b"answer" => io.send(b"answered"),
            b"succeed" => {
                io.continue_as(Self { told: Arc::clone(&self.told), name: "second" });
            }
            b"one" => {
                io.resume();
                return 1;
            }
            _ => {}
        }
        bytes.len()
    }

    fn end(&mut self, rest: &[u8], io: &mut Io<'_>) {
        self.tell(&format!("end {}", rest.escape_ascii()));
        if rest == b"succeed" && self.name == "first" {
            io.continue_as(Self { told: Arc::clone(&self.told), name: "second" });
        }
    }

    fn drained(&mut self, _: &mut Io<'_>) {
        self.tell("drained");
    }

    fn deadline(&mut self, _: &mut Io<'_>) {
        self.tell("deadline");
    }

    fn memory_pressure(&mut self, _: &mut Io<'_>) {
        self.tell("memory pressure");
    }

    fn notified(&mut self, _: &mut Io<'_>) {
        self.tell("notified");
    }

    fn answered(&mut self, number: u64, response: Response, _: &mut Io<'_>) {
        self.tell(&format!("answer {number}: {}", response.status()));
    }

    fn close(&mut self, reason: Closed) {
        self.tell(&format!("closed {reason:?}"));
    }

    fn unread_bytes_max(&self) -> usize {
        8
    }
}

const HOUR: Duration = Duration::from_secs(3600);

fn ask(io: &mut Io<'_>) {
    let request = http::Request::get("/").body(crate::Body::default()).unwrap();
    io.call(7, request.try_into().unwrap(), &tcp::http(|_: Request| Response::new(204)));
}

/// Stands for the loop, which needs no wake-up.
struct NoLoop;

impl WakeConnection for NoLoop {
    fn wake_connection(&self, _: usize) {}
}

struct Run {
    raw: Raw,
    buffers: Box<Buffers>,
    told: Told,
    account: Arc<Account>,
    config: ServerConfig,
}

impl Run {
    fn new() -> Self {
        let told = Told::default();
        let of_service = Arc::clone(&told);
        let raw = Raw::new(Arc::new(move |_: Peer| Obeys {
            told: Arc::clone(&of_service),
            name: "first",
        }));
        let account = Account::new(&Memory::new(Some(1 << 20)), None);
        let config = ServerConfig::default();
        let mut run = Self { raw, buffers: Buffers::take(), told, account, config };
        assert!(matches!(run.step(), Step::Notify(Event::Open)));
        run.deliver(Event::Open);
        run
    }

    fn step(&mut self) -> Step {
        self.raw.step(&mut self.buffers)
    }

    /// Passes an event to the protocol. Returns how many bytes are sent back from the input.
    fn deliver(&mut self, event: Event) -> usize {
        let mut asked = Asked::default();
        let of = Surroundings {
            peer: &Peer::Unix,
            home: &|| Weak::<NoLoop>::new() as Weak<dyn WakeConnection>,
            token: 0,
            crowd: 1,
            account: &self.account,
            config: &self.config,
        };
        let used = self.raw.call(event, of, &mut asked, &mut self.buffers);
        let Borrowed(sent_back) =
            self.raw.called(event, used, &mut asked, &mut self.buffers, &self.config);
        self.buffers.input.consume(used);
        sent_back
    }

    fn receive(&mut self, bytes: &[u8]) -> &mut Self {
        let input = [self.buffers.input.unread(), bytes].concat();
        self.buffers.input.clear();
        self.buffers.input.load(Content::of(input));
        self.raw.has_read(bytes.len(), self.buffers.clock.now());
        self
    }

    /// Receives bytes, and delivers all events until the connection waits or ends.
    fn run(&mut self, bytes: &[u8]) -> Step {
        self.receive(bytes);
        self.settle()
    }

    fn settle(&mut self) -> Step {
        for _ in 0..20 {
            match self.step() {
                Step::Notify(event) => _ = self.deliver(event),
                Step::Flush | Step::Again => self.buffers.output.clear(),
                step => return step,
            }
        }
        panic!("it goes on for ever");
    }

    /// Returns what the protocol was told since the last call.
    fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.told.lock())
    }

    fn drains(&mut self) -> bool {
        self.raw.drain()
    }

    fn deadline(&mut self) -> Option<Duration> {
        let clock = Clock::new();
        let deadline = self.raw.deadline(&clock, &self.config)?;
        Some(deadline.saturating_duration_since(clock.now()))
    }
}

#[test]
fn an_incomplete_message_is_shown_again_only_when_more_has_arrived() {
    let mut run = Run::new();
    assert!(matches!(run.run(b"one"), Step::Read));
    assert!(matches!(run.run(b""), Step::Read));
    assert_eq!(run.told(), ["first: data one"]);
    assert!(matches!(run.run(b" two"), Step::Read));
    assert_eq!(run.told(), ["first: data one two"]);
}

#[test]
fn an_incomplete_message_may_be_as_long_as_its_protocol_allows() {
    let mut run = Run::new();
    assert!(matches!(run.run(b"12345678"), Step::Read));
    assert!(matches!(run.run(b"9"), Step::Linger));
    let (_, reason, _) = run.raw.take_protocol().unwrap();
    assert_eq!(reason, Closed::TooLong);
}

#[test]
fn bytes_that_arrived_since_a_protocol_saw_its_input_are_not_left_unused() {
    let mut run = Run::new();
    run.run(b"ask to hear when it is sent\n");
    run.receive(b"longer than allowed");
    run.raw.notify_drained = true;
    run.deliver(Event::Drained);
    assert!(matches!(run.raw.stage, Stage::Open));
    assert!(run.raw.pace.is_none());
}

#[test]
fn the_pace_of_a_message_begins_once_and_ends_with_it() {
    let mut run = Run::new();
    run.run(b"begun");
    let begun = run.raw.pressed_deadline().unwrap();
    run.buffers.clock.refresh();
    run.run(b"!");
    assert!(run.raw.pressed_deadline().unwrap() >= begun);
    run.run(b"\n");
    assert!(run.raw.pressed_deadline().is_none());
}

#[test]
fn a_held_message_has_a_pace_too_and_the_sooner_one_counts() {
    let mut run = Run::new();
    run.run(b"hold\n");
    let held = run.raw.pressed_deadline().unwrap();
    // As if the bytes that are left had begun to arrive an hour later.
    let later = run.buffers.clock.now() + HOUR;
    let pace = Pace::new(later, run.config.content_timeout, run.config.bytes_per_second_min);
    run.raw.pace = Some(Box::new(pace));
    assert_eq!(run.raw.pressed_deadline(), Some(held));
    run.raw.pace = None;
    run.raw.has_read(1 << 20, later);
    assert!(run.raw.pressed_deadline().unwrap() > held, "its bytes advance it");
    run.raw.break_off(Closed::Broken);
    let protocol = run.raw.take_protocol().unwrap();
    assert!(run.raw.held.is_none(), "{:?}", protocol.1);
    assert_eq!(run.account.usage(), Account::new(&Memory::new(Some(1 << 20)), None).usage());
}

#[test]
fn the_deadline_is_that_of_the_protocol_or_of_its_message_or_of_idle_connections() {
    let mut run = Run::new();
    let idle = run.deadline().unwrap();
    assert_eq!(idle, run.config.keep_alive_timeout);
    run.run(b"begun");
    assert!(run.deadline().unwrap() < idle.max(run.config.content_timeout) + HOUR / 2);
    run.run(b"\n");
    run.run(b"wait\n");
    run.run(b"begun");
    assert!(run.deadline().unwrap() > HOUR / 2, "its own deadline comes first");
    let later = run.buffers.clock.now() + HOUR;
    let pace = Pace::new(later, run.config.content_timeout, run.config.bytes_per_second_min);
    run.raw.pace = Some(Box::new(pace));
    run.raw.expire(false);
    run.settle();
    assert_eq!(run.told().last().unwrap(), "first: deadline");
    assert!(run.raw.timeout.is_none() && run.raw.expired.is_none());
    assert!(run.raw.pressed_deadline().unwrap() < later, "the pace begins anew");
}

#[test]
fn an_expired_connection_is_told_why_once() {
    let mut run = Run::new();
    run.raw.press();
    run.raw.expire(false);
    assert!(matches!(run.settle(), Step::Read));
    run.raw.expire(false);
    assert!(matches!(run.settle(), Step::Read));
    assert_eq!(run.told(), ["first: memory pressure", "first: deadline"]);
}

#[test]
fn a_peer_that_waits_for_answers_may_be_silent() {
    let mut run = Run::new();
    assert!(!run.raw.keep_alive());
    assert!(matches!(run.run(b"ask\n"), Step::Ask(_)));
    // The request was dropped, and so answered with a status.
    assert!(run.raw.awaits_answers() && run.raw.keep_alive());
    run.raw.press();
    assert!(!run.raw.keep_alive(), "memory is short");
    run.raw.is_pressed = false;
    run.raw.timeout = Some(run.buffers.clock.now());
    assert!(!run.raw.keep_alive(), "the protocol has a deadline of its own");
    run.raw.timeout = None;
    assert!(!run.drains(), "the shutdown waits for the answer");
    assert!(matches!(run.settle(), Step::Read));
    assert_eq!(run.told(), ["first: data ask\\n", "first: answer 7: 500 Internal Server Error"]);
    assert!(!run.raw.awaits_answers() && run.drains());
}

#[test]
fn a_shutdown_is_told_once_and_not_within_a_message() {
    let mut run = Run::new();
    run.run(b"begun");
    assert!(!run.drains());
    run.run(b"\n");
    assert!(run.drains() && run.drains(), "until it is told");
    assert!(matches!(run.step(), Step::Notify(Event::Shutdown)));
    run.raw.shutdown = Shutdown::Told;
    assert!(!run.drains());
    assert!(matches!(run.step(), Step::Read));
}

#[test]
fn a_shutdown_waits_for_answers_whether_reading_is_paused_or_not() {
    for is_paused in [false, true] {
        let mut run = Run::new();
        assert!(run.drains());
        if is_paused {
            run.raw.reading = Reading::Paused;
        }
        assert!(matches!(run.step(), Step::Notify(Event::Shutdown)));
        let calls: &mut _ = run.raw.calls.get_or_insert_with(|| {
            Box::new(Calls::new(Weak::<NoLoop>::new() as Weak<dyn WakeConnection>, 0))
        });
        let request = http::Request::get("/").body(crate::Body::default()).unwrap();
        let site = crate::service::Site::new(|_: Request| Response::new(204));
        calls.ask(1, request.try_into().unwrap(), Arc::new(site));
        let asked = calls.next_asked().unwrap();
        assert!(matches!(run.step(), Step::Read | Step::Wait));
        drop(asked);
    }
}

#[test]
fn a_protocol_that_stops_within_its_input_is_shown_the_rest_and_others_have_their_turn() {
    let mut run = Run::new();
    run.receive(b"one\n");
    run.deliver(Event::Data);
    assert!(run.raw.take_stop() && !run.raw.take_stop());
    assert!(matches!(run.step(), Step::Notify(Event::Data)));
    let mut run = Run::new();
    run.raw.called(
        Event::Data,
        0,
        &mut Asked { reading: Some(Reading::Resumed), has_rare: true, ..Asked::default() },
        &mut run.buffers,
        &run.config,
    );
    assert!(!run.raw.take_stop(), "it has used all of it");
}

#[test]
fn bytes_of_other_threads_are_sent_and_their_call_is_not_lost() {
    let mut run = Run::new();
    let mailbox = Arc::new(Mailbox::new(100));
    run.raw.mailbox = Some(Arc::clone(&mailbox));
    mailbox.queue.put(Bytes::from_static(b"sent").into(), None).unwrap();
    mailbox.call_owner();
    assert!(matches!(run.step(), Step::Flush));
    assert_eq!(run.buffers.output, b"sent");
    assert!(matches!(run.settle(), Step::Read));
    assert_eq!(run.told(), ["first: notified"]);
    run.raw.break_off(Closed::Broken);
    run.raw.take_protocol().unwrap();
    assert!(mailbox.queue.check().is_err(), "nobody takes more");
}

#[test]
fn the_last_bytes_of_other_threads_are_sent_before_a_successor_has_the_connection() {
    for is_ended in [false, true] {
        let mut run = Run::new();
        let mailbox = Arc::new(Mailbox::new(100));
        run.raw.mailbox = Some(Arc::clone(&mailbox));
        let site = Arc::new(crate::service::Site::new(|_: Request| Response::new(204)));
        run.raw.apply_end(End::Http(site), Event::Data);
        mailbox.queue.put(Bytes::from_static(b"last").into(), None).unwrap();
        if is_ended {
            mailbox.queue.end(crate::service::mailbox::End::Finished(None));
        }
        assert!(matches!(run.step(), Step::Flush));
        assert_eq!(run.buffers.output, b"last");
        let leaves = matches!(run.step(), Step::Leave);
        assert_eq!((leaves, run.raw.leave().is_some()), (!is_ended, !is_ended));
    }
}

#[test]
fn a_closed_connection_lingers_unless_the_peer_has_ended_or_time_is_up() {
    let mut run = Run::new();
    assert!(matches!(run.run(b"close\n"), Step::Linger));
    assert!(run.raw.calls.is_none());
    run.raw.linger(run.buffers.clock.now() + HOUR);
    assert!(matches!(run.run(b"ignored"), Step::Read));
    assert!(run.buffers.input.is_empty());
    run.raw.expired = Some(Event::Deadline);
    assert!(matches!(run.step(), Step::Close));
    run.raw.expired = None;
    run.raw.end_of_input();
    assert!(matches!(run.step(), Step::Close));
    let mut run = Run::new();
    run.raw.expire(false);
    run.raw.close(Closed::TimedOut);
    assert!(matches!(run.step(), Step::Close), "its time is up");
    let mut run = Run::new();
    run.raw.break_off(Closed::Panicked);
    assert!(matches!(run.step(), Step::Close), "it ends at once");
}

#[test]
fn a_connection_that_ends_asks_for_nothing_more() {
    let mut run = Run::new();
    run.raw.calls =
        Some(Box::new(Calls::new(Weak::<NoLoop>::new() as Weak<dyn WakeConnection>, 0)));
    run.raw.close(Closed::Overloaded);
    assert!(run.raw.calls.is_none());
}

#[test]
fn a_successor_starts_over_with_the_rest_of_the_input() {
    let mut run = Run::new();
    run.run(b"wait\n");
    run.run(b"succeed\n");
    assert!(run.raw.timeout.is_none());
    run.run(b"more");
    let expected = [
        "first: data wait\\n",
        "first: data succeed\\n",
        "first: closed Succeeded",
        "second: data more",
    ];
    assert_eq!(run.told(), expected);
    // The input that comes with the end belongs to the successor, and so does the end.
    let mut run = Run::new();
    run.receive(b"succeed");
    run.raw.end_of_input();
    run.raw.seen = 7;
    run.settle();
    let expected = [
        "first: end succeed",
        "first: closed Succeeded",
        "second: data succeed",
        "second: end succeed",
    ];
    assert_eq!(run.told(), expected);
}

#[test]
fn an_end_is_told_once() {
    let mut run = Run::new();
    run.raw.end_of_input();
    assert!(matches!(run.settle(), Step::Wait));
    assert_eq!(run.told(), ["first: end "]);
}

#[test]
fn bytes_that_are_sent_back_and_not_consumed_are_copied() {
    let mut run = Run::new();
    for (used, is_borrowed) in [(4, true), (3, false)] {
        run.buffers.input.clear();
        run.receive(b"echo!");
        run.buffers.output.clear();
        let mut asked = Asked { sent_back: Borrowed(4), has_rare: true, ..Asked::default() };
        let Borrowed(sent_back) =
            run.raw.called(Event::Data, used, &mut asked, &mut run.buffers, &run.config);
        assert_eq!(sent_back, if is_borrowed { 4 } else { 0 });
        let copied: &[u8] = if is_borrowed { b"" } else { b"echo" };
        assert_eq!(run.buffers.output, copied);
    }
}

#[test]
fn what_waits_in_the_mailbox_of_a_stalled_connection_is_charged() {
    let mut run = Run::new();
    let mailbox = Arc::new(Mailbox::new(100));
    mailbox.queue.put(Bytes::from_static(b"waits").into(), None).unwrap();
    run.raw.mailbox = Some(mailbox);
    let before = run.account.usage();
    run.raw.stall(&run.account);
    assert_ne!(run.account.usage(), before);
}
