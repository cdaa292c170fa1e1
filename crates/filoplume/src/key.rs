//! The secret that cookies are signed and encrypted with. Only this file does cryptography with it.

use std::fmt;

use cookie::{Cookie, CookieJar};

use crate::core::error::{Error, Result};

/// Shortest secret that a key is made of: as long as the keys that are derived from it.
const SECRET_BYTES_MIN: usize = 32;

/// The length of a [mac](Key::mac): 32 bytes in base64.
pub(crate) const MAC_CHARS: usize = 44;

/// The secret that signs and encrypts cookies and sessions (HMAC-SHA256 and AES-256-GCM).
///
/// It comes from where secrets are kept, and stays the same over restarts and instances; with another one nobody is
/// known any more.
///
/// ```
/// use filoplume::Key;
///
/// // openssl rand -base64 48
/// let key = Key::from_secret("VHS0nCGlrZbdLnrBJNxYfNM7YvVpqKHIFHnbm0k54xTnAvrp9fm30Q4XhiFWVNqd")?;
/// assert!(Key::from_secret("too short").is_err());
/// # Ok::<(), filoplume::Error>(())
/// ```
#[derive(Clone)]
pub struct Key(cookie::Key);

impl Key {
    /// Returns a random key. What it signed is worth nothing after a restart: for tests and first steps.
    ///
    /// # Panics
    ///
    /// If the system has no randomness.
    pub fn generate() -> Self {
        Self(cookie::Key::generate())
    }

    /// Returns the key that is derived from a secret of at least 32 random bytes.
    ///
    /// # Errors
    ///
    /// If the secret is shorter; the message says how to make one.
    pub fn from_secret(secret: impl AsRef<[u8]>) -> Result<Self> {
        let secret = secret.as_ref();
        if secret.len() < SECRET_BYTES_MIN {
            return Err(Error::start_up(format!(
                "the secret of a key has {} bytes, and {SECRET_BYTES_MIN} are the least: \
                 make one with `openssl rand -base64 48`, or use `Key::generate()` in tests",
                secret.len()
            )));
        }
        Ok(Self(cookie::Key::derive_from(secret)))
    }

    /// Returns the key whose secret is in a variable of the environment.
    ///
    /// ```no_run
    /// use filoplume::Key;
    /// use filoplume::prelude::*;
    ///
    /// fn main() -> filoplume::Result<()> {
    ///     let sessions = middleware::Sessions::in_cookie(Key::from_env("SESSION_SECRET")?);
    ///     App::new().get("/", || "hi").with(sessions).listen("127.0.0.1:5000")
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// If the variable is not set, or its secret is too short.
    pub fn from_env(variable: &str) -> Result<Self> {
        let Some(secret) = std::env::var_os(variable) else {
            return Err(Error::start_up(format!(
                "the variable {variable} is not set: it holds the secret of a key, made with `openssl rand -base64 48`"
            )));
        };
        Self::from_secret(secret.as_encoded_bytes())
            .map_err(|error| Error::start_up(format!("the variable {variable}: {error}")))
    }

    /// The text with a mac before it. `purpose` is authenticated too, so that what was signed for one is not taken for
    /// another: the name of a cookie, such as.
    pub(crate) fn sign(&self, purpose: &str, text: &str) -> String {
        self.mac(purpose, text) + text
    }

