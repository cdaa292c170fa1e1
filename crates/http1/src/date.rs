//! The value of the `Date` field.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point in time as HTTP writes it (IMF-fixdate, RFC 9110 section 5.6.7).
///
/// It has a resolution of one second, so it can be created once per second and reused.
///
/// ```
/// use filoplume_http1::Date;
///
/// let date = Date::new(std::time::UNIX_EPOCH);
/// assert_eq!(date.as_bytes(), b"Thu, 01 Jan 1970 00:00:00 GMT");
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Date {
    /// The complete field line, followed by `content-length: `. That field follows the date in most
    /// responses, so both are copied at once.
    line: [u8; LINE_BYTES + LENGTH_NAME_BYTES],
}

/// The length of the bytes before the value: the name, a colon and a space.
const NAME_BYTES: usize = 6;

/// The length of the field line with its line end.
const LINE_BYTES: usize = 37;

/// The length of `content-length`, a colon and a space.
const LENGTH_NAME_BYTES: usize = 16;

/// The last second of the last year with four digits, 9999-12-31T23:59:59Z.
const SECONDS_MAX: u64 = 253_402_300_799;

impl Date {
    /// Returns the date of a point in time. A time before 1970 or after 9999 is clamped to that
    /// bound, because a wrong clock must not stop a server.
    pub fn new(time: SystemTime) -> Self {
        let seconds =
            time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()).min(SECONDS_MAX);
        let clamped = UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap_or(UNIX_EPOCH);
        let mut line = *b"date: Thu, 01 Jan 1970 00:00:00 GMT\r\ncontent-length: ";
        let (_, mut unwritten) = line.split_at_mut(NAME_BYTES);
        // The format has a fixed width, so the write fits and cannot fail.
        let _ = std::io::Write::write_fmt(
            &mut unwritten,
            format_args!("{}", httpdate::HttpDate::from(clamped)),
        );
        Self { line }
    }

    /// Returns the 29 bytes of the field value.
    #[inline]
    pub fn as_bytes(&self) -> &[u8; 29] {
        self.line.split_at(NAME_BYTES).1.first_chunk().unwrap_or(&[b' '; 29])
    }

    /// Returns the complete field line with its line end.
    #[inline]
    pub(crate) fn line(&self) -> &[u8] {
        self.line.split_at(LINE_BYTES).0
    }

    /// Returns the complete field line with its line end, and `content-length: `. The caller must
    /// append the length.
    #[inline]
    pub(crate) const fn line_and_length_name(&self) -> &[u8; LINE_BYTES + LENGTH_NAME_BYTES] {
        &self.line
    }
}

impl fmt::Debug for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Date({})", String::from_utf8_lossy(self.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(time: SystemTime) -> String {
        String::from_utf8(Date::new(time).as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn a_point_in_time_is_written_as_imf_fixdate() {
        assert_eq!(
            text(UNIX_EPOCH + Duration::from_secs(784_111_777)),
            "Sun, 06 Nov 1994 08:49:37 GMT"
        );
    }

    #[test]
    fn debug_shows_the_date_as_text() {
        assert_eq!(format!("{:?}", Date::new(UNIX_EPOCH)), "Date(Thu, 01 Jan 1970 00:00:00 GMT)");
    }

    #[test]
    fn a_time_before_the_epoch_or_after_9999_is_clamped() {
        assert_eq!(text(UNIX_EPOCH - Duration::from_secs(1)), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(
            text(UNIX_EPOCH + Duration::from_secs(SECONDS_MAX + 1)),
            "Fri, 31 Dec 9999 23:59:59 GMT"
        );
    }
}
