//! The handshake: an HTTP request that becomes a WebSocket (RFC 6455 section 4).
//!
//! Fields are passed as pairs of name and value, so that any HTTP library can be used.

use std::error::Error;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

/// The version of the protocol, for `Sec-WebSocket-Version`.
pub const VERSION: &str = "13";

/// What is appended to a key before it is hashed (RFC 6455 section 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Maximum number of subprotocols that a client may offer.
const SUBPROTOCOLS_MAX: usize = 32;

/// Why a handshake failed.
///
/// ```
/// use filoplume_websocket::{HandshakeError, HandshakeRequest};
///
/// let fields = [("host", "example.org")];
/// let refused = HandshakeRequest::parse("GET", fields).unwrap_err();
/// assert_eq!(refused, HandshakeError::UpgradeMissing);
/// assert_eq!(refused.status(), 426);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The method is not `GET`.
    MethodInvalid,
    /// `Upgrade` does not name `websocket`.
    UpgradeMissing,
    /// `Connection` does not name `upgrade`.
    ConnectionMissing,
    /// `Sec-WebSocket-Version` is missing or is not 13.
    VersionUnsupported,
    /// `Sec-WebSocket-Key` is missing, repeated or not 16 bytes in base64.
    KeyInvalid,
    /// `Sec-WebSocket-Protocol` is not a list of different tokens.
    SubprotocolsInvalid,
    /// The status of the response is not 101.
    StatusInvalid,
    /// `Sec-WebSocket-Accept` does not match the key.
    AcceptInvalid,
    /// The server chose a subprotocol that was not offered.
    SubprotocolUnexpected,
    /// The server chose an extension or a parameter that was not offered.
    ExtensionUnexpected,
}

impl HandshakeError {
    /// Returns the status of a server's response. A response with 426 must also have
    /// `Upgrade: websocket` and `Sec-WebSocket-Version: 13`.
    pub const fn status(self) -> u16 {
        match self {
            Self::MethodInvalid => 405,
            Self::UpgradeMissing | Self::VersionUnsupported => 426,
            _ => 400,
        }
    }
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MethodInvalid => "the method of a WebSocket handshake is GET",
            Self::UpgradeMissing => "the request has no `Upgrade: websocket`",
            Self::ConnectionMissing => "the request has no `Connection: Upgrade`",
            Self::VersionUnsupported => "the version of the WebSocket protocol is not 13",
            Self::KeyInvalid => "Sec-WebSocket-Key is not 16 bytes in base64",
            Self::SubprotocolsInvalid => "Sec-WebSocket-Protocol is not a list of different names",
            Self::StatusInvalid => "the status of the response is not 101",
            Self::AcceptInvalid => "Sec-WebSocket-Accept does not match the key",
            Self::SubprotocolUnexpected => "the server chose a subprotocol that was not offered",
            Self::ExtensionUnexpected => "the server chose an extension that was not offered",
        })
    }
}

impl Error for HandshakeError {}

/// A client's handshake, as a server sees it.
///
/// ```
/// use filoplume_websocket::HandshakeRequest;
///
/// let request = HandshakeRequest::parse(
///     "GET",
///     [
///         ("Upgrade", "websocket"),
///         ("Connection", "keep-alive, Upgrade"),
///         ("Sec-WebSocket-Version", "13"),
///         ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
///         ("Sec-WebSocket-Protocol", "chat, superchat"),
///     ],
/// )?;
/// assert_eq!(request.accept_key(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
/// assert_eq!(request.choose_subprotocol(&["superchat", "chat"]), Some("superchat"));
/// # Ok::<(), filoplume_websocket::HandshakeError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandshakeRequest {
    accept_key: String,
    subprotocols: Vec<String>,
    extensions: String,
}

impl HandshakeRequest {
    /// Reads the method and the fields of a request.
    ///
    /// # Errors
    ///
    /// Returns why the request is not a handshake.
    pub fn parse<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        method: &str,
        fields: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, HandshakeError> {
        let mut found = Fields::default();
        for (name, value) in fields {
            found.add(name.as_ref(), value.as_ref());
        }
        if method != "GET" {
            return Err(HandshakeError::MethodInvalid);
        }
        if !found.upgrades {
            return Err(HandshakeError::UpgradeMissing);
        }
        if !found.connection_upgrades {
            return Err(HandshakeError::ConnectionMissing);
        }
        if found.version.once() != Some(VERSION) {
            return Err(HandshakeError::VersionUnsupported);
        }
        let key = found.key.once().filter(|key| is_key(key)).ok_or(HandshakeError::KeyInvalid)?;
        let subprotocols =
            subprotocols(&found.subprotocols).ok_or(HandshakeError::SubprotocolsInvalid)?;
        Ok(Self { accept_key: accept_key(key), subprotocols, extensions: found.extensions })
    }

    /// Returns the value of `Sec-WebSocket-Accept`.
    pub fn accept_key(&self) -> &str {
        &self.accept_key
    }

    /// Returns the subprotocols that the client offers, the preferred one first.
    pub fn subprotocols(&self) -> impl Iterator<Item = &str> {
        self.subprotocols.iter().map(String::as_str)
    }

    /// Returns the first of the server's subprotocols that the client offers.
    pub fn choose_subprotocol<'a>(&self, supported: &[&'a str]) -> Option<&'a str> {
        let offered = |name: &&&str| self.subprotocols.iter().any(|offer| offer == **name);
        supported.iter().find(offered).copied()
    }

    /// Returns the extensions that the client offers, as one value even if they came in several
    /// fields.
    pub fn extensions(&self) -> &str {
        &self.extensions
    }
}

