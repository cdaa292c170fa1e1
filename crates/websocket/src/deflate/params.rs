//! What two ends agree on before they compress (RFC 7692 section 7.1).

use std::fmt;

use super::extensions::{self, Extension};

const NAME: &str = "permessage-deflate";
const SERVER_NO_CONTEXT: &str = "server_no_context_takeover";
const CLIENT_NO_CONTEXT: &str = "client_no_context_takeover";
const SERVER_BITS: &str = "server_max_window_bits";
const CLIENT_BITS: &str = "client_max_window_bits";

/// What two ends agreed on.
///
/// A window of `n` bits refers to the last 2<sup>n</sup> bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeflateParams {
    /// The server compresses each message on its own.
    pub server_no_context_takeover: bool,
    /// The client compresses each message on its own.
    pub client_no_context_takeover: bool,
    /// The window of the server, 8 to 15 bits.
    pub server_max_window_bits: u8,
    /// The window of the client, 8 to 15 bits.
    pub client_max_window_bits: u8,
}

/// The parameters that an end offers or accepts.
///
/// ```
/// use filoplume_websocket::DeflateConfig;
///
/// let config = DeflateConfig::default();
/// let (agreed, response) =
///     config.accept("permessage-deflate; client_max_window_bits").expect("it is well-formed");
/// assert!(agreed.server_no_context_takeover);
/// assert!(response.starts_with("permessage-deflate; server_no_context_takeover"));
///
/// // An unknown parameter: the offer is declined, and the connection goes on without.
/// assert_eq!(config.accept("permessage-deflate; unknown"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeflateConfig {
    /// Whether the server's messages may refer to earlier ones. By default they do not: each
    /// connection would hold about 300 KiB, and a broadcast would be compressed once per member.
    pub server_context_takeover: bool,
    /// Whether the client's messages may refer to earlier ones. By default they do not: each
    /// connection would hold 48 KiB.
    pub client_context_takeover: bool,
    /// The largest window of the server, 9 to 15 bits.
    pub server_max_window_bits: u8,
    /// The largest window of the client, 8 to 15 bits.
    pub client_max_window_bits: u8,
}

/// How an end compresses. The peer need not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeflateOptions {
    /// How much work is done, from 0 (none) to 9.
    pub level: u32,
    /// Shorter messages are sent as they are.
    pub bytes_min: usize,
}

impl DeflateOptions {
    /// The fastest level, which brings most of the gain. More work rarely pays: unlike a file, a
    /// message is sent only once.
    pub const LEVEL: u32 = 1;
    /// Shorter messages rarely become smaller, and fit into the same packet.
    pub const BYTES_MIN: usize = 64;
}

impl Default for DeflateOptions {
    fn default() -> Self {
        Self { level: Self::LEVEL, bytes_min: Self::BYTES_MIN }
    }
}

impl Default for DeflateConfig {
    fn default() -> Self {
        Self {
            server_context_takeover: false,
            client_context_takeover: false,
            server_max_window_bits: 15,
            client_max_window_bits: 15,
        }
    }
}

/// The parameters of an offer or a response, as the peer wrote them.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    server_no_context: bool,
    client_no_context: bool,
    server_bits: Option<u8>,
    /// The outer option is `None` if the parameter is absent, the inner one if it has no value.
    client_bits: Option<Option<u8>>,
}

impl DeflateConfig {
    /// Chooses from a client's offers, the value of `Sec-WebSocket-Extensions`. Returns what was
    /// agreed and the value for the response, or `None` if there is no offer that this end can
    /// accept.
    ///
    /// An offer with an unknown, repeated or invalid parameter is declined, and so is one that
    /// demands a window of 256 bytes of the server: zlib has none (RFC 7692 section 7.1).
    pub fn accept(&self, offers: &str) -> Option<(DeflateParams, String)> {
        let offers = extensions::parse(offers)?;
        let offers = offers.iter().filter_map(Found::parse);
        let (params, names_client_bits) = offers.filter_map(|offer| self.agree(&offer)).next()?;
        Some((params, params.to_string_with(names_client_bits)))
    }

    /// Returns the parameters and whether the client's window may be named in the response.
    fn agree(&self, offer: &Found) -> Option<(DeflateParams, bool)> {
        let server_bits = offer.server_bits.unwrap_or(15).min(self.server_max_window_bits.max(9));
        if server_bits < 9 {
            return None;
        }
        let client_bits = match offer.client_bits {
            Some(bits) => bits.unwrap_or(15).min(self.client_max_window_bits.clamp(8, 15)),
            None => 15,
        };
        let params = DeflateParams {
            server_no_context_takeover: offer.server_no_context || !self.server_context_takeover,
            client_no_context_takeover: offer.client_no_context || !self.client_context_takeover,
            server_max_window_bits: server_bits,
            client_max_window_bits: client_bits,
        };
        Some((params, offer.client_bits.is_some()))
    }

