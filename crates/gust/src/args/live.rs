//! The options of long-lived connections: `ws://`, and event streams.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use filoplume_http1::Headers;
use http::Method;

use super::LoadArguments;
use crate::plan::{HttpRequest, Protocol, Requests, Template};
use crate::target::{Scheme, Target};
use crate::websocket::WebSocket;

/// The longest message to a WebSocket.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The options, as the help text shows them.
#[derive(Args, Debug)]
#[command(next_help_heading = "Live connections")]
pub(super) struct LiveArguments {
    /// Read an event stream on each connection. Latency counts from a time in the data of an event
    /// to its arrival: microseconds since 1970, 16 digits.
    #[arg(long)]
    sse: bool,
    /// Only receive what the server sends on ws://. Latency counts from a time in the message to
    /// its arrival, as with --sse. Without it, each message waits for its echo. On http://, send
    /// one request on each connection, and keep the connection open.
    #[arg(long)]
    hold: bool,
    /// Compress messages (permessage-deflate).
    #[arg(long)]
    deflate: bool,
}

impl LoadArguments {
    /// Returns the protocol, and whether connections send nothing after their first request.
    pub(super) fn protocol(&self, target: &Target) -> Result<(Protocol, bool), String> {
        let live = &self.live;
        let is_websocket = matches!(target.scheme, Scheme::Ws | Scheme::Wss);
        let is_http = matches!(target.scheme, Scheme::Http | Scheme::Https);
        if !is_websocket && live.deflate {
            return Err("--deflate is for ws:// and wss://".to_owned());
        }
        if live.hold && !is_websocket && !is_http {
            return Err("--hold is for ws://, wss://, http:// and https://".to_owned());
        }
        if live.sse && !is_http {
            return Err("--sse is for http:// and https://".to_owned());
        }
        let holds = live.hold || live.sse;
        let has_schedule = self.requests.is_some() || self.rate.is_some() || self.pipeline > 1;
        if holds && (has_schedule || self.verify.is_some()) {
            return Err(
                "--hold and --sse send one request or nothing: leave out -n, -r, -p and --verify"
                    .to_owned(),
            );
        }
        let is_live = is_websocket || holds;
        if is_live && (self.closes() || self.blocking_threads.is_some()) {
            return Err(
                "live connections are not for --no-keepalive (or 'Connection: close') and \
                        --blocking-threads"
                    .to_owned(),
            );
        }
        if is_live && (self.urls.is_some() || self.expect.is_some()) {
            return Err("live connections have one URL: leave out --urls and --expect".to_owned());
        }
        let protocol = match target.scheme {
            _ if live.sse => Protocol::Events,
            Scheme::Http | Scheme::Https => Protocol::Http,
            Scheme::Ws | Scheme::Wss => Protocol::WebSocket,
            Scheme::Tcp => Protocol::Echo,
        };
        Ok((protocol, holds))
    }

    /// Returns the request for an event stream.
    pub(super) fn event_requests(&self, target: &Target) -> Result<Requests, String> {
        let mut headers = self.headers()?;
        if !headers.contains("accept") {
            headers
                .append("accept", "text/event-stream")
                .map_err(|error| format!("cannot ask for an event stream: {error}"))?;
        }
        let method = Method::GET;
        if self.method.is_some() || self.body.is_some() || self.body_file.is_some() {
            return Err("--sse sends a GET: leave out -X, -b and -B".to_owned());
        }
        let request = HttpRequest {
            method: &method,
            path: &target.path,
            authority: &target.authority,
            headers: &headers,
            content: &[],
            closes: false,
        };
        Template::http(&request, 1).map(Requests::single)
    }

    /// Returns how a WebSocket is opened, and the message that is sent.
    pub(super) fn websocket(
        &self,
        target: &Target,
        depth: usize,
    ) -> Result<(WebSocket, Requests), String> {
        if self.method.is_some() || self.body.is_some() || self.body_file.is_some() {
            return Err("ws:// sends messages of -l bytes: leave out -X, -b and -B".to_owned());
        }
        let length = self.message_length(MESSAGE_BYTES_MAX)?;
        let websocket = WebSocket::new(nonce(), self.live.deflate);
        let mut headers = Headers::new();
        for (name, value) in websocket.fields() {
            headers.append(name, value).map_err(|error| format!("{name}: {error}"))?;
        }
        for (name, value) in self.headers()?.iter() {
            let own = ["upgrade", "sec-websocket-key", "sec-websocket-version"];
            if own.iter().any(|own| name.eq_ignore_ascii_case(own)) {
                return Err(format!("{name} is a part of the WebSocket handshake"));
            }
            headers.append(name, value).map_err(|error| format!("{name}: {error}"))?;
        }
        let method = Method::GET;
        let request = HttpRequest {
            method: &method,
            path: &target.path,
            authority: &target.authority,
            headers: &headers,
            content: &[],
            closes: false,
        };
        let websocket = websocket.with_request(Template::http(&request, 1)?.bytes);
        let content = Template::message(length, 1);
        let bytes = websocket.encode(&content.bytes);
        let message = Template::encoded(bytes, content.content, depth);
        Ok((websocket, Requests::single(message)))
    }
}

/// Returns bytes that differ between runs. They need not be random, because servers only hash them.
fn nonce() -> [u8; 16] {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_nanos().to_le_bytes()
}