/// A client's side of the handshake.
///
/// ```
/// use filoplume_websocket::ClientHandshake;
///
/// // The key consists of 16 random bytes.
/// let handshake = ClientHandshake::new(*b"the sample nonce");
/// assert_eq!(handshake.key(), "dGhlIHNhbXBsZSBub25jZQ==");
/// let response = [
///     ("Upgrade", "websocket"),
///     ("Connection", "Upgrade"),
///     ("Sec-WebSocket-Accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
/// ];
/// let accepted = handshake.verify(101, response, &[])?;
/// assert_eq!(accepted.subprotocol, None);
/// # Ok::<(), filoplume_websocket::HandshakeError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientHandshake {
    key: String,
}

/// What a server agreed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandshakeResponse {
    /// The subprotocol that the server chose.
    pub subprotocol: Option<String>,
    /// The value of `Sec-WebSocket-Extensions`, or an empty string if there is no such field. A
    /// client that offered no extension has to fail the connection if this is not empty. A client
    /// that offered one has to check the value.
    pub extensions: String,
}

impl ClientHandshake {
    /// Begins a handshake with 16 random bytes.
    pub fn new(nonce: [u8; 16]) -> Self {
        Self { key: STANDARD.encode(nonce) }
    }

    /// Returns the value of `Sec-WebSocket-Key`.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the fields that make a request a handshake, besides `Host`, subprotocols and
    /// extensions.
    pub fn fields(&self) -> [(&'static str, &str); 4] {
        [
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Version", VERSION),
            ("Sec-WebSocket-Key", &self.key),
        ]
    }

    /// Checks the server's response.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with the response. The client closes the connection then.
    pub fn verify<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        status: u16,
        fields: impl IntoIterator<Item = (N, V)>,
        subprotocols: &[&str],
    ) -> Result<HandshakeResponse, HandshakeError> {
        let mut found = Fields::default();
        for (name, value) in fields {
            found.add(name.as_ref(), value.as_ref());
        }
        if status != 101 {
            return Err(HandshakeError::StatusInvalid);
        }
        if !found.upgrades {
            return Err(HandshakeError::UpgradeMissing);
        }
        if !found.connection_upgrades {
            return Err(HandshakeError::ConnectionMissing);
        }
        if found.accept.once() != Some(accept_key(&self.key).as_str()) {
            return Err(HandshakeError::AcceptInvalid);
        }
        let subprotocol = match found.subprotocols.as_str() {
            "" => None,
            chosen if subprotocols.contains(&chosen) => Some(chosen.to_owned()),
            _ => return Err(HandshakeError::SubprotocolUnexpected),
        };
        Ok(HandshakeResponse { subprotocol, extensions: found.extensions })
    }
}

/// The fields of a handshake.
#[derive(Default)]
struct Fields {
    upgrades: bool,
    connection_upgrades: bool,
    version: Single,
    key: Single,
    accept: Single,
    subprotocols: String,
    extensions: String,
}

/// A field that may occur once.
#[derive(Default)]
enum Single {
    #[default]
    Absent,
    Once(String),
    Repeated,
}

impl Single {
    fn add(&mut self, value: &str) {
        *self = match self {
            Self::Absent => Self::Once(value.to_owned()),
            Self::Once(_) | Self::Repeated => Self::Repeated,
        };
    }

    fn once(&self) -> Option<&str> {
        match self {
            Self::Once(value) => Some(value),
            Self::Absent | Self::Repeated => None,
        }
    }
}

impl Fields {
    fn add(&mut self, name: &[u8], value: &[u8]) {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        // A value that is not text becomes one that no rule below accepts.
        let value = std::str::from_utf8(value).unwrap_or("\u{fffd}").trim_matches([' ', '\t']);
        if is("upgrade") {
            self.upgrades |= names(value, "websocket");
        } else if is("connection") {
            self.connection_upgrades |= names(value, "upgrade");
        } else if is("sec-websocket-version") {
            self.version.add(value);
        } else if is("sec-websocket-key") {
            self.key.add(value);
        } else if is("sec-websocket-accept") {
            self.accept.add(value);
        } else if is("sec-websocket-protocol") {
            join(&mut self.subprotocols, value);
        } else if is("sec-websocket-extensions") {
            join(&mut self.extensions, value);
        }
    }
}

/// A field that occurs several times is a list (RFC 9110 section 5.3).
fn join(list: &mut String, value: &str) {
    if !list.is_empty() {
        list.push_str(", ");
    }
    list.push_str(value);
}

fn names(list: &str, name: &str) -> bool {
    list.split(',').any(|item| item.trim_matches([' ', '\t']).eq_ignore_ascii_case(name))
}

/// Returns the subprotocols in a list, or `None` if a name is empty, not a token or repeated.
fn subprotocols(list: &str) -> Option<Vec<String>> {
    let mut found: Vec<String> = Vec::new();
    if list.is_empty() {
        return Some(found);
    }
    for name in list.split(',') {
        let name = name.trim_matches([' ', '\t']);
        let is_token = !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(&byte));
        if !is_token || found.len() == SUBPROTOCOLS_MAX || found.iter().any(|other| other == name) {
            return None;
        }
        found.push(name.to_owned());
    }
    Some(found)
}

fn is_key(key: &str) -> bool {
    STANDARD.decode(key).is_ok_and(|nonce| nonce.len() == 16)
}

fn accept_key(key: &str) -> String {
    let mut hash = Sha1::new();
    hash.update(key.as_bytes());
    hash.update(GUID);
    STANDARD.encode(hash.finalize())
}
