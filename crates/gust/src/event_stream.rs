//! Reads the events of a `text/event-stream` from bytes, at any cut.
//!
//! Only what is measured is kept: that an event came, and the start of its data.

use crate::arrival::SEARCHED_BYTES;

/// How much of a line is kept: the name of a field, and of its value what is searched.
const LINE_BYTES_MAX: usize = SEARCHED_BYTES + 8;

/// A stream that is being read, as the HTML standard defines it (9.2.6).
#[derive(Debug, Default)]
pub(crate) struct EventParser {
    /// The start of the current line.
    line: Vec<u8>,
    /// The last byte was a carriage return. A line feed after it belongs to the same line end.
    is_after_return: bool,
    /// A line has ended, so a byte order mark can no longer come.
    is_begun: bool,
    /// The start of the data of the current event. `None` as long as it has none.
    data: Option<Vec<u8>>,
}

impl EventParser {
    /// Reads some bytes, and calls `on_event` with the start of each event's data.
    pub(crate) fn receive(&mut self, mut bytes: &[u8], mut on_event: impl FnMut(&[u8])) {
        if !bytes.is_empty() && std::mem::take(&mut self.is_after_return) {
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
            self.keep(&bytes[..end]);
            self.end_line(&mut on_event);
            let is_return = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if is_return {
                self.is_after_return = bytes.is_empty();
                bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            }
        }
        self.keep(bytes);
    }

    fn keep(&mut self, part: &[u8]) {
        let room = LINE_BYTES_MAX.saturating_sub(self.line.len());
        self.line.extend_from_slice(&part[..part.len().min(room)]);
    }

    fn end_line(&mut self, on_event: &mut impl FnMut(&[u8])) {
        let mut line = self.line.as_slice();
        if !std::mem::replace(&mut self.is_begun, true) {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        if line.is_empty() {
            if let Some(data) = self.data.take() {
                on_event(&data);
            }
        } else if let Some(value) = data_of(line) {
            match &mut self.data {
                None => self.data = Some(value.to_vec()),
                Some(data) if data.len() < SEARCHED_BYTES => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                Some(_) => {}
            }
        }
        self.line.clear();
    }
}

/// Returns the value of a line with the field `data`. Other fields and comments are not measured.
fn data_of(line: &[u8]) -> Option<&[u8]> {
    let value = match line.strip_prefix(b"data")? {
        [] => &[],
        [b':', b' ', value @ ..] | [b':', value @ ..] => value,
        _ => return None,
    };
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<String> {
        let (mut parser, mut events) = (EventParser::default(), Vec::new());
        for piece in pieces {
            parser.receive(piece, |data| events.push(String::from_utf8_lossy(data).into_owned()));
        }
        events
    }

    /// The same bytes mean the same wherever the network cuts them.
    #[track_caller]
    fn check(stream: &str, expected: &[&str]) {
        let bytes = stream.as_bytes();
        assert_eq!(events(&[bytes]), expected, "{stream:?}");
        for cut in 0..=bytes.len() {
            let (first, second) = bytes.split_at(cut);
            assert_eq!(events(&[first, second]), expected, "{stream:?} cut at {cut}");
            assert_eq!(events(&[first, b"", second]), expected, "{stream:?} cut at {cut}");
        }
        let single: Vec<_> = bytes.chunks(1).collect();
        assert_eq!(events(&single), expected, "{stream:?}, byte by byte");
    }

    #[test]
    fn an_event_ends_with_an_empty_line() {
        check("data: a\n\ndata:b\n\n", &["a", "b"]);
        check("data: a\ndata: b\n\n", &["a\nb"]);
        check("id: 1\nevent: tick\nretry: 10\ndata: a\n\n", &["a"]);
        check("data\n\ndata:\n\n", &["", ""]);
        check("data:  a\n\n", &[" a"]);
        check("data: not complete\n", &[]);
    }

    #[test]
    fn lines_end_in_three_ways() {
        check("data: a\r\n\r\ndata: b\r\rdata: c\n\n", &["a", "b", "c"]);
        check("data: a\r\n\rdata: b\r\n\n", &["a", "b"]);
        check("data: a\r\ndata: b\r\n\r\n", &["a\nb"]);
    }

    #[test]
    fn what_has_no_data_is_no_event() {
        check(": keep-alive\n\nevent: tick\n\nid: 3\n\n\n\n", &[]);
        check("datas: a\n\nDATA: a\n\n data: a\n\n", &[]);
        check("\u{feff}data: a\n\n\u{feff}data: b\n\n", &["a"]);
    }

    #[test]
    fn of_long_data_only_the_start_is_kept() {
        let long = "x".repeat(100_000);
        let stream = format!("data: {long}\ndata: {long}\n\ndata: {long}\n\n");
        let found = events(&[stream.as_bytes()]);
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|data| (SEARCHED_BYTES..300).contains(&data.len())));
    }
}
