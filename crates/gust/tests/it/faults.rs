//! Servers that fail: each failure is counted by its kind, and none makes the program hang.

use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, TcpListener};
use std::time::Duration;

use crate::program::{count, errors, gust, measure, number};
use crate::servers::{Counter, HELLO, always, each_connection, read_request, reset};

#[test]
fn a_refused_connection_is_reported_in_one_line() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    for more in ["", "-r 100", "--no-keepalive", "--blocking-threads 3"] {
        let outcome = gust(&format!(":{port} -c 10 {more}"));
        outcome
            .assert_code(2)
            .assert_says(&format!("cannot connect to 127.0.0.1:{port}: Connection refused"));
        assert!(outcome.stdout.is_empty());
        assert!(outcome.took < Duration::from_secs(5), "{more}: {:?}", outcome.took);
    }
}

#[test]
fn a_bad_command_line_says_what_is_wrong() {
    gust("localhost:8080").assert_code(2).assert_says("is not a URL; write http://");
    gust(":1 --insecure").assert_code(2).assert_says("--insecure is for https://");
    gust("").assert_code(2).assert_says("required");
    gust(":1 -c none").assert_code(2).assert_says("is not a number");
    gust("unix:/does/not/exist").assert_code(2).assert_says("cannot connect to /does/not/exist");
    gust(":1 --compare /does/not/exist").assert_code(2).assert_says("cannot read /does/not/exist");
    gust(":1 --save /does/not/exist").assert_code(2).assert_says("cannot write /does/not/exist");
    gust(":1 --server-pid 999999999").assert_code(2).assert_says("--server-pid");
}

#[test]
fn a_reset_is_counted_as_a_reset() {
    let port = each_connection(|stream| {
        let mut reader = BufReader::new(stream);
        read_request(&mut reader);
        reset(reader.into_inner());
    });
    let (run, outcome) = measure(&format!(":{port} -c 2 -n 20"));
    outcome.assert_code(1).assert_says("no request was answered");
    assert_eq!((count(&run, "errors.reset"), count(&run, "requests")), (20, 20), "{run}");
}

