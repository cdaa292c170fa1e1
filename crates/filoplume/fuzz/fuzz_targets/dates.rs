//! Dates are written as a separate calendar computes them, all three forms are read as the same
//! time, and a value that is no date is ignored.

#![no_main]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use filoplume::conditional::{Conditions, Validators, Verdict};
use filoplume::{Headers, Method};
use filoplume_http1::Date;
use libfuzzer_sys::fuzz_target;

const DAY: u64 = 86_400;

/// The first second with a year of five digits.
const END: u64 = 253_402_300_800;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

struct Calendar {
    year: u64,
    month: usize,
    day: u64,
    weekday: usize,
    clock: String,
}

/// Counts years and months, as people do.
fn calendar(seconds: u64) -> Calendar {
    let mut days = seconds / DAY;
    // 1 January 1970 was a Thursday.
    let weekday = usize::try_from((days + 3) % 7).expect("it is below 7");
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    // Four centuries have a whole number of days.
    year += days / 146_097 * 400;
    days %= 146_097;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    let clock = format!("{hours:02}:{minutes:02}:{:02}", seconds % 60);
    Calendar { year, month, day: days + 1, weekday, clock }
}

/// Returns whether content that was changed at `changed` counts as unchanged since `value`. Returns
/// `None` if `value` cannot be sent.
fn is_unchanged_since(value: &[u8], changed: SystemTime) -> Option<bool> {
    let mut headers = Headers::new();
    headers.append("if-modified-since", value).ok()?;
    let current = Validators::new().last_modified(changed);
    match Conditions::of(&headers).evaluate(&Method::GET, Some(&current)) {
        Verdict::NotModified => Some(true),
        Verdict::Proceed => Some(false),
        verdict => panic!("{verdict:?}"),
    }
}

fuzz_target!(|input: &[u8]| {
    // A point in time is written.
    let number = input.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte));
    let seconds = number % END;
    let time = UNIX_EPOCH + Duration::from_secs(seconds);
    let Calendar { year, month, day, weekday, clock } = calendar(seconds);
    let (month, weekday) = (MONTHS[month], DAYS[weekday]);
    let short = &weekday[..3];
    let fixdate = format!("{short}, {day:02} {month} {year:04} {clock} GMT");
    assert_eq!(Date::new(time).as_bytes(), fixdate.as_bytes());
    assert_eq!(Date::new(time + Duration::from_millis(999)).as_bytes(), fixdate.as_bytes());
    assert_eq!(
        Validators::new().last_modified(time).last_modified_value().as_deref(),
        Some(&*fixdate)
    );

    // The same time is read, in the form of today and in the two that are obsolete (RFC 9110,
    // 5.6.7).
    let obsolete = format!("{weekday}, {day:02}-{month}-{:02} {clock} GMT", year % 100);
    let asctime = format!("{short} {month} {day:2} {clock} {year:04}");
    let is_recent = (1970..2069).contains(&year);
    for (form, is_known) in [(&fixdate, true), (&asctime, true), (&obsolete, is_recent)] {
        if !is_known {
            continue;
        }
        assert_eq!(is_unchanged_since(form.as_bytes(), time), Some(true), "{form}");
        if seconds + 1 < END {
            assert_eq!(
                is_unchanged_since(form.as_bytes(), time + Duration::from_secs(1)),
                Some(false),
                "{form}"
            );
        }
        if seconds > 0 {
            assert_eq!(
                is_unchanged_since(form.as_bytes(), time - Duration::from_secs(1)),
                Some(true),
                "{form}"
            );
        }
    }

    // The input is one point in time, or no date. If it is no date, no content counts as unchanged.
    let epoch = is_unchanged_since(input, UNIX_EPOCH);
    let parsed = std::str::from_utf8(input.trim_ascii())
        .ok()
        .and_then(|text| httpdate::parse_http_date(text).ok());
    if let (Some(unchanged), true) = (epoch, input == input.trim_ascii()) {
        assert_eq!(unchanged, parsed.is_some_and(|date| date >= UNIX_EPOCH));
    }
    if let (Some(date), Some(true)) = (parsed, epoch) {
        assert_eq!(is_unchanged_since(input, date), Some(true));
        if date < UNIX_EPOCH + Duration::from_secs(END - 1) {
            assert_eq!(is_unchanged_since(input, date + Duration::from_secs(1)), Some(false));
        }
        // The input and the date that was parsed from it mean the same.
        let again = httpdate::fmt_http_date(date);
        assert_eq!(is_unchanged_since(again.as_bytes(), date), Some(true));
    }
});
