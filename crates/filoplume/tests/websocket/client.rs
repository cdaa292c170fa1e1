//! A client for WebSockets over loopback.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use filoplume_websocket::{
    ClientHandshake, CloseCode, CloseFrame, Decoder, DeflateConfig, DeflateOptions, Encoder, Event,
    Limits, Role,
};

/// Longer than any step takes on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Waits until something holds.
#[track_caller]
pub(crate) fn eventually(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < DEADLINE, "{what}");
        std::thread::yield_now();
    }
}

pub(crate) struct Client {
    stream: TcpStream,
    decoder: Decoder,
    encoder: Encoder,
    unused: Vec<u8>,
    pub(crate) subprotocol: Option<String>,
    pub(crate) extensions: String,
}

/// What a client received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Text(String),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(u16, String),
    /// The connection ended.
    End,
}

pub(crate) fn text(text: &str) -> Received {
    Received::Text(text.to_owned())
}

/// Sends a handshake with additional fields. Returns the stream, the head of the response and what
/// followed it.
pub(crate) fn handshake(
    address: SocketAddr,
    path: &str,
    fields: &[(&str, &str)],
) -> (TcpStream, String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.set_write_timeout(Some(DEADLINE)).unwrap();
    let mut head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n");
    for (name, value) in ClientHandshake::new(*b"the sample nonce").fields().iter().chain(fields) {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all((head + "\r\n").as_bytes()).unwrap();
    let mut answer = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        if let Some(end) = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let rest = answer.split_off(end + 4);
            return (stream, String::from_utf8(answer).unwrap(), rest);
        }
        let count = stream.read(&mut chunk).unwrap();
        assert!(count > 0, "the response has an end: {}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&chunk[..count]);
    }
}

impl Client {
    pub(crate) fn connect(address: SocketAddr, path: &str) -> Self {
        Self::connect_with(address, path, &[])
    }

    pub(crate) fn connect_with(address: SocketAddr, path: &str, fields: &[(&str, &str)]) -> Self {
        let (stream, head, unused) = handshake(address, path, fields);
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let response = lines.filter_map(|line| line.split_once(": "));
        let offered: Vec<&str> = fields
            .iter()
            .filter(|(name, _)| *name == "Sec-WebSocket-Protocol")
            .flat_map(|(_, value)| value.split(", "))
            .collect();
        let accepted = ClientHandshake::new(*b"the sample nonce")
            .verify(status, response, &offered)
            .unwrap_or_else(|error| panic!("{error}: {head}"));
        let mut decoder = Decoder::new(
            Role::Client,
            Limits { frame_bytes_max: 64 << 20, message_bytes_max: 64 << 20, ..Limits::default() },
        );
        let mut encoder = Encoder::new(Role::Client);
        if !accepted.extensions.is_empty() {
            let config =
                DeflateConfig { server_context_takeover: true, ..DeflateConfig::default() };
            let params = config.confirm(&accepted.extensions).unwrap();
            decoder = decoder.with_deflate(&params);
            encoder = encoder.with_deflate(&params, DeflateOptions::default());
        }
        let (subprotocol, extensions) = (accepted.subprotocol, accepted.extensions);
        Self { stream, decoder, encoder, unused, subprotocol, extensions }
    }

    pub(crate) fn text(&mut self, text: &str) {
        let mut bytes = Vec::new();
        self.encoder.text(text, &mut bytes);
        self.raw(&bytes);
    }

    pub(crate) fn binary(&mut self, content: &[u8]) {
        let bytes = self.encoded(content);
        self.raw(&bytes);
    }

    /// Returns the frame of a message that is sent later.
    pub(crate) fn encoded(&mut self, content: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encoder.binary(content, &mut bytes);
        bytes
    }

    pub(crate) fn ping(&mut self, content: &[u8]) {
        let mut bytes = Vec::new();
        self.encoder.ping(content, &mut bytes).unwrap();
        self.raw(&bytes);
    }

    pub(crate) fn close(&mut self, code: u16, reason: &str) {
        let mut bytes = Vec::new();
        let frame = CloseCode::new(code).map(|code| CloseFrame { code, reason });
        self.encoder.close(frame, &mut bytes);
        self.raw(&bytes);
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Returns the next thing that arrives.
    pub(crate) fn receive(&mut self) -> Received {
        loop {
            let (used, event) = self.decoder.receive(&mut self.unused).unwrap();
            let received = event.map(|event| match event {
                Event::Text(text) => Received::Text(text.to_owned()),
                Event::Binary(content) => Received::Binary(content.to_vec()),
                Event::Ping(content) => Received::Ping(content.to_vec()),
                Event::Pong(content) => Received::Pong(content.to_vec()),
                Event::Close(None) => Received::Close(1005, String::new()),
                Event::Close(Some(frame)) => {
                    Received::Close(frame.code.value(), frame.reason.to_owned())
                }
            });
            self.unused.drain(..used);
            if let Some(received) = received {
                return received;
            }
            let mut chunk = [0; 16 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Received::End,
                Ok(count) => self.unused.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                    return Received::End;
                }
                Err(error) => panic!("nothing has arrived: {error}"),
            }
        }
    }

    #[track_caller]
    #[allow(clippy::needless_pass_by_value, reason = "rows read better with values")]
    pub(crate) fn expect(&mut self, expected: Received) {
        assert_eq!(self.receive(), expected);
    }
    /// Like [`expect`](Self::expect), without the pings before it.
    #[track_caller]
    pub(crate) fn expect_after_pings(&mut self, expected: &Received) {
        let mut received = self.receive();
        while received == Received::Ping(Vec::new()) {
            received = self.receive();
        }
        assert_eq!(received, *expected);
    }
}
