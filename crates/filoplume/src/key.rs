//! The secret that signs and encrypts cookies. All cryptography with it is in this file.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use ring::{hkdf, hmac};

use crate::core::error::{Error, Result};

/// The minimum length of a secret: the length of the keys that are derived from it.
const SECRET_BYTES_MIN: usize = 32;

/// The length of each of the keys that are derived from the secret: for HMAC-SHA256 and for
/// AES-256-GCM.
const KEY_BYTES: usize = 32;

/// The purpose of the derived keys. The same secret gives different keys for another purpose (RFC
/// 5869, 3.2).
const DERIVED_FOR: &[u8] = b"filoplume cookies: HMAC-SHA256, AES-256-GCM";

/// The purpose of a [`server_timing_token`](Key::server_timing_token).
const SERVER_TIMING: &str = "server-timing";

/// How far ahead a token of this purpose may expire at most. A day is enough to look for a problem,
/// and a token that got lost is soon worthless.
const SERVER_TIMING_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The length of a [mac](Key::mac): 32 bytes in base64.
pub(crate) const MAC_CHARS: usize = 44;

/// The secret that signs and encrypts cookies and sessions (HMAC-SHA256 and AES-256-GCM).
///
/// Load it from a secret store. It must stay the same over restarts and on all instances; with
/// another key all clients are logged out.
///
/// ```
/// use filoplume::Key;
///
/// // openssl rand -base64 48
/// let key = Key::from_secret(
///     "VHS0nCGlrZbdLnrBJNxYfNM7YvVpqKHIFHnbm0k54xTnAvrp9fm30Q4XhiFWVNqd",
/// )?;
/// assert!(Key::from_secret("too short").is_err());
/// # Ok::<(), filoplume::Error>(())
/// ```
#[derive(Clone)]
pub struct Key(Arc<Keys>);

struct Keys {
    signing_key: hmac::Key,
    /// Its nonces are random, and made in [`Key::seal`] only.
    sealing_key: LessSafeKey,
}

impl Key {
    /// Returns a random key, for tests and first steps. Signatures become invalid with a restart.
    ///
    /// # Panics
    ///
    /// If the system provides no randomness.
    pub fn generate() -> Self {
        let mut secret = [0; SECRET_BYTES_MIN];
        fill_randomly(&mut secret);
        Self::derive_from(&secret)
    }

    /// Returns a key that is derived from a secret of at least 32 random bytes.
    ///
    /// # Errors
    ///
    /// If the secret is shorter. The message says how to create one.
    pub fn from_secret(secret: impl AsRef<[u8]>) -> Result<Self> {
        let secret = secret.as_ref();
        if secret.len() < SECRET_BYTES_MIN {
            return Err(Error::start_up(format!(
                "the secret of a key has {} bytes, but needs at least {SECRET_BYTES_MIN}: create \
                 one with `openssl rand -base64 48`, or use `Key::generate()` in tests",
                secret.len()
            )));
        }
        Ok(Self::derive_from(secret))
    }

    /// HKDF with SHA-256 (RFC 5869).
    fn derive_from(secret: &[u8]) -> Self {
        let mut derived = [0; 2 * KEY_BYTES];
        hkdf::Salt::new(hkdf::HKDF_SHA256, &[])
            .extract(secret)
            .expand(&[DERIVED_FOR], DerivedBytes)
            .and_then(|bytes| bytes.fill(&mut derived))
            .expect("HKDF gives up to 255 times the length of a hash");
        let (signing_key, sealing_key) = derived.split_at(KEY_BYTES);
        let sealing_key =
            UnboundKey::new(&AES_256_GCM, sealing_key).expect("it is as long as AES-256 wants it");
        Self(Arc::new(Keys {
            signing_key: hmac::Key::new(hmac::HMAC_SHA256, signing_key),
            sealing_key: LessSafeKey::new(sealing_key),
        }))
    }

    /// Returns a key whose secret is in an environment variable.
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
    /// If the variable is not set, or if its secret is too short.
    pub fn from_env(variable: &str) -> Result<Self> {
        let Some(secret) = std::env::var_os(variable) else {
            return Err(Error::start_up(format!(
                "the variable {variable} is not set: store the secret of a key in it, created with \
                 `openssl rand -base64 48`"
            )));
        };
        Self::from_secret(secret.as_encoded_bytes())
            .map_err(|error| Error::start_up(format!("the variable {variable}: {error}")))
    }

    /// Returns the text with a MAC before it. `purpose`, such as the name of a cookie, is
    /// authenticated too, so that a text signed for one purpose is not accepted for another.
    pub(crate) fn sign(&self, purpose: &str, text: &str) -> String {
        self.mac(purpose, text) + text
    }

