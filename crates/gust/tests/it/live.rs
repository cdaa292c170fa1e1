//! Long-lived connections: WebSockets with an echo, and messages that a server sends by itself.

use std::io::{BufReader, Read, Write};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use filoplume_websocket::{
    Decoder, DeflateConfig, DeflateOptions, Encoder, Event, HandshakeRequest, Limits, Role,
};

use crate::program::{count, errors, gust, measure};
use crate::servers::{Counter, each_connection, read_request};
use crate::tls::{Authority, session};

/// How a test server behaves.
#[derive(Clone, Copy, Default)]
struct Behaviour {
    deflates: bool,
    /// Sends a ping before each echo, and expects its pong.
    pings: bool,
    /// Changes the echo.
    lies: bool,
    /// Closes after this many messages.
    closes_after: Option<usize>,
}

/// Answers the handshake. Returns the decoder and the encoder.
fn accept(stream: &mut (impl Read + Write), behaviour: Behaviour) -> Option<(Decoder, Encoder)> {
    // Byte by byte, because the reader is dropped with what it has read ahead.
    let request = read_request(&mut BufReader::with_capacity(1, &mut *stream))?;
    let fields: Vec<_> =
        request.head.lines().skip(1).filter_map(|line| line.split_once(": ")).collect();
    let handshake = HandshakeRequest::parse("GET", fields).unwrap();
    let mut decoder = Decoder::new(Role::Server, Limits::default());
    let mut encoder = Encoder::new(Role::Server);
    let mut extension = String::new();
    if behaviour.deflates {
        let config = DeflateConfig::default();
        let (params, answer) = config.accept(handshake.extensions()).expect("an offer");
        decoder = decoder.with_deflate(&params);
        encoder = encoder.with_deflate(&params, DeflateOptions::default());
        extension = format!("Sec-WebSocket-Extensions: {answer}\r\n");
    }
    let accept = handshake.accept_key();
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n{extension}\r\n"
    );
    stream.write_all(answer.as_bytes()).ok()?;
    stream.flush().ok()?;
    Some((decoder, encoder))
}

fn echo(mut stream: impl Read + Write, behaviour: Behaviour) -> Option<()> {
    let (mut decoder, mut encoder) = accept(&mut stream, behaviour)?;
    let (mut input, mut buffer) = (Vec::new(), [0; 4096]);
    let (mut messages, mut pongs) = (0, 0);
    loop {
        let read = stream.read(&mut buffer).ok().filter(|&read| read > 0)?;
        input.extend_from_slice(&buffer[..read]);
        let mut output = Vec::new();
        loop {
            let (used, event) = decoder.receive(&mut input).unwrap();
            match event {
                None => {
                    input.drain(..used);
                    break;
                }
                Some(Event::Text(text)) => {
                    if behaviour.pings {
                        // At most two pipelines of eight messages are in flight.
                        assert!(pongs + 16 >= messages, "a ping was not answered");
                        encoder.ping(b"are you there?", &mut output).unwrap();
                    }
                    messages += 1;
                    let text = if behaviour.lies { "a lie" } else { text };
                    encoder.text(text, &mut output);
                }
                Some(Event::Pong(content)) => {
                    assert_eq!(content, b"are you there?");
                    pongs += 1;
                }
                Some(other) => panic!("{other:?}"),
            }
            input.drain(..used);
            if behaviour.closes_after.is_some_and(|most| messages >= most) {
                encoder.close(None, &mut output);
                stream.write_all(&output).ok()?;
                return None;
            }
        }
        stream.write_all(&output).ok()?;
        stream.flush().ok()?;
    }
}

fn echo_server(behaviour: Behaviour) -> u16 {
    each_connection(move |stream| {
        let _ = echo(stream, behaviour);
    })
}

#[test]
fn messages_are_echoed() {
    let plain = Behaviour::default();
    let deflates = Behaviour { deflates: true, ..plain };
    for (behaviour, more) in [
        (plain, ""),
        (plain, "-l 1"),
        (plain, "-l 100000"),
        (plain, "-p 8"),
        (plain, "-r 2000"),
        (Behaviour { pings: true, ..plain }, ""),
        (Behaviour { pings: true, ..plain }, "-p 8"),
        (deflates, "--deflate -l 1000"),
        (Behaviour { pings: true, ..deflates }, "--deflate -l 1000 -p 4"),
    ] {
        let port = echo_server(behaviour);
        let (run, outcome) =
            measure(&format!("ws://127.0.0.1:{port}/ -c 4 -n 400 --verify {more}"));
        outcome.assert_code(0);
        assert_eq!((count(&run, "responses"), errors(&run)), (400, 0), "{more}: {run}");
        assert_eq!(run["load"]["protocol"], "websocket");
        assert_eq!(count(&run, "latency.count"), 400);
        let is_compressed = count(&run, "bytes_sent") < 400 * 500;
        assert!(!more.contains("deflate") || is_compressed, "{run}");
    }
    let port = echo_server(plain);
    let text = gust(&format!("ws://127.0.0.1:{port} -c 1 -n 5 --quiet")).stdout;
    assert!(text.contains("messages/s") && text.contains("messages of 70 B"), "{text}");
}

