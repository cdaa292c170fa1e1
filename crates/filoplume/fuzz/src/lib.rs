//! What the targets have in common: requests as bytes, and answers that are read strictly.

use std::sync::{Arc, Mutex, PoisonError};

use filoplume::Method;
use filoplume::testing::TestClient;
use filoplume_http1::{Limits, PeerClosed, ResponseEvent, ResponseReader};

/// A parsed answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub content: Vec<u8>,
}

impl Answer {
    /// Returns the value of a header. Checks that it is there once at most.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(of, _)| of == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} is there more than once: {self:?}");
        value
    }
}

/// Parses all answers that a connection got. `methods` are the methods of its requests. A request
/// that is refused before the service knows its method is answered as a `GET`, or as a `HEAD` if it
/// began as one.
pub fn answers(bytes: &[u8], methods: &[Method]) -> Vec<Answer> {
    let as_head = || [methods, &[Method::HEAD]].concat();
    let found = try_answers(bytes, methods)
        .or_else(|error| try_answers(bytes, &as_head()).map_err(|_| error));
    found.unwrap_or_else(|error| panic!("{error}: {:?}", String::from_utf8_lossy(bytes)))
}

fn try_answers(bytes: &[u8], methods: &[Method]) -> Result<Vec<Answer>, String> {
    let limits = Limits { head_bytes_max: 1 << 20, ..Limits::default() };
    let mut reader = ResponseReader::new();
    let mut unread = bytes;
    let mut found = Vec::new();
    let mut answer = Answer::default();
    loop {
        let method = methods.get(found.len()).unwrap_or(&Method::GET);
        let (used, event) =
            reader.receive(unread, method, &limits).map_err(|error| error.to_string())?;
        unread = unread.get(used..).expect("no more is used than there is");
        match event {
            Some(ResponseEvent::Interim(_)) => {}
            Some(ResponseEvent::Head(head)) => {
                answer.status = head.status().as_u16();
                answer.headers = head
                    .fields()
                    .map(|(name, value)| (text(name).to_ascii_lowercase(), text(value)))
                    .collect();
            }
            Some(ResponseEvent::Content(content)) => answer.content.extend_from_slice(content),
            Some(ResponseEvent::End) => found.push(std::mem::take(&mut answer)),
            None => break,
        }
    }
    match reader.peer_closed(unread) {
        PeerClosed::Ended => found.push(answer),
        PeerClosed::BetweenResponses => {}
        PeerClosed::Truncated => return Err("an answer is cut off".to_owned()),
    }
    if unread.is_empty() { Ok(found) } else { Err("something follows the last answer".to_owned()) }
}

/// Converts the bytes of a head, which are always UTF-8.
fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("heads are UTF-8")
}

/// Returns whether an answer says that the server has made a mistake, which no request may cause.
/// `501` and `505` are for methods and versions that are not known, and are no mistakes.
pub fn is_fault(answer: &Answer) -> bool {
    answer.status >= 500 && ![501, 505].contains(&answer.status)
}

/// Sends one request with this method, target, content, and lines in its head. Checks that there is
/// one answer, whatever the request contains, and that the answer does not blame the server.
pub fn ask(
    client: &TestClient,
    method: Method,
    target: &[u8],
    lines: &[(&str, &[u8])],
    content: &[u8],
) -> Answer {
    let mut request = [
        method.as_str().as_bytes(),
        b" ",
        target,
        b" HTTP/1.1\r\nhost: a\r\nconnection: close\r\n",
    ]
    .concat();
    for (name, value) in lines {
        request.extend_from_slice(&[name.as_bytes(), b": ", value, b"\r\n"].concat());
    }
    if !content.is_empty() {
        request.extend_from_slice(format!("content-length: {}\r\n", content.len()).as_bytes());
    }
    request.extend_from_slice(b"\r\n");
    request.extend_from_slice(content);
    let mut found = answers(&client.raw(&request), &[method]);
    assert_eq!(found.len(), 1, "{:?}", String::from_utf8_lossy(&request));
    let answer = found.remove(0);
    assert!(!is_fault(&answer), "{answer:?} to {:?}", String::from_utf8_lossy(&request));
    answer
}

/// Returns whether these bytes can stand in the first line of a request without ending its target.
pub fn is_target(target: &[u8]) -> bool {
    target.iter().all(|&byte| byte > b' ' && byte != 0x7F)
}

/// Returns whether these bytes can be sent as the value of a header.
pub fn is_field_value(value: &[u8]) -> bool {
    value.iter().all(|&byte| byte == b'\t' || (byte >= b' ' && byte != 0x7F))
}

/// The place where a handler puts what it received, for the caller that sent the request.
#[derive(Debug)]
pub struct Seen<T>(Arc<Mutex<Option<T>>>);

impl<T> Clone for Seen<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Seen<T> {
    /// Puts a value.
    pub fn put(&self, value: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
    }

    /// Takes the value. Returns `None` if the handler was not called.
    pub fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