    /// Returns a client's offer, the value for `Sec-WebSocket-Extensions`.
    ///
    /// ```
    /// use filoplume_websocket::DeflateConfig;
    ///
    /// let config = DeflateConfig { server_context_takeover: true, ..DeflateConfig::default() };
    /// assert_eq!(
    ///     config.offer(),
    ///     "permessage-deflate; client_no_context_takeover; client_max_window_bits"
    /// );
    /// ```
    pub fn offer(&self) -> String {
        let mut offer = String::from(NAME);
        if !self.server_context_takeover {
            offer.push_str("; ");
            offer.push_str(SERVER_NO_CONTEXT);
        }
        if !self.client_context_takeover {
            offer.push_str("; ");
            offer.push_str(CLIENT_NO_CONTEXT);
        }
        if self.server_max_window_bits < 15 {
            offer.push_str(&format!("; {SERVER_BITS}={}", self.server_max_window_bits.max(8)));
        }
        offer.push_str("; ");
        offer.push_str(CLIENT_BITS);
        if self.client_max_window_bits < 15 {
            offer.push_str(&format!("={}", self.client_max_window_bits.max(8)));
        }
        offer
    }

    /// Reads a server's response to [`DeflateConfig::offer`]. Returns what was agreed, or `None`
    /// if the response does not follow from the offer: the connection has to fail then.
    pub fn confirm(&self, response: &str) -> Option<DeflateParams> {
        let extensions = extensions::parse(response)?;
        let [extension] = extensions.as_slice() else {
            return None;
        };
        let found = Found::parse(extension)?;
        // A requested window must be granted. In a response, the parameter always has a value.
        let server_bits = found.server_bits.unwrap_or(15);
        let client_bits = match found.client_bits {
            None => 15,
            Some(bits) => bits?,
        };
        let is_granted = server_bits <= self.server_max_window_bits.clamp(8, 15)
            && (found.server_no_context || self.server_context_takeover);
        is_granted.then_some(DeflateParams {
            server_no_context_takeover: found.server_no_context,
            client_no_context_takeover: found.client_no_context || !self.client_context_takeover,
            server_max_window_bits: server_bits,
            client_max_window_bits: client_bits.min(self.client_max_window_bits.clamp(8, 15)),
        })
    }
}

impl DeflateParams {
    fn to_string_with(self, names_client_bits: bool) -> String {
        let mut text = String::from(NAME);
        if self.server_no_context_takeover {
            text.push_str("; ");
            text.push_str(SERVER_NO_CONTEXT);
        }
        if self.client_no_context_takeover {
            text.push_str("; ");
            text.push_str(CLIENT_NO_CONTEXT);
        }
        if self.server_max_window_bits < 15 {
            text.push_str(&format!("; {SERVER_BITS}={}", self.server_max_window_bits));
        }
        if names_client_bits && self.client_max_window_bits < 15 {
            text.push_str(&format!("; {CLIENT_BITS}={}", self.client_max_window_bits));
        }
        text
    }
}

/// The parameters as they stand in a response.
impl fmt::Display for DeflateParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_string_with(true))
    }
}

impl Found {
    /// Returns `None` for another extension, and for a parameter that is unknown, repeated or has
    /// an invalid value.
    fn parse(extension: &Extension<'_>) -> Option<Self> {
        if !extension.name.eq_ignore_ascii_case(NAME) {
            return None;
        }
        let mut found = Self::default();
        for (name, value) in &extension.params {
            let value = value.as_deref();
            let is_new = if name.eq_ignore_ascii_case(SERVER_NO_CONTEXT) {
                value.is_none() && !std::mem::replace(&mut found.server_no_context, true)
            } else if name.eq_ignore_ascii_case(CLIENT_NO_CONTEXT) {
                value.is_none() && !std::mem::replace(&mut found.client_no_context, true)
            } else if name.eq_ignore_ascii_case(SERVER_BITS) {
                found.server_bits.replace(window_bits(value?)?).is_none()
            } else if name.eq_ignore_ascii_case(CLIENT_BITS) {
                let bits = match value {
                    Some(value) => Some(window_bits(value)?),
                    None => None,
                };
                found.client_bits.replace(bits).is_none()
            } else {
                false
            };
            if !is_new {
                return None;
            }
        }
        Some(found)
    }
}

