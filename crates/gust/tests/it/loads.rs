//! The kinds of load: durations, connections and threads.

use std::io::{BufReader, Write};
use std::process::Child;
use std::sync::mpsc;
use std::time::Duration;

use crate::program::{collect, count, errors, gust, measure, number, start, wait, wait_until};
use crate::servers::{Counter, HELLO, always, each_connection, each_request, read_request};

#[test]
fn a_duration_is_kept_whatever_the_server_does() {
    let slow = each_request(|_| {
        // Longer than the test lets a run take.
        std::thread::sleep(Duration::from_secs(3));
        HELLO.to_vec()
    });
    for port in [always(HELLO), slow] {
        for more in ["", "-r 1000", "--blocking-threads 4", "--no-keepalive"] {
            let (run, outcome) = measure(&format!(":{port} -c 4 -d 400ms {more}"));
            assert!(number(&run, "seconds") <= 0.41, "{more}: {run}");
            // On a busy machine the start of a process also takes time.
            assert!(outcome.took < Duration::from_secs(2), "{more}: {:?}", outcome.took);
        }
    }
}

#[test]
fn a_connection_per_request_is_one() {
    let opened = Counter::default();
    let counter = opened.clone();
    let port = each_connection(move |stream| {
        counter.add();
        crate::servers::answer_all(stream, &|request| {
            assert!(request.head.contains("connection: close"));
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nHello".to_vec()
        });
    });
    // A blocking thread may open a connection for the last request after another thread has taken
    // the request.
    for (more, spare) in [("", 0), ("--blocking-threads 2", 2)] {
        let before = opened.get();
        let (run, outcome) = measure(&format!(":{port} -c 4 -n 200 --no-keepalive {more}"));
        outcome.assert_code(0);
        assert_eq!((count(&run, "responses"), errors(&run)), (200, 0), "{run}");
        let (served, counted) = ((opened.get() - before) as u64, count(&run, "connect.count"));
        assert!(served == counted && (200..=200 + spare).contains(&counted), "{served}: {run}");
    }
}

#[test]
fn without_keep_alive_the_client_closes_each_connection() {
    let (run, outcome) = measure(&format!(":{} -c 4 -n 100 --no-keepalive", always(HELLO)));
    outcome.assert_code(0);
    assert_eq!(
        (count(&run, "responses"), count(&run, "connect.count"), errors(&run)),
        (100, 100, 0),
        "{run}"
    );
}

#[test]
fn blocking_threads_give_the_same_counts_as_event_loops() {
    let port = always(HELLO);
    let (run, outcome) = measure(&format!(":{port} -c 12 --blocking-threads 4 -n 1000"));
    outcome.assert_code(0);
    assert_eq!((count(&run, "responses"), errors(&run)), (1000, 0), "{run}");
    assert_eq!((count(&run, "connections.served"), count(&run, "load.threads")), (12, 4), "{run}");
}

#[test]
fn the_warm_up_does_not_count() {
    let asked = Counter::default();
    let counter = asked.clone();
    let port = each_request(move |_| {
        counter.add();
        HELLO.to_vec()
    });
    for more in ["", "--blocking-threads 1"] {
        let before = asked.get();
        let (run, outcome) = measure(&format!(":{port} -c 1 -d 300ms --warmup 600ms {more}"));
        outcome.assert_code(0);
        let (counted, all) = (count(&run, "requests"), (asked.get() - before) as u64);
        assert!(counted > 0 && counted < all * 3 / 4, "{counted} of {all}");
        assert!((0.29..=0.31).contains(&number(&run, "seconds")), "{run}");
        assert!(count(&run, "latency.count") <= counted);
        // The connection was opened during the warm-up, which does not count.
        assert_eq!(
            (count(&run, "connect.count"), count(&run, "connections.opened")),
            (0, 1),
            "{run}"
        );
    }
}

#[test]
fn the_requests_of_the_warm_up_are_not_among_those_of_the_total_number() {
    let asked = Counter::default();
    let counter = asked.clone();
    let port = each_request(move |_| {
        counter.add();
        HELLO.to_vec()
    });
    for more in ["", "-r 500", "--no-keepalive", "--blocking-threads 1"] {
        let before = asked.get();
        let (run, outcome) = measure(&format!(":{port} -c 2 -n 20 --warmup 200ms {more}"));
        outcome.assert_code(0);
        assert_eq!((count(&run, "requests"), count(&run, "responses")), (20, 20), "{more}: {run}");
        assert!(asked.get() - before > 20, "{more}: nothing was sent during the warm-up");
    }
}

/// Each thread starts at a different request of the list. Otherwise all would send the same request
/// at the same time.
#[test]
fn threads_begin_at_different_positions_in_a_list() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("urls");
    std::fs::write(&file, "/a\n/b\n").unwrap();
    for more in ["-t 2", "--blocking-threads 2"] {
        let (sender, first) = mpsc::channel();
        let begun = Counter::default();
        let port = each_connection(move |stream| {
            let mut reader = BufReader::new(stream);
            let Some(request) = read_request(&mut reader) else { return };
            sender.send(request.path).unwrap();
            begun.add();
            // The first request is answered only after both were received, so that each thread
            // sends one.
            wait_until(|| begun.get() == 2);
            let _ = reader.get_mut().write_all(HELLO);
        });
        measure(&format!(":{port} -c 2 -n 2 {more} --urls {}", file.display()));
        let mut paths: Vec<String> = first.try_iter().collect();
        paths.sort_unstable();
        assert_eq!(paths, ["/a", "/b"], "{more}");
    }
}

