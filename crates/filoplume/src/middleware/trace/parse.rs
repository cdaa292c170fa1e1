//! The header fields of W3C Trace Context, level 1: `traceparent` and `tracestate`.

use super::context::{Parent, SpanId, TraceId};

/// Length of a `traceparent` of version 00.
const PARENT_BYTES: usize = 55;

/// The flag of a sampled trace. Level 1 defines no other.
const SAMPLED: u8 = 0x01;

/// The maximum number of members of a `tracestate`, by its specification.
const MEMBERS_MAX: usize = 32;

/// Longest `tracestate` that is passed on: the length that its specification asks for. Longer ones
/// are shortened by whole members.
const STATE_BYTES_MAX: usize = 512;

/// Members above this length are left out first, as the specification recommends.
const LONG_MEMBER_BYTES: usize = 128;

/// Parses a `traceparent`: `00-<32 digits>-<16 digits>-<2 digits>`, hexadecimal and in lower case.
/// Of a version above 00, only the beginning is read, which later versions keep.
pub(super) fn parse_parent(value: &[u8]) -> Option<Parent> {
    let (head, rest) = value.split_at_checked(PARENT_BYTES)?;
    let parts: Vec<&[u8]> = head.split(|&byte| byte == b'-').collect();
    let [version, trace_id, span_id, flags] = parts.as_slice() else { return None };
    let version = parse_hex(version, 2)?;
    let is_complete = match version {
        0 => rest.is_empty(),
        0xff => false,
        _ => rest.is_empty() || rest.starts_with(b"-"),
    };
    if !is_complete {
        return None;
    }
    let flags = u8::try_from(parse_hex(flags, 2)?).ok()?;
    Some(Parent {
        trace_id: TraceId::new(parse_hex(trace_id, 32)?)?,
        span_id: SpanId::new(u64::try_from(parse_hex(span_id, 16)?).ok()?)?,
        is_sampled: flags & SAMPLED != 0,
    })
}

/// Parses a number of exactly `length` hexadecimal digits in lower case.
fn parse_hex(digits: &[u8], length: usize) -> Option<u128> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if digits.len() != length || !digits.iter().all(is_digit) {
        return None;
    }
    u128::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Joins the members of all `tracestate` fields. Returns `None` if they are invalid, too many, or
/// none: the trace goes on without them.
pub(super) fn parse_state<'a>(fields: impl Iterator<Item = &'a [u8]>) -> Option<String> {
    let mut members: Vec<&str> = Vec::new();
    for field in fields {
        for member in field.split(|&byte| byte == b',') {
            let member = trim(member);
            // Empty members are allowed, and mean nothing.
            if member.is_empty() {
                continue;
            }
            let key = key_of(member)?;
            if members.len() == MEMBERS_MAX || members.iter().any(|other| has_key(other, key)) {
                return None;
            }
            members.push(std::str::from_utf8(member).ok()?);
        }
    }
    shorten(&mut members);
    if members.is_empty() { None } else { Some(members.join(",")) }
}

fn trim(mut member: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = member {
        member = rest;
    }
    member
}

fn has_key(member: &str, key: &[u8]) -> bool {
    member.as_bytes().strip_prefix(key).is_some_and(|rest| rest.starts_with(b"="))
}

/// Returns the key of a valid member.
fn key_of(member: &[u8]) -> Option<&[u8]> {
    let at = member.iter().position(|&byte| byte == b'=')?;
    let (key, value) = (member.get(..at)?, member.get(at + 1..)?);
    let is_value = (1..=256).contains(&value.len())
        && value.iter().all(|&byte| matches!(byte, b' '..=b'~') && !matches!(byte, b',' | b'='));
    (is_key(key) && is_value).then_some(key)
}

/// Returns whether a key is valid: a name, or a tenant and a system.
fn is_key(key: &[u8]) -> bool {
    let is_part = |part: &[u8], length_max: usize, may_begin_with_digit: bool| {
        let begins = part.first().is_some_and(|first| {
            first.is_ascii_lowercase() || (may_begin_with_digit && first.is_ascii_digit())
        });
        let is_char =
            |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/');
        begins && part.len() <= length_max && part.iter().all(is_char)
    };
    match key.iter().position(|&byte| byte == b'@') {
        None => is_part(key, 256, false),
        Some(at) => {
            let (tenant, system) = key.split_at(at);
            is_part(tenant, 241, true) && is_part(system.get(1..).unwrap_or_default(), 14, false)
        }
    }
}

