//! The client's end of WebSockets: what is sent to open one, and what the answer means.

use std::fmt::Write;

use filoplume_http1::{Limits, ResponseHead, parse_response_head};
use filoplume_websocket::{
    ClientHandshake, Decoder, DeflateConfig, DeflateOptions, Encoder, HandshakeError,
    Limits as FrameLimits, Role,
};
use http::Method;

/// The mask of all messages. A changing mask would protect proxies from scripts in browsers (RFC
/// 6455, 10.3), and here it would only cost the time to mask each message anew.
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// Longest message of a server. It is not kept, but may come in fragments, which are collected.
const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How many interim responses may precede the answer to a handshake. A server that sends them
/// without end would keep the thread from its other connections and from the end of the run.
const INTERIMS_MAX: u32 = 100;

/// From this length on, pings are not answered while pongs are unsent. A server that sends pings
/// and reads no pongs would fill the memory. The protocol allows to answer the latest ping only
/// (RFC 6455, 5.5.3).
const UNSENT_PONGS_MAX: usize = 4096;

/// What all WebSockets of a run have in common.
#[derive(Debug)]
pub(crate) struct WebSocket {
    /// The request that opens one.
    request: Vec<u8>,
    handshake: ClientHandshake,
    deflate: Option<DeflateConfig>,
}

impl WebSocket {
    /// Returns the settings without the request, which [`with_request`](Self::with_request) adds
    /// once its head is made from the [fields](Self::fields). The nonce is the same for all
    /// connections of a run.
    pub(crate) fn new(nonce: [u8; 16], deflates: bool) -> Self {
        // Messages do not refer to earlier ones, so that each is compressed once for all
        // connections. Messages of the server may refer to earlier ones.
        let config = DeflateConfig { server_context_takeover: true, ..DeflateConfig::default() };
        Self {
            request: Vec::new(),
            handshake: ClientHandshake::new(nonce),
            deflate: deflates.then_some(config),
        }
    }

    /// Returns the fields of the request, besides `Connection`.
    pub(crate) fn fields(&self) -> Vec<(&'static str, String)> {
        let fields = self.handshake.fields().map(|(name, value)| (name, value.to_owned()));
        let mut fields: Vec<_> =
            fields.into_iter().filter(|(name, _)| *name != "Connection").collect();
        if let Some(config) = &self.deflate {
            fields.push(("Sec-WebSocket-Extensions", config.offer()));
        }
        fields
    }

    /// Sets the request: `head` is a whole head without `Connection`.
    pub(crate) fn with_request(mut self, mut head: Vec<u8>) -> Self {
        head.truncate(head.len().saturating_sub(2));
        head.extend_from_slice(b"connection: Upgrade\r\n\r\n");
        self.request = head;
        self
    }

    /// Returns the frame of a message, which is a text message if the content is UTF-8.
    pub(crate) fn encode(&self, content: &[u8]) -> Vec<u8> {
        let mut encoder = Encoder::new(Role::Client).with_fixed_mask(MASK);
        if let Some(params) = self.deflate.and_then(|config| config.confirm(&confirmation())) {
            encoder = encoder.with_deflate(&params, DeflateOptions::default());
        }
        let mut bytes = Vec::new();
        match std::str::from_utf8(content) {
            Ok(text) => encoder.text(text, &mut bytes),
            Err(_) => encoder.binary(content, &mut bytes),
        }
        bytes
    }

