//! The language that a client prefers.

use super::TypedHeader;
use crate::semantics::media_type::trim;
use crate::semantics::weight::{WEIGHT_MAX, Weight, parse_weight};

/// `Accept-Language` (RFC 9110, 12.5.4): the languages that the client prefers.
///
/// ```
/// use filoplume::extract::headers::AcceptLanguage;
/// use filoplume::prelude::*;
///
/// fn greeting(languages: Option<Header<AcceptLanguage>>) -> &'static str {
///     match languages.and_then(|Header(languages)| languages.best_of(&["en", "de"])) {
///         Some("de") => "Guten Tag!",
///         _ => "Hello!",
///     }
/// }
///
/// let client = App::new().get("/", greeting).test();
/// client.get("/").header("accept-language", "fr, de-CH;q=0.9").send().assert_text("Guten Tag!");
/// client.get("/").send().assert_text("Hello!");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias("i18n", "locale", "accepts_languages", "best_match"))]
pub struct AcceptLanguage {
    /// Ranges such as `de-CH`, by falling weight.
    ranges: Vec<(String, Weight)>,
}

impl AcceptLanguage {
    /// Returns the offer that the client prefers. Returns `None` if the client names none of the
    /// offers.
    ///
    /// The client's ranges are tried in the order of their weights. If there is no offer for
    /// `de-CH`, `de` is tried, and then offers that are more exact, such as `de-AT`. `*` is the
    /// first offer that the client does not refuse.
    ///
    /// ```
    /// use filoplume::extract::TypedHeader;
    /// use filoplume::extract::headers::AcceptLanguage;
    ///
    /// let languages = AcceptLanguage::parse("de-CH, en;q=0.8")?;
    /// assert_eq!(languages.best_of(&["en", "de"]), Some("de"));
    /// assert_eq!(languages.best_of(&["en-GB", "fr"]), Some("en-GB"));
    /// assert_eq!(languages.best_of(&["fr"]), None);
    /// # Ok::<(), &str>(())
    /// ```
    pub fn best_of<'a>(&self, offers: &[&'a str]) -> Option<&'a str> {
        let is_refused = |offer: &str| {
            self.ranges.iter().any(|(range, weight)| *weight == 0 && is_same(range, offer))
        };
        let offers: Vec<&'a str> =
            offers.iter().copied().filter(|offer| !is_refused(offer)).collect();
        let wanted = self.ranges.iter().filter(|(_, weight)| *weight > 0);
        wanted.map(|(range, _)| offer_for(range, &offers)).find_map(|offer| offer)
    }
}

/// Returns the offer for a range: the same language, or a more exact one. If there is none, the
/// range is shortened (RFC 4647, 3.4) and tried again.
fn offer_for<'a>(range: &str, offers: &[&'a str]) -> Option<&'a str> {
    if range == "*" {
        return offers.first().copied();
    }
    let mut prefix = range;
    loop {
        if let Some(offer) = offers.iter().find(|offer| is_same(prefix, offer)) {
            return Some(offer);
        }
        let is_below = |offer: &&&str| {
            offer.get(..prefix.len()).is_some_and(|start| is_same(start, prefix))
                && offer.as_bytes().get(prefix.len()) == Some(&b'-')
        };
        if let Some(offer) = offers.iter().find(is_below) {
            return Some(offer);
        }
        prefix = prefix.rsplit_once('-')?.0;
    }
}

fn is_same(range: &str, offer: &str) -> bool {
    range.eq_ignore_ascii_case(offer)
}

impl TypedHeader for AcceptLanguage {
    const NAME: &'static str = "accept-language";
    const IS_LIST: bool = true;
    type Error = &'static str;

    fn parse(value: &str) -> Result<Self, &'static str> {
        let ranges = value.split(',').map(trim).filter(|range| !range.is_empty());
        let ranges = ranges.map(|range| {
            let (range, weight) = match range.split_once(';') {
                Some((range, parameter)) => (trim(range), weight_of(trim(parameter))),
                None => (range, Some(WEIGHT_MAX)),
            };
            if range.is_empty() || !range.bytes().all(is_range_byte) {
                return Err("a range is not a language such as `de-CH`");
            }
            Ok((range.to_owned(), weight.ok_or("a weight is not a number from 0 to 1")?))
        });
        let mut ranges = ranges.collect::<Result<Vec<_>, _>>()?;
        // A stable sort: the client's order counts among equal weights.
        ranges.sort_by_key(|&(_, weight)| std::cmp::Reverse(weight));
        Ok(Self { ranges })
    }
}

fn weight_of(parameter: &str) -> Option<Weight> {
    let (name, value) = parameter.split_once('=')?;
    if name.eq_ignore_ascii_case("q") { parse_weight(value) } else { None }
}

fn is_range_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_range_that_has_an_offer_decides() {
        for (value, offers, expected) in [
            ("de", &["en", "de"][..], Some("de")),
            ("en;q=0.5, de", &["en", "de"], Some("de")),
            ("fr, de", &["de", "fr"], Some("fr")),
            ("zh-Hant-TW", &["en", "zh", "zh-hant"], Some("zh-hant")),
            ("de-CH", &["de-AT"], Some("de-AT")),
            ("DE", &["en", "de-CH"], Some("de-CH")),
            ("de", &["den", "en"], None),
            ("*", &["en", "de"], Some("en")),
            ("*, en;q=0", &["en", "de"], Some("de")),
            ("en;q=0", &["en"], None),
            ("de;q=0", &["de-CH"], None),
            (",, ", &["en"], None),
        ] {
            assert_eq!(AcceptLanguage::parse(value).unwrap().best_of(offers), expected, "{value}");
        }
        for wrong in ["d e", "de;q=2", "de;level=1", ";q=1", "é"] {
            assert!(AcceptLanguage::parse(wrong).is_err(), "{wrong}");
        }
    }
}
