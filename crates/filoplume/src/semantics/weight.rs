//! Weights of preferences (RFC 9110, 12.4.2).

/// A weight in thousandths, the precision of HTTP. Comparing floats would be inexact.
pub(crate) type Weight = u16;

/// The default weight.
pub(crate) const WEIGHT_MAX: Weight = 1000;

/// Parses a weight: `0` or `1` with up to three decimals. Returns `None` if it is invalid.
pub(crate) fn parse_weight(text: &str) -> Option<Weight> {
    let (whole, digits) = text.split_once('.').unwrap_or((text, ""));
    if digits.len() > 3 {
        return None;
    }
    let mut thousandths = 0;
    for place in 0..3 {
        let digit = digits.as_bytes().get(place).copied().unwrap_or(b'0');
        if !digit.is_ascii_digit() {
            return None;
        }
        thousandths = thousandths * 10 + Weight::from(digit - b'0');
    }
    match (whole, thousandths) {
        ("0", thousandths) => Some(thousandths),
        ("1", 0) => Some(WEIGHT_MAX),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_has_at_most_three_digits() {
        for bad in [
            "2", "1.001", "-1", "0.1234", ".5", "NaN", "", "0x1", "1e0", "+1", "0.+1", "0,5", "00",
            "1.é",
        ] {
            assert_eq!(parse_weight(bad), None, "{bad}");
        }
        for (good, weight) in
            [("0", 0), ("1", 1000), ("1.000", 1000), ("0.5", 500), ("0.", 0), ("0.001", 1)]
        {
            assert_eq!(parse_weight(good), Some(weight), "{good}");
        }
    }
}
