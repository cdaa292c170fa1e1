//! The deployment as a whole: what two instances share, and what is lost when a part of it
//! restarts, dies or is silent.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod accounts;
mod alerts;
mod cancel;
mod container;
mod exercise;
mod guide;
mod metrics;
mod page;
mod postgres;
mod proxies;
mod redis;
mod secrets;
mod trace;
mod traffic;

use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use deployment::API_RATE;
use deployment::stack::{LAME_DUCK, Options, Stack};
use diesel::connection::SimpleConnection;
use diesel::pg::PgConnection;
use diesel::sql_types::BigInt;
use diesel::{Connection, QueryableByName, RunQueryDsl, sql_query};
use harness::{Client, beside_others, eventually, one_at_a_time};
use tempfile::TempDir;

use self::traffic::{Traffic, log_in, request, try_request};

/// Starts everything. Returns `None`, and reports a skipped test, if a program is not installed.
fn start(lame_duck: Duration) -> Option<(TempDir, Stack)> {
    start_with(|options| options.lame_duck(lame_duck))
}

fn start_with(set: impl FnOnce(Options) -> Options) -> Option<(TempDir, Stack)> {
    if let Some(missing) = Stack::missing() {
        skip::without(missing);
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new(folder.path(), env!("CARGO_BIN_EXE_deployment"));
    let stack = Stack::start(&set(options)).unwrap();
    Some((folder, stack))
}

/// Restarts both instances one after the other, while clients send requests. Returns what failed.
fn failures_of_a_rolling_restart(stack: &mut Stack) -> Vec<String> {
    let traffic = Traffic::start(stack.address(), 32, "/");
    traffic.goes_on(200);
    for index in 0..2 {
        stack.stop_instance(index).unwrap();
        traffic.goes_on(200);
        stack.start_instance(index).unwrap();
        traffic.goes_on(200);
    }
    traffic.stop().into_iter().flatten().collect()
}

#[test]
fn a_rolling_restart_fails_no_request() {
    let _shared = beside_others();
    let Some((_folder, mut stack)) = start(LAME_DUCK) else { return };
    assert_eq!(failures_of_a_rolling_restart(&mut stack), [""; 0]);
}

/// A write is not safe to repeat. So each answered note is stored once, and there are no others.
#[test]
fn a_rolling_restart_loses_and_repeats_no_write() {
    const EACH: usize = 40;
    let _shared = beside_others();
    let Some((_folder, mut stack)) = start(LAME_DUCK) else { return };
    let cookie = log_in(stack.address(), "ada");
    let traffic = Traffic::writing(stack.address(), 8, &cookie, Duration::from_secs(10) / API_RATE);
    traffic.goes_on(EACH);
    for index in 0..2 {
        stack.stop_instance(index).unwrap();
        traffic.goes_on(EACH);
        stack.start_instance(index).unwrap();
        traffic.goes_on(EACH);
    }
    let answered = traffic.counter();
    let failures: Vec<String> = traffic.stop().into_iter().flatten().collect();
    assert_eq!(failures, [""; 0]);
    let mut database = PgConnection::establish(&stack.database()).unwrap();
    let notes = count(&mut database, "SELECT count(*) FROM notes");
    assert_eq!(notes, i64::try_from(answered.load(Ordering::Relaxed)).unwrap());
}

/// Shows that the tests above would notice if the lame-duck time had no effect.
#[test]
fn a_rolling_restart_without_a_lame_duck_time_fails_requests() {
    let _shared = beside_others();
    let Some((_folder, mut stack)) = start(Duration::ZERO) else { return };
    let mut rounds = 0..20;
    let failed = rounds.any(|_| !failures_of_a_rolling_restart(&mut stack).is_empty());
    assert!(failed, "no request failed in {} restarts", 40);
}

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

fn count(connection: &mut PgConnection, query: &str) -> i64 {
    sql_query(query).get_result::<Count>(connection).unwrap().count
}

#[test]
fn a_killed_instance_loses_only_what_it_was_answering() {
    const POSTS: usize = 8;
    let _shared = beside_others();
    let Some((_folder, mut stack)) = start(LAME_DUCK) else { return };
    let address = stack.address();
    let cookie = log_in(address, "ada");
    let traffic = Traffic::start(address, 16, "/");
    traffic.goes_on(100);
    let [mut database, mut watcher] =
        [(); 2].map(|()| PgConnection::establish(&stack.database()).unwrap());
    // With this lock, notes can be read, and requests that write one wait.
    database.batch_execute("BEGIN; LOCK TABLE notes IN EXCLUSIVE MODE").unwrap();
    let posts: Vec<_> = (0..POSTS)
        .map(|number| {
            let cookie = cookie.clone();
            let note = format!("{{\"text\":\"note {number}\"}}");
            thread::spawn(move || try_request(address, "POST", "/api/notes", &cookie, &note))
        })
        .collect();
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    eventually("all notes wait for the lock", || {
        count(&mut watcher, waiting) == i64::try_from(POSTS).unwrap()
    });
    let first = count(&mut watcher, &format!("{waiting} AND application_name LIKE 'first/%'"));
    assert!(first > 0 && first < i64::try_from(POSTS).unwrap(), "{first}");
    stack.kill_instance(0).unwrap();
    let later = Traffic::start(address, 16, "/");
    database.batch_execute("COMMIT").unwrap();
    let answers: Vec<_> = posts.into_iter().map(|post| post.join().unwrap()).collect();
    let (answered, lost): (Vec<_>, Vec<_>) =
        answers.iter().partition(|answer| answer.as_ref().is_ok_and(|answer| answer.status == 201));
    assert_eq!(lost.len(), usize::try_from(first).unwrap(), "{lost:?}");
    let by_second = |answer: &&Result<_, _>| {
        let answer: &Result<harness::Response, String> = answer;
        answer.as_ref().is_ok_and(|answer| answer.header("x-instance") == Some("second"))
    };
    assert!(answered.iter().all(by_second), "{answered:?}");
    later.goes_on(200);
    let failures: Vec<String> = later.stop().into_iter().flatten().collect();
    assert_eq!(failures, [""; 0]);
    // The lost requests have stored no note, and each answered one has stored its note.
    let count = count(&mut database, "SELECT count(*) FROM notes");
    assert_eq!(count, i64::try_from(answered.len()).unwrap());
    // A client that tries again at once may still reach the dying process. Later ones do not.
    for failures in traffic.stop() {
        assert!(failures.len() <= 2, "{failures:?}");
    }
    stack.start_instance(0).unwrap();
}

/// The number of threads of a process.
fn threads(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/task")).unwrap().count()
}

#[test]
fn a_rate_limit_counts_over_both_instances() {
    const TIME: Duration = Duration::from_secs(6);
    let _alone = one_at_a_time();
    let Some((_folder, stack)) = start(LAME_DUCK) else { return };
    let (allowed, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let started = Instant::now();
    thread::scope(|scope| {
        // Requests go directly to both instances, so that each gets the same load. Both see the
        // same client.
        for index in [0, 1, 0, 1] {
            let (address, allowed, refused) = (stack.instance(index), &allowed, &refused);
            scope.spawn(move || {
                let mut client = Client::connect(address);
                while started.elapsed() < TIME {
                    match client.get("/api/notes").status {
                        200 => allowed.fetch_add(1, Ordering::Relaxed),
                        429 => refused.fetch_add(1, Ordering::Relaxed),
                        other => panic!("a response with {other}"),
                    };
                }
            });
        }
    });
    // The burst is as large as the number of requests per second.
    let expected = f64::from(API_RATE) * (1.0 + started.elapsed().as_secs_f64());
    let (allowed, refused) = (allowed.into_inner(), refused.into_inner());
    let deviation = (allowed as f64 - expected).abs() / expected;
    assert!(deviation < 0.05, "{allowed} of {expected:.0} requests were allowed");
    assert!(refused > allowed, "there was not enough load: {refused} were refused");
}

#[test]
fn instances_share_accounts_files_and_the_feed() {
    let _shared = beside_others();
    let Some((_folder, stack)) = start(LAME_DUCK) else { return };
    let [first, second]: [SocketAddr; 2] = [stack.instance(0), stack.instance(1)];
    let cookie = log_in(first, "ada");
    let mut reader = Client::connect(second);
    reader.send("GET /feed HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(reader.read_head_only().unwrap().status, 200);
    // The link of the second instance may not be up yet when the first note is sent.
    let note = "{\"text\":\"hello\"}";
    assert_eq!(request(second, "POST", "/api/notes", &cookie, note).status, 201);
    let notes = request(first, "GET", "/api/notes", "", "");
    assert!(notes.text().contains("hello"), "{notes:?}");
    let mut feed = Vec::new();
    eventually("a note of the first instance is in the feed of the second", || {
        assert_eq!(
            request(first, "POST", "/api/notes", &cookie, "{\"text\":\"over\"}").status,
            201
        );
        let mut bytes = [0; 4096];
        let Ok(length) = std::io::Read::read(&mut reader.tcp(), &mut bytes) else { return false };
        feed.extend_from_slice(&bytes[..length]);
        String::from_utf8_lossy(&feed).contains("over")
    });
    let upload = traffic::upload(first, &cookie, "a.txt", "some text");
    assert_eq!(upload.status, 201, "{upload:?}");
    let file = request(second, "GET", "/api/files/1", &cookie, "");
    assert_eq!((file.status, file.text()), (200, "some text"));
    // Files of others are not found, and a note that fails is not kept.
    let other = log_in(second, "bob");
    assert_eq!(request(first, "GET", "/api/files/1", &other, "").status, 404);
    assert_eq!(request(first, "POST", "/api/notes", &other, "{\"text\":\" \"}").status, 422);
}