/// A number from 8 to 15 without leading zeros.
fn window_bits(value: &str) -> Option<u8> {
    let bits = match value {
        "8" => 8,
        "9" => 9,
        "10" => 10,
        "11" => 11,
        "12" => 12,
        "13" => 13,
        "14" => 14,
        "15" => 15,
        _ => return None,
    };
    Some(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(config: &DeflateConfig, offer: &str, expected: Option<&str>) {
        let response = config.accept(offer).map(|(_, response)| response);
        let expected = expected.map(|expected| format!("permessage-deflate{expected}"));
        assert_eq!(response, expected, "{offer}");
    }

    #[test]
    fn an_offer_is_accepted_with_its_parameters_or_declined() {
        let all = DeflateConfig {
            server_context_takeover: true,
            client_context_takeover: true,
            ..DeflateConfig::default()
        };
        let rows = [
            ("permessage-deflate", Some("")),
            ("Permessage-Deflate", Some("")),
            (
                "permessage-deflate; server_no_context_takeover",
                Some("; server_no_context_takeover"),
            ),
            (
                "permessage-deflate; client_no_context_takeover",
                Some("; client_no_context_takeover"),
            ),
            ("permessage-deflate; client_max_window_bits", Some("")),
            ("permessage-deflate; client_max_window_bits=8", Some("; client_max_window_bits=8")),
            (
                "permessage-deflate; client_max_window_bits=\"9\"",
                Some("; client_max_window_bits=9"),
            ),
            ("permessage-deflate; server_max_window_bits=9", Some("; server_max_window_bits=9")),
            ("permessage-deflate; server_max_window_bits=15", Some("")),
            // zlib has no window of 256 bytes, so the next offer is taken, if there is one.
            ("permessage-deflate; server_max_window_bits=8", None),
            ("permessage-deflate; server_max_window_bits=8, permessage-deflate", Some("")),
            ("x-webkit-deflate-frame, permessage-deflate", Some("")),
            ("permessage-deflate; server_max_window_bits", None),
            ("permessage-deflate; server_max_window_bits=7", None),
            ("permessage-deflate; server_max_window_bits=16", None),
            ("permessage-deflate; server_max_window_bits=09", None),
            ("permessage-deflate; client_max_window_bits=+9", None),
            ("permessage-deflate; client_max_window_bits=9; client_max_window_bits", None),
            ("permessage-deflate; server_no_context_takeover=1", None),
            ("permessage-deflate; server_no_context_takeover; server_no_context_takeover", None),
            ("permessage-deflate; unknown", None),
            ("permessage-deflate; unknown, permessage-deflate", Some("")),
            ("permessage-bzip2", None),
            ("permessage-deflate;", None),
            ("", None),
        ];
        for (offer, expected) in rows {
            check(&all, offer, expected);
        }
    }

    #[test]
    fn a_server_grants_at_most_what_it_is_set_to() {
        let small = DeflateConfig {
            server_context_takeover: false,
            client_context_takeover: false,
            server_max_window_bits: 10,
            client_max_window_bits: 11,
        };
        let none = "; server_no_context_takeover; client_no_context_takeover";
        let rows = [
            // The client did not say that it can limit its window, so the response does not demand
            // it.
            ("permessage-deflate", "; server_max_window_bits=10"),
            (
                "permessage-deflate; client_max_window_bits",
                "; server_max_window_bits=10; client_max_window_bits=11",
            ),
            (
                "permessage-deflate; client_max_window_bits=9; server_max_window_bits=9",
                "; server_max_window_bits=9; client_max_window_bits=9",
            ),
        ];
        for (offer, expected) in rows {
            check(&small, offer, Some(&format!("{none}{expected}")));
        }
    }

    #[test]
    fn a_client_takes_only_what_it_offered() {
        let asks = DeflateConfig {
            server_context_takeover: false,
            client_context_takeover: true,
            server_max_window_bits: 12,
            client_max_window_bits: 15,
        };
        let granted = "permessage-deflate; server_no_context_takeover; server_max_window_bits=12";
        let rows = [
            (granted.to_owned(), true),
            (format!("{granted}; client_max_window_bits=9"), true),
            (format!("{granted}; client_no_context_takeover"), true),
            (format!("{granted}; client_max_window_bits"), false),
            (format!("{granted}; unknown"), false),
            (format!("{granted}, permessage-deflate"), false),
            ("permessage-deflate; server_no_context_takeover".to_owned(), false),
            ("permessage-deflate; server_max_window_bits=12".to_owned(), false),
            ("permessage-bzip2".to_owned(), false),
            (String::new(), false),
        ];
        for (response, is_taken) in rows {
            assert_eq!(asks.confirm(&response).is_some(), is_taken, "{response}");
        }
    }

    /// A client that does not offer it does not know the parameter.
    #[test]
    fn the_window_of_a_client_is_reduced_only_if_it_offers_that() {
        let config = DeflateConfig { client_max_window_bits: 9, ..DeflateConfig::default() };
        let bits = |offer| config.accept(offer).map(|(params, _)| params.client_max_window_bits);
        assert_eq!(bits("permessage-deflate"), Some(15));
        assert_eq!(bits("permessage-deflate; client_max_window_bits"), Some(9));
        assert_eq!(bits("permessage-deflate; client_max_window_bits=8"), Some(8));
    }
}
