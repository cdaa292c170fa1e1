//! Reads the feed of a console.

use std::io::{ErrorKind, Write};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use filoplume_http1::{Limits, ResponseEvent, ResponseHead, ResponseReader};
use http::Method;

use super::snapshot::{Snapshot, escape};
use crate::args::top::Feed;
use crate::blocking::{Socket, connect};
use crate::event_stream::EventParser;

/// How long connecting, with the handshake of TLS, may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A console sends a snapshot per second. After this time without one, the feed is considered
/// ended.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(10);

/// How long a read of the socket takes at most.
const TICK: Duration = Duration::from_millis(250);

/// Longest event that is read. The feed's own bounds are far below.
const EVENT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Why the feed has ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) message: String,
    /// Whether another attempt would fail in the same way, because the address, the authorisation
    /// or the version is wrong.
    pub(crate) is_lasting: bool,
}

/// Calls `on_snapshot` with each snapshot, until it returns `Break` or the feed ends. Returns `Ok`
/// after a `Break`.
pub(crate) fn follow(
    feed: &Feed,
    on_snapshot: &mut dyn FnMut(Snapshot) -> ControlFlow<()>,
) -> Result<(), Trouble> {
    let mut socket = open(feed)?;
    let mut reading = Reading {
        feed,
        reader: ResponseReader::new(),
        parser: EventParser::keeping(EVENT_BYTES_MAX),
    };
    let (mut unread, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    let mut heard = Instant::now();
    loop {
        let read = match socket.read(&mut buffer) {
            Ok(0) => return Err(passing("the server has closed the connection")),
            Ok(read) => read,
            Err(error) if is_tick(error.kind()) => 0,
            Err(error) => return Err(passing(&format!("the connection has failed: {error}"))),
        };
        unread.extend_from_slice(&buffer[..read]);
        let (used, snapshots) = reading.receive(&unread)?;
        unread.drain(..used);
        if !snapshots.is_empty() {
            heard = Instant::now();
        }
        for snapshot in snapshots {
            if on_snapshot(snapshot).is_break() {
                return Ok(());
            }
        }
        if heard.elapsed() > SILENCE_MAX {
            let seconds = SILENCE_MAX.as_secs();
            return Err(passing(&format!("no snapshot has come for {seconds} s")));
        }
    }
}

fn open(feed: &Feed) -> Result<Box<dyn Socket>, Trouble> {
    let address = feed.target.host.resolve().map_err(|message| passing(&message))?;
    let cannot_connect = |error| passing(&format!("cannot connect to {address}: {error}"));
    let (mut socket, _) =
        connect(&address, feed.tls.as_ref(), CONNECT_TIMEOUT, TICK).map_err(cannot_connect)?;
    let cannot_ask = |error| passing(&format!("cannot send the request: {error}"));
    socket.write_all(&feed.request).and_then(|()| socket.flush()).map_err(cannot_ask)?;
    Ok(socket)
}

fn is_tick(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

struct Reading<'a> {
    feed: &'a Feed,
    reader: ResponseReader,
    parser: EventParser,
}

impl Reading<'_> {
    /// Reads some bytes. Returns how many were used, and the snapshots in them.
    fn receive(&mut self, input: &[u8]) -> Result<(usize, Vec<Snapshot>), Trouble> {
        let (mut used, mut snapshots) = (0, Vec::new());
        loop {
            let (read, event) = self
                .reader
                .receive(&input[used..], &Method::GET, &Limits::default())
                .map_err(|error| passing(&format!("the server does not speak HTTP: {error}")))?;
            used += read;
            match event {
                None => return Ok((used, snapshots)),
                Some(ResponseEvent::Interim(_)) => {}
                Some(ResponseEvent::Head(head)) => check(&head, self.feed)?,
                Some(ResponseEvent::Content(content)) => self.events(content, &mut snapshots)?,
                Some(ResponseEvent::End) => {
                    return Err(passing("the server has ended the feed"));
                }
            }
        }
    }

    fn events(&mut self, content: &[u8], snapshots: &mut Vec<Snapshot>) -> Result<(), Trouble> {
        let mut failed = None;
        self.parser.receive(content, |event| {
            if event.name != b"snapshot" || failed.is_some() {
                return;
            }
            if event.is_cut {
                failed = Some(format!(
                    "an event is longer than {} MiB: that is not the feed of a console",
                    EVENT_BYTES_MAX / 1024 / 1024
                ));
                return;
            }
            match Snapshot::parse(event.data) {
                Ok(snapshot) => snapshots.push(snapshot),
                Err(error) => failed = Some(error),
            }
        });
        failed.map_or(Ok(()), |message| Err(lasting(&message)))
    }
}

