//! Reads the events of a `text/event-stream` from bytes, wherever the network splits them.
//!
//! Only what is needed is kept: the name of an event, and as much of its data as the reader asks
//! for.

/// How many bytes of a line are kept in addition to a value: room for the longest field name that
/// is used, a colon and a space.
const FIELD_BYTES: usize = 8;

/// Longest name of an event that is kept.
const NAME_BYTES_MAX: usize = 64;

/// A stream that is being read, as the HTML standard defines it (9.2.6).
#[derive(Debug)]
pub(crate) struct EventParser {
    /// How much of the data of an event is kept.
    data_bytes_max: usize,
    /// The start of the current line.
    line: Vec<u8>,
    /// The last byte was a carriage return. A line feed after it belongs to the same line end.
    is_after_return: bool,
    /// A line has ended, so a byte order mark can no longer come.
    is_begun: bool,
    name: Vec<u8>,
    /// The start of the data of the current event. `None` as long as it has none.
    data: Option<Vec<u8>>,
    /// Something of the current event was not kept.
    is_cut: bool,
}

/// An event that has data.
#[cfg_attr(not(feature = "top"), expect(dead_code, reason = "a load measures the data alone"))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event<'a> {
    /// The name, empty if it has none.
    pub(crate) name: &'a [u8],
    pub(crate) data: &'a [u8],
    /// Whether the event was longer than what is kept, so that `data` is only its start.
    pub(crate) is_cut: bool,
}

impl EventParser {
    /// Returns a parser that keeps the start of the data of each event.
    pub(crate) fn keeping(data_bytes_max: usize) -> Self {
        Self {
            data_bytes_max,
            line: Vec::new(),
            is_after_return: false,
            is_begun: false,
            name: Vec::new(),
            data: None,
            is_cut: false,
        }
    }

    /// Reads some bytes, and calls `on_event` with each event.
    pub(crate) fn receive(&mut self, mut bytes: &[u8], mut on_event: impl FnMut(Event<'_>)) {
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
        let room = (self.data_bytes_max + FIELD_BYTES).saturating_sub(self.line.len());
        self.is_cut |= part.len() > room;
        self.line.extend_from_slice(&part[..part.len().min(room)]);
    }

    fn end_line(&mut self, on_event: &mut impl FnMut(Event<'_>)) {
        let mut line = self.line.as_slice();
        if !std::mem::replace(&mut self.is_begun, true) {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        if line.is_empty() {
            let is_cut = std::mem::take(&mut self.is_cut);
            if let Some(data) = self.data.take() {
                on_event(Event { name: &self.name, data: &data, is_cut });
            }
            self.name.clear();
        } else if let Some(value) = value_of(line, b"data") {
            match &mut self.data {
                None => self.data = Some(value.to_vec()),
                Some(data) if data.len() < self.data_bytes_max => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                Some(_) => self.is_cut = true,
            }
        } else if let Some(value) = value_of(line, b"event") {
            self.name.clear();
            self.name.extend_from_slice(value.get(..NAME_BYTES_MAX).unwrap_or(value));
        }
        self.line.clear();
    }
}

/// Returns the value of a line with this field. Other fields and comments are not needed.
fn value_of<'a>(line: &'a [u8], field: &[u8]) -> Option<&'a [u8]> {
    let value = match line.strip_prefix(field)? {
        [] => &[],
        [b':', b' ', value @ ..] | [b':', value @ ..] => value,
        _ => return None,
    };
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: usize = 128;

    fn events(pieces: &[&[u8]]) -> Vec<String> {
        let (mut parser, mut events) = (EventParser::keeping(KEPT), Vec::new());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        for piece in pieces {
            parser.receive(piece, |event| events.push(text(event.data)));
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
        assert!(found.iter().all(|data| (KEPT..300).contains(&data.len())));
    }

    #[test]
    fn an_event_has_the_name_that_was_given_last() {
        let stream = "event: a\nevent: tick\ndata: 1\n\ndata: 2\n\nevent: x\n\ndata: 3\n\n";
        let mut names = Vec::new();
        let mut parser = EventParser::keeping(KEPT);
        for byte in stream.bytes() {
            parser.receive(&[byte], |event| names.push(event.name.to_vec()));
        }
        assert_eq!(names, [&b"tick"[..], b"", b""]);
    }

    #[test]
    fn an_event_says_whether_all_of_it_was_kept() {
        let cuts = |stream: &str| {
            let mut cuts = Vec::new();
            let mut parser = EventParser::keeping(10);
            for piece in stream.as_bytes().chunks(7) {
                parser.receive(piece, |event| cuts.push((event.is_cut, event.data.len())));
            }
            cuts
        };
        assert_eq!(cuts("data: 1234567890\n\ndata: 1\n\n"), [(false, 10), (false, 1)]);
        assert_eq!(cuts("data: 123456789012\n\n"), [(false, 12)], "just what there is room for");
        assert_eq!(cuts("data: 123456789\ndata: 1\n\n"), [(false, 11)]);
        assert_eq!(cuts("data: 1234567890\ndata: 1\n\n"), [(true, 10)]);
        let long = "1".repeat(1000);
        assert_eq!(cuts(&format!("data: {long}\n\ndata: 1\n\n")), [(true, 12), (false, 1)]);
        let many = "data: 123456\n".repeat(100);
        assert_eq!(cuts(&format!("{many}\ndata: 1\n\n")), [(true, 13), (false, 1)]);
    }
}
