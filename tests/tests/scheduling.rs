//! Which policy Linux schedules the engine's threads under: batch for those that lead, the usual
//! one for those that run handlers.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::HashMap;
use std::fs;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use filoplume_runtime::{Plan, Request, Response, ServerConfig, Service};
use filoplume_tests::{TestServer, eventually};

const USUAL: &str = "0";
const BATCH: &str = "3";

/// The policy of the thread that asks.
fn policy() -> String {
    name_and_policy(&fs::read_to_string("/proc/thread-self/stat").unwrap()).1
}

/// What the `stat` of a thread says: its name, in parentheses, and its policy, field 41, the 39th
/// behind the name; see `proc(5)`.
fn name_and_policy(stat: &str) -> (String, String) {
    let (before, behind_name) = stat.rsplit_once(')').unwrap();
    let (_, name) = before.split_once('(').unwrap();
    (name.to_owned(), behind_name.split_whitespace().nth(38).unwrap().to_owned())
}

/// The policies of the threads of this process whose names begin so.
fn policies_of(name: &str) -> HashMap<String, String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    // A thread may end meanwhile.
    let stats = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
    stats.map(|stat| name_and_policy(&stat)).filter(|(other, _)| other.starts_with(name)).collect()
}

/// Answers with the policy of the thread that runs it, at its start and at its end: `/dispatched`
/// on a thread of its own, `/blocks` where it has been learned, everything else inline.
struct Policies;

impl Service for Policies {
    fn plan(&self, request: &mut Request) -> Plan {
        match request.path() {
            "/dispatched" => Plan::new().dispatched(),
            "/blocks" => Plan::new(),
            _ => Plan::new().inline(),
        }
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

/// Whether the tests themselves run as programs usually do. Where another policy was chosen the
/// engine leaves it alone.
fn is_usual() -> bool {
    let is_usual = policy() == USUAL;
    if !is_usual {
        skip::because("the tests run under a policy of their own");
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
    for _ in 0..3 {
        // Each from a new connection: one whose calls take long, and these read files, may be on a
        // lease.
        assert_eq!(server.client().get("/").text(), always(BATCH));
        assert_eq!(server.client().get("/dispatched").text(), always(USUAL));
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
    // The first call is inline. Its thread loses the loop, and is one of those that run handlers
    // from then on.
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

/// Its `/start` starts another server, inline.
struct Starts(Mutex<Option<TestServer>>);

impl Service for Starts {
    fn plan(&self, _: &mut Request) -> Plan {
        Plan::new().inline()
    }

    fn call(&self, _: Request) -> Response {
        let config = ServerConfig::default().event_loops(1).thread_name("inner");
        *self.0.lock().unwrap() = Some(TestServer::with(config, |_: Request| "inner"));
        Response::from("started")
    }
}

#[test]
fn a_server_that_is_started_by_a_thread_that_leads_is_as_any_other() {
    if !is_usual() {
        return;
    }
    let server = TestServer::with(ServerConfig::default(), Starts(Mutex::new(None)));
    assert_eq!(server.client().get("/start").text(), "started");
    eventually("its leader leads", || policies_of("inner-").values().any(|policy| policy == BATCH));
    // A thread names itself, and leaves what it inherited, once it runs.
    eventually("its watchdog is no leader", || {
        policies_of("inner-watchdog").get("inner-watchdog").is_some_and(|policy| policy == USUAL)
    });
}
