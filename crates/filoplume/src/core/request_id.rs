//! The ID of a request.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use filoplume_http1::hex_digits;

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

    /// Returns an ID of 32 hexadecimal digits.
    pub(crate) fn of_number(number: u128) -> Self {
        let mut bytes = [0; ID_BYTES_MAX];
        bytes[..32].copy_from_slice(&hex_digits(number));
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

/// The ID of a request, once middleware has given it one. Most IDs are numbers, whose text is made
/// only if somebody asks for it.
#[derive(Default)]
pub(crate) struct IdCell {
    /// The number in two halves. The lower one is 0 if there is no number.
    high: AtomicU64,
    low: AtomicU64,
    text: OnceLock<RequestId>,
}

impl IdCell {
    /// Sets the ID to a number whose lower half is not 0.
    #[inline]
    pub(crate) fn set_number(&self, number: u128) {
        let half = |shift: u32| u64::try_from(number >> shift & u128::from(u64::MAX));
        self.high.store(half(64).unwrap_or_default(), Ordering::Relaxed);
        self.low.store(half(0).unwrap_or_default(), Ordering::Release);
    }

    /// Sets the ID, unless there is one.
    pub(crate) fn set(&self, id: RequestId) {
        self.text.get_or_init(|| id);
    }

    /// Returns the ID if it is a number.
    #[inline]
    pub(crate) fn number(&self) -> Option<u128> {
        let low = self.low.load(Ordering::Acquire);
        let high = self.high.load(Ordering::Relaxed);
        (low != 0).then(|| u128::from(high) << 64 | u128::from(low))
    }

    /// Returns the ID.
    #[inline]
    pub(crate) fn get(&self) -> Option<&RequestId> {
        match self.number() {
            Some(number) => Some(self.text.get_or_init(|| RequestId::of_number(number))),
            None => self.text.get(),
        }
    }
}

impl Clone for IdCell {
    fn clone(&self) -> Self {
        let copy = Self { text: self.text.clone(), ..Self::default() };
        copy.set_number(self.number().unwrap_or_default());
        copy
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
    fn a_number_is_an_id_of_its_digits() {
        let id = RequestId::of_number(0x0001_0f10_7f80_feff_a234_5678_9abc_def0);
        assert_eq!(id, RequestId::new("00010f107f80feffa23456789abcdef0").unwrap());
        assert_ne!(id, RequestId::new("00010f107f80feffa23456789abcdef").unwrap());
    }

    #[test]
    fn a_cell_has_the_text_of_a_number_or_the_one_that_was_given() {
        for (number, text) in [(Some(0x17), "00000000000000000000000000000017"), (None, "given")] {
            let cell = IdCell::default();
            assert!(cell.get().is_none() && cell.clone().get().is_none());
            match number {
                Some(number) => cell.set_number(number),
                None => cell.set(RequestId::new(text).unwrap()),
            }
            for cell in [&cell.clone(), &cell] {
                assert_eq!(cell.number(), number);
                assert_eq!(cell.get().unwrap().as_str(), text);
            }
        }
    }
}
