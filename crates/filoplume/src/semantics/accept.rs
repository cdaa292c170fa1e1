//! Choosing a media type by the client's preferences (RFC 9110, 12.5.1).

use std::cmp::Reverse;

use crate::semantics::weight::{WEIGHT_MAX, Weight, parse_weight};

/// A media range with its weight.
struct MediaRange<'a> {
    media_type: &'a [u8],
    quality: Weight,
    position: usize,
}

/// Returns the offer with the highest weight in the value of an `Accept`. Returns `None` if no
/// offer is acceptable. Among offers of equal weight, the more specific range decides, then the
/// range that comes first in the header, then the offer that comes first. Each offer has a list of
/// media types that stand for it.
#[inline(never)]
pub(crate) fn preferred<T: Copy>(accept: &[u8], offered: &[(T, &[&str])]) -> Option<T> {
    let ranges: Vec<MediaRange<'_>> = split_unquoted(accept, b',')
        .into_iter()
        .enumerate()
        .filter_map(|(position, range)| MediaRange::parse(range, position))
        .collect();
    let wanted = offered.iter().enumerate().filter_map(|(order, (offer, names))| {
        let (specificity, quality, position) =
            names.iter().filter_map(|name| most_specific(&ranges, name)).max()?;
        (quality > 0).then_some((
            Reverse(quality),
            Reverse(specificity),
            Reverse(position),
            order,
            *offer,
        ))
    });
    let best = wanted.min_by_key(|&(quality, specificity, position, order, _)| {
        (quality, specificity, position.0.0, order)
    });
    best.map(|(.., offer)| offer)
}

/// Returns the specificity, weight and position of the most specific range that matches a media
/// type.
fn most_specific(ranges: &[MediaRange<'_>], name: &str) -> Option<(u8, Weight, Reverse<usize>)> {
    let matching = ranges.iter().filter_map(|range| {
        let specificity = range.specificity_for(name.as_bytes())?;
        Some((specificity, range.quality, Reverse(range.position)))
    });
    matching.max()
}

impl<'a> MediaRange<'a> {
    fn parse(range: &'a [u8], position: usize) -> Option<Self> {
        let mut parts = split_unquoted(range, b';').into_iter().map(<[u8]>::trim_ascii);
        let media_type = parts.next().filter(|media_type| media_type.contains(&b'/'))?;
        let mut quality = WEIGHT_MAX;
        for parameter in parts {
            let equals = parameter.iter().position(|&byte| byte == b'=')?;
            let (name, value) = (&parameter[..equals], &parameter[equals + 1..]);
            if name.eq_ignore_ascii_case(b"q") {
                quality = parse_weight(std::str::from_utf8(value).ok()?)?;
            } else if !(name.eq_ignore_ascii_case(b"charset")
                && value.eq_ignore_ascii_case(b"utf-8"))
            {
                // No offer has this parameter, so the range matches none of them.
                return None;
            }
        }
        Some(Self { media_type, quality, position })
    }

    fn specificity_for(&self, name: &[u8]) -> Option<u8> {
        if self.media_type.eq_ignore_ascii_case(name) {
            return Some(2);
        }
        let any = self.media_type.strip_suffix(b"*")?;
        match any {
            b"*/" => Some(0),
            [.., b'/'] => name
                .get(..any.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(any))
                .then_some(1),
            _ => None,
        }
    }
}

/// Splits a text at separators outside of quotes.
fn split_unquoted(text: &[u8], separator: u8) -> Vec<&[u8]> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let parts = text.split(|&byte| {
        let ends = byte == separator && !is_quoted;
        if byte == b'"' && !is_escaped {
            is_quoted = !is_quoted;
        }
        is_escaped = is_quoted && byte == b'\\' && !is_escaped;
        ends
    });
    parts.map(<[u8]>::trim_ascii).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Format {
        Json,
        Html,
        Text,
    }

    const FORMATS: [(Format, &[&str]); 3] = [
        (Format::Json, &["application/problem+json", "application/json"]),
        (Format::Html, &["text/html"]),
        (Format::Text, &["text/plain"]),
    ];

    #[track_caller]
    fn check(accept: &str, expected: Format) {
        assert_eq!(
            preferred(accept.as_bytes(), &FORMATS).unwrap_or(Format::Json),
            expected,
            "{accept}"
        );
    }

    #[test]
    fn browsers_read_html() {
        check("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", Format::Html);
        check(
            "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/\
             apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7",
            Format::Html,
        );
    }

    #[test]
    fn scripts_and_tools_read_json() {
        check("*/*", Format::Json);
        check("", Format::Json);
        check("application/json, text/plain, */*", Format::Json);
        check("application/*", Format::Json);
        check("image/avif,image/webp,*/*;q=0.8", Format::Json);
    }

    #[test]
    fn the_highest_weight_decides() {
        check("text/html;q=0.5, application/json;q=0.4", Format::Html);
        check("text/html;q=0.4, application/json;q=0.5", Format::Json);
        check("text/html;q=0.4, */*;q=0.5", Format::Json);
        check("text/html;q=0.123, text/plain;q=0.124", Format::Text);
    }

    #[test]
    fn equal_weights_prefer_the_first_range() {
        check("application/json, text/html", Format::Json);
        check("text/html, application/json", Format::Html);
        check("*/*, text/html", Format::Html);
        check("text/*", Format::Html);
    }

    #[test]
    fn specific_ranges_override_wildcards() {
        check("*/*;q=1, application/json;q=0, application/problem+json;q=0", Format::Html);
        check("text/*, text/html;q=0", Format::Text);
        check("application/*;q=0, */*", Format::Html);
        check("application/json, */*;q=0.1", Format::Json);
    }

    #[test]
    fn plain_text_must_be_requested() {
        check("text/plain", Format::Text);
        check("TEXT/Plain; charset=UTF-8", Format::Text);
    }

    #[test]
    fn unacceptable_and_malformed_values_give_json() {
        check("image/png", Format::Json);
        check("text/html;q=0", Format::Json);
        check("text/html;q=2, ;;;, /, text", Format::Json);
        check("text/html;level=1", Format::Json);
        check("x/y;a=\", text/html\"", Format::Json);
    }
}
