//! Contents to send.

/// Returns binary data with a long period.
pub fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 31 + n / 251).to_le_bytes()[0]).collect()
}
