//! Numbers as hexadecimal digits.

/// Returns the 32 hexadecimal digits of a number, in lower case, the highest first.
///
/// ```
/// assert_eq!(&filoplume_http1::hex_digits(0x17f), b"0000000000000000000000000000017f");
/// ```
#[inline]
pub fn hex_digits(number: u128) -> [u8; 32] {
    let mut digits = [0; 32];
    for (eight, shift) in digits.chunks_exact_mut(8).zip([96, 64, 32, 0]) {
        let part = u64::try_from(number >> shift & 0xffff_ffff).unwrap_or_default();
        eight.copy_from_slice(&eight_digits(part).to_be_bytes());
    }
    digits
}

/// Returns the digits of a number of 32 bits, one per byte. All digits are computed at once,
/// because this may be called for each request.
#[inline]
fn eight_digits(number: u64) -> u64 {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    // Moves the digits apart: halves, then quarters, then single digits.
    let apart = (number << 16 | number) & 0x0000_ffff_0000_ffff;
    let apart = (apart << 8 | apart) & 0x00ff_00ff_00ff_00ff;
    let apart = (apart << 4 | apart) & 0x0f0f_0f0f_0f0f_0f0f;
    // 1 for each digit from 10 on. No sum carries into the next byte.
    let letters = (apart.wrapping_add(ONES.wrapping_mul(6)) >> 4) & ONES;
    let up_to_letters = u64::from(b'a' - b'0' - 10);
    apart
        .wrapping_add(ONES.wrapping_mul(u64::from(b'0')))
        .wrapping_add(letters.wrapping_mul(up_to_letters))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_standard_library() {
        let patterns = [1, u128::MAX, 0x9a9a_9a9a_9a00_0f10_7f80_feff_8001_dead];
        for pattern in patterns {
            for shift in 0..128 {
                for number in [pattern << shift, pattern >> shift] {
                    assert_eq!(hex_digits(number), *format!("{number:032x}").as_bytes());
                }
            }
        }
    }
}
