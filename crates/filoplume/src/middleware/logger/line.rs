//! The lines of an access log. All input of clients is escaped.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use super::Entry;
use super::request_info::RequestLine;
use crate::log::escape;

impl Entry<'_> {
    /// Formats the short line for people: `200 GET /notes 1.204ms`.
    pub(super) fn to_short(&self) -> String {
        let mut line = format!("{} ", self.status.as_u16());
        match &self.request.line {
            Some(RequestLine { method, target, .. }) => {
                let _ = write!(line, "{method} ");
                escape(&mut line, target);
            }
            None => line.push('-'),
        }
        let _ = write!(line, " {:.1?}", self.duration);
        let mut separator = " (";
        for (name, us) in self.phases_us() {
            if let Some(us) = us {
                let _ = write!(line, "{separator}{name} {us}us");
                separator = ", ";
            }
        }
        if separator == ", " {
            line.push(')');
        }
        if let Some(error) = self.error {
            line.push_str(": ");
            escape(&mut line, error);
        }
        line.push('\n');
        line
    }

    pub(super) fn to_combined(&self) -> String {
        let request = self.request;
        let mut line = request.client.map_or_else(|| "-".to_owned(), |address| address.to_string());
        let _ = write!(line, " - - [{}] \"", Time::of(request.at).apache());
        match &request.line {
            Some(RequestLine { method, target, version }) => {
                let _ = write!(line, "{method} ");
                escape(&mut line, target);
                if let Some(version) = version {
                    let _ = write!(line, " {version}");
                }
            }
            None => line.push('-'),
        }
        let _ = write!(line, "\" {} ", self.status.as_u16());
        match self.bytes {
            Some(bytes) if bytes > 0 => {
                let _ = write!(line, "{bytes}");
            }
            _ => line.push('-'),
        }
        for field in [&request.referer, &request.user_agent] {
            line.push_str(" \"");
            escape(&mut line, field.as_deref().unwrap_or("-"));
            line.push('"');
        }
        line.push('\n');
        line
    }

    pub(super) fn to_json(&self) -> String {
        let request = self.request;
        let mut line = format!("{{\"time\":\"{}\"", Time::of(request.at).rfc3339());
        json_text(&mut line, "method", request.line.as_ref().map(|line| line.method.as_str()));
        json_text(&mut line, "path", request.line.as_ref().map(|line| &*line.target));
        json_text(&mut line, "route", self.route);
        let _ = write!(line, ",\"status\":{}", self.status.as_u16());
        if let Some(bytes) = self.bytes {
            let _ = write!(line, ",\"bytes\":{bytes}");
        }
        let _ = write!(line, ",\"duration_us\":{}", self.duration_us());
        for (name, us) in self.phases_us() {
            if let Some(us) = us {
                let _ = write!(line, ",\"{name}_us\":{us}");
            }
        }
        let client = request.client.map(|address| address.to_string());
        json_text(&mut line, "client", client.as_deref());
        json_text(&mut line, "peer", Some(&request.peer.to_string()));
        json_text(&mut line, "request_id", self.request_id);
        let trace_id = self.trace_id.map(|id| id.to_string());
        json_text(&mut line, "trace_id", trace_id.as_deref());
        json_text(&mut line, "referer", request.referer.as_deref());
        json_text(&mut line, "user_agent", request.user_agent.as_deref());
        json_text(&mut line, "error", self.error);
        line.push_str("}\n");
        line
    }
}

/// Appends a field of a JSON object (RFC 8259, 7). This is written by hand because the logger does
/// not need the feature `json`.
fn json_text(line: &mut String, name: &str, text: Option<&str>) {
    let Some(text) = text else { return };
    let _ = write!(line, ",\"{name}\":\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => line.extend(['\\', character]),
            // C1 controls and line separators are valid in JSON, but not safe on a terminal or in
            // JavaScript.
            _ if character.is_control() || matches!(character, '\u{2028}' | '\u{2029}') => {
                let _ = write!(line, "\\u{:04x}", u32::from(character));
            }
            _ => line.push(character),
        }
    }
    line.push('"');
}

/// A time in UTC, split from an HTTP date: `Sun, 06 Nov 1994 08:49:37 GMT`.
struct Time {
    http_date: String,
    millis: u32,
}

