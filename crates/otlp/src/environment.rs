//! The variables of the environment that OpenTelemetry defines.

use percent_encoding::percent_decode_str;

use crate::error::OtlpError;

/// A list of names and values.
pub(crate) type Pairs = Vec<(String, String)>;

/// Returns a variable that is set and not empty. The specification treats an empty one as unset.
pub(crate) fn variable(read: impl Fn(&str) -> Option<String>, name: &str) -> Option<String> {
    read(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

/// Parses `key=value,key=value`, with percent-encoded values. The message of an error does not
/// contain the values, because the list may contain headers with secrets.
pub(crate) fn pairs(name: &str, list: &str) -> Result<Pairs, OtlpError> {
    let entries = list.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    entries
        .enumerate()
        .map(|(at, entry)| {
            let pair = entry.split_once('=').and_then(|(key, value)| {
                let key = percent_decode_str(key.trim()).decode_utf8().ok()?;
                let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
                (!key.is_empty()).then(|| (key.into_owned(), value.into_owned()))
            });
            pair.ok_or_else(|| {
                OtlpError::new(format!(
                    "{name}: entry {} is not `key=value` with a percent-encoded value",
                    at + 1
                ))
            })
        })
        .collect()
}

/// Returns the address for traces. The variable for traces alone is used as it is; to the general
/// one, the path for traces is appended.
pub(crate) fn endpoint(read: impl Fn(&str) -> Option<String>) -> Option<String> {
    variable(&read, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
        .or_else(|| variable(&read, "OTEL_EXPORTER_OTLP_ENDPOINT").map(|base| traces_of(&base)))
}

/// Appends the path for traces to the address of a collector.
pub(crate) fn traces_of(base: &str) -> String {
    format!("{}/v1/traces", base.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_mistakes_name_their_place_but_no_value() {
        let list = " a = 1 ,b=x%2Cy%3D%20z,,c==,";
        let expected = [("a", "1"), ("b", "x,y= z"), ("c", "=")];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(pairs("LIST", list).unwrap(), expected);
        for (list, place) in [("s3cret", 1), ("a=1,=s3cret", 2), ("a=s3cret%ff", 1)] {
            let error = pairs("LIST", list).unwrap_err().to_string();
            assert!(error.contains(&format!("LIST: entry {place}")), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn the_endpoint_for_traces_is_used_as_it_is_and_the_common_one_is_extended() {
        let rows = [
            (None, None, None),
            (Some(" "), None, None),
            (Some("http://a:4318"), None, Some("http://a:4318/v1/traces")),
            (Some("http://a/base/"), None, Some("http://a/base/v1/traces")),
            (Some("http://a"), Some("http://b/t"), Some("http://b/t")),
        ];
        for (common, traces, expected) in rows {
            let read = |name: &str| match name {
                "OTEL_EXPORTER_OTLP_ENDPOINT" => common.map(str::to_owned),
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" => traces.map(str::to_owned),
                _ => None,
            };
            assert_eq!(endpoint(read).as_deref(), expected);
        }
    }
}
