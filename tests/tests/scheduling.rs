//! The Linux scheduling policy of the engine's threads: batch for leaders, the default for threads
//! that run handlers.

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

/// Returns the policy of the current thread.
fn policy() -> String {
    name_and_policy(&fs::read_to_string("/proc/thread-self/stat").unwrap()).1
}

/// Parses the `stat` of a thread: its name, in parentheses, and its policy, which is field 41 and
/// the 39th after the name; see `proc(5)`.
fn name_and_policy(stat: &str) -> (String, String) {
    let (before, behind_name) = stat.rsplit_once(')').unwrap();
    let (_, name) = before.split_once('(').unwrap();
    (name.to_owned(), behind_name.split_whitespace().nth(38).unwrap().to_owned())
}

/// Returns the policies of the threads of this process whose names begin with `name`.
fn policies_of(name: &str) -> HashMap<String, String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    // A thread may end meanwhile.
    let stats = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
    stats.map(|stat| name_and_policy(&stat)).filter(|(other, _)| other.starts_with(name)).collect()
}

/// Responds with the policy of its thread at the start and at the end of the call. `/dispatched`
/// runs on the pool, `/blocks` where the engine has learned to run it, and everything else inline.
struct Policies;

impl Service for Policies {
    fn plan(&self, request: &mut Request) -> Plan {
        match request.path() {
            "/dispatched" => Plan::new().on_pool(),
            "/blocks" => Plan::new(),
            _ => Plan::new().on_loop(),
        }
    }

    fn call(&self, request: Request) -> Response {
        let begins = policy();
        if request.path() == "/blocks" {
            thread::sleep(Duration::from_millis(20));
        }
        let mut response = Response::default();
        response.set_text(format!("{begins} {}", policy()));
        response
    }
}

/// Returns whether the tests run under the default policy. The engine does not change any other
/// policy.
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
fn leaders_have_the_batch_policy_and_threads_that_run_handlers_do_not() {
    if !is_usual() {
        return;
    }
    let server = TestServer::with(ServerConfig::default(), Policies);
    for _ in 0..3 {
        // Each request uses a new connection: these calls read files and may be slow enough for a
        // lease.
        assert_eq!(server.client().get("/").text(), always(BATCH));
        assert_eq!(server.client().get("/dispatched").text(), always(USUAL));
    }
}

#[test]
fn the_policy_changes_with_the_leader() {
    if !is_usual() {
        return;
    }
    let server = TestServer::with(ServerConfig::default().event_loops(1), Policies);
    let (mut quick, mut slow) = (server.client(), server.client());
    assert_eq!(quick.get("/").text(), always(BATCH));
    // The first call is inline. Its thread loses the loop, and runs handlers from then on.
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
fn the_batch_policy_can_be_disabled() {
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
fn the_policy_of_the_programs_own_threads_is_unchanged() {
    if !is_usual() {
        return;
    }
    let server = TestServer::with(ServerConfig::default(), Policies);
    server.client().get("/");
    assert_eq!(policy(), USUAL);
    thread::spawn(|| assert_eq!(policy(), USUAL)).join().unwrap();
}

/// `/start` starts another server, inline.
struct Starts(Mutex<Option<TestServer>>);

impl Service for Starts {
    fn plan(&self, _: &mut Request) -> Plan {
        Plan::new().on_loop()
    }

    fn call(&self, _: Request) -> Response {
        let config = ServerConfig::default().event_loops(1).thread_name("inner");
        *self.0.lock().unwrap() = Some(TestServer::with(config, |_: Request| "inner"));
        Response::from("started")
    }
}

#[test]
fn a_server_started_by_a_leader_has_the_usual_policies() {
    if !is_usual() {
        return;
    }
    let server = TestServer::with(ServerConfig::default(), Starts(Mutex::new(None)));
    assert_eq!(server.client().get("/start").text(), "started");
    eventually("its leader leads", || policies_of("inner-").values().any(|policy| policy == BATCH));
    // A thread sets its name and resets the inherited policy once it runs.
    eventually("its watchdog is no leader", || {
        policies_of("inner-watchdog").get("inner-watchdog").is_some_and(|policy| policy == USUAL)
    });
}