    /// Returns the text of a [signed](Self::sign) value. Returns `None` if the signature is invalid
    /// or is for another purpose.
    pub(crate) fn verify<'t>(&self, purpose: &str, signed: &'t str) -> Option<&'t str> {
        let (mac, text) = signed.split_at_checked(MAC_CHARS)?;
        let mac = STANDARD.decode(mac).ok()?;
        // In constant time.
        hmac::verify(&self.0.signing_key, with_purpose(purpose, text).as_bytes(), &mac)
            .ok()
            .map(|()| text)
    }

    /// Returns a keyed hash of the text, in base64.
    pub(crate) fn mac(&self, purpose: &str, text: &str) -> String {
        STANDARD.encode(hmac::sign(&self.0.signing_key, with_purpose(purpose, text).as_bytes()))
    }

    /// Returns a token for the request field `x-server-timing`, with which a client is shown where
    /// the time of its requests went: see [`App::server_timing`](crate::App::server_timing). It is
    /// valid for this long from now on, in full seconds and for a day at most.
    ///
    /// The token is the time of its expiry in seconds since 1970, a dot, and a MAC in hexadecimal
    /// digits.
    ///
    /// ```
    /// use filoplume::Key;
    /// use std::time::Duration;
    ///
    /// let token = Key::generate().server_timing_token(Duration::from_secs(600));
    /// let (expiry, mac) = token.split_once('.').expect("they are separated");
    /// assert!(expiry.parse::<u64>().is_ok() && mac.len() == 64);
    /// ```
    pub fn server_timing_token(&self, valid_for: Duration) -> String {
        self.server_timing_token_at(SystemTime::now(), valid_for)
    }

    fn server_timing_token_at(&self, now: SystemTime, valid_for: Duration) -> String {
        let valid_for = valid_for.min(SERVER_TIMING_MAX).as_secs();
        let expiry = (seconds(now) + valid_for).to_string();
        let mac = hmac::sign(&self.0.signing_key, with_purpose(SERVER_TIMING, &expiry).as_bytes());
        let digits = mac.as_ref().iter().map(|byte| format!("{byte:02x}"));
        format!("{expiry}.{}", digits.collect::<String>())
    }

    /// Returns whether a [token](Self::server_timing_token) is from this key and valid now.
    pub(crate) fn is_server_timing_token(&self, token: &[u8], now: SystemTime) -> bool {
        let parse = |token| {
            let (expiry, mac) = std::str::from_utf8(token).ok()?.split_once('.')?;
            // `parse` would also accept a sign.
            let is_number = expiry.len() <= 20 && expiry.bytes().all(|byte| byte.is_ascii_digit());
            Some((expiry, expiry.parse::<u64>().ok().filter(|_| is_number)?, from_hex(mac)?))
        };
        let Some((text, expiry, mac)) = parse(token) else { return false };
        let now = seconds(now);
        if expiry <= now || expiry - now > SERVER_TIMING_MAX.as_secs() {
            return false;
        }
        // In constant time.
        let signed = with_purpose(SERVER_TIMING, text);
        hmac::verify(&self.0.signing_key, signed.as_bytes(), &mac).is_ok()
    }

    /// Encrypts and authenticates the text together with its purpose. Returns the nonce, the
    /// ciphertext and the tag in base64.
    pub(crate) fn seal(&self, purpose: &str, text: &str) -> String {
        let mut sealed = text.as_bytes().to_vec();
        let mut nonce = [0; NONCE_LEN];
        fill_randomly(&mut nonce);
        let unique = Nonce::assume_unique_for_key(nonce);
        self.0
            .sealing_key
            .seal_in_place_append_tag(unique, Aad::from(purpose), &mut sealed)
            .expect("a cookie is shorter than 64 GiB");
        STANDARD.encode([&nonce, &*sealed].concat())
    }

    /// Returns the text of a [sealed](Self::seal) value. Returns `None` if the value is invalid or
    /// is for another purpose.
    pub(crate) fn open(&self, purpose: &str, sealed: &str) -> Option<String> {
        let mut bytes = STANDARD.decode(sealed).ok()?;
        let (nonce, sealed) = bytes.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let opened = self.0.sealing_key.open_in_place(nonce, Aad::from(purpose), sealed).ok()?;
        Some(std::str::from_utf8(opened).ok()?.to_owned())
    }
}

/// The number of bytes that are derived from a secret.
struct DerivedBytes;

impl hkdf::KeyType for DerivedBytes {
    fn len(&self) -> usize {
        2 * KEY_BYTES
    }
}

fn fill_randomly(bytes: &mut [u8]) {
    SystemRandom::new().fill(bytes).expect("the system has randomness");
}

/// Joins purpose and text. The length prefix distinguishes `ab` + `c` from `a` + `bc`.
fn with_purpose(purpose: &str, text: &str) -> String {
    format!("{}:{purpose}{text}", purpose.len())
}

