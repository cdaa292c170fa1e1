//! Keys for tokens. Each key has exactly one algorithm.

use std::fmt;

use jsonwebtoken::{DecodingKey, EncodingKey};

use super::JwtAlgorithm;
use crate::core::error::{Error, Result};

/// A key of [`Jwt`](super::Jwt), with the only algorithm that it is used with.
///
/// ```
/// use filoplume::middleware::{Jwt, JwtKey};
///
/// let jwt = Jwt::new(JwtKey::hs256("a secret of 32 random bytes at least")?.id("2026"));
/// assert!(JwtKey::hs256("too short").is_err());
/// # Ok::<(), filoplume::Error>(())
/// ```
#[derive(Clone)]
pub struct JwtKey {
    pub(super) id: Option<String>,
    pub(super) algorithm: JwtAlgorithm,
    pub(super) verifies: DecodingKey,
    pub(super) signs: Option<EncodingKey>,
}

impl JwtKey {
    /// Returns a key for HMAC with SHA-256, from a secret of at least 32 random bytes (RFC 7518,
    /// 3.2).
    ///
    /// # Errors
    ///
    /// If the secret is shorter.
    pub fn hs256(secret: impl AsRef<[u8]>) -> Result<Self> {
        Self::hmac(JwtAlgorithm::HS256, 32, secret.as_ref())
    }

    /// Returns a key for HMAC with SHA-512, from a secret of at least 64 random bytes (RFC 7518,
    /// 3.2).
    ///
    /// # Errors
    ///
    /// If the secret is shorter.
    pub fn hs512(secret: impl AsRef<[u8]>) -> Result<Self> {
        Self::hmac(JwtAlgorithm::HS512, 64, secret.as_ref())
    }

    fn hmac(algorithm: JwtAlgorithm, bytes_min: usize, secret: &[u8]) -> Result<Self> {
        let length = secret.len();
        if length < bytes_min {
            return Err(Error::start_up(format!(
                "the secret for {algorithm:?} has {length} bytes, but needs at least {bytes_min} \
                 (RFC 7518, 3.2): make one with `openssl rand -base64 {}`",
                bytes_min * 3 / 2
            )));
        }
        Ok(Self {
            id: None,
            algorithm,
            verifies: DecodingKey::from_secret(secret),
            signs: Some(EncodingKey::from_secret(secret)),
        })
    }

    /// Returns a key that checks tokens of another issuer, from a public key in PEM format.
    /// Algorithms: RS, PS, ES, `EdDSA`.
    ///
    /// ```no_run
    /// use filoplume::middleware::{Jwt, JwtAlgorithm, JwtKey};
    ///
    /// let key = JwtKey::public_pem(JwtAlgorithm::ES256, std::fs::read("issuer.public.pem")?)?;
    /// let jwt = Jwt::new(key).issuer("https://auth.example").audience("notes");
    /// # Ok::<(), filoplume::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If it is not a public key for the algorithm.
    pub fn public_pem(algorithm: JwtAlgorithm, public: impl AsRef<[u8]>) -> Result<Self> {
        let verifies = match Family::of(algorithm) {
            Some(Family::Rsa) => DecodingKey::from_rsa_pem(public.as_ref()),
            Some(Family::Ec) => DecodingKey::from_ec_pem(public.as_ref()),
            Some(Family::Ed) => DecodingKey::from_ed_pem(public.as_ref()),
            None => {
                return Err(wrong_key(algorithm, "it works with a secret, not with a public key"));
            }
        };
        let verifies = verifies.map_err(|error| wrong_key(algorithm, &error.to_string()))?;
        Ok(Self { id: None, algorithm, verifies, signs: None })
    }

    /// Returns a key that issues and checks tokens, from a private and a public key in PEM format.
    /// Algorithms: RS, PS, ES, `EdDSA`.
    ///
    /// ```no_run
    /// use filoplume::middleware::{Jwt, JwtAlgorithm, JwtKey};
    ///
    /// let (private, public) = (std::fs::read("private.pem")?, std::fs::read("public.pem")?);
    /// let jwt = Jwt::new(JwtKey::pair_pem(JwtAlgorithm::EdDSA, private, public)?.id("2026"));
    /// # Ok::<(), filoplume::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If they are not keys for the algorithm.
    pub fn pair_pem(
        algorithm: JwtAlgorithm,
        private: impl AsRef<[u8]>,
        public: impl AsRef<[u8]>,
    ) -> Result<Self> {
        let mut key = Self::public_pem(algorithm, public)?;
        let signs = match Family::of(algorithm) {
            Some(Family::Rsa) => EncodingKey::from_rsa_pem(private.as_ref()),
            Some(Family::Ec) => EncodingKey::from_ec_pem(private.as_ref()),
            Some(Family::Ed) | None => EncodingKey::from_ed_pem(private.as_ref()),
        };
        key.signs = Some(signs.map_err(|error| wrong_key(algorithm, &error.to_string()))?);
        Ok(key)
    }

    /// Sets the name of the key (`kid`). A token that names this key is checked with no other one.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }
}

enum Family {
    Rsa,
    Ec,
    Ed,
}

impl Family {
    fn of(algorithm: JwtAlgorithm) -> Option<Self> {
        Some(match algorithm {
            JwtAlgorithm::HS256 | JwtAlgorithm::HS384 | JwtAlgorithm::HS512 => return None,
            JwtAlgorithm::ES256 | JwtAlgorithm::ES384 => Self::Ec,
            JwtAlgorithm::EdDSA => Self::Ed,
            _ => Self::Rsa,
        })
    }
}

fn wrong_key(algorithm: JwtAlgorithm, why: &str) -> Error {
    Error::start_up(format!("this is not a key for {algorithm:?}: {why}"))
}

impl fmt::Debug for JwtKey {
    // The secret is never printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("JwtKey");
        debug.field("id", &self.id).field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}
