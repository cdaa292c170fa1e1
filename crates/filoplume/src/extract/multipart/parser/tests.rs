//! Forms, valid and invalid, split at every position.

#![allow(clippy::needless_pass_by_value, reason = "rows read better with values")]

use std::io;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

/// A reader that returns at most this many bytes at a time.
struct Pieces<'a> {
    rest: &'a [u8],
    size: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.size.min(buffer.len()).min(self.rest.len());
        let (piece, rest) = self.rest.split_at(size);
        buffer[..size].copy_from_slice(piece);
        self.rest = rest;
        Ok(size)
    }
}

/// Returns the events of a form, one line per part.
fn events(reader: impl Read, limits: MultipartLimits) -> String {
    let mut parser = Parser::new(reader, "b", limits);
    let mut lines = Vec::new();
    loop {
        match part(&mut parser) {
            Ok(Some(line)) => lines.push(line),
            Ok(None) => break,
            Err(rejection) => {
                lines.push(format!("refused: {rejection}"));
                assert_eq!(
                    parser.next_part().unwrap_err().to_string(),
                    rejection.to_string(),
                    "it stays so"
                );
                break;
            }
        }
    }
    lines.join("\n")
}

fn part<R: Read>(parser: &mut Parser<R>) -> Result<Option<String>> {
    if !parser.next_part()? {
        return Ok(None);
    }
    let mut content = Vec::new();
    loop {
        let some = parser.content()?;
        if some.is_empty() {
            return Ok(Some(format!("{}={}", parser.head.name, content.escape_ascii())));
        }
        let count = some.len();
        content.extend_from_slice(some);
        parser.consume(count);
    }
}

/// The same bytes must have the same meaning wherever they are split.
#[track_caller]
fn check_limits(input: &[u8], limits: &MultipartLimits, expected: Expect) {
    let whole = events(input, limits.clone());
    expected.assert_eq(&whole);
    for size in 1..=input.len().min(64) {
        assert_eq!(
            events(Pieces { rest: input, size }, limits.clone()),
            whole,
            "in pieces of {size}"
        );
    }
    for cut in 0..input.len().min(512) {
        let (first, second) = input.split_at(cut);
        assert_eq!(events(first.chain(second), limits.clone()), whole, "cut at {cut}");
    }
}

#[track_caller]
fn check(input: &str, expected: Expect) {
    check_limits(input.as_bytes(), &MultipartLimits::new(), expected);
}

/// Pieces from which random forms are made.
const FRAGMENTS: [&str; 9] = ["\r\n--b", "--", "\r", "\n", "\r\n", "\r\n--b--", A, ":", " "];

const A: &str = "--b\r\nContent-Disposition: form-data; name=a\r\n\r\n";

#[test]
fn parts_lie_between_delimiters() {
    check("--b--", expect![""]);
    check(&format!("{A}1\r\n--b--\r\n"), expect!["a=1"]);
    check(&format!("{A}1\r\n{A}2\r\n--b--"), expect!["a=1\na=2"]);
    check(&format!("a preamble\r\n{A}1\r\n--b--\r\nan epilogue\r\n{A}"), expect!["a=1"]);
    check(&format!("{A}\r\n--b--"), expect!["a="]);
    check(&format!("{A}--b--"), expect!["a="]);
    check(
        &A.replace("--b\r\n", "--b \t \r\n").replace("a\r\n\r\n", "a\r\n\r\n1\r\n--b--"),
        expect!["a=1"],
    );
}