/// Returns the seconds since 1970, or 0 for an earlier time.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Returns the bytes of a MAC in lower-case hexadecimal digits.
fn from_hex(text: &str) -> Option<[u8; 32]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; 32];
    if text.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let &[high, low] = pair else { return None };
        *byte = digit(high)? << 4 | digit(low)?;
    }
    Some(bytes)
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
    fn a_signature_is_valid_for_its_purpose_only() {
        let signed = key().sign("user", "ada");
        assert_eq!(key().verify("user", &signed), Some("ada"));
        assert_eq!(key().verify("admin", &signed), None);
        assert_eq!(key().verify("use", &signed), None);
        assert_eq!(Key::generate().verify("user", &signed), None);
    }

    #[test]
    fn a_changed_or_truncated_text_is_rejected() {
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
    fn a_sealed_text_opens_for_its_purpose_only() {
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
    fn a_server_timing_token_is_valid_until_it_expires() {
        let now = UNIX_EPOCH + Duration::from_secs(1_790_000_000);
        let at = |seconds: u64| now + Duration::from_secs(seconds);
        let token = key().server_timing_token_at(now, Duration::from_secs(600));
        let is_valid = |token: &str, at| key().is_server_timing_token(token.as_bytes(), at);
        assert!(token.starts_with("1790000600."), "{token}");
        assert!(is_valid(&token, now) && is_valid(&token, at(599)), "it can be used repeatedly");
        assert!(!is_valid(&token, at(600)) && !is_valid(&token, at(1_000_000)), "it has expired");
        assert!(!Key::generate().is_server_timing_token(token.as_bytes(), now), "another key");
        // A day is the maximum, also for tokens that other programs have made.
        let week = Duration::from_secs(7 * 86_400);
        let longest = key().server_timing_token_at(now, week);
        assert!(longest.starts_with("1790086400."), "{longest}");
        assert!(is_valid(&longest, now) && is_valid(&longest, at(86_399)));
        let early = now.checked_sub(Duration::from_secs(1)).expect("it is after 1970");
        assert!(!is_valid(&longest, early), "it is too far ahead");
    }

    #[test]
    fn a_forged_server_timing_token_is_rejected() {
        let now = UNIX_EPOCH + Duration::from_secs(1_790_000_000);
        let token = key().server_timing_token_at(now, Duration::from_secs(600));
        let is_valid = |token: &[u8]| key().is_server_timing_token(token, now);
        assert!(is_valid(token.as_bytes()));
        for at in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[at] ^= 1;
            assert!(!is_valid(&changed), "changed at {at}");
            assert!(!is_valid(&token.as_bytes()[..at]), "cut at {at}");
        }
        let (expiry, mac) = token.split_once('.').expect("it has a dot");
        let signed = key().sign("server-timing", expiry);
        let other = key().sign("cart", expiry);
        for forged in [
            format!("{token}0"),
            format!("+{token}"),
            format!("0{token}"),
            format!("{expiry}.{}", mac.to_uppercase()),
            format!("99999999999999999999999.{mac}"),
            format!(".{mac}"),
            expiry.to_owned(),
            signed,
            other,
            "\u{fc}".repeat(40),
        ] {
            assert!(!is_valid(forged.as_bytes()), "{forged}");
        }
        assert!(!is_valid(b"\xff"));
    }

    /// Sessions outlive the program, so values that an older version wrote must stay readable.
    #[test]
    fn values_of_older_versions_are_readable() {
        assert_eq!(
            key().verify("user", "Csp/uqN0Va+5EbfP3y6Jum6emb3EJPDvK4ZDSlERpW0=ada"),
            Some("ada")
        );
        assert_eq!(
            key()
                .open("cart", "toc/j+IGnWEzprFxptzG6NqCSn/re7UI9S/NImLGLLQQjEIa9LwuOg==")
                .as_deref(),
            Some("three apples")
        );
    }

    #[test]
    fn a_changed_sealed_text_is_rejected() {
        let sealed = key().seal("cart", "ä");
        for at in 0..sealed.len() {
            let mut changed = sealed.clone().into_bytes();
            changed[at] ^= 1;
            assert_eq!(
                key().open("cart", &String::from_utf8_lossy(&changed)),
                None,
                "changed at {at}"
            );
            assert_eq!(key().open("cart", &sealed[..at]), None, "cut at {at}");
        }
        assert_eq!(key().open("", &key().seal("", "")).as_deref(), Some(""));
    }

    #[test]
    fn a_short_secret_is_refused_with_the_way_out() {
        let error = Key::from_secret("hunter2").map(drop).expect_err("it is short");
        assert!(error.to_string().contains("openssl rand -base64 48"), "{error}");
        let error =
            Key::from_env("FILOPLUME_TEST_NO_SUCH_VARIABLE").map(drop).expect_err("it is not set");
        assert!(error.to_string().contains("FILOPLUME_TEST_NO_SUCH_VARIABLE"), "{error}");
    }

    #[test]
    fn a_key_is_not_printed() {
        assert_eq!(format!("{:?}", key()), "Key(..)");
    }
}
