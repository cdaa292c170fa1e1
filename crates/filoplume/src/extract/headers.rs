//! Typed headers, for [`Header`](super::Header).

use super::TypedHeader;
pub use super::language::AcceptLanguage;
use crate::semantics::authority::split_port;
use crate::semantics::media_type::{self, essence, is_token, trim};
use crate::semantics::weight::{WEIGHT_MAX, Weight, parse_weight};

/// `Accept` (RFC 9110, 12.5.1): the media types that the client prefers.
///
/// ```
/// use filoplume::extract::headers::Accept;
/// use filoplume::prelude::*;
///
/// let app = App::new().get("/", |accept: Option<Header<Accept>>| {
///     match accept.and_then(|Header(accept)| accept.best_of(&["text/html", "text/plain"]))
///     {
///         Some("text/plain") => "Hello!".into_response(),
///         _ => Html("<h1>Hello!</h1>").into_response(),
///     }
/// });
/// app.test()
///     .get("/")
///     .header("accept", "text/plain, text/html;q=0.5")
///     .send()
///     .assert_text("Hello!");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Accept {
    /// Ranges such as `text/*` with their weights.
    ranges: Vec<(String, Weight)>,
}

impl Accept {
    /// Returns the offer that the client prefers, or the first of several that it prefers equally.
    /// Returns `None` if none is acceptable.
    ///
    /// ```
    /// use filoplume::extract::TypedHeader;
    /// use filoplume::extract::headers::Accept;
    ///
    /// let accept = Accept::parse("text/html, application/json;q=0.8, */*;q=0.1")?;
    /// assert_eq!(accept.best_of(&["application/json", "text/html"]), Some("text/html"));
    /// assert_eq!(
    ///     accept.best_of(&["image/png", "application/json"]),
    ///     Some("application/json")
    /// );
    /// # Ok::<(), &str>(())
    /// ```
    pub fn best_of<'a>(&self, offers: &[&'a str]) -> Option<&'a str> {
        let mut best = None;
        for &offer in offers {
            let weight = self.weight(offer);
            if weight > best.map_or(0, |(_, weight)| weight) {
                best = Some((offer, weight));
            }
        }
        best.map(|(offer, _)| offer)
    }

    /// Returns the weight of the most specific range that matches an offer.
    fn weight(&self, offer: &str) -> Weight {
        let matching = self.ranges.iter().filter_map(|(range, weight)| {
            let specificity = match range.split_once('/')? {
                ("*", "*") => 0,
                (kind, "*") if offer.split('/').next()?.eq_ignore_ascii_case(kind) => 1,
                _ if range.eq_ignore_ascii_case(offer) => 2,
                _ => return None,
            };
            Some((specificity, *weight))
        });
        matching.max_by_key(|(specificity, _)| *specificity).map_or(0, |(_, weight)| weight)
    }
}

impl TypedHeader for Accept {
    const NAME: &'static str = "accept";
    const IS_LIST: bool = true;
    type Error = &'static str;

    fn parse(value: &str) -> Result<Self, &'static str> {
        let ranges = value.split(',').map(trim).filter(|range| !range.is_empty());
        let ranges = ranges.map(|range| {
            let (kind, subtype) =
                essence(range).split_once('/').ok_or("a range is not a `type/subtype`")?;
            if !(is_token(kind) && is_token(subtype)) {
                return Err("a range is not a `type/subtype`");
            }
            let weight = media_type::parameters(range).find_map(|parameter| match parameter {
                Ok((name, value)) if name.eq_ignore_ascii_case("q") => Some(parse_weight(&value)),
                Ok(_) => None,
                Err(_) => Some(None),
            });
            let weight =
                weight.unwrap_or(Some(WEIGHT_MAX)).ok_or("a weight is not a number from 0 to 1")?;
            Ok((essence(range).to_owned(), weight))
        });
        ranges.collect::<Result<_, _>>().map(|ranges| Self { ranges })
    }
}

/// `Content-Type` (RFC 9110, 8.3): the media type of the content.
///
/// ```
/// use filoplume::extract::headers::ContentType;
/// use filoplume::prelude::*;
///
/// let app = App::new().post("/", |Header(content_type): Header<ContentType>| {
///     format!(
///         "{} in {}",
///         content_type.essence(),
///         content_type.parameter("charset").unwrap_or("?")
///     )
/// });
/// app.test()
///     .post("/")
///     .header("content-type", "Text/CSV; charset=utf-8")
///     .send()
///     .assert_text("text/csv in utf-8");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentType {
    essence: String,
    parameters: Vec<(String, String)>,
}

impl ContentType {
    /// Returns the type without its parameters, in lower case: `text/html`.
    pub fn essence(&self) -> &str {
        &self.essence
    }

    /// Returns the value of a parameter, such as `charset`.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let parameter = self.parameters.iter().find(|(of, _)| of.eq_ignore_ascii_case(name));
        parameter.map(|(_, value)| value.as_str())
    }
}

impl TypedHeader for ContentType {
    const NAME: &'static str = "content-type";
    type Error = &'static str;

    fn parse(value: &str) -> Result<Self, &'static str> {
        let (kind, subtype) = essence(value).split_once('/').ok_or("it is not a `type/subtype`")?;
        if !(is_token(kind) && is_token(subtype)) {
            return Err("it is not a `type/subtype`");
        }
        let parameters = media_type::parameters(value)
            .map(|parameter| parameter.map(|(name, value)| (name.to_owned(), value.into_owned())));
        let parameters = parameters
            .collect::<Result<_, _>>()
            .map_err(|_| "a parameter is not a `name=value`")?;
        Ok(Self { essence: essence(value).to_ascii_lowercase(), parameters })
    }
}

