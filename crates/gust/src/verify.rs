//! Checks of responses: against an expected status, an earlier response, or the bytes that were
//! sent.

/// What `--verify` compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verify {
    /// The content equals that of the request.
    Echo,
    /// The status equals that of the first response to the same request.
    Status,
    /// Status and content equal those of the first response to the same request.
    Body,
}

/// The length and hash of some content, computed piece by piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest {
    length: u64,
    hash: u64,
}

/// The parts of a response that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResponseSummary {
    pub(crate) status: u16,
    pub(crate) content: Digest,
}

impl Digest {
    pub(crate) const EMPTY: Self = Self { length: 0, hash: 0xcbf2_9ce4_8422_2325 };

    pub(crate) fn of(content: &[u8]) -> Self {
        let mut digest = Self::EMPTY;
        digest.update(content);
        digest
    }

    /// Adds a piece. The hash is FNV-1a, which reads one byte at a time, so the result does not
    /// depend on how the network splits the content.
    pub(crate) fn update(&mut self, piece: &[u8]) {
        self.length += piece.len() as u64;
        for &byte in piece {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// A list such as `2xx,304`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statuses(Vec<(u16, u16)>);

impl Statuses {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let one = |part: &str| match part.as_bytes() {
            [class @ b'1'..=b'5', b'x' | b'X', b'x' | b'X'] => {
                let first = u16::from(class - b'0') * 100;
                Some((first, first + 99))
            }
            _ => part
                .parse()
                .ok()
                .filter(|status| (100..=999).contains(status))
                .map(|status| (status, status)),
        };
        let ranges = text.split(',').map(|part| one(part.trim())).collect::<Option<Vec<_>>>();
        ranges
            .map(Self)
            .ok_or_else(|| format!("{text:?} is not a list of statuses such as 2xx,304"))
    }

    pub(crate) fn has(&self, status: u16) -> bool {
        self.0.iter().any(|&(first, last)| (first..=last).contains(&status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_does_not_change_a_digest() {
        let mut digest = Digest::EMPTY;
        digest.update(b"Hello");
        digest.update(b"");
        digest.update(b", world");
        assert_eq!(digest, Digest::of(b"Hello, world"));
        assert_ne!(digest, Digest::of(b"Hello, World"));
    }

    #[test]
    fn statuses_are_single_or_classes() {
        let list = Statuses::parse("2xx, 304").unwrap();
        let found: Vec<u16> =
            [200, 299, 300, 304, 404].into_iter().filter(|&status| list.has(status)).collect();
        assert_eq!(found, [200, 299, 304]);
        assert!(Statuses::parse("999").unwrap().has(999));
        for bad in ["", "1000", "6xx", "2x", "99", "abc", "200,"] {
            assert!(Statuses::parse(bad).is_err(), "{bad}");
        }
    }
}
