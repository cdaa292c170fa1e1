//! Parses amounts from the command line, and formats them for reports.

use std::time::Duration;

/// Nanoseconds: a point in time, counted from the start of the run, or a length of time.
pub(crate) type Nanos = u64;

pub(crate) const SECOND: Nanos = 1_000_000_000;
pub(crate) const MICROSECOND: Nanos = 1000;
pub(crate) const MILLISECOND: Nanos = 1_000_000;

pub(crate) fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Parses `10s`, `500ms`, `1.5m` or `2h`. A number without a unit is in seconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim() {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("{text:?} is not a duration such as 10s, 500ms or 2m")),
    };
    let seconds = number
        .parse::<f64>()
        .map_err(|_| format!("{text:?} is not a duration such as 10s or 500ms"))?;
    Duration::try_from_secs_f64(seconds * factor).map_err(|_| format!("{text:?} is too long"))
}

/// Parses `1000`, `100k` or `1.5M`.
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    let count = parse_number(text)?;
    if count.fract() != 0.0 || count > 9e15 {
        return Err(format!("{text:?} is not a whole number"));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole, small and not negative"
    )]
    Ok(count as u64)
}

/// Parses a count greater than zero, which may have a fraction.
pub(crate) fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = parse_number(text.trim_end_matches("/s"))?;
    if rate > 0.0 && rate <= 1e9 {
        Ok(rate)
    } else {
        Err(format!("{text:?} is not a rate between 0 and 1,000,000,000"))
    }
}

/// Parses `5%` or `0.05`.
pub(crate) fn parse_share(text: &str) -> Result<f64, String> {
    let (number, divisor) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let share =
        number.trim().parse::<f64>().ok().filter(|share| share.is_finite() && *share >= 0.0);
    share
        .map(|share| share / divisor)
        .ok_or_else(|| format!("{text:?} is not a share such as 5% or 0.05"))
}

fn parse_number(text: &str) -> Result<f64, String> {
    let (number, factor) = match text.chars().last() {
        Some('k' | 'K') => (&text[..text.len() - 1], 1e3),
        Some('m' | 'M') => (&text[..text.len() - 1], 1e6),
        _ => (text, 1.0),
    };
    let is_plain =
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let parsed = number.parse::<f64>().ok().filter(|_| is_plain);
    parsed
        .map(|number| number * factor)
        .ok_or_else(|| format!("{text:?} is not a number such as 1000 or 10k"))
}

/// Formats a count: `1,234,567`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a rate: a whole number from 100, with a fraction below.
pub(crate) fn rate(per_second: f64) -> String {
    if per_second < 100.0 {
        return format!("{per_second:.2}");
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates are far below 2^64"
    )]
    count(per_second.round() as u64)
}

/// Formats a time with three digits and a unit: `812 ns`, `1.23 ms`, `12.3 s`.
pub(crate) fn time(nanos: f64) -> String {
    let (value, unit) = match nanos {
        _ if nanos < 999.5 => return format!("{nanos:.0} ns"),
        _ if nanos < 999_500.0 => (nanos / 1e3, "µs"),
        _ if nanos < 999_500_000.0 => (nanos / 1e6, "ms"),
        _ => (nanos / 1e9, "s"),
    };
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {unit}")
}

/// Formats a number of bytes: `812 B`, `1.23 KiB`, `45.6 MiB`.
pub(crate) fn bytes(bytes: f64) -> String {
    let (value, unit) = match bytes {
        _ if bytes < 1024.0 => return format!("{bytes:.0} B"),
        _ if bytes < 1024.0 * 1024.0 => (bytes / 1024.0, "KiB"),
        _ if bytes < 1024.0 * 1024.0 * 1024.0 => (bytes / 1024.0 / 1024.0, "MiB"),
        _ => (bytes / 1024.0 / 1024.0 / 1024.0, "GiB"),
    };
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {unit}")
}

