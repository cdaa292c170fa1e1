//! Which policy Linux schedules the engine's threads under: batch for those that lead, the usual one for those that run handlers.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use std::fs;
use std::thread;
use std::time::Duration;

use filoplume_runtime::{Plan, Request, Response, ServerConfig, Service};
use filoplume_tests::{TestServer, eventually};

const USUAL: &str = "0";
const BATCH: &str = "3";

/// The policy of the thread that asks: field 41 of its `stat`, the 39th behind its name in parentheses, see `proc(5)`.
fn policy() -> String {
    let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
    let (_, behind_name) = stat.rsplit_once(')').unwrap();
    behind_name.split_whitespace().nth(38).unwrap().to_owned()
}

/// Answers with the policy of the thread that runs it, at its start and at its end: `/dispatched` on a thread of its own, `/blocks` where it has been
/// learned, everything else inline.
struct Policies;

impl Service for Policies {
    fn plan(&self, request: &mut Request) -> Plan {
        if request.path() == "/dispatched" { Plan::new().dispatched() } else { Plan::new() }
    }

    fn call(&self, request: Request) -> Response {
        let begins = policy();
        if request.path() == "/blocks" {
            thread::sleep(Duration::from_millis(20));
        }
        let mut response = Response::default();
        response.send_text(format!("{begins} {}", policy()));
        response
    }
}

/// Whether the tests themselves run as programs usually do. Where another policy was chosen the engine leaves it alone.
fn is_usual() -> bool {
    let is_usual = policy() == USUAL;
    if !is_usual {
        eprintln!("SKIPPED: the tests run under a policy of their own");
    }
    is_usual
}

fn always(policy: &str) -> String {
    format!("{policy} {policy}")
}

#[test]
fn threads_that_lead_are_under_the_batch_policy_and_threads_that_run_handlers_are_not() {
    if !is_usual() {
        return;
    }
    let server = TestServer::with(ServerConfig::default(), Policies);
    let mut client = server.client();
    for _ in 0..3 {
        assert_eq!(client.get("/").text(), always(BATCH));
        assert_eq!(client.get("/dispatched").text(), always(USUAL));
    }
}

#[test]
fn the_policy_goes_with_the_lead() {
    if !is_usual() {
        return;
    }
    let server = TestServer::with(ServerConfig::default().event_loops(1), Policies);
    let (mut quick, mut slow) = (server.client(), server.client());
    assert_eq!(quick.get("/").text(), always(BATCH));
    // The first call is inline. Its thread loses the loop, and is one of those that run handlers from then on.
    eventually("it is learned", || {
        slow.get("/blocks");
        server.metrics().dispatched > 0
    });
    assert!(server.metrics().hand_overs > 0);
    for _ in 0..20 {
        assert_eq!(slow.get("/blocks").text(), always(USUAL));
        assert_eq!(quick.get("/").text(), always(BATCH), "whoever took the loop leads now");
    }
}

#[test]
fn it_can_be_left_to_the_system() {
    if !is_usual() {
        return;
    }
    let server = TestServer::with(ServerConfig::default().batch_scheduling(false), Policies);
    let mut client = server.client();
    for target in ["/", "/dispatched", "/blocks", "/blocks", "/"] {
        assert_eq!(client.get(target).text(), always(USUAL));
    }
}

#[test]
fn the_program_itself_stays_as_it_was() {
    if !is_usual() {
        return;
    }
    let server = TestServer::with(ServerConfig::default(), Policies);
    server.client().get("/");
    assert_eq!(policy(), USUAL);
    thread::spawn(|| assert_eq!(policy(), USUAL)).join().unwrap();
}