    /// Returns the reader of an open WebSocket, or why the server has not opened it.
    fn opened(&self, head: &ResponseHead<'_>) -> Result<Decoder, String> {
        let status = head.status();
        let response = self.handshake.verify(status.as_u16(), head.fields(), &[]);
        let response = response.map_err(|error| match error {
            HandshakeError::StatusInvalid => {
                format!("the server answered the WebSocket handshake with {status}")
            }
            _ => format!("the WebSocket handshake failed: {error}"),
        })?;
        let limits = FrameLimits {
            frame_bytes_max: MESSAGE_BYTES_MAX,
            message_bytes_max: MESSAGE_BYTES_MAX,
            ..FrameLimits::default()
        };
        let decoder = Decoder::new(Role::Client, limits);
        match (&self.deflate, response.extensions.as_str()) {
            (None, "") => Ok(decoder),
            (None, _) => Err("the server chose an extension that was not offered".to_owned()),
            (Some(_), "") => Err("the server does not compress messages (--deflate)".to_owned()),
            (Some(config), extensions) => match config.confirm(extensions) {
                Some(params) if params.client_max_window_bits == 15 => {
                    Ok(decoder.with_deflate(&params))
                }
                Some(_) => Err("the server demands a smaller window than gust uses".to_owned()),
                None => {
                    let mut reason = String::from("the server answered the offer of compression");
                    let _ = write!(reason, " with {extensions:?}");
                    Err(reason)
                }
            },
        }
    }
}

/// Returns a response that accepts our offer and demands nothing else.
fn confirmation() -> String {
    "permessage-deflate; client_no_context_takeover".to_owned()
}

/// Appends the answer to a ping, unless many answers are unsent.
pub(crate) fn pong(content: &[u8], output: &mut Vec<u8>) {
    if output.len() >= UNSENT_PONGS_MAX {
        return;
    }
    // The decoder has checked the length.
    let _ = Encoder::new(Role::Client).with_fixed_mask(MASK).pong(content, output);
}

/// A handshake in progress, without a socket.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    /// How many bytes of the request were written.
    written: usize,
    /// The part of the response that has arrived.
    input: Vec<u8>,
    /// How many interim responses have arrived.
    interims: u32,
}

/// An open WebSocket.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) decoder: Decoder,
    /// The bytes that the server sent after its response.
    pub(crate) rest: Vec<u8>,
}