/// Checks that a response is an event stream. Otherwise returns an error that says what to do.
fn check(head: &ResponseHead<'_>, feed: &Feed) -> Result<(), Trouble> {
    let status = head.status();
    let text = |name| {
        let value = head.field(name).map(|value| escape(&String::from_utf8_lossy(value)));
        value.unwrap_or_default()
    };
    let path = escape(&feed.target.path);
    let message = match status.as_u16() {
        200 if text("content-type").starts_with("text/event-stream") => return Ok(()),
        200 => format!(
            "what answers at {path} is not the feed of a console: give the address of the console, \
             as a browser opens it"
        ),
        301..=308 => format!("the server answers {status}: use {} instead", text("location")),
        401 | 403 if feed.is_authorised => {
            format!("the console refuses this authorisation ({status})")
        }
        401 | 403 => format!(
            "the console wants to know who asks ({status}): set GUST_AUTHORIZATION, or add \
             -H 'Authorization: ...', as the app expects it"
        ),
        404 => format!(
            "there is no console at {path} (404): give the path with which the app adds it, such \
             as http://127.0.0.1:5000/console"
        ),
        503 => {
            return Err(passing(&format!(
                "the server answers {status}: it is overloaded, or too many look at its console"
            )));
        }
        500.. => return Err(passing(&format!("the server answers {status}"))),
        _ => format!("the server answers {status} instead of the console's feed"),
    };
    Err(lasting(&message))
}

fn passing(message: &str) -> Trouble {
    Trouble { message: message.to_owned(), is_lasting: false }
}

fn lasting(message: &str) -> Trouble {
    Trouble { message: message.to_owned(), is_lasting: true }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Arguments, Command};

    /// A server that is started again answers with an error for a moment.
    #[test]
    fn only_what_may_pass_is_tried_again_soon() {
        let arguments = Arguments::parse_from(["gust", "top", "http://h/console"]);
        let Some(Command::Top(arguments)) = arguments.command else { panic!("{arguments:?}") };
        let feed = arguments.feed().unwrap();
        for (status, is_lasting) in [
            (200, true),
            (301, true),
            (308, true),
            (401, true),
            (403, true),
            (404, true),
            (499, true),
            (500, false),
            (502, false),
            (503, false),
        ] {
            let (reader, parser) = (ResponseReader::new(), EventParser::keeping(9));
            let mut reading = Reading { feed: &feed, reader, parser };
            let head = format!("HTTP/1.1 {status} A\r\nContent-Length: 0\r\n\r\n");
            let trouble = reading.receive(head.as_bytes()).unwrap_err();
            assert_eq!(trouble.is_lasting, is_lasting, "{status}: {}", trouble.message);
        }
    }

    #[test]
    fn events_with_other_names_are_passed_over() {
        let arguments = Arguments::parse_from(["gust", "top", "http://h/console"]);
        let Some(Command::Top(arguments)) = arguments.command else { panic!("{arguments:?}") };
        let feed = arguments.feed().unwrap();
        let (reader, parser) = (ResponseReader::new(), EventParser::keeping(9));
        let mut reading = Reading { feed: &feed, reader, parser };
        let stream = "HTTP/1.1 200 A\r\nContent-Type: text/event-stream\r\n\r\n\
                      event: other\ndata: x\n\ndata: y\n\n";
        let (used, snapshots) = reading.receive(stream.as_bytes()).unwrap();
        assert_eq!((used, snapshots.len()), (stream.len(), 0));
        let trouble = reading.receive(b"event: snapshot\ndata: x\n\n").unwrap_err();
        assert!(trouble.is_lasting);
        // The first thing that is wrong is told.
        let long = "0".repeat(1000);
        let events = format!("event: snapshot\ndata: {long}\n\nevent: snapshot\ndata: x\n\n");
        let trouble = reading.receive(events.as_bytes()).unwrap_err();
        assert!(trouble.message.contains("an event is longer"), "{}", trouble.message);
    }

    #[test]
    fn a_redirect_says_where_to() {
        let arguments = Arguments::parse_from(["gust", "top", "http://h/console"]);
        let Some(Command::Top(arguments)) = arguments.command else { panic!("{arguments:?}") };
        let feed = arguments.feed().unwrap();
        for status in [301, 302, 307, 308] {
            let (reader, parser) = (ResponseReader::new(), EventParser::keeping(9));
            let mut reading = Reading { feed: &feed, reader, parser };
            let head = format!("HTTP/1.1 {status} A\r\nLocation: /there\r\n\r\n");
            let trouble = reading.receive(head.as_bytes()).unwrap_err();
            assert!(trouble.message.ends_with("use /there instead"), "{}", trouble.message);
        }
    }
}
