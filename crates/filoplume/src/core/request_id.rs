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

    /// Returns an ID of hexadecimal digits, two for each byte, the first byte first.
    #[inline]
    pub(crate) fn of_bytes(id: [u8; 16]) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut bytes = [0; ID_BYTES_MAX];
        for (digits, byte) in bytes.chunks_exact_mut(2).zip(id) {
            digits[0] = DIGITS[usize::from(byte >> 4)];
            digits[1] = DIGITS[usize::from(byte & 15)];
        }
        Self { bytes, len: 32 }
    }

    /// Returns the ID.
    #[inline]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    #[inline]
    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
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
    fn bytes_become_digits_in_their_order() {
        let id = RequestId::of_bytes(*b"\x00\x01\x0f\x10\x7f\x80\xfe\xff........");
        assert_eq!(id.as_str(), "00010f107f80feff2e2e2e2e2e2e2e2e");
        assert_eq!(id, RequestId::new("00010f107f80feff2e2e2e2e2e2e2e2e").unwrap());
        assert_ne!(id, RequestId::new("00010f107f80feff2e2e2e2e2e2e2e2").unwrap());
    }
}