/// `Host` (RFC 9110, 7.2): the host that the client wants to reach. Clients can send any value:
/// check it before you use it in links.
///
/// ```
/// use filoplume::extract::headers::Host;
/// use filoplume::prelude::*;
///
/// let app = App::new().get("/", |Header(host): Header<Host>| {
///     format!("{}, port {:?}", host.name(), host.port())
/// });
/// app.test()
///     .get("/")
///     .header("host", "Example.org:8080")
///     .send()
///     .assert_text("example.org, port Some(8080)");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    name: String,
    port: Option<u16>,
}

impl Host {
    /// Returns the name or address in lower case. An IPv6 address has its brackets.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the port, if there is one.
    pub fn port(&self) -> Option<u16> {
        self.port
    }
}

impl TypedHeader for Host {
    const NAME: &'static str = "host";
    type Error = &'static str;

    fn parse(value: &str) -> Result<Self, &'static str> {
        let (name, port) = split_port(value).ok_or("it is not a host")?;
        let port = port.filter(|port| !port.is_empty());
        let port = port.map(str::parse).transpose().map_err(|_| "its port is not a number")?;
        Ok(Self { name: name.to_ascii_lowercase(), port })
    }
}

macro_rules! texts {
    ($($(#[$docs:meta])* $type:ident $name:literal;)+) => {
        $(
            $(#[$docs])*
            #[derive(Clone, Debug, PartialEq, Eq)]
            pub struct $type(pub String);

            impl TypedHeader for $type {
                const NAME: &'static str = $name;
                type Error = std::convert::Infallible;

                fn parse(value: &str) -> Result<Self, Self::Error> {
                    Ok(Self(value.to_owned()))
                }
            }
        )+
    };
}

texts! {
    /// `Origin` (RFC 6454, 7): the origin of the page that sends the request; `null` if it is
    /// opaque.
    ///
    /// ```
    /// use filoplume::extract::headers::Origin;
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().post("/", |Header(Origin(origin)): Header<Origin>| origin);
    /// let response = app.test().post("/").header("origin", "https://example.org").send();
    /// response.assert_text("https://example.org");
    /// ```
    Origin "origin";
    /// `Referer` (RFC 9110, 10.1.3): the page with the link.
    ///
    /// ```
    /// use filoplume::extract::headers::Referer;
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/", |Header(Referer(referer)): Header<Referer>| referer);
    /// let response = app.test().get("/").header("referer", "https://example.org/a").send();
    /// response.assert_text("https://example.org/a");
    /// ```
    Referer "referer";
    /// `User-Agent` (RFC 9110, 10.1.5): the name of the client.
    ///
    /// ```
    /// use filoplume::extract::headers::UserAgent;
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/", |Header(UserAgent(agent)): Header<UserAgent>| agent);
    /// app.test().get("/").header("user-agent", "curl/8.5").send().assert_text("curl/8.5");
    /// ```
    UserAgent "user-agent";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_range_decides() {
        let accept = Accept::parse("text/*;q=0.5, text/plain;q=0, */*;q=0.25,,").unwrap();
        assert_eq!(accept.best_of(&["text/plain"]), None);
        assert_eq!(accept.best_of(&["image/png", "text/html"]), Some("text/html"));
        assert_eq!(accept.best_of(&["image/png", "text/plain"]), Some("image/png"));
        let best_of = |value, offers: &[&'static str]| {
            Accept::parse(value).ok().and_then(|accept| accept.best_of(offers))
        };
        assert_eq!(best_of("text/a, text/b", &["text/b", "text/a"]), Some("text/b"), "both alike");
        assert_eq!(best_of("text/a;Q=0.5, text/b", &["text/a", "text/b"]), Some("text/b"));
        assert_eq!(best_of("TEXT/A", &["text/a"]), Some("text/a"));
        assert_eq!(best_of("image/png, image/*", &["text/plain"]), None, "it was not asked for");
        for wrong in [
            "text",
            "text/plain;q=2",
            "text/plain;q=0.1234",
            "text/plain;q=-1",
            "text/plain;q=\"",
            "a b/c",
        ] {
            assert!(Accept::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_host_has_a_name_and_perhaps_a_port() {
        let parse = |value| Host::parse(value).map(|host| (host.name, host.port));
        assert_eq!(parse("Example.org"), Ok(("example.org".to_owned(), None)));
        assert_eq!(parse("example.org:8080"), Ok(("example.org".to_owned(), Some(8080))));
        assert_eq!(parse("[::1]:80"), Ok(("[::1]".to_owned(), Some(80))));
        assert_eq!(parse("example.org:"), Ok(("example.org".to_owned(), None)));
        for wrong in ["", ":80", "a:b", "a:99999", "[::1", "[x]", "[::1]80", "a/b", "a b", "::1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_content_type_is_compared_in_lower_case() {
        let html = ContentType::parse("Text/HTML; Charset=\"utf-8\"").unwrap();
        assert_eq!((html.essence(), html.parameter("charset")), ("text/html", Some("utf-8")));
        assert!(ContentType::parse("html").is_err());
        assert!(ContentType::parse("text/html; charset").is_err());
    }
}
