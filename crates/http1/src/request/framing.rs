//! What the fields of a request determine: how it ends, whether its host is valid, and whether
//! another request may follow.

use crate::error::ParseError;
use crate::fields::Facts;
use crate::framing::{Framing, FramingFields};
use crate::request::target::validate_host;
use crate::syntax::list_members;
use crate::version::Version;

/// Collects facts from the fields of a request, one field at a time.
#[derive(Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an independent fact: a field or an option was seen"
)]
pub(crate) struct FieldFacts {
    host: bool,
    framing: FramingFields,
    expects_continue: bool,
    close: bool,
    keep_alive: bool,
    upgrade: bool,
}

impl FieldFacts {
    /// Records one field. The length of the name rules out most fields before a byte is compared.
    #[inline]
    pub(crate) fn note(
        &mut self,
        version: Version,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), ParseError> {
        match name.len() {
            // Every request has this field, so it is compared without a loop.
            4 if matches!(name, [b'h' | b'H', b'o' | b'O', b's' | b'S', b't' | b'T']) => {
                self.note_host(value)
            }
            6 if name.eq_ignore_ascii_case(b"expect") => self.note_expect(version, value),
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.note_connection(value);
                Ok(())
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => self.framing.note_length(value),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                self.framing.note_coding(version, value)
            }
            _ => Ok(()),
        }
    }

    /// Returns the facts that follow from all fields together. `host_required` is false only for
    /// heads made in this process.
    #[inline]
    pub(crate) fn finish(self, version: Version, host_required: bool) -> Result<Facts, ParseError> {
        if host_required && !self.host && version == Version::Http11 {
            return Err(ParseError::HostMissing);
        }
        let framing = self.framing.finish()?;
        Ok(Facts {
            framing,
            // Without content there is nothing to wait for.
            expects_continue: self.expects_continue
                && !matches!(framing, Framing::Empty | Framing::Length(0)),
            is_persistent: !self.close && (version == Version::Http11 || self.keep_alive),
            // An HTTP/1.0 peer cannot upgrade (RFC 9110 section 7.8).
            connection_has_upgrade: self.upgrade && version == Version::Http11,
        })
    }

    #[inline]
    fn note_host(&mut self, value: &[u8]) -> Result<(), ParseError> {
        self.note_valid_host()?;
        // An empty value is legal if the target has no authority (RFC 9112 section 3.2).
        if value.is_empty() { Ok(()) } else { validate_host(value).map(|_| ()) }
    }

    /// Records a `Host` whose value was validated before.
    #[inline]
    pub(crate) fn note_valid_host(&mut self) -> Result<(), ParseError> {
        if self.host {
            return Err(ParseError::HostRepeated);
        }
        self.host = true;
        Ok(())
    }

    fn note_expect(&mut self, version: Version, value: &[u8]) -> Result<(), ParseError> {
        // HTTP/1.0 has no expectations (RFC 9110 section 10.1.1).
        if version == Version::Http10 {
            return Ok(());
        }
        if !value.eq_ignore_ascii_case(b"100-continue") {
            return Err(ParseError::ExpectationUnknown);
        }
        self.expects_continue = true;
        Ok(())
    }

    fn note_connection(&mut self, value: &[u8]) {
        for option in list_members(value) {
            match option.len() {
                5 if option.eq_ignore_ascii_case(b"close") => self.close = true,
                7 if option.eq_ignore_ascii_case(b"upgrade") => self.upgrade = true,
                10 if option.eq_ignore_ascii_case(b"keep-alive") => self.keep_alive = true,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the facts that follow from one field, without a `Host`.
    fn facts(version: Version, name: &str, value: &str) -> Result<Facts, ParseError> {
        let mut facts = FieldFacts::default();
        facts.note(version, name.as_bytes(), value.as_bytes())?;
        facts.finish(version, false)
    }

    #[test]
    fn a_name_of_the_same_length_is_another_field() {
        for (name, value) in [
            ("hose", "a b"),
            ("expert", "100-continue"),
            ("expert", "200-ok"),
            ("connexions", "close, upgrade"),
            ("content-weight", "5"),
            ("transfer-recoding", "chunked"),
        ] {
            assert_eq!(facts(Version::Http11, name, value), Ok(Facts::NONE), "{name}");
        }
    }

    #[test]
    fn a_peer_without_content_does_not_wait_to_send_it() {
        for (length, expects_continue) in [("0", false), ("1", true)] {
            let mut facts = FieldFacts::default();
            facts.note(Version::Http11, b"expect", b"100-continue").unwrap();
            facts.note(Version::Http11, b"content-length", length.as_bytes()).unwrap();
            let facts = facts.finish(Version::Http11, false).unwrap();
            assert_eq!(facts.expects_continue, expects_continue, "{length}");
        }
    }

    #[test]
    fn an_option_of_the_same_length_is_another_one() {
        assert_eq!(facts(Version::Http11, "connection", "clone, upgrape"), Ok(Facts::NONE));
        // In HTTP/1.0 only one option keeps the connection open.
        let is_persistent = |value: &str| {
            facts(Version::Http10, "connection", value).map(|facts| facts.is_persistent)
        };
        assert_eq!(is_persistent("keep-alive"), Ok(true));
        assert_eq!(is_persistent("keep-aline"), Ok(false));
    }
}
