//! Decoders take turns on the processors.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use filoplume::prelude::*;

use super::{CODINGS, client, encoded, send};

/// A text of which `br` makes no less than 4 KiB.
fn long_text() -> String {
    (0..4_000_u64).map(|n| format!("{} ", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect()
}

/// While other threads have all turns, a content gets one only because its client has none, which
/// happens after 100 ms. So a content of many turns takes much longer than it takes to decode.
#[test]
fn long_contents_are_decoded_in_turns() {
    let text = long_text();
    let client = client();
    let decode = |content: &str, coding| {
        let coded = encoded(coding, content.as_bytes());
        let begun = Instant::now();
        send(&client, "/text", coding, coded).assert_status(200).assert_text(content);
        begun.elapsed()
    };
    let processors = thread::available_parallelism().unwrap().get();
    let (has_turn, have_turns) = mpsc::channel();
    thread::scope(|scope| {
        let mut ends = Vec::new();
        for _ in 0..processors {
            let has_turn = has_turn.clone();
            let (end, ended) = mpsc::channel::<()>();
            ends.push(end);
            scope.spawn(move || {
                let request = Request::try_from(http::Request::new(Vec::new())).unwrap();
                request.compute_in_turn(|| {
                    has_turn.send(()).unwrap();
                    // Ends when the sender is dropped, also by a failed assertion.
                    ended.recv().unwrap_err();
                });
            });
        }
        ends.iter().for_each(|_| have_turns.recv().unwrap());
        for coding in CODINGS {
            let took = decode(&text, coding);
            assert!(took >= Duration::from_millis(300), "{coding}: {took:?}");
        }
        drop(ends);
    });
}
