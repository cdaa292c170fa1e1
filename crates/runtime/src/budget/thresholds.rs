//! Dynamic thresholds: how much of a shared resource one holder may have (Choudhury and Hahne,
//! 1998).
//!
//! A holder may take one more while it has fewer than `share` times the free ones. Alone it gets
//! `share / (share + 1)` of all, the next holder gets the same part of the rest, and so on. So the
//! rule takes effect only when the free ones run short, and something is left for later holders.

/// The share of a route, and of an IPv6 network of 48 bits. It leaves a ninth to the others.
pub(crate) const LARGE_SHARE: usize = 8;

/// The share of a counted client. Many people may use one address, so it leaves a third to others
/// and not more.
pub(crate) const CLIENT_SHARE: usize = 2;

/// Returns whether a holder that has `taken` may take one more of the `free` ones.
#[inline]
pub(crate) const fn may_take(taken: usize, free: usize, share: usize) -> bool {
    taken < free.saturating_mul(share)
}

/// Returns whether a holder may keep what it has `taken`, given what is `free` now.
#[inline]
pub(crate) const fn may_have(taken: usize, free: usize, share: usize) -> bool {
    taken <= free.saturating_mul(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many of `count` a holder gets while others have `taken`.
    fn alone(count: usize, taken: usize, share: usize) -> usize {
        let free = |own| count - taken - own;
        (0..count).find(|own| !may_take(*own, free(*own), share)).unwrap_or(count)
    }

    #[test]
    fn a_holder_leaves_some_to_others_and_is_alone_with_a_few() {
        assert_eq!([512, 16, 4, 3, 2, 1].map(|count| alone(count, 0, 2)), [342, 11, 3, 2, 2, 1]);
        assert_eq!([512, 64, 16, 9, 1].map(|count| alone(count, 0, 8)), [456, 57, 15, 8, 1]);
        assert_eq!(alone(16, 11, 2), 4, "the next one");
        assert_eq!(alone(16, 15, 2), 1);
        assert_eq!(alone(16, 16, 2), 0);
    }
}
