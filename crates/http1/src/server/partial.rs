//! Decides how often a head that arrives in pieces is parsed.

use crate::limits::Limits;

/// The state of a head of which only a part has arrived.
///
/// A head is parsed from its start each time. A peer that sends it byte by byte could thus make the
/// server read each byte thousands of times. So after the first attempts, a head is parsed only if
/// its end may have arrived, and now and then as it grows. A network that merely splits the bytes
/// does not use up the first attempts, so a malformed head is refused as soon as the wrong byte
/// arrives.
///
/// The type is packed, because every idle connection has room for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(Rust, packed)]
pub(crate) struct PartialHead {
    attempts: u8,
    /// How many bytes there were at the last call.
    seen: u32,
}

/// The number of first attempts, which are made whatever has arrived.
const ATTEMPTS: u8 = 32;

/// After the first attempts, a head is parsed four times while its length doubles: two to the power
/// of this.
const ATTEMPTS_PER_DOUBLING_LOG2: u32 = 2;

impl PartialHead {
    pub(crate) fn new(input: &[u8]) -> Self {
        Self { attempts: 1, seen: length(input) }
    }

    /// Returns whether the head in `input`, which begins with the bytes of the last call, has to be
    /// parsed now.
    pub(crate) fn is_due(&mut self, input: &[u8], limits: &Limits) -> bool {
        // The end of the head may be split between two calls.
        let begin = (self.seen as usize).saturating_sub(2).min(input.len());
        let (before, bytes) = (self.seen, length(input));
        let step_log2 = before.max(1).ilog2().saturating_sub(ATTEMPTS_PER_DOUBLING_LOG2);
        let is_due = self.attempts < ATTEMPTS
            || bytes < before
            || bytes.wrapping_shr(step_log2) != before.wrapping_shr(step_log2)
            || input.len() >= limits.head_bytes_max
            || input.get(begin..).unwrap_or_default().windows(3).any(is_empty_line);
        self.seen = bytes;
        if is_due {
            self.attempts = self.attempts.saturating_add(1);
        }
        is_due
    }
}

/// Returns whether these bytes end a line and an empty line after it, with CR LF or a bare LF.
fn is_empty_line(bytes: &[u8]) -> bool {
    bytes == b"\n\r\n" || bytes.ends_with(b"\n\n")
}

fn length(input: &[u8]) -> u32 {
    u32::try_from(input.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lengths at which a head that arrives byte by byte is parsed.
    fn parsed(head: &[u8], limits: &Limits) -> Vec<usize> {
        let mut partial = PartialHead::new(&head[..1]);
        (2..=head.len()).filter(|&bytes| partial.is_due(&head[..bytes], limits)).collect()
    }

    #[test]
    fn a_head_that_arrives_byte_by_byte_is_parsed_a_few_times() {
        let limits = Limits::default();
        let head = [b"GET / HTTP/1.1\r\n".as_slice(), &[b'x'; 16_000], b"\r\n\r\n"].concat();
        let parsed = parsed(&head, &limits);
        assert_eq!(&parsed[..31], (2..=32).collect::<Vec<_>>(), "the first ones at once");
        assert!(parsed.len() < 100, "{}", parsed.len());
        let bytes = parsed.iter().sum::<usize>();
        assert!(bytes < 10 * head.len(), "{bytes} bytes are read of {}", head.len());
        assert_eq!(parsed.last(), Some(&head.len()), "and once more at its end");
    }

    #[test]
    fn an_end_that_is_divided_is_found() {
        let limits = Limits::default();
        for end in ["\r\n\r\n", "\n\n", "\n\r\n"] {
            for cut in 1..end.len() {
                let mut partial = PartialHead::new(&[b'x'; 1000]);
                partial.attempts = ATTEMPTS;
                let mut input = vec![b'x'; 1000];
                input.extend_from_slice(&end.as_bytes()[..cut]);
                assert!(!partial.is_due(&input, &limits), "{end:?} cut at {cut}");
                input.extend_from_slice(&end.as_bytes()[cut..]);
                assert!(partial.is_due(&input, &limits), "{end:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn a_head_is_parsed_at_its_limit_and_if_it_is_not_the_one_of_before() {
        let limits = Limits { head_bytes_max: 1010, ..Limits::default() };
        let mut partial = PartialHead::new(&[b'x'; 1000]);
        partial.attempts = ATTEMPTS;
        assert!(!partial.is_due(&[b'x'; 1009], &limits));
        assert!(partial.is_due(&[b'x'; 1010], &limits));
        assert!(partial.is_due(&[b'x'; 1009], &limits), "shorter than before");
    }

    #[test]
    fn a_head_that_was_parsed_often_is_not_parsed_for_each_byte_again() {
        let limits = Limits::default();
        let mut partial = PartialHead::new(&[b'x'; 1000]);
        for _ in 0..=u8::MAX {
            assert!(partial.is_due(&[b'x'; 999], &limits), "shorter than before");
            partial.seen = 1000;
        }
        assert!(!partial.is_due(&[b'x'; 1001], &limits));
    }
}
