//! How a response is framed. This follows from the request, the status and the length of the
//! content; the handler cannot change it.

use http::StatusCode;

use crate::content::{BodyEncoding, ContentLength};
use crate::response::{ConnectionField, LengthField};
use crate::server::exchange::CloseReason;
use crate::version::Version;

/// The facts about a request that determine how its response is framed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestFacts {
    pub(crate) version: Version,
    pub(crate) method: MethodKind,
    /// The peer waits for `100 Continue`, and it was not sent yet.
    pub(crate) expects_continue: bool,
}

/// The methods that change how a response is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MethodKind {
    Head,
    Connect,
    Other,
}

impl RequestFacts {
    /// Decides how a response ends (RFC 9112 section 6.3, RFC 9110 section 8.6).
    pub(crate) fn response_framing(
        &self,
        status: StatusCode,
        content: ContentLength,
    ) -> (LengthField, BodyEncoding) {
        match status {
            // No length even if one is known, because it would describe a different response.
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED => {
                return (LengthField::Absent, BodyEncoding::None);
            }
            StatusCode::RESET_CONTENT => return (LengthField::Length(0), BodyEncoding::None),
            _ if self.is_handed_over(status) => return (LengthField::Absent, BodyEncoding::None),
            _ => {}
        }
        match (self.method, content) {
            (MethodKind::Head, ContentLength::Known(length)) => {
                (LengthField::Length(length), BodyEncoding::None)
            }
            (MethodKind::Head, ContentLength::Unknown | ContentLength::None) => {
                (LengthField::Absent, BodyEncoding::None)
            }
            (_, ContentLength::Known(0) | ContentLength::None) => {
                (LengthField::Length(0), BodyEncoding::None)
            }
            (_, ContentLength::Known(length)) => {
                (LengthField::Length(length), BodyEncoding::Length(length))
            }
            (_, ContentLength::Unknown) => match self.version {
                Version::Http11 => (LengthField::Chunked, BodyEncoding::Chunked),
                Version::Http10 => (LengthField::Absent, BodyEncoding::UntilClose),
            },
        }
    }

    /// Returns whether another protocol begins after this head.
    #[inline]
    pub(crate) fn is_handed_over(&self, status: StatusCode) -> bool {
        status == StatusCode::SWITCHING_PROTOCOLS
            || (self.method == MethodKind::Connect && status.is_success())
    }

    /// Returns the value of `Connection`. `close_reason` is `None` if the connection stays open.
    #[inline]
    pub(crate) fn connection_field(
        &self,
        close_reason: Option<CloseReason>,
        has_upgrade: bool,
    ) -> ConnectionField {
        match (close_reason, has_upgrade) {
            (Some(CloseReason::Upgraded), true) => ConnectionField::Upgrade,
            (Some(CloseReason::Upgraded), false) => ConnectionField::Absent,
            (Some(_), true) => ConnectionField::UpgradeAndClose,
            (Some(_), false) => ConnectionField::Close,
            (None, true) => ConnectionField::Upgrade,
            (None, false) => match self.version {
                Version::Http10 => ConnectionField::KeepAlive,
                Version::Http11 => ConnectionField::Absent,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(version: Version, method: MethodKind) -> RequestFacts {
        RequestFacts { version, method, expects_continue: false }
    }

    /// After a 2xx to `CONNECT` there is no HTTP that `Connection` could be about.
    #[test]
    fn what_connection_says_follows_from_what_comes_next() {
        use ConnectionField::{Absent, Close, KeepAlive, Upgrade, UpgradeAndClose};

        for (reason, version, expected) in [
            (Some(CloseReason::Upgraded), Version::Http11, [Absent, Upgrade]),
            (Some(CloseReason::PeerAsked), Version::Http11, [Close, UpgradeAndClose]),
            (Some(CloseReason::Http10), Version::Http10, [Close, UpgradeAndClose]),
            (Some(CloseReason::UntilClose), Version::Http10, [Close, UpgradeAndClose]),
            (Some(CloseReason::Shutdown), Version::Http11, [Close, UpgradeAndClose]),
            (None, Version::Http11, [Absent, Upgrade]),
            (None, Version::Http10, [KeepAlive, Upgrade]),
        ] {
            let facts = of(version, MethodKind::Other);
            let fields = [false, true].map(|upgrade| facts.connection_field(reason, upgrade));
            assert_eq!(fields, expected, "{reason:?} {version:?}");
        }
    }

    #[test]
    fn only_a_switch_and_a_connect_that_succeeds_hand_the_connection_over() {
        let statuses = [101, 200, 204, 299, 300, 404]
            .map(|status| StatusCode::from_u16(status).expect("it is valid"));
        for (method, expected) in [
            (MethodKind::Connect, [true, true, true, true, false, false]),
            (MethodKind::Other, [true, false, false, false, false, false]),
            (MethodKind::Head, [true, false, false, false, false, false]),
        ] {
            let facts = of(Version::Http11, method);
            assert_eq!(statuses.map(|status| facts.is_handed_over(status)), expected, "{method:?}");
        }
    }
}
