//! A head gives the same result at every split, and no accepted field contains a line end.

#![no_main]

use filoplume_http1::{Limits, parse_request_head};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let limits =
        Limits { head_bytes_max: 1024, target_bytes_max: 256, fields_max: 40, ..Limits::default() };
    let whole = parse_request_head(input, &limits);
    for cut in 0..input.len() {
        let part = input.get(..cut).expect("the cut is within the input");
        match (parse_request_head(part, &limits), &whole) {
            (Ok(None), _) => {}
            (Ok(Some((_, used))), Ok(Some((_, expected)))) => assert_eq!(used, *expected),
            (Err(error), Err(expected)) => assert_eq!(error, *expected),
            (part, whole) => panic!("{part:?} when cut at {cut}, else {whole:?}"),
        }
    }
    let Ok(Some((head, used))) = whole else {
        return;
    };
    assert!(used <= input.len());
    assert!(head.target().is_ascii() && !head.target().is_empty());
    assert!(head.target().contains(head.path()) || head.path() == "/");
    let _ = (head.query(), head.authority(), head.wants_upgrade(), head.framing());
    for (name, value) in head.headers().iter() {
        assert!(!name.is_empty());
        assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
    }
});
