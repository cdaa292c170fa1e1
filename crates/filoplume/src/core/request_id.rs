//! The ID of a request.

use std::fmt;
use std::hash::{Hash, Hasher};

/// Longest ID. A W3C `traceparent` has 55 characters.
pub(crate) const ID_BYTES_MAX: usize = 64;

/// The ID of a request, from [`RequestIds`](crate::middleware::RequestIds). If a handler takes it
/// without that middleware, the app does not start. Middleware finds it in the
/// [context](crate::Context::request_id).
///
/// ```
/// use filoplume::middleware::{RequestId, RequestIds};
/// use filoplume::prelude::*;
///
/// let app = App::new()
///     .get("/help", |id: RequestId| format!("Tell us this number: {}", id.as_str()))
///     .with(RequestIds::new().trust_incoming(true));
/// app.test()
///     .get("/help")
///     .header("x-request-id", "17")
///     .send()
///     .assert_text("Tell us this number: 17");
/// ```
#[derive(Clone)]
pub struct RequestId {
    /// ASCII. It is stored here because an allocation for each request would cost more than a copy.
    bytes: [u8; ID_BYTES_MAX],
    len: u8,
}

impl RequestId {
    /// Returns an ID, or `None` if it is empty, too long, or unsafe in logs and headers: it must
    /// consist of letters, digits and `-_.:/+=@`, so it has no spaces, quotes or control
    /// characters.
    pub(crate) fn new(id: &str) -> Option<Self> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(&byte);
        let is_safe = !id.is_empty() && id.bytes().all(is_allowed);
        let mut bytes = [0; ID_BYTES_MAX];
        bytes.get_mut(..id.len()).filter(|_| is_safe)?.copy_from_slice(id.as_bytes());
        Some(Self { bytes, len: u8::try_from(id.len()).ok()? })
    }

    /// Returns an ID of 32 hexadecimal digits: those of a number, and 16 more.
    #[inline]
    pub(crate) fn of_digits(first: u64, last: &[u8; 16]) -> Self {
        let mut bytes = [0; ID_BYTES_MAX];
        bytes[..16].copy_from_slice(&digits(first));
        bytes[16..32].copy_from_slice(last);
        Self { bytes, len: 32 }
    }

    /// Returns the ID.
    #[inline]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// Returns the hexadecimal digits of a number, the highest first. It works on eight digits at a
/// time, because each request has an ID.
#[inline]
pub(crate) fn digits(number: u64) -> [u8; 16] {
    let mut digits = [0; 16];
    let (high, low) = (number >> 32, number & 0xffff_ffff);
    digits[..8].copy_from_slice(&eight_digits(high).to_be_bytes());
    digits[8..].copy_from_slice(&eight_digits(low).to_be_bytes());
    digits
}

/// Returns the digits of a number of 32 bits, one per byte.
#[inline]
fn eight_digits(number: u64) -> u64 {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    // Moves the digits apart: halves, then quarters, then single digits.
    let apart = (number << 16 | number) & 0x0000_ffff_0000_ffff;
    let apart = (apart << 8 | apart) & 0x00ff_00ff_00ff_00ff;
    let apart = (apart << 4 | apart) & 0x0f0f_0f0f_0f0f_0f0f;
    // 1 for each digit from 10 on. No sum carries into the next byte.
    let letters = ((apart + ONES * 6) >> 4) & ONES;
    apart + ONES * u64::from(b'0') + letters * u64::from(b'a' - b'0' - 10)
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RequestId").field(&self.as_str()).finish()
    }
}

impl PartialEq for RequestId {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for RequestId {}

impl Hash for RequestId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_safe_ids_are_accepted() {
        for good in ["a", "7f-A_b.c:d/e+f=@", &"x".repeat(64)] {
            assert_eq!(RequestId::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "a b", "a\"b", "a\tb", "ä", "a,b", "<script>", &"x".repeat(65)] {
            assert_eq!(RequestId::new(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_id_of_digits_begins_with_those_of_the_number() {
        let id = RequestId::of_digits(0x0001_0f10_7f80_feff, b"a23456789abcdef0");
        assert_eq!(id, RequestId::new("00010f107f80feffa23456789abcdef0").unwrap());
        assert_ne!(id, RequestId::new("00010f107f80feffa23456789abcdef").unwrap());
        let numbers = (0..64).flat_map(|bit| [1 << bit, u64::MAX >> bit, 0x9a_9a9a_9a9a << bit]);
        for number in numbers.chain([0]) {
            assert_eq!(digits(number), *format!("{number:016x}").as_bytes());
        }
    }
}
