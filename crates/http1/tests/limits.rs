//! One test per limit: input at the limit is accepted, and one more is refused.

mod driver;

use driver::{check_limits, events};
use expect_test::expect;
use filoplume_http1::Limits;

fn head(padding: usize) -> String {
    // 27 bytes without the padded field, and 5 for the rest of that field.
    format!("GET / HTTP/1.1\r\nHost: h\r\nA: {}\r\n\r\n", "x".repeat(padding))
}

/// A request line of 8,000 bytes should be accepted (RFC 9112 section 3).
#[test]
fn the_default_limits_have_these_values() {
    let limits = Limits {
        head_bytes_max: 16_384,
        target_bytes_max: 8_192,
        fields_max: 100,
        chunk_line_bytes_max: 256,
        chunk_extension_bytes_max: 16_384,
        trailer_bytes_max: 8_192,
    };
    assert_eq!(Limits::default(), limits);
}

#[test]
fn a_head_has_a_longest_length() {
    let limits = Limits { head_bytes_max: 64, ..Limits::default() };
    assert_eq!(head(32).len(), 64);
    check_limits(head(32), &limits, expect!["head GET / HTTP/1.1; host h; keep-alive"]);
    check_limits(head(33), &limits, expect!["refused 431 HeadTooLong"]);
    check_limits(head(200), &limits, expect!["refused 431 HeadTooLong"]);
}

#[test]
fn bytes_beyond_the_limit_of_a_head_are_not_read() {
    let limits = Limits { head_bytes_max: 64, ..Limits::default() };
    check_limits(head(64) + "\0", &limits, expect!["refused 431 HeadTooLong"]);
    check_limits(head(20).replace('x', "\0"), &limits, expect!["refused 400 FieldValueInvalid"]);
}

#[test]
fn a_head_that_never_ends_is_refused_at_the_limit() {
    let limits = Limits { head_bytes_max: 64, target_bytes_max: 32, ..Limits::default() };
    check_limits("A".repeat(64), &limits, expect!["refused 431 HeadTooLong"]);
    check_limits("A".repeat(63), &limits, expect!["waiting"]);
    check_limits(format!("GET /{}", "a".repeat(80)), &limits, expect!["refused 414 TargetTooLong"]);
}

#[test]
fn an_endless_head_with_a_target_within_its_limit_is_refused_as_a_head() {
    let limits = Limits { head_bytes_max: 64, target_bytes_max: 32, ..Limits::default() };
    let head = |target_len: usize| {
        format!("GET /{} HTTP/1.1\r\nA: {}", "a".repeat(target_len - 1), "x".repeat(64))
    };
    check_limits(head(32), &limits, expect!["refused 431 HeadTooLong"]);
    check_limits(head(33), &limits, expect!["refused 414 TargetTooLong"]);
}

#[test]
fn an_empty_input_is_within_a_limit_of_zero() {
    let limits = Limits { head_bytes_max: 0, ..Limits::default() };
    check_limits("", &limits, expect![""]);
    check_limits("G", &limits, expect!["refused 431 HeadTooLong"]);
}

#[test]
fn a_target_has_a_longest_length() {
    let limits = Limits { target_bytes_max: 8, ..Limits::default() };
    check_limits(
        "GET /1234567 HTTP/1.1\r\nHost: h\r\n\r\n",
        &limits,
        expect!["head GET /1234567 HTTP/1.1; host h; keep-alive"],
    );
    check_limits(
        "GET /12345678 HTTP/1.1\r\nHost: h\r\n\r\n",
        &limits,
        expect!["refused 414 TargetTooLong"],
    );
}

#[test]
fn a_head_has_a_largest_number_of_fields() {
    let fields = |count: usize| format!("GET / HTTP/1.0\r\n{}\r\n", "a: b\r\n".repeat(count));
    let few = Limits { fields_max: 3, ..Limits::default() };
    check_limits(fields(3), &few, expect!["head GET / HTTP/1.0; close Http10"]);
    check_limits(fields(4), &few, expect!["refused 431 TooManyFields"]);
    let limits = Limits::default();
    check_limits(fields(32), &limits, expect!["head GET / HTTP/1.0; close Http10"]);
    check_limits(fields(33), &limits, expect!["head GET / HTTP/1.0; close Http10"]);
    check_limits(fields(100), &limits, expect!["head GET / HTTP/1.0; close Http10"]);
    check_limits(fields(101), &limits, expect!["refused 431 TooManyFields"]);
    let many = Limits { fields_max: 10_000, ..Limits::default() };
    check_limits(fields(256), &many, expect!["head GET / HTTP/1.0; close Http10"]);
    check_limits(fields(257), &many, expect!["refused 431 TooManyFields"]);
    let none = Limits { fields_max: 0, ..Limits::default() };
    check_limits(fields(0), &none, expect!["head GET / HTTP/1.0; close Http10"]);
    check_limits(fields(1), &none, expect!["refused 431 TooManyFields"]);
}

