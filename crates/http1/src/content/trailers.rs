//! The fields after the last chunk: which of them are refused, and which are dropped.

use httparse::Status;

use crate::error::ParseError;
use crate::fields::Headers;
use crate::limits::Limits;

/// Returns the fields of a complete trailer section, which ends with an empty line. The caller has
/// checked the line ends.
pub(crate) fn parse_trailers(section: &[u8], fields_max: usize) -> Result<Headers, ParseError> {
    let mut index = [httparse::EMPTY_HEADER; Limits::FIELDS_CAP];
    let index = index.get_mut(..fields_max.min(Limits::FIELDS_CAP)).unwrap_or_default();
    let fields = match httparse::parse_headers(section, index) {
        Ok(Status::Complete((used, fields))) if used == section.len() => fields,
        Err(httparse::Error::TooManyHeaders) => return Err(ParseError::TooManyFields),
        _ => return Err(ParseError::TrailerInvalid),
    };
    let mut trailers = Headers::new();
    for field in fields {
        if is_one_of(field.name, &REFUSED_IN_TRAILERS) {
            return Err(ParseError::TrailerForbidden);
        }
        if !is_one_of(field.name, &DROPPED_IN_TRAILERS) {
            trailers
                .append_valid(field.name.as_bytes(), field.value)
                .map_err(|_| ParseError::TrailerTooLong)?;
        }
    }
    Ok(trailers)
}

/// In a trailer section these fields can only be an attempt to confuse readers.
const REFUSED_IN_TRAILERS: [&str; 3] = ["content-length", "transfer-encoding", "host"];

/// Fields that must be known before the content (RFC 9110 section 6.5.1): authentication, request
/// modifiers, response control, and content format. A recipient may ignore them in trailers, and
/// this one does.
const DROPPED_IN_TRAILERS: [&str; 28] = [
    "age",
    "authorization",
    "cache-control",
    "connection",
    "content-encoding",
    "content-range",
    "content-type",
    "cookie",
    "date",
    "expect",
    "expires",
    "forwarded",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "keep-alive",
    "location",
    "max-forwards",
    "origin",
    "pragma",
    "proxy-authorization",
    "range",
    "set-cookie",
    "te",
    "trailer",
    "upgrade",
];

fn is_one_of(name: &str, names: &[&str]) -> bool {
    names.iter().any(|one| one.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailer_section_ends_where_its_fields_end() {
        let fields = |section: &[u8]| parse_trailers(section, 2).map(|fields| fields.len());
        assert_eq!(fields(b"a: b\r\nc: d\r\n\r\n"), Ok(2));
        assert_eq!(fields(b"a: b\r\n\r\nc: d\r\n\r\n"), Err(ParseError::TrailerInvalid));
        assert_eq!(fields(b"a: b\r\n"), Err(ParseError::TrailerInvalid));
        assert_eq!(fields(b"a: b\r\nc: d\r\ne: f\r\n\r\n"), Err(ParseError::TooManyFields));
    }

    #[test]
    fn a_trailer_section_has_as_many_fields_as_any_head() {
        let section = |fields: usize| "a: b\r\n".repeat(fields) + "\r\n";
        let fields = |number: usize, fields_max: usize| {
            parse_trailers(section(number).as_bytes(), fields_max).map(|fields| fields.len())
        };
        for fields_max in [Limits::FIELDS_CAP, usize::MAX] {
            assert_eq!(fields(Limits::FIELDS_CAP, fields_max), Ok(Limits::FIELDS_CAP));
            let beyond = fields(Limits::FIELDS_CAP + 1, fields_max);
            assert_eq!(beyond, Err(ParseError::TooManyFields));
        }
    }
}
