//! The time at which a message was sent, as the message itself says.
//!
//! A server that wants its broadcasts measured writes the time into each message: microseconds
//! since 1970-01-01 (UTC), as a number of 16 digits anywhere in the first 128 bytes. Numbers with
//! more or fewer digits are ignored. This works in JSON as well as in plain text, until the year
//! 2286.

/// Where the number has to be. Longer messages need not be kept to find it.
pub(crate) const SEARCHED_BYTES: usize = 128;

/// The digits of the microseconds since 1970, from 2001 to 2286.
const DIGITS: usize = 16;

/// Returns when a message was sent, in microseconds since 1970.
pub(crate) fn sent_at(message: &[u8]) -> Option<u64> {
    let start = message.get(..SEARCHED_BYTES).unwrap_or(message);
    let mut runs = start.split(|byte| !byte.is_ascii_digit());
    let digits = runs.find(|run| run.len() == DIGITS)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_of_16_digits_near_the_start() {
        for (message, expected) in [
            ("1763835000123456", Some(1_763_835_000_123_456)),
            (r#"{"n":17,"t":1763835000123456}"#, Some(1_763_835_000_123_456)),
            ("176383500012345 1763835000123457 hello", Some(1_763_835_000_123_457)),
            ("17638350001234567", None),
            ("hello", None),
            ("", None),
        ] {
            assert_eq!(sent_at(message.as_bytes()), expected, "{message}");
        }
        let far = format!("{}1763835000123456", "x".repeat(SEARCHED_BYTES - 15));
        assert_eq!(sent_at(far.as_bytes()), None);
    }
}
