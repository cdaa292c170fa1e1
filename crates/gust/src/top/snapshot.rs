//! The content of an event of a console's feed.
//!
//! The server is not trusted: its texts may have control characters, which a terminal would obey.
//! The texts are escaped here, when they are parsed.

use serde::{Deserialize, Deserializer};

/// The version of the feed that is understood.
const VERSION: u64 = 1;

/// Longest text that is kept, in characters.
const TEXT_CHARS_MAX: usize = 400;

/// What a server reports about itself at one moment. Values that it does not know are `None`.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Snapshot {
    #[serde(default)]
    pub(crate) at_ms: Option<f64>,
    #[serde(default)]
    pub(crate) uptime_s: Option<f64>,
    #[serde(default)]
    pub(crate) phase: Text,
    #[serde(default)]
    pub(crate) requests: Requests,
    #[serde(default)]
    pub(crate) connections: Connections,
    #[serde(default)]
    pub(crate) threads: Threads,
    #[serde(default)]
    pub(crate) memory: Memory,
    #[serde(default)]
    pub(crate) limits: Vec<Limit>,
    #[serde(default)]
    pub(crate) checks: Vec<Check>,
    #[serde(default)]
    pub(crate) loops: Vec<EventLoop>,
    #[serde(default)]
    pub(crate) calls: Vec<Call>,
    /// How many routes had a request. The feed may have fewer of them: those with the most.
    #[serde(default)]
    pub(crate) routes_known: Option<f64>,
    #[serde(default)]
    pub(crate) routes: Vec<Route>,
    #[serde(default)]
    pub(crate) idle: Vec<Idle>,
    #[serde(default)]
    pub(crate) ended: Vec<Reason>,
    #[serde(default)]
    pub(crate) refusals: Vec<Reason>,
    #[serde(default)]
    pub(crate) stories: Vec<Story>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Requests {
    pub(crate) total: Option<f64>,
    pub(crate) active: Option<f64>,
    pub(crate) waiting: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Connections {
    pub(crate) open: Option<f64>,
    pub(crate) idle: Option<f64>,
    pub(crate) max: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Threads {
    pub(crate) total: Option<f64>,
    pub(crate) busy: Option<f64>,
    pub(crate) max: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Memory {
    pub(crate) used: Option<f64>,
    pub(crate) max: Option<f64>,
    /// All memory of the process.
    pub(crate) process: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Limit {
    pub(crate) name: Text,
    pub(crate) used: Option<f64>,
    pub(crate) max: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EventLoop {
    pub(crate) thread: Option<Text>,
    pub(crate) connections: Option<f64>,
    pub(crate) idle: Option<f64>,
    pub(crate) handed_over: Option<f64>,
}

/// Idle connections that wait for the same.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Idle {
    pub(crate) waits_for: Text,
    pub(crate) count: Option<f64>,
}

/// A health check.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Check {
    pub(crate) name: Text,
    pub(crate) state: Text,
    pub(crate) required: bool,
    pub(crate) since_s: Option<f64>,
    pub(crate) message: Option<Text>,
}

/// A call that runs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Call {
    pub(crate) thread: Option<Text>,
    pub(crate) route: Option<Text>,
    pub(crate) request_id: Option<Text>,
    pub(crate) running_ms: Option<f64>,
    pub(crate) runs: Option<Text>,
    pub(crate) waits_for: Option<Text>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Route {
    pub(crate) methods: Option<Text>,
    pub(crate) pattern: Text,
    pub(crate) requests: Option<f64>,
    pub(crate) active: Option<f64>,
    pub(crate) errors: Option<f64>,
    pub(crate) median_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    pub(crate) computing_s: Option<f64>,
    pub(crate) waiting_s: Option<f64>,
    pub(crate) runs: Option<Text>,
    pub(crate) why: Option<Text>,
}

/// How often something happened for a reason.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Reason {
    pub(crate) reason: Text,
    pub(crate) count: Option<f64>,
}

/// A request that was slow, has failed or was refused.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Story {
    pub(crate) at_ms: Option<f64>,
    pub(crate) kind: Option<Text>,
    pub(crate) request_id: Option<Text>,
    pub(crate) text: Text,
}

impl Snapshot {
    /// Returns whether all routes that had a request are in it.
    pub(crate) fn has_all_routes(&self) -> bool {
        self.routes_known.is_some_and(|known| known <= self.routes.len() as f64)
    }

    /// Parses the data of an event, or returns why the event is not from a console.
    pub(crate) fn parse(data: &[u8]) -> Result<Self, String> {
        /// Read first: another version may have other fields.
        #[derive(Deserialize)]
        struct Versioned {
            version: u64,
        }

        let malformed = |error: serde_json::Error| {
            format!("the feed is not that of a console ({})", escape(&error.to_string()))
        };
        let Versioned { version } = serde_json::from_slice(data).map_err(malformed)?;
        if version != VERSION {
            return Err(format!(
                "the console's feed has version {version} and this gust reads version {VERSION}: \
                 use the gust that comes with the app's version of Filoplume"
            ));
        }
        serde_json::from_slice(data).map_err(malformed)
    }
}

impl Route {
    /// Returns the name: methods and pattern.
    pub(crate) fn name(&self) -> String {
        match &self.methods {
            // Empty for the requests that no route answers.
            Some(methods) if !methods.as_str().is_empty() => {
                format!("{} {}", methods.as_str(), self.pattern.as_str())
            }
            _ => self.pattern.as_str().to_owned(),
        }
    }
}

/// A text of the server, in one line, without characters that control a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Text(String);

impl Text {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // `null` is a text that the server does not know.
        Option::<String>::deserialize(deserializer)
            .map(|text| Self(text.as_deref().map(escape).unwrap_or_default()))
    }
}

