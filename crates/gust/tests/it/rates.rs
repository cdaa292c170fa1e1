//! Constant rates: the number of requests, and the latencies when the server pauses.

use std::io::Read;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::program::{count, errors, measure, number};
use crate::servers::{HELLO, always, each_connection, each_request};

#[test]
fn a_rate_is_kept() {
    let port = always(HELLO);
    for threads in [1, 2] {
        let (run, outcome) = measure(&format!(":{port} -c 8 -t {threads} -r 500 -d 2s"));
        outcome.assert_code(0);
        let due = count(&run, "requests") + count(&run, "never_sent");
        assert!((990..=1001).contains(&due) && errors(&run) == 0, "{run}");
        assert!(number(&run, "uncorrected.count") > 0.0);
    }
}

#[test]
fn a_ramp_begins_at_zero() {
    let port = always(HELLO);
    let (run, _) = measure(&format!(":{port} -c 4 -r 1000 --ramp 1s -d 1s"));
    let due = count(&run, "requests") + count(&run, "never_sent");
    assert!((490..=501).contains(&due), "{run}");
}

#[test]
fn a_number_of_requests_at_a_rate_is_exact() {
    let port = always(HELLO);
    let (run, outcome) = measure(&format!(":{port} -c 4 -t 2 -r 1000 -n 300"));
    outcome.assert_code(0);
    assert_eq!((count(&run, "requests"), count(&run, "responses")), (300, 300), "{run}");
    assert!(number(&run, "seconds") > 0.29, "{run}");
}

/// The server pauses for 1 s of 4 s. A quarter of the requests are due in that time and wait for
/// half of it on average. So 0.6 of that quarter have waited less than the 90th percentile. A
/// client that stops sending while the server pauses would see one slow request per connection.
#[test]
fn a_pause_of_the_server_counts_for_all_requests_that_were_due() {
    let start = Arc::new(OnceLock::new());
    let port = each_request(move |_| {
        let start: &Instant = start.get_or_init(Instant::now);
        let (stop, go_on) = (*start + Duration::from_secs(1), *start + Duration::from_secs(2));
        let now = Instant::now();
        if now > stop && now < go_on {
            // The pause is what the test is about.
            thread::sleep(go_on - now);
        }
        HELLO.to_vec()
    });
    let (run, _) = measure(&format!(":{port} -c 4 -r 1000 -d 4s"));
    let p90 = |of: &str| run[of]["percentiles"][2].as_f64().unwrap() / 1e6;
    assert!((500.0..900.0).contains(&p90("latency")), "{run}");
    assert!(p90("uncorrected") < p90("latency") / 4.0, "{run}");
    assert!(number(&run, "latency.max") > 0.9e9, "{run}");
}

#[test]
fn requests_that_could_not_be_sent_are_reported() {
    let port = each_request(|_| {
        // The server answers five requests per second, and a hundred are due.
        thread::sleep(Duration::from_millis(200));
        HELLO.to_vec()
    });
    let (run, _) = measure(&format!(":{port} -c 1 -r 100 -d 1s"));
    assert!(count(&run, "requests") <= 6 && count(&run, "never_sent") > 80, "{run}");
    assert!(count(&run, "longest_wait") > 500_000_000, "{run}");
}

#[test]
fn a_connection_per_request_can_have_a_rate() {
    let port = always(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nHello");
    let (run, outcome) = measure(&format!(":{port} -c 8 -r 200 -d 1s --no-keepalive"));
    outcome.assert_code(0);
    let due = count(&run, "requests") + count(&run, "never_sent");
    assert!((195..=201).contains(&due) && errors(&run) == 0, "{run}");
    assert_eq!(count(&run, "connect.count"), count(&run, "requests"));
}

#[test]
fn no_more_requests_are_missing_than_were_asked_for() {
    let port = each_connection(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    for threads in [1, 2] {
        let (run, _) = measure(&format!(":{port} -c 2 -t {threads} -r 10k -n 100 -d 500ms"));
        let all = count(&run, "requests") + count(&run, "never_sent");
        assert_eq!((count(&run, "requests"), all), (2, 100), "{run}");
    }
}
