//! The plan of a run: plain values that all threads read, with every setting decided.

use std::sync::OnceLock;
use std::time::Duration;

use filoplume_http1::{BodyEncoding, ContentLength, Headers, OutgoingRequest};
use http::Method;

use crate::target::Address;
use crate::tls::Tls;
use crate::url_list::WEIGHTS_MAX;
use crate::verify::{Digest, ResponseSummary, Statuses, Verify};
use crate::websocket::WebSocket;

/// Largest buffer with copies of the same request, from which a pipeline is written.
const REPEATED_BYTES_MAX: usize = 64 * 1024;

/// All settings of a run.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The target as given on the command line.
    pub(crate) target: String,
    pub(crate) address: Address,
    pub(crate) tls: Option<Tls>,
    pub(crate) protocol: Protocol,
    /// How a WebSocket is opened.
    pub(crate) websocket: Option<WebSocket>,
    /// Whether connections send nothing after their first request, and are kept open.
    pub(crate) holds: bool,
    pub(crate) requests: Requests,
    pub(crate) connections: usize,
    pub(crate) threads: usize,
    /// Whether threads use blocking sockets instead of event loops.
    pub(crate) is_blocking: bool,
    /// Most requests in flight on one connection.
    pub(crate) depth: usize,
    pub(crate) keep_alive: bool,
    pub(crate) end: End,
    /// Requests per second, or `None` for a closed loop.
    pub(crate) rate: Option<f64>,
    pub(crate) ramp: Duration,
    pub(crate) connect_rate: Option<f64>,
    pub(crate) timeout: Duration,
    pub(crate) warmup: Duration,
    pub(crate) verify: Option<Verify>,
    pub(crate) expect: Option<Statuses>,
    pub(crate) errors_max: Option<u64>,
    pub(crate) server: Option<u32>,
}

impl Plan {
    /// Returns the number of connections that are opened per second at the start, if not all at
    /// once. In a closed loop, the ramp applies to the connections.
    pub(crate) fn opening_rate(&self) -> Option<f64> {
        let ramp = self.ramp.as_secs_f64();
        if self.rate.is_some() || ramp == 0.0 {
            return self.connect_rate;
        }
        #[expect(clippy::cast_precision_loss, reason = "connections are few")]
        let ramped = self.connections as f64 / ramp;
        Some(self.connect_rate.map_or(ramped, |rate| rate.min(ramped)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    Echo,
    /// Messages of WebSockets.
    WebSocket,
    /// The events of event streams.
    Events,
}

/// When a run ends: at whichever limit is reached first. Without a limit it runs until it is
/// interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) after: Option<Duration>,
    pub(crate) requests: Option<u64>,
}

/// The requests to choose from, and their order.
#[derive(Debug)]
pub(crate) struct Requests {
    templates: Vec<Template>,
    /// The indexes of the templates in the order in which they are sent, repeated without end. Each
    /// occurs in proportion to its weight.
    order: Vec<u16>,
}

/// One request as bytes.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) method: Method,
    pub(crate) bytes: Vec<u8>,
    /// Several copies of the request, for pipelines.
    repeated: Vec<u8>,
    /// The digest of the content that is sent, which `--verify=echo` expects back.
    pub(crate) content: Digest,
    /// The first response, to which later ones are compared.
    pub(crate) first: OnceLock<ResponseSummary>,
}

/// The parts of an HTTP request, from which its bytes are made.
#[derive(Clone, Debug)]
pub(crate) struct HttpRequest<'a> {
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    pub(crate) authority: &'a str,
    pub(crate) headers: &'a Headers,
    pub(crate) content: &'a [u8],
    pub(crate) closes: bool,
}

impl Requests {
    /// Returns weighted requests in an order that spreads them evenly: at each step, every request
    /// is as near to its share as possible.
    pub(crate) fn new(weighted: Vec<(u64, Template)>) -> Result<Self, String> {
        let total = weighted.iter().fold(0_u64, |total, &(weight, _)| total.saturating_add(weight));
        if weighted.iter().any(|&(weight, _)| weight == 0) || weighted.len() > usize::from(u16::MAX)
        {
            return Err(
                "weights must be whole numbers from 1, for at most 65,535 requests".to_owned()
            );
        }
        if total > WEIGHTS_MAX {
            return Err(format!(
                "the sum of all weights is {total}, but must not exceed {WEIGHTS_MAX}"
            ));
        }
        let weights: Vec<i64> =
            weighted.iter().map(|&(weight, _)| i64::try_from(weight).unwrap_or(0)).collect();
        let mut credit = vec![0_i64; weights.len()];
        let sum: i64 = weights.iter().sum();
        let mut order = Vec::new();
        for _ in 0..sum {
            credit.iter_mut().zip(&weights).for_each(|(credit, weight)| *credit += weight);
            let richest = (0..credit.len()).rev().max_by_key(|&index| credit[index]).unwrap_or(0);
            credit[richest] -= sum;
            order.push(u16::try_from(richest).unwrap_or(0));
        }
        Ok(Self { templates: weighted.into_iter().map(|(_, template)| template).collect(), order })
    }

    pub(crate) fn single(template: Template) -> Self {
        Self { templates: vec![template], order: vec![0] }
    }