#[test]
fn lines_similar_to_a_delimiter_are_content() {
    check(
        &format!("{A}\r\n--\r\n-b\r--b\n--b--\r\r\n--B--b\r\n\r\n--b--"),
        expect![[r#"a=\r\n--\r\n-b\r--b\n--b--\r\r\n--B--b\r\n"#]],
    );
    check(&format!("{A}--a\r\n--b--"), expect!["a=--a"]);
    check(&format!("{A}\r\n\r\n\r\n--b--"), expect![[r"a=\r\n\r\n"]]);
}

#[test]
fn a_delimiter_with_trailing_text_is_rejected() {
    check(
        &format!("{A}1\r\n--bb\r\n--b--"),
        expect![
            "a=1\nrefused: the form is malformed in part 1, at byte 53: a boundary is followed by \
             neither a line end nor `--`"
        ],
    );
    check(
        &format!("{A}1\r\n--b-\r\n--b--"),
        expect![
            "a=1\nrefused: the form is malformed in part 1, at byte 53: a boundary is followed by \
             neither a line end nor `--`"
        ],
    );
    check(
        &format!("{A}1\r\n--b --\r\n"),
        expect![
            "a=1\nrefused: the form is malformed in part 1, at byte 53: a boundary is followed by \
             neither a line end nor `--`"
        ],
    );
    check(
        &format!("{A}1\r\n--b\n\r\n--b--"),
        expect![
            "a=1\nrefused: the form is malformed in part 1, at byte 53: a boundary is followed by \
             neither a line end nor `--`"
        ],
    );
}

#[test]
fn a_form_that_ends_early_is_rejected() {
    check(
        "",
        expect![
            "refused: the form is malformed before the first part, at byte 0: it ends before the \
             final boundary"
        ],
    );
    check(
        "no delimiter at all",
        expect![
            "refused: the form is malformed before the first part, at byte 19: it ends before the \
             final boundary"
        ],
    );
    check(
        &A[..A.len() - 2],
        expect![
            "refused: the form is malformed in part 1, at byte 45: it ends before the final \
             boundary"
        ],
    );
    check(
        A,
        expect![
            "refused: the form is malformed in part 1, at byte 47: it ends before the final \
             boundary"
        ],
    );
    check(
        &format!("{A}1"),
        expect![
            "refused: the form is malformed in part 1, at byte 48: it ends before the final \
             boundary"
        ],
    );
    check(
        &format!("{A}1\r\n--b"),
        expect![[r#"
        a=1
        refused: the form is malformed in part 1, at byte 53: it ends before the final boundary"#]],
    );
    check(
        &format!("{A}1\r\n--b-"),
        expect![[r#"
        a=1
        refused: the form is malformed in part 1, at byte 54: it ends before the final boundary"#]],
    );
}

#[test]
fn a_part_needs_a_name() {
    check(
        "--b\r\n\r\n1\r\n--b--",
        expect![
            "refused: the form is malformed in part 1, at byte 3: the head of the part needs \
             one `Content-Disposition: form-data` with one name"
        ],
    );
    check(
        "--b\r\nContent-Type: text/plain\r\n\r\n1\r\n--b--",
        expect![
            "refused: the form is malformed in part 1, at byte 3: the head of the part needs \
             one `Content-Disposition: form-data` with one name"
        ],
    );
    check(
        &A.replace("name=a", "name=\0"),
        expect![
            "refused: the form is malformed in part 1, at byte 3: the head of the part is malformed"
        ],
    );
}

#[test]
fn a_form_in_a_form_is_content() {
    let nested = "--c\r\nContent-Disposition: file; filename=x\r\n\r\n1\r\n--c--";
    check(
        &format!("{A}{nested}\r\n--b--"),
        expect![[r#"a=--c\r\nContent-Disposition: file; filename=x\r\n\r\n1\r\n--c--"#]],
    );
}

#[test]
fn limits_are_kept() {
    let form = format!("{A}12345\r\n{A}1\r\n--b--");
    let check = |limits, expected| check_limits(form.as_bytes(), &limits, expected);
    check(
        MultipartLimits::new().parts_max(2).field_bytes_max(5).head_bytes_max(38),
        expect!["a=12345\na=1"],
    );
    check(
        MultipartLimits::new().parts_max(1),
        expect![[r#"
        a=12345
        refused: the form has more than the 1 parts that are accepted"#]],
    );
    check(
        MultipartLimits::new().head_bytes_max(37),
        expect!["refused: the head of part 1 is longer than the 37 bytes that are accepted"],
    );
    let length = form.len() as u64;
    check(MultipartLimits::new().total_bytes_max(length), expect!["a=12345\na=1"]);
}

/// The length of a field counts in all, however it arrives.
#[test]
fn a_field_is_as_long_as_all_its_pieces() {
    check_limits(
        format!("{A}12345\r\n--b--").as_bytes(),
        &MultipartLimits::new().field_bytes_max(4),
        expect!["refused: `a` is longer than the 4 bytes that are accepted"],
    );
}

#[test]
fn a_boundary_may_be_padded_up_to_a_limit() {
    let padded = |count| {
        let form = format!("{A}1\r\n--b{}{}2\r\n--b--", " ".repeat(count), &A[3..]);
        events(form.as_bytes(), MultipartLimits::new())
    };
    assert_eq!(padded(PADDING_BYTES_MAX), "a=1\na=2");
    assert!(padded(PADDING_BYTES_MAX + 1).starts_with("a=1\nrefused: "));
}

#[test]
fn a_dash_after_the_padding_of_a_boundary_is_wrong_at_once() {
    check(
        &format!("{A}1\r\n--b -"),
        expect![[r#"
        a=1
        refused: the form is malformed in part 1, at byte 53: a boundary is followed by neither a line end nor `--`"#]],
    );
}

#[test]
fn a_read_that_was_interrupted_is_repeated() {
    struct Interrupted(bool);
    impl Read for Interrupted {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            let is_second = std::mem::replace(&mut self.0, true);
            if is_second { Ok(0) } else { Err(ErrorKind::Interrupted.into()) }
        }
    }
    let form = format!("{A}1\r\n--b--");
    let (begin, end) = form.as_bytes().split_at(20);
    let reader = begin.chain(Interrupted(false)).chain(end);
    assert_eq!(events(reader, MultipartLimits::new()), "a=1");
}

#[test]
fn long_input_is_rejected_before_it_has_arrived() {
    let endless = |text: &str, repeated: u8| {
        events(text.as_bytes().chain(io::repeat(repeated)), MultipartLimits::new())
    };
    expect!["refused: the head of part 1 is longer than the 8192 bytes that are accepted"]
        .assert_eq(&endless("--b\r\nContent-Disposition: form-data; name=", b'x'));
    expect![
        "refused: the form is malformed before the first part, at byte 3: a boundary is followed \
         by neither a line end nor `--`"
    ]
    .assert_eq(&endless("--b", b' '));
    expect!["refused: the form is longer than the 67108864 bytes that are accepted"]
        .assert_eq(&endless(A, b'x'));
    expect!["refused: the form is longer than the 67108864 bytes that are accepted"]
        .assert_eq(&endless("", b'\r'));
}

#[test]
fn unread_parts_are_skipped_in_constant_memory() {
    let mut form = A.as_bytes().to_vec();
    form.resize(8 * 1024 * 1024, b'\r');
    form.extend_from_slice(
        b"\r\n--b\r\nContent-Disposition: form-data; name=c\r\n\r\nlast\r\n--b--",
    );
    let mut parser = Parser::new(&form[..], "b", MultipartLimits::new());
    assert!(parser.next_part().unwrap());
    parser.content().unwrap();
    parser.consume(1);
    assert!(parser.next_part().unwrap());
    assert_eq!(parser.content().unwrap(), b"last");
    assert!(parser.buffer.capacity() < 64 * 1024, "{} bytes", parser.buffer.capacity());
}

proptest! {
    #[test]
    fn the_whole_and_its_pieces_mean_the_same(
        pieces in proptest::collection::vec(
            prop_oneof![
                prop::sample::select(FRAGMENTS.as_slice()).prop_map(str::to_owned),
                Just(format!("\r\n{A}")),
                "[a-c\r\n-]{0,8}",
            ],
            0..24,
        ),
        size in 1..40_usize,
    ) {
        let input = pieces.concat();
        let whole = events(input.as_bytes(), MultipartLimits::new());
        let pieces = Pieces { rest: input.as_bytes(), size };
        prop_assert_eq!(events(pieces, MultipartLimits::new()), whole);
    }

    #[test]
    fn fields_round_trip(
        fields in proptest::collection::vec("[ -~\r\n]{0,60}", 0..6),
        size in 1..100_usize,
    ) {
        prop_assume!(fields.iter().all(|field| !format!("\r\n{field}").contains("\r\n--b")));
        let parts: Vec<_> = fields.iter().map(|field| format!("{A}{field}\r\n")).collect();
        let form = format!("{}--b--\r\n", parts.concat());
        let expected: Vec<_> = fields
            .iter()
            .map(|field| format!("a={}", field.as_bytes().escape_ascii()))
            .collect();
        let reader = Pieces { rest: form.as_bytes(), size };
        prop_assert_eq!(events(reader, MultipartLimits::new()), expected.join("\n"));
    }

    #[test]
    fn nothing_panics(input in proptest::collection::vec(any::<u8>(), 0..200)) {
        events(&input[..], MultipartLimits::new());
        let limits = MultipartLimits::new().total_bytes_max(150).field_bytes_max(40);
        events(A.as_bytes().chain(&input[..]), limits);
        let _ = PartHead::parse(&input);
    }
}
