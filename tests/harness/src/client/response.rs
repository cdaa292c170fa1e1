//! A response as a client has received it.

use std::fmt;

/// A response as it was received.
#[derive(Clone, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The status line and the header lines, without line ends.
    pub lines: Vec<String>,
    /// The content.
    pub body: Vec<u8>,
    /// How the content is delimited.
    pub framing: Framing,
    /// The lengths of the chunks, if it is chunked.
    pub chunks: Vec<usize>,
}

/// How the content of a response is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// The response cannot have content.
    None,
    /// By its length.
    Length,
    /// By the last chunk.
    Chunked,
    /// By the end of the connection.
    UntilEnd,
}

impl Response {
    pub(super) fn parse(head: &str) -> Self {
        let lines: Vec<String> =
            head.trim_end_matches("\r\n").split("\r\n").map(str::to_owned).collect();
        let status_line = &lines[0];
        assert!(status_line.starts_with("HTTP/1.1 "), "a strange status line: {status_line:?}");
        let status = status_line[9..12].parse().unwrap();
        for line in &lines[1..] {
            let (name, _) = line.split_once(':').expect("a header line has a colon");
            assert!(!name.is_empty() && !name.contains([' ', '\t']), "a strange header: {line:?}");
        }
        let mut response =
            Self { status, lines, body: Vec::new(), framing: Framing::None, chunks: Vec::new() };
        response.framing =
            match (response.header("content-length"), response.header("transfer-encoding")) {
                _ if status < 200 || status == 204 || status == 304 => Framing::None,
                (None, None) => Framing::UntilEnd,
                (Some(_), None) => Framing::Length,
                (None, Some("chunked")) => Framing::Chunked,
                (length, coding) => panic!("strange framing: {length:?}, {coding:?}"),
            };
        response
    }

    /// Returns the content as text.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the content is text")
    }

    /// Returns the value of a header. Panics if there are several.
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        let all = self.headers(name);
        assert!(all.len() <= 1, "{name} occurs {} times", all.len());
        all.first().copied()
    }

    /// Returns the values of all headers of that name.
    pub fn headers(&self, name: &str) -> Vec<&str> {
        let pairs = self.lines[1..].iter().filter_map(|line| line.split_once(':'));
        pairs
            .filter(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
            .collect()
    }

    /// Returns whether the server announces that it closes.
    pub fn closes(&self) -> bool {
        self.headers("connection").iter().any(|value| value.to_ascii_lowercase().contains("close"))
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = self.body.get(..self.body.len().min(200)).unwrap_or_default();
        write!(f, "{:?} + {} bytes: {}", self.lines, self.body.len(), start.escape_ascii())
    }
}