#[test]
fn what_is_wrong_with_a_websocket_is_counted_by_its_kind() {
    let lies = echo_server(Behaviour { lies: true, ..Behaviour::default() });
    let (run, _) = measure(&format!("ws://127.0.0.1:{lies} -c 2 -n 10 --verify"));
    assert_eq!((count(&run, "errors.mismatch"), errors(&run)), (10, 10), "{run}");

    let closes = echo_server(Behaviour { closes_after: Some(3), ..Behaviour::default() });
    let (run, _) = measure(&format!("ws://127.0.0.1:{closes} -c 1 -n 12"));
    assert!(count(&run, "connections.reopened") >= 3, "{run}");
    assert_eq!(count(&run, "responses") + count(&run, "errors.closed_early"), 12, "{run}");

    for (frame, kind) in [
        // A masked frame, a reserved opcode, an echo of nothing, and half a frame before the end.
        (&b"\x81\x80\0\0\0\0"[..], "malformed"),
        (b"\x83\0", "malformed"),
        (b"\x81\x01a\x81\x01b", "unsolicited"),
        (b"\x81\x05he", "closed_early"),
    ] {
        let port = each_connection(move |mut stream| {
            if accept(&mut stream, Behaviour::default()).is_some() {
                let _ = (&stream).read(&mut [0; 4096]);
                let _ = (&stream).write_all(frame);
                if kind != "closed_early" {
                    let _ = (&stream).read_to_end(&mut Vec::new());
                }
            }
        });
        let (run, _) = measure(&format!("ws://127.0.0.1:{port} -c 1 -n 4 -p 1"));
        assert!(count(&run, &format!("errors.{kind}")) >= 3, "{kind}: {run}");
    }
}

#[test]
fn a_server_without_websockets_is_reported_in_one_line() {
    let missing = each_connection(|stream| {
        let mut reader = BufReader::new(stream);
        read_request(&mut reader);
        let _ = reader.get_mut().write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
    });
    let plain = echo_server(Behaviour::default());
    let closing = each_connection(drop);
    for (port, more, says) in [
        (missing, "", "404 Not Found"),
        (plain, "--deflate", "does not compress messages"),
        (closing, "", "cannot connect to 127.0.0.1"),
    ] {
        let outcome = gust(&format!("ws://127.0.0.1:{port} -c 1 -n 5 {more}"));
        outcome.assert_code(2).assert_says(says);
    }
}

/// The pace of a server that sends by itself.
const BETWEEN_MESSAGES: Duration = Duration::from_millis(10);

fn microseconds() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()
}