/// Leaves out members until the rest is short enough: first the long ones, then the last.
fn shorten(members: &mut Vec<&str>) {
    let length = |members: &[&str]| -> usize {
        members.iter().map(|member| member.len() + 1).sum::<usize>().saturating_sub(1)
    };
    while length(members) > STATE_BYTES_MAX {
        let long = members.iter().rposition(|member| member.len() > LONG_MEMBER_BYTES);
        match long {
            Some(at) => _ = members.remove(at),
            None => _ = members.pop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_of_version_00_is_read() {
        let parent = parse_parent(GOOD.as_bytes()).unwrap();
        assert_eq!(parent.trace_id.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(parent.span_id.to_string(), "00f067aa0ba902b7");
        for (flags, is_sampled) in [("00", false), ("01", true), ("02", false), ("ff", true)] {
            let parent = parse_parent(GOOD.replace("-01", &format!("-{flags}")).as_bytes());
            assert_eq!(parent.unwrap().is_sampled, is_sampled, "{flags}");
        }
    }

    #[test]
    fn what_the_specification_refuses_is_refused() {
        let ids = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";
        let rows = [
            String::new(),
            "00".to_owned(),
            format!("00-{ids}"),
            format!("00-{ids}-"),
            format!("00-{ids}-1"),
            format!("00-{ids}-0g"),
            format!("00-{ids}-01-"),
            format!("00-{ids}-01-more"),
            format!("00-{ids}-01 "),
            format!(" 00-{ids}-01"),
            format!("0-{ids}-01"),
            format!("ff-{ids}-01"),
            format!("0F-{ids}-01"),
            format!("cc-{ids}-011"),
            format!("cc-{ids}-01.more"),
            format!("cc-{ids}"),
            format!("00_{ids}_01"),
            GOOD.to_uppercase(),
            GOOD.replace("4bf9", "4Bf9"),
            GOOD.replace("b7-01", "B7-01"),
            GOOD.replace("4bf9", "+bf9"),
            GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            GOOD.replace("00f067aa0ba902b7", &"0".repeat(16)),
            // A digit too many on one side and too few on the other.
            "00-4bf92f3577b34da6a3ce929d0e0e47360-0f067aa0ba902b7-01".to_owned(),
            format!("{GOOD},{GOOD}"),
        ];
        for row in rows {
            assert_eq!(parse_parent(row.as_bytes()), None, "{row:?}");
        }
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        let ids = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";
        for row in
            [format!("01-{ids}-01"), format!("cc-{ids}-03-what-is-new"), format!("fe-{ids}-01-")]
        {
            assert_eq!(parse_parent(row.as_bytes()), parse_parent(GOOD.as_bytes()), "{row:?}");
        }
    }

    fn state(fields: &[&str]) -> Option<String> {
        parse_state(fields.iter().map(|field| field.as_bytes()))
    }

    #[test]
    fn members_of_all_tracestate_fields_are_joined_in_order() {
        let rows: &[(&[&str], Option<&str>)] = &[
            (&[], None),
            (&["", " , ,\t"], None),
            (&["a=1"], Some("a=1")),
            (&["a=1 ,\tb=2,", ",c= 3"], Some("a=1,b=2,c= 3")),
            (&["0t@s=v", "t/e*n-a_nt@s=v"], Some("0t@s=v,t/e*n-a_nt@s=v")),
            (&["a=1", "a=2"], None),
            (&["a"], None),
            (&["=1"], None),
            (&["a="], None),
            (&["a=b=c"], None),
            (&["A=1"], None),
            (&["1=1"], None),
            (&["a =1"], None),
            (&["a@1=1"], None),
            (&["@a=1"], None),
            (&["a@=1"], None),
            (&["a@b@c=1"], None),
            (&["a=\u{e4}"], None),
            (&["a=\u{1}"], None),
        ];
        for (fields, expected) in rows {
            assert_eq!(state(fields).as_deref(), *expected, "{fields:?}");
        }
    }

    #[test]
    fn the_limits_of_tracestate_are_kept() {
        let members =
            |count: usize| (0..count).map(|n| format!("k{n}=v")).collect::<Vec<_>>().join(",");
        assert_eq!(state(&[&members(32)]), Some(members(32)));
        assert_eq!(state(&[&members(33)]), None);
        let row = |key: usize, value: usize| format!("{}={}", "k".repeat(key), "v".repeat(value));
        for (row, is_valid) in [
            (row(254, 256), true),
            (row(255, 256), true),
            (row(256, 1), true),
            (row(257, 1), false),
            (row(1, 257), false),
            (format!("{}@{}=v", "t".repeat(241), "s".repeat(14)), true),
            (format!("{}@{}=v", "t".repeat(242), "s".repeat(14)), false),
            (format!("{}@{}=v", "t".repeat(241), "s".repeat(15)), false),
        ] {
            assert_eq!(key_of(row.as_bytes()).is_some(), is_valid, "{row}");
        }
    }

    #[test]
    fn a_long_tracestate_loses_its_long_members_first_and_then_its_last() {
        let long = format!("long={}", "v".repeat(200));
        let short = |name: char| format!("{name}={}", "v".repeat(98));
        let all = [short('a'), long, short('b'), short('c'), short('d')].join(",");
        assert_eq!(
            state(&[&all]).unwrap(),
            [short('a'), short('b'), short('c'), short('d')].join(",")
        );
        let all: Vec<_> = ('a'..='h').map(short).collect();
        assert_eq!(state(&[&all.join(",")]).unwrap(), all[..5].join(","));
    }

    proptest! {
        #[test]
        fn ids_survive_a_round_trip(trace in 1u128.., span in 1u64.., is_sampled: bool) {
            let text = format!("00-{trace:032x}-{span:016x}-0{}", u8::from(is_sampled));
            let parent = parse_parent(text.as_bytes()).unwrap();
            prop_assert_eq!(parent.trace_id.to_string(), format!("{trace:032x}"));
            prop_assert_eq!(parent.span_id.to_string(), format!("{span:016x}"));
            prop_assert_eq!(parent.is_sampled, is_sampled);
        }

        #[test]
        fn no_input_panics(bytes: Vec<u8>) {
            let _ = parse_parent(&bytes);
            let _ = parse_state([bytes.as_slice()].into_iter());
        }

        /// Only a change of a digit into another digit leaves a `traceparent` valid.
        #[test]
        fn one_wrong_character_is_noticed(at in 0..PARENT_BYTES, byte in 0u8..) {
            let mut bytes = GOOD.as_bytes().to_vec();
            bytes[at] = byte;
            let is_digit = matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            let is_valid = if GOOD.as_bytes()[at] == b'-' {
                byte == b'-'
            } else {
                is_digit && !bytes.starts_with(b"ff")
            };
            prop_assert_eq!(parse_parent(&bytes).is_some(), is_valid);
        }

        #[test]
        fn what_is_passed_on_is_valid_and_short(
            members in prop::collection::vec(
                "[a-z][a-z0-9]{0,20}=[ -+.-<>-~]{0,200}[!-+.-<]",
                0..40,
            ),
        ) {
            if let Some(state) = state(&[&members.join(",")]) {
                prop_assert!(state.len() <= STATE_BYTES_MAX);
                prop_assert_eq!(parse_state([state.as_bytes()].into_iter()), Some(state.clone()));
            }
        }
    }

    #[test]
    fn a_list_of_just_the_longest_length_is_kept_and_then_long_members_go_first() {
        let member = |key: char, length: usize| format!("{key}={}", "x".repeat(length - 2));
        let longest = [member('a', 128), member('b', 128), member('c', 128), member('d', 125)];
        let longest = longest.join(",");
        assert_eq!(longest.len(), STATE_BYTES_MAX);
        assert_eq!(state(&[&longest]), Some(longest.clone()));
        // A member of 128 bytes is not long, so the last one goes.
        let kept = [member('a', 128), member('b', 128), member('c', 128)].join(",");
        assert_eq!(state(&[&kept, &member('d', 126)]), Some(kept.clone()));
        assert_eq!(state(&[&member('e', 129), &kept, "d=1"]), Some(format!("{kept},d=1")));
    }
}
