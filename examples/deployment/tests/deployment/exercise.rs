//! The problems on purpose are found where docs/guide/operating.md looks for them.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use deployment::exercise::{Plant, start_traffic};
use deployment::stack::Stack;
use harness::{Client, eventually_within, one_at_a_time};

use super::start_with;

/// Generous, because the machine may be busy, and the traffic makes it so.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns a value of the metrics of the first instance.
fn metric(stack: &Stack, sample: &str) -> Option<u64> {
    let mut client = Client::try_connect(stack.instance(0)).ok()?;
    client.try_send("GET /metrics HTTP/1.1\r\nHost: t\r\n\r\n").ok()?;
    let metrics = client.try_response().ok()?;
    metrics.text().lines().find_map(|line| line.strip_prefix(sample)?.trim().parse().ok())
}

fn active(stack: &Stack, route: &str) -> Option<u64> {
    metric(stack, &format!("http_server_active_requests{{method=\"GET\",route=\"{route}\"}}"))
}

/// Waits until a line of the log of the first instance has all parts.
fn logs(stack: &Stack, parts: &[&str]) {
    eventually_within(PATIENCE, &format!("a line has {parts:?}"), || {
        let log = stack.log("first").unwrap();
        log.lines().any(|line| parts.iter().all(|part| line.contains(part)))
    });
}

/// Waits until the feed of the console of the first instance has a text.
fn console_shows(stack: &Stack, text: &str) {
    let mut stream = TcpStream::connect(stack.console(0)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /console/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut feed = Vec::new();
    let mut part = [0; 4096];
    eventually_within(PATIENCE, &format!("the console shows {text}"), || {
        let read = stream.read(&mut part).unwrap();
        assert!(read > 0, "the feed ended: {}", String::from_utf8_lossy(&feed));
        feed.extend_from_slice(&part[..read]);
        String::from_utf8_lossy(&feed).contains(text)
    });
}

#[test]
fn planted_problems_are_found_where_the_guide_looks() {
    let _alone = one_at_a_time();
    let Some((folder, mut stack)) = start_with(|options| options.variable("PLANT", "slow")) else {
        return;
    };
    let addresses = fs::read_to_string(folder.path().join("addresses")).unwrap();
    let console = format!("\nconsole of the first: http://{}/console\n", stack.console(0));
    assert!(addresses.contains(&console), "{addresses}");
    // The slow route holds all connections of the database, and the page waits for one.
    let traffic = start_traffic(Plant::Slow, stack.address());
    eventually_within(PATIENCE, "16 searches run", || active(&stack, "/search") == Some(16));
    eventually_within(PATIENCE, "all permits are taken", || {
        metric(&stack, "filoplume_permits{name=\"database\",state=\"free\"}") == Some(0)
    });
    logs(&stack, &["story=GET /search: 200 after 2", "waiting 2"]);
    logs(&stack, &["story=GET /: 200 after 1.", "queue 1."]);
    // The console of the instance shows it too, on an address of its own.
    console_shows(&stack, "\"pattern\":\"/search\"");
    for elsewhere in [stack.instance(0), stack.address()] {
        assert_eq!(Client::connect(elsewhere).get("/console").status, 404);
    }
    drop(traffic);

    // The flood comes from one client.
    let traffic = start_traffic(Plant::Flood, stack.address());
    eventually_within(PATIENCE, "the log of haproxy has the flood", || {
        let log = stack.log("haproxy").unwrap();
        let clients = log.lines().rev().take(1000);
        clients.filter(|line| line.contains("client=127.0.0.66 ")).count() > 900
    });
    drop(traffic);

    // Handlers that do not return are counted, and reported with what they wait for.
    let traffic = start_traffic(Plant::Leak, stack.address());
    let report = ["GET /export: stuck (#1)", "reads from a socket with 127.0.0.1:", "; trace "];
    logs(&stack, &report);
    assert!(active(&stack, "/export").is_some_and(|calls| calls >= 5));
    drop(traffic);
    // These handlers would not end within the drain.
    for index in 0..2 {
        stack.kill_instance(index).unwrap();
    }
}