#[test]
fn a_response_that_ends_too_soon_is_closed_early() {
    for answer in
        [&b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nHello"[..], b"HTTP/1.1 200 O", b""]
    {
        let port = each_connection(move |stream| {
            let mut reader = BufReader::new(stream);
            read_request(&mut reader);
            let _ = reader.get_mut().write_all(answer);
        });
        let (run, outcome) = measure(&format!(":{port} -c 2 -n 10"));
        outcome.assert_code(1);
        assert_eq!((count(&run, "errors.closed_early"), errors(&run)), (10, 10), "{run}");
    }
}

/// Eight requests are in flight, and one is answered before the connection ends.
#[test]
fn requests_of_a_pipeline_that_are_lost_are_all_counted() {
    const LAST: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nHello";
    for (answer, resets, more) in [
        (HELLO, false, ""),
        (HELLO, true, ""),
        (LAST, false, ""),
        (HELLO, false, "--blocking-threads 1"),
        (LAST, false, "--blocking-threads 1"),
    ] {
        // An event loop sends another request after the response, and the server reads that one
        // too.
        let is_followed = answer == HELLO && more.is_empty();
        let port = each_connection(move |stream| {
            let mut reader = BufReader::new(stream);
            if !(0..8).all(|_| read_request(&mut reader).is_some()) {
                return;
            }
            let _ = reader.get_mut().write_all(answer);
            if is_followed {
                read_request(&mut reader);
            }
            if resets {
                return reset(reader.into_inner());
            }
            let _ = reader.get_mut().shutdown(Shutdown::Write);
            let _ = reader.read_to_end(&mut Vec::new());
        });
        let requests = if is_followed { 18 } else { 16 };
        let (run, _) = measure(&format!(":{port} -c 1 -p 8 -n {requests} {more}"));
        let kind = if resets { "errors.reset" } else { "errors.closed_early" };
        let counted = (count(&run, "responses"), count(&run, kind), errors(&run));
        assert_eq!(counted, (2, requests - 2, requests - 2), "{more}: {run}");
    }
}

/// The client connects again after 10, 20, 40, ... ms: eight times in the first second and a
/// quarter. On a slow machine there are fewer attempts; without a pause there would be thousands.
#[test]
fn a_server_that_accepts_and_closes_is_not_flooded_with_connects() {
    for more in ["", "--blocking-threads 1", "-r 1000"] {
        for answers in [0, 1] {
            let accepted = Counter::default();
            let counter = accepted.clone();
            let port = each_connection(move |stream| {
                // Responses on earlier connections do not count for this one.
                if counter.add() < answers {
                    let mut reader = BufReader::new(stream);
                    read_request(&mut reader);
                    let _ = reader.get_mut().write_all(HELLO);
                }
            });
            let (run, _) = measure(&format!(":{port} -c 1 -d 1s {more}"));
            assert!((2..=12).contains(&accepted.get()), "{more}: {}", accepted.get());
            // Requests that became due in the last pause have waited, although none is in flight.
            let is_due = count(&run, "never_sent") > 0;
            assert_eq!(
                count(&run, "longest_wait") > 0,
                is_due || count(&run, "unanswered") > 0,
                "{run}"
            );
        }
    }
}

/// With the pauses after failures this would take about ninety seconds.
#[test]
fn after_a_response_a_closed_connection_is_opened_again_at_once() {
    for more in ["", "--blocking-threads 1"] {
        let port =
            always(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nHello");
        let (run, outcome) = measure(&format!(":{port} -c 1 -n 100 {more}"));
        outcome.assert_code(0);
        assert_eq!(
            (count(&run, "responses"), count(&run, "connections.reopened")),
            (100, 99),
            "{run}"
        );
        assert!(number(&run, "seconds") < 30.0, "{run}");
    }
}

#[test]
fn bytes_that_are_not_http_are_malformed() {
    for answer in [
        &b"SSH-2.0-OpenSSH_9.2\r\n"[..],
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nHello",
        b"HTTP/1.1 200 OK\nContent-Length: 5\n\nHello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nHello!\r\n",
    ] {
        let port = always(answer);
        let (run, outcome) = measure(&format!(":{port} -c 2 -n 10"));
        outcome.assert_code(1);
        assert_eq!((count(&run, "errors.malformed"), errors(&run)), (10, 10), "{run}");
    }
}

#[test]
fn bytes_without_a_request_are_unsolicited() {
    // A second response to one request.
    let port = always(
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHello\
          HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHello",
    );
    let (run, _) = measure(&format!(":{port} -c 2 -n 10"));
    assert_eq!((count(&run, "responses"), count(&run, "errors.unsolicited")), (10, 10), "{run}");
}

#[test]
fn a_server_that_sends_without_end_does_not_block_the_run() {
    let port = each_connection(|mut stream| while stream.write_all(&[b'x'; 65536]).is_ok() {});
    let (run, outcome) = measure(&format!(":{port} -c 4 -d 500ms"));
    outcome.assert_code(1);
    assert!(errors(&run) > 0 && outcome.took < Duration::from_secs(5), "{run}");
    // The server sends the same endless bytes as the content of one response.
    let port = each_connection(|stream| {
        let mut reader = BufReader::new(stream);
        read_request(&mut reader);
        let stream = reader.get_mut();
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b'x'; 65536]).is_ok() {}
    });
    let (run, outcome) = measure(&format!(":{port} -c 4 -d 500ms"));
    outcome.assert_code(1);
    assert!(count(&run, "unanswered") == 4 && outcome.took < Duration::from_secs(5), "{run}");
}

