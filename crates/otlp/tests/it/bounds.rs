//! Collectors that are slow, away or unwilling.

use std::io::Read;
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use filoplume::middleware::Tracing;
use filoplume::prelude::*;
use tracing::info_span;
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt;

use crate::collector::{Answer, Collector, SOON, exporting, otlp};

fn spans(number: usize) {
    for _ in 0..number {
        info_span!("work").in_scope(|| ());
    }
}

/// A collector that accepts a connection and reads a request, and never answers.
fn silent() -> (String, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let reads = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        // Reads until the exporter gives up.
        let _ = socket.read_to_end(&mut Vec::new());
    });
    (url, reads)
}

#[test]
fn requests_do_not_wait_for_a_collector_that_hangs() {
    let (url, reads) = silent();
    // The collector may take longer than the test waits for anything.
    let otlp = otlp(&url).queue_spans(100).delay(Duration::ZERO).timeout(10 * SOON);
    exporting(otlp, |exporter| {
        let client = App::new().get("/", || "hi").with(Tracing::new()).test();
        for _ in 0..2000 {
            client.get("/").send().assert_status(200);
        }
        let counts = exporter.counts();
        // One batch, of 1 to 100 spans, is with the collector, and the queue is full.
        assert!((1800..=1899).contains(&counts.dropped_full), "{counts:?}");
        assert_eq!(counts.exported + counts.dropped_unsent + counts.rejected, 0);
        assert!(!exporter.flush(Duration::ZERO));
    });
    // The thread is not joined, because its request has a long timeout. It ends with the process.
    drop(reads);
}

#[test]
fn the_end_of_a_program_waits_for_a_bounded_time() {
    let (url, reads) = silent();
    let (layer, exporter) = otlp(&url).timeout(10 * SOON).start().unwrap();
    let subscriber = Registry::default().with(layer);
    tracing::subscriber::with_default(subscriber, || spans(1));
    let started = Instant::now();
    // The exporter's thread has the same deadline, so the shutdown may or may not be complete.
    let _ = exporter.shutdown(Duration::from_millis(300));
    assert!(started.elapsed() < SOON);
    // The attempt to export has the same deadline, and then closes its connection.
    reads.join().unwrap();
}

#[test]
fn the_queue_is_bounded_in_bytes_too() {
    let (url, _reads) = silent();
    let otlp = otlp(&url).queue_bytes(10_000).delay(10 * SOON);
    exporting(otlp, |exporter| {
        for _ in 0..100 {
            info_span!("work", text = "x".repeat(900)).in_scope(|| ());
        }
        let dropped = exporter.counts().dropped_full;
        assert!((89..=95).contains(&dropped), "{dropped}");
    });
}

#[test]
fn what_is_left_is_sent_at_the_end() {
    let collector = Collector::start();
    let (layer, exporter) = otlp(&collector.url()).delay(10 * SOON).start().unwrap();
    let subscriber = Registry::default().with(layer);
    tracing::subscriber::with_default(subscriber, || {
        spans(3);
        assert_eq!(collector.others(), 0);
        assert!(exporter.shutdown(SOON));
        spans(1);
    });
    let (_, spans) = crate::decode::request(&collector.next().1);
    assert_eq!((spans.len(), collector.others()), (3, 0));
}

#[test]
fn no_time_is_too_long() {
    let collector = Collector::start();
    exporting(otlp(&collector.url()).delay(Duration::MAX).timeout(Duration::MAX), |exporter| {
        spans(1);
        assert!(exporter.flush(Duration::MAX));
        assert_eq!(exporter.counts().exported, 1);
    });
}

#[test]
fn a_complete_batch_is_sent_at_once() {
    let collector = Collector::start();
    exporting(otlp(&collector.url()).delay(10 * SOON), |exporter| {
        spans(512);
        let (_, spans) = crate::decode::request(&collector.next().1);
        assert_eq!(spans.len(), 512);
        assert!(exporter.flush(SOON));
        assert_eq!(exporter.counts().exported, 512);
    });
}

/// What a collector answers to the requests with these numbers.
type Answers = fn(usize) -> Answer;

#[test]
fn the_answer_of_the_collector_decides_what_becomes_of_a_batch() {
    // The number of requests, and of spans that are exported, rejected and unsent.
    let rows: [(Answers, [u64; 4]); 8] = [
        (|_| (200, None, b""), [1, 3, 0, 0]),
        (|_| (202, None, b"nonsense"), [1, 3, 0, 0]),
        (|_| (200, None, b"\x0a\x02\x08\x02"), [1, 1, 2, 0]),
        (|_| (200, None, b"\x0a\x02\x08\x7f"), [1, 0, 3, 0]),
        (|_| (400, None, b""), [1, 0, 0, 3]),
        (|_| (307, None, b""), [1, 0, 0, 3]),
        (|n| if n < 3 { (503, None, b"") } else { (200, None, b"") }, [4, 3, 0, 0]),
        (|_| (429, Some("0"), b""), [5, 0, 0, 3]),
    ];
    for (at, (answer, expected)) in rows.into_iter().enumerate() {
        let collector = Collector::answering(answer);
        exporting(otlp(&collector.url()), |exporter| {
            spans(3);
            assert!(exporter.flush(SOON));
            let counts = exporter.counts();
            let requests = collector.others() as u64;
            let found = [requests, counts.exported, counts.rejected, counts.dropped_unsent];
            assert_eq!(found, expected, "row {at}");
        });
    }
}

#[test]
fn nobody_waits_after_the_last_attempt() {
    let collector = Collector::answering(|n| (503, Some(if n < 4 { "0" } else { "100000" }), b""));
    exporting(otlp(&collector.url()), |exporter| {
        spans(3);
        assert!(exporter.flush(Duration::from_secs(20)), "it does not pause for nothing");
        assert_eq!((collector.others(), exporter.counts().dropped_unsent), (5, 3));
    });
}

#[test]
fn a_collector_that_is_away_costs_its_spans() {
    let away = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    exporting(otlp(&format!("http://{away}")), |exporter| {
        spans(3);
        assert!(exporter.flush(SOON));
        assert_eq!(exporter.counts().dropped_unsent, 3);
    });
}

#[test]
fn a_collector_that_failed_for_long_gets_later_spans() {
    let collector =
        Collector::answering(|n| if n < 5 { (502, None, b"") } else { (200, None, b"") });
    exporting(otlp(&collector.url()), |exporter| {
        for expected in [(0, 3), (2, 3)] {
            spans(if expected.0 == 0 { 3 } else { 2 });
            assert!(exporter.flush(SOON));
            let counts = exporter.counts();
            assert_eq!((counts.exported, counts.dropped_unsent), expected);
        }
    });
}

#[test]
fn a_collector_can_ask_for_a_pause_which_the_end_of_the_program_cuts_short() {
    let collector = Collector::answering(|_| (503, Some("100000"), b""));
    let (layer, exporter) = otlp(&collector.url()).delay(Duration::ZERO).start().unwrap();
    let subscriber = Registry::default().with(layer);
    tracing::subscriber::with_default(subscriber, || spans(1));
    collector.next();
    assert!(exporter.shutdown(Duration::from_secs(20)), "the thread ends before the deadline");
    assert_eq!(collector.others(), 0);
}