#[test]
fn connections_are_opened_no_faster_than_the_given_rate() {
    let (run, _) = measure(&format!(":{} -c 100 -d 1s --connect-rate 20", always(HELLO)));
    assert!((15..=21).contains(&count(&run, "connections.opened")), "{run}");
    let (run, _) = measure(&format!(":{} -c 100 -d 500ms --ramp 1s", always(HELLO)));
    assert!((35..=52).contains(&count(&run, "connections.opened")), "{run}");
}

#[test]
fn connections_that_are_not_open_yet_do_not_starve() {
    let slow = each_request(|_| {
        // Requests of this time keep the connections busy, so few requests end.
        std::thread::sleep(Duration::from_millis(200));
        HELLO.to_vec()
    });
    for more in ["--ramp 1s", "--connect-rate 20"] {
        let outcome = gust(&format!(":{slow} -c 20 -d 1s {more} --quiet"));
        outcome.assert_code(0);
        assert!(!outcome.stdout.contains("starve"), "{}", outcome.stdout);
    }
}

fn interrupt(child: &Child) {
    let process = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
}

#[test]
fn an_interrupt_ends_with_a_report() {
    let asked = Counter::default();
    let counter = asked.clone();
    let port = each_request(move |_| {
        counter.add();
        HELLO.to_vec()
    });
    let url = format!(":{port}");
    let arguments = [url.as_str(), "-c2", "-d60s", "--quiet"];
    let mut child = start(&arguments);
    let stdout = collect(child.stdout.take().unwrap());
    // The program handles signals before it sends its first request. Each of two connections can
    // ask once before a response: without any, the program would end with a failure.
    wait_until(|| asked.get() > 2);
    interrupt(&child);
    assert_eq!(wait(&mut child, &arguments), Some(0));
    assert!(stdout.join().unwrap().contains("requests/s"));
}

/// Starts one of the program's own servers, and returns it with its URL.
fn start_server(name: &str) -> (Child, String) {
    use std::io::{BufRead, BufReader};
    let mut server = start(&[name, "--listen", ":0", "--threads", "1"]);
    let mut line = String::new();
    // The rest of the output is not read, which the server must tolerate.
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url =
        line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("{line:?}")).to_owned();
    (server, url)
}

#[test]
fn the_programs_http_server_answers() {
    let (mut server, url) = start_server("serve");
    let pid = server.id();
    let (run, outcome) = measure(&format!("{url}/ -c 4 -n 2000 --verify --server-pid {pid}"));
    outcome.assert_code(0);
    assert_eq!((count(&run, "responses"), errors(&run)), (2000, 0), "{run}");
    assert!(number(&run, "server.user") + number(&run, "server.system") >= 0.0);
    gust(&format!("{url}/echo -c 2 -n 100 -b Hello --verify=echo --expect 200")).assert_code(0);
    gust(&format!("{url}/bytes?n=100000 -c 2 -n 20 --verify")).assert_code(0);
    gust(&format!("{url}/sleep?ms=5 -c 2 -n 20 --expect 200")).assert_code(0);
    gust(&format!("{url}/nowhere -c 2 -n 20 --expect 200")).assert_code(1);
    let _ = server.kill();
    let _ = server.wait();
}

#[test]
fn the_programs_echo_server_answers() {
    let (mut server, url) = start_server("echo");
    assert!(url.starts_with("tcp://127.0.0.1:"), "{url}");
    for options in ["-c 4 -n 2000 -l 100", "-c 2 -n 50 -l 300000", "-c 4 -n 2000 -l 26 -p 16"] {
        let (run, outcome) = measure(&format!("{url} {options} --verify"));
        outcome.assert_code(0);
        let asked: u64 = options.split(' ').nth(3).unwrap().parse().unwrap();
        assert_eq!((count(&run, "responses"), errors(&run)), (asked, 0), "{run}");
    }
    let _ = server.kill();
    let _ = server.wait();
}

#[test]
fn a_ramp_does_not_delay_connections_that_are_opened_again() {
    let port = always(HELLO);
    for more in ["", "--connect-rate 200"] {
        let load = format!(":{port} -c 4 -t 1 --no-keepalive --ramp 2s -d 1s {more}");
        let (run, _) = measure(&load);
        let responses = count(&run, "responses");
        assert!(responses > 50, "{more}: {run}");
        assert!(more.is_empty() || responses <= 201, "{more}: {run}");
    }
}

#[test]
fn a_connection_per_due_request_need_not_wait_for_all_first_connects() {
    let port = always(HELLO);
    // At this rate, 64 connects take more than six seconds.
    let load = format!(":{port} -c 64 -t 1 --no-keepalive -r 100 --connect-rate 10 -d 1s");
    let (run, _) = measure(&load);
    assert!((4..=11).contains(&count(&run, "responses")), "{run}");
}

#[test]
fn a_thread_that_has_no_connection_yet_goes_on() {
    let slow = each_request(|_| {
        // Slower than the client, so that the run lasts until the interrupt.
        std::thread::sleep(Duration::from_millis(10));
        HELLO.to_vec()
    });
    let url = format!(":{slow}");
    let arguments: Vec<&str> = [url.as_str()]
        .into_iter()
        .chain("-c 2 -t 2 --ramp 4s --timeout 500ms -n 1000000 -q --format json".split(' '))
        .collect();
    let mut child = start(&arguments);
    let stdout = collect(child.stdout.take().unwrap());
    // The second connection is opened after two seconds, which is later than the timeout.
    std::thread::sleep(Duration::from_millis(3500));
    interrupt(&child);
    assert_eq!(wait(&mut child, &arguments), Some(0));
    let run: serde_json::Value = serde_json::from_str(&stdout.join().unwrap()).unwrap();
    assert_eq!(count(&run, "connections.opened"), 2, "{run}");
}