#[test]
fn a_request_without_a_response_times_out() {
    let port = each_connection(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    for more in ["", "--blocking-threads 2"] {
        let (run, outcome) = measure(&format!(":{port} -c 2 -n 4 --timeout 200ms {more}"));
        outcome.assert_code(1);
        assert_eq!((count(&run, "errors.timeout"), count(&run, "unanswered")), (4, 0), "{run}");
    }
}

#[test]
fn a_server_that_never_accepts_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for more in
        ["", "--no-keepalive", "--blocking-threads 4", "--blocking-threads 4 --no-keepalive"]
    {
        let (run, outcome) = measure(&format!(":{port} -c 4 -d 600ms {more}"));
        outcome.assert_code(1).assert_says("no request was answered");
        assert_eq!(
            (count(&run, "unanswered"), count(&run, "connections.never_served")),
            (4, 4),
            "{run}"
        );
        assert!(outcome.took < Duration::from_secs(5), "{:?}", outcome.took);
        let wait = count(&run, "longest_wait");
        assert!(wait > 400_000_000 && u128::from(wait) < outcome.took.as_nanos(), "{run}");
    }
}

#[test]
fn connections_that_are_never_served_are_counted() {
    let accepted = Counter::default();
    let port = each_connection(move |stream| {
        let mut reader = BufReader::new(stream);
        let is_served = accepted.add() < 2;
        while read_request(&mut reader).is_some() {
            if is_served && reader.get_mut().write_all(HELLO).is_err() {
                return;
            }
        }
    });
    let outcome = gust(&format!(":{port} -c 10 -d 500ms"));
    outcome.assert_code(0);
    assert!(outcome.stdout.contains("2 served, 8 never served"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("8 of 10 connections were never served"), "{}", outcome.stdout);
    assert!(
        outcome.stdout.contains("most connections starve (Little's law)"),
        "{}",
        outcome.stdout
    );
}

#[test]
fn a_server_that_stops_ends_a_run_without_duration() {
    for more in ["", "--blocking-threads 1"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            drop(listener);
            let mut reader = BufReader::new(stream);
            read_request(&mut reader);
            let _ = reader.get_mut().write_all(HELLO);
        });
        let outcome = gust(&format!(":{port} -c 1 -n 1000 --timeout 300ms --quiet {more}"));
        outcome.assert_code(0);
        assert!(outcome.stdout.contains("of the requests could be sent"), "{}", outcome.stdout);
    }
}

#[test]
fn a_response_that_never_ends_times_out() {
    let port = each_connection(|stream| {
        let mut reader = BufReader::new(stream);
        read_request(&mut reader);
        let stream = reader.get_mut();
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(b"x").is_ok() {
            // Each byte comes before a read of a blocking client ends without one.
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    for more in ["", "--blocking-threads 1"] {
        let (run, _) = measure(&format!(":{port} -c 1 -d 1s --timeout 200ms {more}"));
        assert!((2..=5).contains(&count(&run, "errors.timeout")), "{more}: {run}");
    }
}

#[test]
fn a_request_that_cannot_be_written_until_the_end_is_unanswered() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("content");
    std::fs::write(&file, vec![b'x'; 64 * 1024 * 1024]).unwrap();
    // Connections to this server are open, and nothing reads from them.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for more in ["", "--blocking-threads 1", "--blocking-threads 1 --no-keepalive"] {
        let load = format!(":{port} -c 1 -d 300ms {more} -B {}", file.display());
        let (run, _) = measure(&load);
        assert_eq!((errors(&run), count(&run, "unanswered")), (0, 1), "{more}: {run}");
    }
}

/// As after a server that accepts and closes, there are eight attempts in the first second and a
/// quarter.
#[test]
fn a_server_that_is_gone_is_not_flooded_with_connects() {
    for more in ["", "--blocking-threads 1"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            drop(listener);
            let mut reader = BufReader::new(stream);
            read_request(&mut reader);
            let _ = reader.get_mut().write_all(HELLO);
        });
        let (run, _) = measure(&format!(":{port} -c 1 -d 1s {more}"));
        assert!((2..=10).contains(&count(&run, "errors.connect")), "{more}: {run}");
    }
}

/// Nine threads: with more than eight, figures are collected less often.
#[test]
fn timeouts_are_checked_ten_times_per_second_with_many_threads() {
    let port = each_connection(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let (run, _) = measure(&format!(":{port} -c 9 -t 9 -d 450ms --timeout 50ms"));
    // With a check each 200 ms there are at most two for each connection.
    assert!(count(&run, "errors.timeout") > 18, "{run}");
}