/// Formats a share: `0.05` as `5 %`.
pub(crate) fn share(share: f64) -> String {
    let percent = share * 100.0;
    if percent == percent.round() { format!("{percent:.0} %") } else { format!("{percent:.1} %") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        let of = |text| parse_duration(text).ok().map(|duration| duration.as_millis());
        assert_eq!(of("10"), Some(10_000));
        assert_eq!(of("10s"), Some(10_000));
        assert_eq!(of("1.5s"), Some(1500));
        assert_eq!(of("250ms"), Some(250));
        assert_eq!(of("2m"), Some(120_000));
        assert_eq!(of("1h"), Some(3_600_000));
        for microseconds in ["150us", "150µs", "0.15ms"] {
            assert_eq!(parse_duration(microseconds), Ok(Duration::from_micros(150)));
        }
        for bad in ["", "s", "-1s", "10 parsecs", "1e400s", "1.2.3s"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }

    #[test]
    fn counts_and_rates_may_be_abbreviated() {
        assert_eq!(parse_count("1000000"), Ok(1_000_000));
        assert_eq!(parse_count("1.5k"), Ok(1500));
        assert_eq!(parse_count("2M"), Ok(2_000_000));
        assert!(
            ["", "k", "1.5", "-1", "inf", "1e3"].into_iter().all(|bad| parse_count(bad).is_err())
        );
        assert_eq!(parse_rate("20k"), Ok(20_000.0));
        // A float has every whole number up to here.
        assert_eq!(parse_count("9000000000000000"), Ok(9_000_000_000_000_000));
        assert!(parse_count("9000000000000001").is_err());
        assert_eq!(parse_rate("1000M"), Ok(1e9));
        assert!(parse_rate("1001M").is_err());
        assert_eq!(parse_rate("0.5/s"), Ok(0.5));
        assert!(["0", "NaN", "-5", "2000000k"].into_iter().all(|bad| parse_rate(bad).is_err()));
        assert_eq!(parse_share("5%"), Ok(0.05));
        assert_eq!(parse_share("0.05"), Ok(0.05));
        assert!(["-5%", "inf", "NaN%", ""].into_iter().all(|bad| parse_share(bad).is_err()));
    }

    #[test]
    fn amounts_are_formatted_for_people() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0.5, 99.5, 152_340.4].map(rate), ["0.50", "99.50", "152,340"]);
        assert_eq!([100.0, 999.4].map(rate), ["100", "999"]);
        assert_eq!(
            [0.0, 812.0, 999.6, 1234.0, 12_340.0, 123_400.0, 1_234_000.0, 12.34e9].map(time),
            ["0 ns", "812 ns", "1.00 µs", "1.23 µs", "12.3 µs", "123 µs", "1.23 ms", "12.3 s"]
        );
        assert_eq!([1.0, 2048.0, 1e8].map(bytes), ["1 B", "2.00 KiB", "95.4 MiB"]);
        let unit = 1024.0 * 1024.0;
        assert_eq!(
            [1023.0, 1024.0, 1023.0 * 1024.0, unit, 1023.0 * unit, 1024.0 * unit].map(bytes),
            ["1023 B", "1.00 KiB", "1023 KiB", "1.00 MiB", "1023 MiB", "1.00 GiB"]
        );
        assert_eq!([0.05, 0.125, 1.0].map(share), ["5 %", "12.5 %", "100 %"]);
    }

    #[test]
    fn a_time_has_three_digits_on_both_sides_of_each_boundary() {
        for (unit, name) in [(1.0, "µs"), (1e3, "ms"), (1e6, "s")] {
            for (thousandths, shown) in [
                (1000.0, "1.00"),
                (9994.0, "9.99"),
                (9995.0, "10.0"),
                (99_940.0, "99.9"),
                (99_950.0, "100"),
                (999_400.0, "999"),
            ] {
                assert_eq!(time(thousandths * unit), format!("{shown} {name}"));
            }
        }
    }

    #[test]
    fn a_time_that_is_rounded_up_to_the_next_unit_has_it() {
        for (nanos, shown) in [
            (999.4, "999 ns"),
            (999.5, "1.00 µs"),
            (999_499.0, "999 µs"),
            (999_500.0, "1.00 ms"),
            (999_499_000.0, "999 ms"),
            (999_500_000.0, "1.00 s"),
        ] {
            assert_eq!(time(nanos), shown, "{nanos}");
        }
    }
}