    /// Returns the request if there is only one.
    #[inline]
    pub(crate) fn only(&self) -> Option<&Template> {
        match self.templates.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn template(&self, number: u16) -> &Template {
        &self.templates[usize::from(number)]
    }

    /// Returns the number of the template at `position` in the order, which repeats.
    #[inline]
    pub(crate) fn at(&self, position: usize) -> u16 {
        self.order[position % self.order.len()]
    }
}

impl Template {
    pub(crate) fn http(request: &HttpRequest<'_>, depth: usize) -> Result<Self, String> {
        let content = match request.content.len() {
            0 => ContentLength::None,
            length => ContentLength::Known(length as u64),
        };
        let outgoing = OutgoingRequest {
            method: request.method,
            target: request.path,
            authority: request.authority,
            headers: request.headers,
            content,
            closes: request.closes,
        };
        let mut bytes = Vec::new();
        let encoding = outgoing
            .write_head(&mut bytes)
            .map_err(|error| format!("cannot send {} {}: {error}", request.method, request.path))?;
        if matches!(encoding, BodyEncoding::Length(_)) {
            bytes.extend_from_slice(request.content);
        }
        Ok(Self::new(request.method.clone(), bytes, Digest::of(request.content), depth))
    }

    /// Returns a message of this many bytes. Neighbouring parts of it differ, so that a shifted
    /// echo is noticed.
    pub(crate) fn message(length: usize, depth: usize) -> Self {
        let letters = (b'0'..=b'9').chain(b'A'..=b'Z').chain(b'a'..=b'z');
        let mut bytes: Vec<u8> = letters.cycle().take(length).collect();
        for (line, start) in (0..length).step_by(64).enumerate().skip(1) {
            bytes[start] = b"!#$%&*+-/:;<=>?@^_~"[line % 19];
        }
        let digest = Digest::of(&bytes);
        Self::new(Method::GET, bytes, digest, depth)
    }

    /// Returns a message as it is sent, with the digest of its content.
    pub(crate) fn encoded(bytes: Vec<u8>, content: Digest, depth: usize) -> Self {
        Self::new(Method::GET, bytes, content, depth)
    }

    fn new(method: Method, bytes: Vec<u8>, content: Digest, depth: usize) -> Self {
        let times = (REPEATED_BYTES_MAX / bytes.len().max(1)).clamp(1, depth);
        let repeated = if times > 1 { bytes.repeat(times) } else { Vec::new() };
        Self { method, bytes, repeated, content, first: OnceLock::new() }
    }

    /// Returns at least one and at most `times` copies of the request.
    #[inline]
    pub(crate) fn repeated(&self, times: usize) -> &[u8] {
        let whole = self.repeated.len().min(times * self.bytes.len());
        if whole < self.bytes.len() { &self.bytes } else { &self.repeated[..whole] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(path: &str) -> Template {
        let (headers, method) = (Headers::new(), Method::GET);
        let request = HttpRequest {
            method: &method,
            path,
            authority: "h",
            headers: &headers,
            content: b"",
            closes: false,
        };
        Template::http(&request, 4).unwrap()
    }

    #[test]
    fn weights_are_spread_evenly() {
        let requests = Requests::new(vec![(3, get("/a")), (1, get("/b")), (2, get("/c"))]).unwrap();
        assert_eq!(requests.order, [0, 2, 0, 1, 2, 0]);
        assert_eq!(requests.at(7), 2);
        assert!(requests.only().is_none());
    }

    #[test]
    fn weights_are_bounded() {
        assert!(Requests::new(vec![(0, get("/"))]).is_err());
        assert!(Requests::new(vec![(WEIGHTS_MAX, get("/"))]).is_ok());
        assert!(Requests::new(vec![(WEIGHTS_MAX, get("/")), (1, get("/"))]).is_err());
        assert!(Requests::new(vec![(u64::MAX, get("/")), (2, get("/"))]).is_err());
        assert!(
            Requests::new(vec![(u64::from(u32::MAX), get("/"))])
                .unwrap_err()
                .contains("must not exceed")
        );
    }

    #[test]
    fn a_request_is_repeated_for_pipelines() {
        let template = get("/");
        assert_eq!(template.bytes, b"GET / HTTP/1.1\r\nhost: h\r\n\r\n");
        assert_eq!(template.repeated(1).len(), template.bytes.len());
        assert_eq!(template.repeated(3), template.bytes.repeat(3));
        assert_eq!(template.repeated(9), template.bytes.repeat(4));
    }

    #[test]
    fn a_message_has_its_length_and_no_period() {
        let message = Template::message(1000, 1).bytes;
        assert_eq!(message.len(), 1000);
        assert!((1..900).all(|shift| message[..100] != message[shift..shift + 100]));
        assert_eq!(Template::message(1, 1).bytes, b"0");
    }

    #[test]
    fn an_invalid_request_has_an_error_that_names_it() {
        let (headers, method) = (Headers::new(), Method::GET);
        let bad = HttpRequest {
            method: &method,
            path: "/a b",
            authority: "h",
            headers: &headers,
            content: b"",
            closes: false,
        };
        let error = Template::http(&bad, 1).unwrap_err();
        assert_eq!(
            error,
            "cannot send GET /a b: target is malformed or not allowed for the method"
        );
    }
}