impl Time {
    fn of(time: SystemTime) -> Self {
        // HTTP dates cannot express the time of a clock that was never set.
        let is_known =
            time.duration_since(UNIX_EPOCH).is_ok_and(|since| since.as_secs() < 253_402_300_800);
        let time = if is_known { time } else { UNIX_EPOCH };
        let millis = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_millis());
        Self { http_date: httpdate::fmt_http_date(time), millis }
    }

    fn part(&self, range: std::ops::Range<usize>) -> &str {
        self.http_date.get(range).unwrap_or_default()
    }

    fn apache(&self) -> String {
        format!(
            "{}/{}/{}:{} +0000",
            self.part(5..7),
            self.part(8..11),
            self.part(12..16),
            self.part(17..25)
        )
    }

    fn rfc3339(&self) -> String {
        const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
        let month = MONTHS.find(self.part(8..11)).unwrap_or_default() / 3 + 1;
        let (year, day, time) = (self.part(12..16), self.part(5..7), self.part(17..25));
        format!("{year}-{month:02}-{day}T{time}.{:03}Z", self.millis)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use filoplume_runtime::{Method, Peer, StatusCode, Timing, Version};

    use super::super::request_info::RequestInfo;
    use super::*;

    fn request(target: &str, user_agent: &str) -> RequestInfo {
        RequestInfo {
            at: UNIX_EPOCH + Duration::from_millis(784_111_777_042),
            line: Some(RequestLine {
                method: Method::GET,
                target: target.to_owned(),
                version: Some(Version::Http11),
            }),
            peer: Peer::Tcp("[2001:db8::1]:4711".parse().unwrap()),
            client: Some("192.0.2.1".parse().unwrap()),
            referer: None,
            user_agent: Some(user_agent.to_owned()),
            trace_id: None,
        }
    }

    fn entry<'a>(request: &'a RequestInfo, error: Option<&'a str>) -> Entry<'a> {
        Entry {
            request,
            status: StatusCode::OK,
            route: Some("/{a}"),
            bytes: Some(12),
            duration: Duration::from_micros(1500),
            timing: None,
            request_id: Some("17"),
            trace_id: None,
            error,
        }
    }

    #[test]
    fn the_combined_format_is_what_tools_expect() {
        let request = request("/a?b=c", "curl/8");
        assert_eq!(
            entry(&request, None).to_combined(),
            "192.0.2.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /a?b=c HTTP/1.1\" 200 12 \"-\" \"curl/8\"\n"
        );
    }

    #[test]
    fn a_response_without_bytes_has_a_dash_in_the_combined_format() {
        let request = request("/", "curl/8");
        let line = Entry { bytes: Some(0), ..entry(&request, None) }.to_combined();
        assert!(line.contains("\" 200 - \""), "{line}");
    }

    #[test]
    fn json_lines_have_a_time_and_omit_unknown_fields() {
        let request = request("/a", "curl/8");
        assert_eq!(
            entry(&request, None).to_json(),
            "{\"time\":\"1994-11-06T08:49:37.042Z\",\"method\":\"GET\",\"path\":\"/a\",\
             \"route\":\"/{a}\",\"status\":200,\"bytes\":12,\"duration_us\":1500,\
             \"client\":\"192.0.2.1\",\"peer\":\"[2001:db8::1]:4711\",\"request_id\":\"17\",\
             \"user_agent\":\"curl/8\"}\n"
        );
    }

    #[test]
    fn a_measured_request_has_its_phases() {
        let request = request("/a", "curl/8");
        let mut timing = Timing::default();
        timing.queue = Duration::from_micros(800);
        timing.waiting = Duration::from_nanos(300_999);
        timing.turn = Duration::from_nanos(999);
        let entry = Entry { timing: Some(timing), ..entry(&request, Some("no")) };
        assert_eq!(entry.to_short(), "200 GET /a 1.5ms (queue 800us, waiting 300us): no\n");
        let json = entry.to_json();
        let phases = "\"duration_us\":1500,\"queue_us\":800,\"waiting_us\":300,\"client\"";
        assert!(json.contains(phases) && !json.contains("turn_us"), "{json}");
        let unmeasured = Entry { timing: Some(Timing::default()), ..entry };
        assert_eq!(unmeasured.to_short(), "200 GET /a 1.5ms: no\n");
    }

    #[test]
    fn a_client_cannot_forge_lines_or_end_its_field() {
        let hostile = "x\" 200 1\n127.0.0.1 - - \r\t\\\u{1b}[31m\u{85}\u{2028}\u{0}ü";
        let request = request("/", hostile);
        let entry = entry(&request, Some(hostile));
        for line in [entry.to_short(), entry.to_combined(), entry.to_json()] {
            let text = line.strip_suffix('\n').unwrap();
            assert!(!text.chars().any(|c| c.is_control() || c == '\u{2028}'), "{text:?}");
        }
        assert!(entry.to_combined().contains(r#""x\" 200 1\x0a127.0.0.1 - - \x0d\x09\\\x1b[31m"#));
        assert!(entry.to_combined().ends_with("\\x00\\xc3\\xbc\"\n"));
        let value: serde_json::Value = serde_json::from_str(&entry.to_json()).unwrap();
        assert_eq!(value["user_agent"], hostile);
    }

    #[test]
    fn a_clock_that_was_never_set_does_not_panic() {
        for seconds in [0, 253_402_300_799, 253_402_300_800, 1 << 40] {
            let time = Time::of(UNIX_EPOCH + Duration::from_secs(seconds));
            assert_eq!(time.apache().len(), 26);
        }
        assert_eq!(
            Time::of(UNIX_EPOCH - Duration::from_secs(5)).rfc3339(),
            "1970-01-01T00:00:00.000Z"
        );
    }

    proptest::proptest! {
        #[test]
        fn any_input_is_one_line_and_can_be_read_back(
            target in "\\PC*|[\\x00-\\x7f]*",
            agent in ".*",
        ) {
            let request = request(&target, &agent);
            let entry = entry(&request, None);
            let value: serde_json::Value = serde_json::from_str(&entry.to_json()).unwrap();
            proptest::prop_assert_eq!(&value["path"], &target);
            proptest::prop_assert_eq!(&value["user_agent"], &agent);
            for line in [entry.to_short(), entry.to_combined(), entry.to_json()] {
                proptest::prop_assert_eq!(line.chars().filter(|c| c.is_control()).count(), 1);
            }
            // Without the escaped parts, only the quotes that begin and end fields are left.
            let plain = entry.to_combined().replace(r"\\", "").replace(r#"\""#, "");
            proptest::prop_assert_eq!(plain.matches('"').count(), 6);
        }
    }
}