/// Replaces characters that are not shown as themselves: controls, and those that hide or reorder
/// others. Cuts long texts.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len().min(TEXT_CHARS_MAX));
    for (index, character) in text.chars().enumerate() {
        if index >= TEXT_CHARS_MAX {
            escaped.push('…');
            break;
        }
        if is_unsafe(character) {
            escaped.extend(character.escape_unicode());
        } else {
            escaped.push(character);
        }
    }
    escaped
}

fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_may_be_null_or_missing() {
        let empty = Snapshot::parse(br#"{"version":1}"#).unwrap();
        assert_eq!((empty.uptime_s, empty.routes.len()), (None, 0));
        let nulls = r#"{"version":1,"at_ms":null,"phase":null,"requests":{"total":null},
            "new":[1],"calls":[{"route":null,"runs":null,"more":1}],"routes":[{"pattern":"/"}]}"#;
        let nulls = Snapshot::parse(nulls.as_bytes()).unwrap();
        assert_eq!(nulls.calls[0].route, None);
        assert_eq!(nulls.routes[0].name(), "/");
        let none = br#"{"version":1,"routes":[{"methods":"","pattern":"(no route)"}]}"#;
        assert_eq!(Snapshot::parse(none).unwrap().routes[0].name(), "(no route)");
    }

    #[test]
    fn what_is_not_a_feed_is_refused_with_the_reason() {
        for (data, part) in [
            (&b"Hello"[..], "not that of a console"),
            (b"{}", "version"),
            (br#"{"version":2,"requests":7}"#, "has version 2 and this gust reads version 1"),
            (br#"{"version":1,"requests":7}"#, "not that of a console"),
            (b"\xff", "not that of a console"),
        ] {
            let error = Snapshot::parse(data).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn texts_cannot_steer_the_terminal() {
        let hostile = r#"{"version":1,"calls":[{"route":"a\u001b[2Jb\r\n\u202ec\u009b1m\u0007"}]}"#;
        let snapshot = Snapshot::parse(hostile.as_bytes()).unwrap();
        let route = snapshot.calls[0].route.as_ref().unwrap();
        assert_eq!(route.as_str(), r"a\u{1b}[2Jb\u{d}\u{a}\u{202e}c\u{9b}1m\u{7}");
        assert_eq!(escape(&"x".repeat(1000)).chars().count(), TEXT_CHARS_MAX + 1);
        assert_eq!(escape("Größe 名前"), "Größe 名前");
    }

    #[test]
    fn invisible_characters_and_those_that_change_the_direction_are_escaped() {
        let is_escaped = |character: char| escape(&character.to_string()).starts_with('\\');
        for (first, last) in [
            ('\u{0}', '\u{1f}'),
            ('\u{7f}', '\u{9f}'),
            ('\u{ad}', '\u{ad}'),
            ('\u{61c}', '\u{61c}'),
            ('\u{200b}', '\u{200f}'),
            ('\u{2028}', '\u{202e}'),
            ('\u{2060}', '\u{206f}'),
            ('\u{feff}', '\u{feff}'),
            ('\u{fff9}', '\u{fffb}'),
            ('\u{e0000}', '\u{e0fff}'),
        ] {
            assert!((first..=last).all(is_escaped), "{first:?} to {last:?}");
            let around = [u32::from(first).checked_sub(1), u32::from(last).checked_add(1)];
            let mut around = around.into_iter().flatten().filter_map(char::from_u32);
            assert!(!around.any(is_escaped), "beside {first:?} to {last:?}");
        }
    }

    #[test]
    fn what_a_server_sends_makes_no_long_error() {
        let data = format!(r#"{{"version":"{}"}}"#, "x".repeat(10_000));
        let error = Snapshot::parse(data.as_bytes()).unwrap_err();
        assert!(error.chars().count() < TEXT_CHARS_MAX + 100, "{error}");
    }
}