    /// The text of what was [signed](Self::sign), if it was, for the same purpose.
    pub(crate) fn verify<'t>(&self, purpose: &str, signed: &'t str) -> Option<&'t str> {
        let (mac, text) = signed.split_at_checked(MAC_CHARS)?;
        // The crate compares in constant time; its own signature leaves the name of the cookie out.
        let cookie = Cookie::new("", format!("{mac}{}", bound(purpose, text)));
        CookieJar::new().signed(&self.0).verify(cookie).map(|_| text)
    }

    /// A keyed hash of the text, in base64.
    pub(crate) fn mac(&self, purpose: &str, text: &str) -> String {
        let mut jar = CookieJar::new();
        jar.signed_mut(&self.0).add(Cookie::new("", bound(purpose, text)));
        let mut signed = jar.get("").map(|cookie| cookie.value().to_owned()).unwrap_or_default();
        signed.truncate(MAC_CHARS);
        signed
    }

    /// The text encrypted and authenticated, with its purpose.
    pub(crate) fn seal(&self, purpose: &str, text: &str) -> String {
        let mut jar = CookieJar::new();
        jar.private_mut(&self.0).add(Cookie::new(purpose.to_owned(), text.to_owned()));
        jar.get(purpose).map(|cookie| cookie.value().to_owned()).unwrap_or_default()
    }

    /// The text of what was [sealed](Self::seal), if it was, for the same purpose.
    pub(crate) fn open(&self, purpose: &str, sealed: &str) -> Option<String> {
        let cookie = Cookie::new(purpose.to_owned(), sealed.to_owned());
        let opened = CookieJar::new().private(&self.0).decrypt(cookie)?;
        Some(opened.value().to_owned())
    }
}

/// Purpose and text as one. The length keeps `ab` + `c` and `a` + `bc` apart.
fn bound(purpose: &str, text: &str) -> String {
    format!("{}:{purpose}{text}", purpose.len())
}

impl TryFrom<&str> for Key {
    type Error = Error;

    fn try_from(secret: &str) -> Result<Self> {
        Self::from_secret(secret)
    }
}

impl TryFrom<&[u8]> for Key {
    type Error = Error;

    fn try_from(secret: &[u8]) -> Result<Self> {
        Self::from_secret(secret)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::from_secret([7; 32]).expect("it is long enough")
    }

    #[test]
    fn what_was_signed_is_verified_for_the_same_purpose_only() {
        let signed = key().sign("user", "ada");
        assert_eq!(key().verify("user", &signed), Some("ada"));
        assert_eq!(key().verify("admin", &signed), None);
        assert_eq!(key().verify("use", &signed), None);
        assert_eq!(Key::generate().verify("user", &signed), None);
    }

    #[test]
    fn what_was_changed_or_cut_is_not_verified() {
        for text in ["", "ada", "ä"] {
            let signed = key().sign("user", text);
            for at in 0..signed.len() {
                let mut changed = signed.clone().into_bytes();
                changed[at] ^= 1;
                let changed = String::from_utf8_lossy(&changed);
                assert_eq!(key().verify("user", &changed), None, "changed at {at}");
                if signed.is_char_boundary(at) {
                    assert_eq!(key().verify("user", &signed[..at]), None, "cut at {at}");
                }
            }
        }
        assert_eq!(key().verify("user", &"ü".repeat(44)), None);
    }

    #[test]
    fn what_was_sealed_is_opened_for_the_same_purpose_only() {
        let sealed = key().seal("cart", "three apples");
        assert!(!sealed.contains("apples"));
        assert_eq!(key().open("cart", &sealed).as_deref(), Some("three apples"));
        assert_eq!(key().open("user", &sealed), None);
        assert_eq!(Key::generate().open("cart", &sealed), None);
        assert_eq!(key().open("cart", &sealed[..sealed.len() - 4]), None);
        assert_eq!(key().open("cart", ""), None);
        assert_ne!(key().seal("cart", "three apples"), sealed, "each time with another nonce");
    }

    #[test]
    fn a_short_secret_is_refused_with_the_way_out() {
        let error = Key::from_secret("hunter2").map(drop).expect_err("it is short");
        assert!(error.to_string().contains("openssl rand -base64 48"), "{error}");
        let error = Key::from_env("FILOPLUME_TEST_NO_SUCH_VARIABLE").map(drop).expect_err("it is not set");
        assert!(error.to_string().contains("FILOPLUME_TEST_NO_SUCH_VARIABLE"), "{error}");
    }

    #[test]
    fn a_key_is_not_printed() {
        assert_eq!(format!("{:?}", key()), "Key(..)");
    }
}