const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";

#[test]
fn a_chunk_line_has_a_longest_length() {
    let limits = Limits { chunk_line_bytes_max: 5, ..Limits::default() };
    check_limits(
        format!("{CHUNKED}00000\r\n\r\n"),
        &limits,
        expect!["head POST / HTTP/1.1; host h; chunked; content 0; keep-alive"],
    );
    check_limits(
        format!("{CHUNKED}000000\r\n\r\n"),
        &limits,
        expect!["head POST / HTTP/1.1; host h; chunked; refused 400 ChunkLineTooLong"],
    );
    check_limits(
        format!("{CHUNKED}0;abc\r\n\r\n"),
        &limits,
        expect!["head POST / HTTP/1.1; host h; chunked; content 0; keep-alive"],
    );
    check_limits(
        format!("{CHUNKED}0;abcd\r\n\r\n"),
        &limits,
        expect!["head POST / HTTP/1.1; host h; chunked; refused 400 ChunkLineTooLong"],
    );
}

#[test]
fn chunk_extensions_have_a_total() {
    let limits = Limits { chunk_extension_bytes_max: 6, ..Limits::default() };
    check_limits(
        format!("{CHUNKED}1;a\r\nx\r\n1;b\r\ny\r\n0;c\r\n\r\n"),
        &limits,
        expect!["head POST / HTTP/1.1; host h; chunked; content 2 xy; keep-alive"],
    );
    check_limits(
        format!("{CHUNKED}1;a\r\nx\r\n1;b\r\ny\r\n0;cd\r\n\r\n"),
        &limits,
        expect!["head POST / HTTP/1.1; host h; chunked; refused 400 ChunkExtensionsTooLong"],
    );
    // The space before the semicolon counts as well.
    check_limits(
        format!("{CHUNKED}0 ;abcd\r\n\r\n"),
        &limits,
        expect!["head POST / HTTP/1.1; host h; chunked; content 0; keep-alive"],
    );
    check_limits(
        format!("{CHUNKED}0 ;abcde\r\n\r\n"),
        &limits,
        expect!["head POST / HTTP/1.1; host h; chunked; refused 400 ChunkExtensionsTooLong"],
    );
}

#[test]
fn an_empty_trailer_section_has_two_bytes() {
    for (trailer_bytes_max, outcome) in [
        (0, "refused 431 TrailerTooLong"),
        (1, "refused 431 TrailerTooLong"),
        (2, "content 0; keep-alive"),
    ] {
        let limits = Limits { trailer_bytes_max, ..Limits::default() };
        let found = events(&[format!("{CHUNKED}0\r\n\r\n").as_bytes()], &limits);
        assert_eq!(found.join("; "), format!("head POST / HTTP/1.1; host h; chunked; {outcome}"));
    }
}

#[test]
fn a_trailer_section_has_a_longest_length_and_a_largest_number_of_fields() {
    let limits = Limits { trailer_bytes_max: 8, fields_max: 2, ..Limits::default() };
    check_limits(
        format!("{CHUNKED}0\r\na: b\r\n\r\n"),
        &limits,
        expect!["head POST / HTTP/1.1; host h; chunked; content 0; trailer a: b; keep-alive"],
    );
    check_limits(
        format!("{CHUNKED}0\r\na: bc\r\n\r\n"),
        &limits,
        expect!["head POST / HTTP/1.1; host h; chunked; refused 431 TrailerTooLong"],
    );
    let limits = Limits { fields_max: 2, ..Limits::default() };
    check_limits(
        format!("{CHUNKED}0\r\na: b\r\na: b\r\na: b\r\n\r\n"),
        &limits,
        expect!["head POST / HTTP/1.1; host h; chunked; refused 431 TooManyFields"],
    );
}
