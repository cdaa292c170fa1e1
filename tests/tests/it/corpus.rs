//! The conformance corpus over sockets: each message is answered according to its events, and bytes
//! after a refusal or a close are not answered.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use filoplume_runtime::{Limits, Plan, Request, Response, ServerConfig, Service, Version, tcp};
use filoplume_tests::corpus::{Case, Outcome, read_corpus, shown_content, shown_field, shown_head};
use filoplume_tests::tls::TlsServer;
use filoplume_tests::{Client, Ended, TestServer, eventually};

/// Minimum number of cases. Fewer would mean that some are not read.
const CASES_MIN: usize = 1000;

/// A request that is appended to each case.
const MARKER: &str = "GET /behind HTTP/1.1\r\nHost: t\r\n\r\n";

/// The events of the marker.
const MARKER_EVENTS: &str = "head GET /behind HTTP/1.1\nhost t";

fn cases() -> Vec<Case> {
    let cases = read_corpus(&Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus"));
    assert!(cases.len() >= CASES_MIN, "{} cases were found", cases.len());
    cases
}

/// The limits that `tests/corpus/README.md` states.
fn config() -> ServerConfig {
    let limits = Limits {
        head_bytes_max: 1024,
        target_bytes_max: 256,
        fields_max: 40,
        chunk_line_bytes_max: 64,
        chunk_extension_bytes_max: 128,
        trailer_bytes_max: 128,
    };
    ServerConfig::default().limits(limits).content_bytes_max(64)
}

/// Responds with the events that a handler can know, and counts the responses.
struct Describes {
    called: Arc<AtomicU64>,
    is_streamed: bool,
}

impl Service for Describes {
    fn plan(&self, _request: &mut Request) -> Plan {
        if self.is_streamed { Plan::new().streamed() } else { Plan::new().buffered() }
    }

    fn call(&self, mut request: Request) -> Response {
        self.called.fetch_add(1, Ordering::Relaxed);
        let minor_version = if request.version() == Version::Http11 { 1 } else { 0 };
        let mut events = shown_head(
            request.method().as_str(),
            request.target(),
            minor_version,
            request.authority(),
        );
        events.extend(
            request.headers().iter().filter_map(|(name, value)| shown_field("field", name, value)),
        );
        let mut content = Vec::new();
        match request.body_mut().read_to_end(&mut content) {
            Ok(0) => {}
            Ok(_) => events.push(shown_content(&content)),
            Err(_) => return Response::new(400),
        }
        let mut response = Response::default();
        response.set_text(events.join("\n"));
        response
    }
}

/// Returns the events of a message that a handler can know. It cannot distinguish an empty content
/// from none.
fn known_to_handler(message: &[String]) -> String {
    let known = message.iter().filter(|event| {
        event.starts_with("head ")
            || event.starts_with("host ")
            || event.starts_with("field ")
            || (event.starts_with("content ") && *event != "content 0")
    });
    known.map(String::as_str).collect::<Vec<_>>().join("\n")
}

/// Reads the response to one message. Interim responses must not have a `Date`, and final ones
/// must.
fn answer(client: &mut Client, is_head: bool) -> Result<Option<(u16, bool, String)>, String> {
    loop {
        let response = if is_head { client.read_head_only() } else { client.try_response() };
        let response = match response {
            Ok(response) => response,
            Err(Ended::Closed(rest)) if rest.is_empty() => return Ok(None),
            Err(ended) => return Err(ended.to_string()),
        };
        if response.status == 100 {
            if response.lines.len() > 1 {
                return Err(format!("an interim answer has fields: {response:?}"));
            }
            continue;
        }
        if response.header("date").is_none() {
            return Err(format!("no date: {response:?}"));
        }
        return Ok(Some((
            response.status,
            response.closes(),
            String::from_utf8_lossy(&response.body).into(),
        )));
    }
}

/// Reads all responses to a case and compares them with its events.
///
/// A handler that reads a stream chooses the status itself when the stream fails. This one responds
/// with 400.
fn check_answers(case: &Case, client: &mut Client, is_streamed: bool) -> Result<(), String> {
    for (index, message) in case.messages().enumerate() {
        // A refused head has no events, but it still determines whether its response may have
        // content.
        let is_refused_head = index == 0 && message.len() == 1 && case.input.starts_with(b"HEAD ");
        let is_head = is_refused_head || message[0].starts_with("head HEAD ");
        match (Outcome::of(message.last().unwrap()).unwrap(), answer(client, is_head)?) {
            (Outcome::KeepAlive | Outcome::Close, Some((200, closes, text))) => {
                let expected = known_to_handler(message);
                // Responses to HEAD and to a successful CONNECT have no content.
                let has_text = !is_head && !message[0].starts_with("head CONNECT ");
                if has_text && text != expected {
                    return Err(format!("understood as {text:?}, not {expected:?}"));
                }
                let is_last = message.last().unwrap().starts_with("close ");
                let is_tunnel = message.last().unwrap() == "close Upgraded";
                if !is_tunnel && closes != is_last {
                    return Err(format!(
                        "connection: close is announced: {closes}, expected: {is_last}"
                    ));
                }
            }
            (Outcome::Refused(expected), Some((status, true, _)))
                if status == expected || (is_streamed && status == 400) => {}
            // An incomplete message is not answered, or is refused.
            (Outcome::Waiting, None | Some((400 | 408, true, _))) => return Ok(()),
            (outcome, found) => {
                return Err(format!("{outcome:?} expected, answered with {found:?}"));
            }
        }
    }
    Ok(())
}

/// Checks what follows the responses: the response to the marker, or the end of the connection.
fn check_behind(case: &Case, client: &mut Client) -> Result<(), String> {
    let outcome = case.events.last().and_then(|event| Outcome::of(event)).unwrap();
    match (outcome, answer(client, false)?) {
        (Outcome::KeepAlive, Some((200, false, text))) if text == MARKER_EVENTS => Ok(()),
        (Outcome::Close | Outcome::Refused(_) | Outcome::Waiting, None) => Ok(()),
        (_, found) => Err(format!("behind it: {found:?}")),
    }
}

/// How the service is served.
#[derive(Clone, Copy, Debug)]
enum Served {
    /// By an HTTP server.
    Alone,
    /// By a raw server that switches to HTTP.
    AsProtocol,
    /// By an HTTP server behind a TLS session.
    OverTls,
}

enum AnyServer {
    Plain(TestServer),
    Tls(Box<TlsServer>),
}

impl AnyServer {
    fn client(&self) -> Client {
        match self {
            Self::Plain(server) => server.client(),
            Self::Tls(server) => server.client(),
        }
    }
}

/// Sends all cases to the server, several at a time.
fn check_all(
    cases: &[Case],
    served: Served,
    is_streamed: bool,
    ask: impl Fn(&Case, &mut Client) -> Result<(), String> + Sync,
) {
    let called = Arc::new(AtomicU64::new(0));
    let service = Describes { called: called.clone(), is_streamed };
    let server = match served {
        Served::Alone => AnyServer::Plain(TestServer::with(config(), service)),
        Served::AsProtocol => AnyServer::Plain(TestServer::raw(config(), tcp::http(service))),
        Served::OverTls => AnyServer::Tls(Box::new(TlsServer::with(config(), service))),
    };
    let wrong: Vec<String> = thread::scope(|scope| {
        let ask = &ask;
        let server = &server;
        let threads: Vec<_> = cases
            .chunks(cases.len().div_ceil(8))
            .map(|some| {
                scope.spawn(move || {
                    let ask_one =
                        |case| ask(case, &mut server.client()).err().map(|error| (case, error));
                    some.iter()
                        .filter_map(ask_one)
                        .map(|(case, error)| format!("{case}\n  {error}"))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(
        wrong.is_empty(),
        "{served:?}: {} of {} cases:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );

    // No message may have been handled without a response.
    let messages =
        cases.iter().flat_map(Case::messages).map(|message| Outcome::of(message.last().unwrap()));
    let answered =
        messages.filter(|outcome| matches!(outcome, Some(Outcome::KeepAlive | Outcome::Close)));
    let markers =
        cases.iter().filter(|case| case.events.last().is_some_and(|last| last == "keep-alive"));
    let expected = (answered.count() + markers.count()) as u64;
    if !is_streamed {
        eventually("each request is given to the handler once", || {
            called.load(Ordering::Relaxed) == expected
        });
    }
}

/// Sends a case followed by the marker. An incomplete case is sent alone, and then the sending
/// direction is closed.
fn send_whole(case: &Case, client: &mut Client) {
    if case.events.last().is_some_and(|last| last == "waiting") {
        client.send(&case.input).finish();
    } else {
        client.send([&case.input, MARKER.as_bytes()].concat());
    }
}

#[test]
fn each_case_is_answered_and_nothing_from_behind_a_refusal_is() {
    for (served, is_streamed) in [
        (Served::Alone, false),
        (Served::Alone, true),
        (Served::AsProtocol, false),
        (Served::AsProtocol, true),
        (Served::OverTls, false),
        (Served::OverTls, true),
    ] {
        check_all(&cases(), served, is_streamed, |case, client| {
            send_whole(case, client);
            check_answers(case, client, is_streamed)?;
            check_behind(case, client)
        });
    }
}

#[test]
fn requests_before_a_half_close_are_answered() {
    for served in [Served::Alone, Served::OverTls] {
        check_all(&cases(), served, false, |case, client| {
            send_whole(case, client);
            if case.events.last().is_some_and(|last| last != "waiting") {
                client.finish();
            }
            check_answers(case, client, false)?;
            check_behind(case, client)?;
            // There must be no response after the marker's.
            match client.read_until_end() {
                Ended::Closed(rest) if rest.is_empty() => Ok(()),
                ended => Err(format!("at the end: {ended}")),
            }
        });
    }
}

/// Sends every tenth case in segments of one byte, as far as the system permits.
#[test]
fn a_case_sent_byte_by_byte_is_answered_in_the_same_way() {
    let some: Vec<Case> =
        cases().into_iter().filter(|case| case.input.len() < 200).step_by(10).collect();
    assert!(some.len() > CASES_MIN / 20);
    for served in [Served::Alone, Served::OverTls] {
        check_all(&some, served, false, |case, client| {
            let outcome = case.events.last().and_then(|event| Outcome::of(event)).unwrap();
            let behind = if outcome == Outcome::KeepAlive { MARKER } else { "" };
            for byte in [&case.input, behind.as_bytes()].concat() {
                // A server that refuses early does not read the rest.
                if client.try_send([byte]).is_err() {
                    break;
                }
                thread::yield_now();
            }
            if outcome == Outcome::Waiting {
                client.finish();
            }
            check_answers(case, client, false)?;
            check_behind(case, client)
        });
    }
}