impl Opening {
    /// Returns the bytes for the next write.
    pub(crate) fn unsent<'a>(&self, websocket: &'a WebSocket) -> &'a [u8] {
        websocket.request.get(self.written..).unwrap_or_default()
    }

    pub(crate) fn note_written(&mut self, written: usize) {
        self.written += written;
    }

    /// Handles received bytes. Returns `None` if more are needed.
    pub(crate) fn receive(
        &mut self,
        websocket: &WebSocket,
        bytes: &[u8],
    ) -> Result<Option<Opened>, String> {
        self.input.extend_from_slice(bytes);
        loop {
            let parsed = parse_response_head(&self.input, &Method::GET, &Limits::default())
                .map_err(|error| format!("the answer to the WebSocket handshake: {error}"))?;
            let Some((head, used)) = parsed else { return Ok(None) };
            if !head.is_interim() {
                let decoder = websocket.opened(&head)?;
                return Ok(Some(Opened { decoder, rest: self.input.split_off(used) }));
            }
            self.input.drain(..used);
            self.interims += 1;
            if self.interims > INTERIMS_MAX {
                return Err("the answer to the WebSocket handshake does not come, only interim \
                            responses"
                    .to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use filoplume_websocket::{Event, HandshakeRequest};

    use super::*;

    const HEAD: &[u8] = b"GET / HTTP/1.1\r\nhost: h\r\n\r\n";

    /// Returns the server's answer to a handshake with this nonce.
    fn answer(websocket: &WebSocket, extensions: &str) -> String {
        let mut fields = websocket.fields();
        fields.push(("Connection", "Upgrade".to_owned()));
        let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let request = HandshakeRequest::parse("GET", fields).unwrap();
        let accept = request.accept_key();
        format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {accept}\r\n{extensions}\r\n"
        )
    }

    fn open(websocket: &WebSocket, pieces: &[&[u8]]) -> Result<Option<Vec<u8>>, String> {
        let mut opening = Opening::default();
        for (index, piece) in pieces.iter().enumerate() {
            if let Some(opened) = opening.receive(websocket, piece)? {
                return Ok(Some([&opened.rest, &pieces[index + 1..].concat()[..]].concat()));
            }
        }
        Ok(None)
    }

    #[test]
    fn a_handshake_succeeds_wherever_its_answer_is_cut() {
        let websocket = WebSocket::new([7; 16], false).with_request(HEAD.to_vec());
        let answer = format!("HTTP/1.1 103 Early Hints\r\n\r\n{}", answer(&websocket, ""));
        let bytes = [answer.as_bytes(), b"\x81\x02hi"].concat();
        for cut in 0..=bytes.len() {
            let (first, second) = bytes.split_at(cut);
            let rest = open(&websocket, &[first, second]).unwrap().unwrap();
            assert_eq!(rest, b"\x81\x02hi", "{cut}");
        }
        for end in 0..answer.len() {
            assert_eq!(open(&websocket, &[&bytes[..end]]), Ok(None), "{end}");
        }
        assert!(Opening::default().unsent(&websocket).ends_with(b"connection: Upgrade\r\n\r\n"));
    }

    #[test]
    fn a_refused_handshake_says_why() {
        let plain = WebSocket::new([7; 16], false).with_request(HEAD.to_vec());
        let deflating = WebSocket::new([7; 16], true).with_request(HEAD.to_vec());
        let other = WebSocket::new([8; 16], false);
        let with = |extensions: &str| {
            answer(&plain, &format!("Sec-WebSocket-Extensions: {extensions}\r\n"))
        };
        for (websocket, answer, says) in [
            (&plain, "HTTP/1.1 404 Not Found\r\n\r\n".to_owned(), "404 Not Found"),
            (&plain, "SSH-2.0\r\n".to_owned(), "the answer to the WebSocket handshake"),
            (&plain, answer(&other, ""), "does not match the key"),
            (&plain, with("permessage-deflate"), "was not offered"),
            (&deflating, answer(&plain, ""), "does not compress"),
            (&deflating, with("permessage-deflate; client_max_window_bits=10"), "smaller window"),
            (&deflating, with("permessage-deflate; what"), "the offer of compression"),
        ] {
            let error = open(websocket, &[answer.as_bytes()]).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        let agreed = with("permessage-deflate; client_no_context_takeover");
        assert_eq!(open(&deflating, &[agreed.as_bytes()]), Ok(Some(Vec::new())));
    }

    #[test]
    fn interim_responses_without_end_are_no_answer() {
        let websocket = WebSocket::new([7; 16], false).with_request(HEAD.to_vec());
        let interim = b"HTTP/1.1 103 Early Hints\r\n\r\n";
        let mut opening = Opening::default();
        for _ in 0..INTERIMS_MAX {
            assert!(matches!(opening.receive(&websocket, interim), Ok(None)));
        }
        let error = opening.receive(&websocket, interim).unwrap_err();
        assert!(error.contains("only interim responses"), "{error}");
    }

    #[test]
    fn pongs_that_are_not_taken_do_not_gather() {
        let mut unsent = Vec::new();
        pong(b"first", &mut unsent);
        assert_eq!(unsent.len(), 2 + MASK.len() + 5);
        (0..1000).for_each(|_| pong(&[b'x'; 125], &mut unsent));
        assert!((UNSENT_PONGS_MAX..UNSENT_PONGS_MAX + 131).contains(&unsent.len()));
        unsent.clear();
        pong(b"again", &mut unsent);
        assert!(!unsent.is_empty());
    }

    #[test]
    fn a_message_is_read_by_a_server() {
        let content = "0123456789".repeat(100);
        for deflates in [false, true] {
            let mut bytes = WebSocket::new([7; 16], deflates).encode(content.as_bytes());
            assert_eq!(bytes.len() < 500, deflates);
            let mut decoder = Decoder::new(Role::Server, FrameLimits::default());
            if deflates {
                let config = DeflateConfig::default();
                let (params, _) = config.accept("permessage-deflate").unwrap();
                decoder = decoder.with_deflate(&params);
            }
            let (_, event) = decoder.receive(&mut bytes).unwrap();
            assert_eq!(event, Some(Event::Text(&content)));
        }
    }
}
