//! Which fields may hold a credential, and how they are shown.

use std::borrow::Cow;

/// A field whose name contains one of these may hold a credential.
const SECRETS: [&str; 9] =
    ["auth", "cookie", "token", "secret", "password", "key", "session", "credential", "signature"];

pub(super) fn is_secret(name: &str) -> bool {
    let name = name.as_bytes();
    SECRETS.iter().any(|secret| {
        name.windows(secret.len()).any(|window| window.eq_ignore_ascii_case(secret.as_bytes()))
    })
}

/// Returns the value for a log: secret values are hidden.
pub(super) fn redacted<'a>(name: &str, value: &'a [u8]) -> Cow<'a, str> {
    if is_secret(name) {
        return format!("(hidden, {} bytes)", value.len()).into();
    }
    String::from_utf8_lossy(value)
}
