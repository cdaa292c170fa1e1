//! Valid responses of every form.

use std::io::{BufReader, Write};
use std::os::unix::net::UnixListener;
use std::thread;

use crate::program::{count, errors, gust_with, measure, number};
use crate::servers::{
    Counter, HELLO, always, answer_all, each_connection, each_request, read_request,
};

#[track_caller]
fn check_good(answer: &'static [u8], status: &str) {
    let port = always(answer);
    let (run, outcome) = measure(&format!("http://127.0.0.1:{port}/ -c 4 -n 400"));
    outcome.assert_code(0);
    assert_eq!(
        (count(&run, "requests"), count(&run, "responses"), errors(&run)),
        (400, 400, 0),
        "{run}"
    );
    assert_eq!(count(&run, &format!("statuses.{status}")), 400);
}

#[test]
fn a_number_of_requests_is_exact_and_every_connection_is_served() {
    let asked = Counter::default();
    let counter = asked.clone();
    let port = each_request(move |_| {
        counter.add();
        HELLO.to_vec()
    });
    let (run, outcome) = measure(&format!(":{port} -c 8 -t 2 -n 5000"));
    outcome.assert_code(0);
    assert_eq!(
        (count(&run, "requests"), count(&run, "responses"), asked.get()),
        (5000, 5000, 5000)
    );
    assert_eq!(count(&run, "connections.asked"), 8);
    assert_eq!(count(&run, "connections.opened"), 8);
    assert_eq!(count(&run, "connections.served"), 8);
    assert_eq!(count(&run, "connections.reopened"), 0);
    assert_eq!(count(&run, "bytes_received"), 5000 * HELLO.len() as u64);
    assert_eq!(count(&run, "latency.count"), 5000);
    assert!(count(&run, "connect.count") == 8 && number(&run, "latency.min") > 0.0);
}

#[test]
fn a_length_frames_a_response() {
    check_good(HELLO, "200");
}

#[test]
fn chunks_frame_a_response() {
    check_good(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
          3\r\nHel\r\n2;x\r\nlo\r\n0\r\nA: b\r\n\r\n",
        "200",
    );
}

#[test]
fn a_204_is_a_complete_response() {
    check_good(b"HTTP/1.1 204 No Content\r\n\r\n", "204");
}

#[test]
fn an_interim_response_is_not_the_final_one() {
    check_good(
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "200",
    );
}

#[test]
fn a_server_may_close_after_each_response() {
    let port = always(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nHello");
    let (run, outcome) = measure(&format!(":{port} -c 4 -n 200"));
    outcome.assert_code(0);
    assert_eq!((count(&run, "responses"), errors(&run)), (200, 0), "{run}");
    assert!(count(&run, "connections.reopened") >= 190, "{run}");
}

#[test]
fn the_close_may_end_a_response() {
    let port = always(b"HTTP/1.1 200 OK\r\n\r\nall until the end");
    let (run, outcome) = measure(&format!(":{port} -c 4 -n 200"));
    outcome.assert_code(0);
    assert_eq!((count(&run, "responses"), errors(&run)), (200, 0), "{run}");
}

#[test]
fn a_response_to_head_has_no_content() {
    let port = each_request(|request| {
        assert_eq!(request.method, "HEAD");
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n".to_vec()
    });
    let (run, outcome) = measure(&format!(":{port} -c 2 -n 100 -X HEAD"));
    outcome.assert_code(0);
    assert_eq!((count(&run, "responses"), errors(&run)), (100, 0), "{run}");
}

#[test]
fn a_response_may_arrive_one_byte_at_a_time() {
    let port = each_connection(|stream| {
        stream.set_nodelay(true).unwrap();
        let mut reader = BufReader::new(&stream);
        while read_request(&mut reader).is_some() {
            for byte in HELLO {
                if (&stream).write_all(&[*byte]).is_err() {
                    return;
                }
            }
        }
    });
    let (run, outcome) = measure(&format!(":{port} -c 4 -n 100 --verify"));
    outcome.assert_code(0);
    assert_eq!((count(&run, "responses"), errors(&run)), (100, 0), "{run}");
}

#[test]
fn pipelined_responses_are_separated() {
    let port = always(HELLO);
    let (run, outcome) = measure(&format!(":{port} -c 2 -p 16 -n 4000 --verify"));
    outcome.assert_code(0);
    assert_eq!((count(&run, "responses"), errors(&run)), (4000, 0), "{run}");
}

#[test]
fn a_request_carries_method_headers_and_content() {
    let port = each_request(|request| {
        let is_right = request.method == "PUT"
            && request.path == "/a?b"
            && request.head.contains("\r\nX-One: two words\r\n")
            && request.head.contains("\r\nhost: elsewhere\r\n")
            && request.content == b"{\"a\": 1}";
        if is_right { HELLO.to_vec() } else { Vec::new() }
    });
    let url = format!("http://127.0.0.1:{port}/a?b");
    let outcome = gust_with(&[
        &url,
        "-c2",
        "-n50",
        "-X",
        "PUT",
        "-H",
        "X-One: two words",
        "-H",
        "Host: elsewhere",
        "-b",
        "{\"a\": 1}",
        "--format",
        "json",
    ]);
    outcome.assert_code(0);
    assert_eq!(count(&outcome.run(), "responses"), 50);
}

#[test]
fn a_large_content_from_a_file_is_sent_completely() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("content");
    std::fs::write(&file, vec![b'x'; 3_000_000]).unwrap();
    let port = each_request(|request| {
        assert_eq!(request.content.len(), 3_000_000);
        HELLO.to_vec()
    });
    let (run, outcome) = measure(&format!(":{port} -c 3 -n 9 -B {}", file.display()));
    outcome.assert_code(0);
    assert_eq!((count(&run, "responses"), errors(&run)), (9, 0), "{run}");
    assert!(count(&run, "bytes_sent") > 27_000_000);
}

#[test]
fn a_list_of_requests_is_sent_by_weight() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("urls");
    std::fs::write(&file, "# what users do\n3 /often\n\n1 DELETE /rarely\n").unwrap();
    let (often, rarely) = (Counter::default(), Counter::default());
    let (often_asked, rarely_asked) = (often.clone(), rarely.clone());
    let port = each_request(move |request| {
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/often") => often_asked.add(),
            ("DELETE", "/rarely") => rarely_asked.add(),
            other => panic!("{other:?}"),
        };
        HELLO.to_vec()
    });
    let (_, outcome) = measure(&format!(":{port} -c 4 -p 4 -n 4000 --urls {}", file.display()));
    outcome.assert_code(0);
    assert_eq!((often.get(), rarely.get()), (3000, 1000));
}

#[test]
fn a_unix_socket_is_used_like_a_tcp_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                answer_all(stream, &|request| {
                    assert_eq!(request.path, "/x");
                    HELLO.to_vec()
                });
            });
        }
    });
    for more in ["", "--blocking-threads 2"] {
        let (run, outcome) = measure(&format!("unix:{}:/x -c 4 -n 200 {more}", path.display()));
        outcome.assert_code(0);
        assert_eq!((count(&run, "responses"), errors(&run)), (200, 0), "{run}");
    }
}
