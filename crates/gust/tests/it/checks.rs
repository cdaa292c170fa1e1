//! `--verify`, `--expect` and `--max-errors`.

use std::time::Duration;

use crate::program::{count, errors, measure};
use crate::servers::{Counter, HELLO, always, each_request, echo};

#[test]
fn equal_responses_pass_verification() {
    let port = always(HELLO);
    for what in ["--verify", "--verify=body", "--verify=status", "--expect 2xx"] {
        let (run, outcome) = measure(&format!(":{port} -c 4 -n 400 {what}"));
        outcome.assert_code(0);
        assert_eq!((count(&run, "responses"), errors(&run)), (400, 0), "{what}: {run}");
    }
}

#[test]
fn a_different_content_is_a_mismatch() {
    let asked = Counter::default();
    let port = each_request(move |_| match asked.add() % 10 {
        9 => b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHallo".to_vec(),
        _ => HELLO.to_vec(),
    });
    let (run, outcome) = measure(&format!(":{port} -c 1 -n 100 --verify"));
    outcome.assert_code(1).assert_says("10 responses did not match what --verify expects");
    assert_eq!((count(&run, "errors.mismatch"), count(&run, "responses")), (10, 100), "{run}");
    let (run, outcome) = measure(&format!(":{port} -c 1 -n 100 --verify=status"));
    outcome.assert_code(0);
    assert_eq!(errors(&run), 0, "{run}");
}

#[test]
fn an_echoed_content_is_verified() {
    let port = each_request(|request| {
        let content = String::from_utf8(request.content.clone()).unwrap();
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{content}", content.len())
            .into_bytes()
    });
    let (_, outcome) = measure(&format!(":{port} -c 2 -n 100 -b abc --verify=echo"));
    outcome.assert_code(0);
    let (run, outcome) = measure(&format!(":{} -c 2 -n 100 -b abc --verify=echo", always(HELLO)));
    outcome.assert_code(1);
    assert_eq!(count(&run, "errors.mismatch"), 100, "{run}");
}

#[test]
fn a_status_that_is_not_expected_is_an_error() {
    let asked = Counter::default();
    let port = each_request(move |_| match asked.add() % 4 {
        3 => b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_vec(),
        _ => HELLO.to_vec(),
    });
    let (run, outcome) = measure(&format!(":{port} -c 1 -n 100"));
    outcome.assert_code(0);
    assert_eq!((count(&run, "statuses.503"), errors(&run)), (25, 0), "{run}");
    let (run, outcome) = measure(&format!(":{port} -c 1 -n 100 --expect 2xx"));
    outcome.assert_code(1).assert_says("a status that --expect does not list");
    assert_eq!(count(&run, "errors.status"), 25, "{run}");
    let (_, outcome) = measure(&format!(":{port} -c 1 -n 100 --expect 2xx,503"));
    outcome.assert_code(0);
    let (_, outcome) = measure(&format!(":{port} -c 1 -n 100 --expect 2xx --max-errors 25"));
    outcome.assert_code(0);
}

#[test]
fn too_many_errors_end_a_run() {
    let port = always(b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n");
    let (run, outcome) = measure(&format!(":{port} -c 2 -d 30s --expect 2xx --max-errors 10"));
    outcome.assert_code(1).assert_says("exceed the limit of 10 (--max-errors)");
    assert!(outcome.took < Duration::from_secs(10) && count(&run, "errors.status") > 10, "{run}");
}

#[test]
fn an_echo_is_verified() {
    let port = echo(|_| {});
    for more in ["", "-p 8", "-l 10000", "-l 1", "--blocking-threads 2 -p 2"] {
        let (run, outcome) =
            measure(&format!("tcp://127.0.0.1:{port} -c 4 -n 400 --verify {more}"));
        outcome.assert_code(0);
        assert_eq!((count(&run, "responses"), errors(&run)), (400, 0), "{more}: {run}");
        assert_eq!(count(&run, "bytes_sent"), count(&run, "bytes_received"));
    }
}

#[test]
fn a_changed_echo_is_a_mismatch() {
    let port = echo(|bytes| bytes[bytes.len() / 2] ^= 1);
    let (run, outcome) = measure(&format!("tcp://127.0.0.1:{port} -c 2 -n 10 -l 100 --verify"));
    outcome.assert_code(1);
    assert_eq!((count(&run, "errors.mismatch"), count(&run, "responses")), (10, 0), "{run}");
    let (_, outcome) = measure(&format!("tcp://127.0.0.1:{port} -c 2 -n 10 -l 100"));
    outcome.assert_code(0);
}
