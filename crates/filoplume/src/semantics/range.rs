//! The bytes that a `Range` selects (RFC 9110, 14). This module only computes positions, and does
//! no I/O.

use std::fmt;

/// The maximum number of ranges in a request; with more, the field is ignored. PDF readers request
/// about ten at once. Hundreds of tiny ranges are an attack on servers that create a part for each
/// (RFC 9110, 17.15; CVE-2011-3192).
const RANGES_MAX: usize = 32;

/// A range of at least one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteRange {
    pub(crate) start: u64,
    /// The last byte, inclusive.
    pub(crate) last: u64,
}

/// The selected part of a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    /// All of it: the field is malformed or not supported.
    Whole,
    /// One range: `206`.
    One(ByteRange),
    /// At least two, which neither overlap nor touch: `206` with a part for each.
    Several(Vec<ByteRange>),
    /// No byte of the content is selected: `416`.
    Unsatisfiable,
}

impl ByteRange {
    pub(crate) fn length(self) -> u64 {
        self.last - self.start + 1
    }

    /// Returns the value of a `Content-Range`.
    pub(crate) fn of(self, length: u64) -> impl fmt::Display {
        let Self { start, last } = self;
        format!("bytes {start}-{last}/{length}")
    }
}

/// Returns what the value of a `Range` selects from a content of `length` bytes.
pub(crate) fn select(value: &str, length: u64) -> Selection {
    let Some(specs) = parse(value) else { return Selection::Whole };
    if length == 0 && specs.iter().any(|spec| matches!(spec, RangeSpec::Last(1..))) {
        // A suffix range of empty content is satisfiable but selects no byte, which a
        // `Content-Range` cannot express.
        return Selection::Whole;
    }
    let mut ranges: Vec<ByteRange> = specs.iter().filter_map(|spec| spec.within(length)).collect();
    if !are_apart(&ranges) {
        ranges = coalesce(ranges);
    }
    match ranges.as_slice() {
        [] => Selection::Unsatisfiable,
        [range] => Selection::One(*range),
        _ => Selection::Several(ranges),
    }
}

/// A requested range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RangeSpec {
    /// From one byte to another, inclusive.
    Between(u64, u64),
    /// From a byte to the end.
    From(u64),
    /// This many bytes at the end.
    Last(u64),
}

impl RangeSpec {
    fn within(self, length: u64) -> Option<ByteRange> {
        let end = length.checked_sub(1)?;
        match self {
            Self::Between(start, last) => Some(ByteRange { start, last: last.min(end) }),
            Self::From(start) => Some(ByteRange { start, last: end }),
            Self::Last(0) => None,
            Self::Last(count) => Some(ByteRange { start: length.saturating_sub(count), last: end }),
        }
        .filter(|range| range.start <= end)
    }
}

/// Parses `bytes=` and the ranges. Returns `None` if it has another unit, is malformed, or has too
/// many ranges.
fn parse(value: &str) -> Option<Vec<RangeSpec>> {
    let (unit, set) = value.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let elements = set.split(',').map(|element| element.trim_matches([' ', '\t']));
    let mut specs = Vec::new();
    for element in elements.filter(|element| !element.is_empty()) {
        if specs.len() == RANGES_MAX {
            return None;
        }
        specs.push(parse_spec(element)?);
    }
    (!specs.is_empty()).then_some(specs)
}

fn parse_spec(text: &str) -> Option<RangeSpec> {
    match text.split_once('-')? {
        ("", count) => Some(RangeSpec::Last(number(count)?)),
        (start, "") => Some(RangeSpec::From(number(start)?)),
        (start, last) => {
            let (start, last) = (number(start)?, number(last)?);
            (start <= last).then_some(RangeSpec::Between(start, last))
        }
    }
}

/// Parses digits. A number that overflows becomes the maximum.
fn number(text: &str) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.bytes().try_fold(0_u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        Some(number.saturating_mul(10).saturating_add(digit))
    })
}

/// Returns whether no two ranges overlap or touch.
fn are_apart(ranges: &[ByteRange]) -> bool {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable_by_key(|range| range.start);
    sorted.windows(2).all(|pair| pair[0].last.saturating_add(1) < pair[1].start)
}