#[test]
fn what_a_server_sends_by_itself_is_counted_with_its_age() {
    let port = each_connection(|mut stream| {
        let Some((_, mut encoder)) = accept(&mut stream, Behaviour::default()) else { return };
        loop {
            let mut output = Vec::new();
            encoder.text(&format!(r#"{{"t":{}}}"#, microseconds() - 50_000), &mut output);
            if stream.write_all(&output).is_err() {
                return;
            }
            std::thread::sleep(BETWEEN_MESSAGES);
        }
    });
    let (run, outcome) = measure(&format!("ws://127.0.0.1:{port} --hold -c 5 -d 600ms"));
    outcome.assert_code(0);
    assert_eq!((count(&run, "connections.held"), errors(&run)), (5, 0), "{run}");
    assert!(count(&run, "responses") >= 5, "{run}");
    assert_eq!(count(&run, "latency.count"), count(&run, "responses"));
    let least = run["latency"]["min"].as_f64().unwrap();
    assert!((49e6..5e9).contains(&least), "{run}");
}

#[test]
fn silent_websockets_are_held() {
    let port = each_connection(|mut stream| {
        if accept(&mut stream, Behaviour::default()).is_some() {
            let _ = (&stream).read_to_end(&mut Vec::new());
        }
    });
    let outcome = gust(&format!("ws://127.0.0.1:{port} --hold -c 20 -d 300ms --timeout 100ms"));
    outcome.assert_code(0);
    assert!(outcome.stdout.contains("held open      20 at the end"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("no time of sending"), "{}", outcome.stdout);
    assert!(!outcome.stdout.contains("WARNING"), "{}", outcome.stdout);
}

#[test]
fn a_held_http_connection_asks_once() {
    let port = each_connection(|stream| {
        let mut reader = BufReader::new(stream);
        while read_request(&mut reader).is_some() {
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
            reader.get_mut().write_all(answer).unwrap();
        }
    });
    let (run, outcome) = measure(&format!(":{port} --hold -c 20 -d 600ms --timeout 100ms"));
    outcome.assert_code(0);
    assert_eq!((count(&run, "connections.held"), errors(&run)), (20, 0), "{run}");
    assert_eq!((count(&run, "requests"), count(&run, "responses")), (20, 20), "{run}");
}

#[test]
fn a_held_http_connection_that_the_server_closes_is_an_error() {
    for fields in ["content-length: 2\r\n", "content-length: 2\r\nconnection: close\r\n", ""] {
        let port = each_connection(move |stream| {
            let mut reader = BufReader::new(stream);
            if read_request(&mut reader).is_some() {
                let answer = format!("HTTP/1.1 200 OK\r\n{fields}\r\nok");
                // The client may have closed the connection at the end of the run.
                let _ = reader.get_mut().write_all(answer.as_bytes());
            }
        });
        let (run, _) = measure(&format!(":{port} --hold -c 1 -d 300ms"));
        let (errors, reopened) = (errors(&run), count(&run, "connections.reopened"));
        assert_eq!(errors, count(&run, "errors.closed_early"), "{fields:?}: {run}");
        assert!(errors >= 1 && errors >= reopened, "{fields:?}: {run}");
    }
}

/// Starts a server that answers with an event stream and sends events until the client has gone.
fn event_server(ends_after: Option<usize>) -> u16 {
    each_connection(move |stream| {
        let mut reader = BufReader::new(stream);
        let Some(request) = read_request(&mut reader) else { return };
        assert!(request.head.contains("accept: text/event-stream"), "{}", request.head);
        let stream = reader.get_mut();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                    transfer-encoding: chunked\r\n\r\n";
        if stream.write_all(head.as_bytes()).is_err() {
            return;
        }
        for number in 0.. {
            let event =
                format!(": hello\nid: {number}\ndata: {} tick\n\n", microseconds() - 50_000);
            let chunk = format!("{:x}\r\n{event}\r\n", event.len());
            let end = if Some(number) == ends_after { "0\r\n\r\n" } else { "" };
            if stream.write_all((chunk + end).as_bytes()).is_err() || !end.is_empty() {
                return;
            }
            std::thread::sleep(BETWEEN_MESSAGES);
        }
    })
}

#[test]
fn events_are_counted_with_their_age() {
    let port = event_server(None);
    let (run, outcome) = measure(&format!("http://127.0.0.1:{port}/live --sse -c 5 -d 600ms"));
    outcome.assert_code(0);
    assert_eq!((count(&run, "connections.held"), errors(&run)), (5, 0), "{run}");
    assert_eq!(run["load"]["protocol"], "events");
    assert!(count(&run, "responses") >= 5, "{run}");
    assert_eq!(count(&run, "latency.count"), count(&run, "responses"));
    let least = run["latency"]["min"].as_f64().unwrap();
    assert!((49e6..5e9).contains(&least), "{run}");
    let text = gust(&format!(":{port} --sse -c 2 -d 300ms --quiet")).stdout;
    assert!(text.contains("events/s") && text.contains("from the sending"), "{text}");
}

#[test]
fn a_stream_that_ends_is_an_error_and_opened_again() {
    let (run, _) = measure(&format!(":{} --sse -c 1 -d 500ms", event_server(Some(2))));
    assert!(count(&run, "errors.closed_early") >= 1, "{run}");
    assert!(count(&run, "connections.reopened") >= 1, "{run}");
    let asked = Counter::default();
    let counter = asked.clone();
    let port = each_connection(move |stream| {
        counter.add();
        let mut reader = BufReader::new(stream);
        read_request(&mut reader);
        let _ = reader.get_mut().write_all(b"HTTP/1.1 503 Sorry\r\ncontent-length: 0\r\n\r\n");
    });
    let (run, outcome) = measure(&format!(":{port} --sse -c 1 -d 500ms"));
    outcome.assert_code(1).assert_says("no connection was held");
    assert_eq!(count(&run, "errors.status"), count(&run, "statuses.503"), "{run}");
    // The program pauses before it connects again.
    assert!((2..=12).contains(&asked.get()), "{}", asked.get());
}

#[test]
fn messages_are_echoed_over_tls() {
    let authority = Authority::new();
    for (pings, more) in [(false, ""), (false, "-p 8"), (true, "-l 100000"), (false, "-r 1000")] {
        let config = Arc::clone(&authority.server);
        let behaviour = Behaviour { pings, ..Behaviour::default() };
        let port = each_connection(move |stream| {
            let _ = echo(session(&config, stream), behaviour);
        });
        let (run, outcome) =
            measure(&format!("wss://localhost:{port}/ -k -c 4 -n 200 --verify {more}"));
        outcome.assert_code(0);
        assert_eq!((count(&run, "responses"), errors(&run)), (200, 0), "{more}: {run}");
        // One connection may have served all requests before another one was open.
        let handshakes = count(&run, "handshakes.full") + count(&run, "handshakes.resumed");
        assert!((1..=4).contains(&handshakes), "{run}");
    }
}
