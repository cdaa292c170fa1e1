//! Variations of a head, for tests that compare two parsers.

/// Calls `check` with each byte value inserted at each position of `head`, and with each byte of
/// `head` replaced by it.
pub(crate) fn with_every_byte(head: &str, check: impl Fn(&[u8])) {
    for place in 0..=head.len() {
        for byte in 0..=u8::MAX {
            let mut bytes = head.as_bytes().to_vec();
            bytes.insert(place, byte);
            check(&bytes);
            bytes.remove(place);
            if let Some(changed) = bytes.get_mut(place) {
                *changed = byte;
                check(&bytes);
            }
        }
    }
}

/// Calls `check` with each piece of `head` left out, and with each piece repeated.
pub(crate) fn with_every_piece(head: &str, check: impl Fn(&[u8])) {
    let head = head.as_bytes();
    for start in 0..head.len() {
        for end in start..=head.len() {
            let (before, piece, behind) = (&head[..start], &head[start..end], &head[end..]);
            check(&[before, behind].concat());
            check(&[before, piece, piece, behind].concat());
        }
    }
}