/// Merges ranges that overlap or touch, so that no byte is sent twice. Merging ranges with a small
/// gap would send bytes that were not requested. The result is sorted by position, which RFC 9110
/// allows if ranges were merged (15.3.7.2).
fn coalesce(mut ranges: Vec<ByteRange>) -> Vec<ByteRange> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<ByteRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(before) if range.start <= before.last.saturating_add(1) => {
                before.last = before.last.max(range.last);
            }
            _ => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the selection as a text, such as `0-4 10-19`, `whole` or `416`.
    fn shown(value: &str, length: u64) -> String {
        let show = |ranges: &[ByteRange]| {
            let texts: Vec<String> =
                ranges.iter().map(|range| format!("{}-{}", range.start, range.last)).collect();
            texts.join(" ")
        };
        match select(value, length) {
            Selection::Whole => "whole".to_owned(),
            Selection::One(range) => show(&[range]),
            Selection::Several(ranges) => show(&ranges),
            Selection::Unsatisfiable => "416".to_owned(),
        }
    }

    #[test]
    fn a_range_selects_bytes_or_nothing_or_is_ignored() {
        let many = format!("bytes={}", ["0-0"; RANGES_MAX].join(","));
        let too_many = format!("bytes={}", ["0-0"; RANGES_MAX + 1].join(","));
        let rows = [
            ("bytes=0-0", "0-0"),
            ("bytes=0-499", "0-499"),
            ("BYTES=500-", "500-999"),
            ("bytes=-1", "999-999"),
            ("bytes=-1000", "0-999"),
            ("bytes=-99999999999999999999999999", "0-999"),
            ("bytes=999-", "999-999"),
            ("bytes=990-99999999999999999999999999", "990-999"),
            ("bytes=000-0004", "0-4"),
            // Nothing there
            ("bytes=1000-", "416"),
            ("bytes=1000-2000", "416"),
            ("bytes=-0", "416"),
            ("bytes=99999999999999999999999999-99999999999999999999999999", "416"),
            ("bytes=18446744073709551615-", "416"),
            ("bytes=2000-,-0", "416"),
            // Several
            ("bytes=0-0,-1", "0-0 999-999"),
            ("bytes=-1,0-0", "999-999 0-0"),
            ("bytes= 0-0 ,\t200-200, ,", "0-0 200-200"),
            ("bytes=0-0,5000-", "0-0"),
            // Joined
            ("bytes=0-499,500-999", "0-999"),
            ("bytes=500-999,0-499", "0-999"),
            ("bytes=0-99,50-60,900-", "0-99 900-999"),
            ("bytes=0-0,2-2", "0-0 2-2"),
            ("bytes=0-0,1-1", "0-1"),
            ("bytes=4-5,0-1,2-3", "0-5"),
            ("bytes=0-,0-,0-,0-", "0-999"),
            (&*many, "0-0"),
            // Ignored
            (&*too_many, "whole"),
            ("bytes", "whole"),
            ("bytes=", "whole"),
            ("bytes=,", "whole"),
            ("bytes=-", "whole"),
            ("bytes=--1", "whole"),
            ("bytes=5-4", "whole"),
            ("bytes=0-4,5-4", "whole"),
            ("bytes=0-4;10-14", "whole"),
            ("bytes=0 - 4", "whole"),
            ("bytes=+1-4", "whole"),
            ("bytes=0x0-4", "whole"),
            ("bytes=a-", "whole"),
            ("bytes:0-4", "whole"),
            ("lines=0-4", "whole"),
            ("", "whole"),
        ];
        for (value, expected) in rows {
            assert_eq!(shown(value, 1000), expected, "{value}");
        }
    }

    #[test]
    fn empty_content_has_no_first_byte() {
        assert_eq!(shown("bytes=0-", 0), "416");
        assert_eq!(shown("bytes=-0", 0), "416");
        assert_eq!(shown("bytes=-5", 0), "whole");
    }

    #[test]
    fn the_greatest_length_does_not_overflow() {
        let length = u64::MAX;
        assert_eq!(shown("bytes=-1", length), format!("{0}-{0}", length - 1));
        assert_eq!(shown("bytes=0-,-1", length), format!("0-{}", length - 1));
        assert_eq!(shown("bytes=0-18446744073709551615", length), format!("0-{}", length - 1));
    }

    fn spec() -> impl Strategy<Value = String> {
        prop_oneof![
            (0_u64..1200, 0_u64..1200)
                .prop_map(|(start, more)| format!("{start}-{}", start + more)),
            (0_u64..1200).prop_map(|start| format!("{start}-")),
            (0_u64..1200).prop_map(|count| format!("-{count}")),
        ]
    }

    proptest! {
        #[test]
        fn no_value_panics(value in "(bytes=)?[-0-9, a]{0,40}", length in any::<u64>()) {
            let _ = select(&value, length);
        }

        #[test]
        fn selected_bytes_were_requested_and_are_sent_once(
            specs in proptest::collection::vec(spec(), 1..10),
            length in 1_u64..1000,
        ) {
            let ranges = match select(&format!("bytes={}", specs.join(",")), length) {
                Selection::One(range) => vec![range],
                Selection::Several(ranges) => ranges,
                Selection::Unsatisfiable => vec![],
                Selection::Whole => panic!("they are well-formed"),
            };
            let mut times = vec![0; usize::try_from(length).expect("it is short")];
            for range in &ranges {
                prop_assert!(range.start <= range.last && range.last < length);
                for byte in range.start..=range.last {
                    times[usize::try_from(byte).expect("it is short")] += 1;
                }
            }
            prop_assert!(times.iter().all(|times| *times <= 1));
            for spec in &specs {
                let range = parse_spec(spec).and_then(|spec| spec.within(length));
                let Some(range) = range else { continue };
                for byte in range.start..=range.last {
                    prop_assert_eq!(times[usize::try_from(byte).expect("it is short")], 1);
                }
            }
        }
    }
}
