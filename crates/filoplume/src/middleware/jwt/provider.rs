//! The cryptography of tokens, by `ring`: the provider that TLS and cookies use too.
//!
//! `jsonwebtoken` comes with two providers of its own. `aws-lc-rs` would be a second library of
//! cryptography beside the one of TLS, and the `rsa` crate that the other provider uses leaks its
//! key through its timing (RUSTSEC-2023-0071). This file only chooses algorithms; it computes
//! nothing.

use jsonwebtoken::crypto::{CryptoProvider, JwkUtils, JwtSigner, JwtVerifier};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::jwk::{EllipticCurve, ThumbprintHash};
use jsonwebtoken::signature::{Error as SignatureError, Signer, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::digest::{SHA256, SHA384, SHA512, digest};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature as by_ring;
use ring::signature::{
    EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, RsaEncoding, RsaKeyPair,
    RsaParameters, UnparsedPublicKey, VerificationAlgorithm,
};

static RING: CryptoProvider = CryptoProvider {
    signer_factory: |algorithm, key| {
        Ok(Box::new(RingSigner { algorithm: *algorithm, key: SigningKey::new(*algorithm, key)? }))
    },
    verifier_factory: |algorithm, key| {
        let key = VerifyingKey::new(*algorithm, key)?;
        Ok(Box::new(RingVerifier { algorithm: *algorithm, key }))
    },
    jwk_utils: JwkUtils {
        extract_rsa_public_key_components: rsa_components,
        extract_ec_public_key_coordinates: ec_coordinates,
        compute_digest: |data, hash| {
            let algorithm = match hash {
                ThumbprintHash::SHA256 => &SHA256,
                ThumbprintHash::SHA384 => &SHA384,
                ThumbprintHash::SHA512 => &SHA512,
            };
            digest(algorithm, data).as_ref().to_vec()
        },
    },
};

/// Makes `jsonwebtoken` use `ring`, unless the program has chosen a provider for its own tokens.
pub(super) fn install() {
    let _ = RING.install_default();
}

struct RingSigner {
    algorithm: Algorithm,
    key: SigningKey,
}

enum SigningKey {
    Hmac(hmac::Key),
    Rsa(RsaKeyPair, &'static dyn RsaEncoding),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
}

impl SigningKey {
    fn new(algorithm: Algorithm, key: &EncodingKey) -> Result<Self> {
        let scheme = Scheme::of(algorithm);
        // A public key must never be taken for a secret.
        if key.family() != scheme.family() {
            return Err(ErrorKind::InvalidKeyFormat.into());
        }
        let bytes = key.inner();
        Ok(match scheme {
            Scheme::Hmac(hash) => Self::Hmac(hmac::Key::new(hash, bytes)),
            Scheme::Rsa { signs, .. } => Self::Rsa(rsa_pair(bytes)?, signs),
            Scheme::Ec { signs, .. } => Self::Ec(ec_pair(signs, bytes)?),
            Scheme::Ed => {
                // Keys that OpenSSL makes have no public half, which `from_pkcs8` requires for a
                // comparison.
                let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(bytes);
                Self::Ed(pair.map_err(|_| ErrorKind::InvalidEddsaKey)?)
            }
        })
    }
}

impl Signer<Vec<u8>> for RingSigner {
    fn try_sign(&self, message: &[u8]) -> std::result::Result<Vec<u8>, SignatureError> {
        let random = SystemRandom::new();
        Ok(match &self.key {
            SigningKey::Hmac(key) => hmac::sign(key, message).as_ref().to_vec(),
            SigningKey::Rsa(pair, encoding) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(*encoding, &random, message, &mut signature)
                    .map_err(|_| SignatureError::new())?;
                signature
            }
            SigningKey::Ec(pair) => {
                let signed = pair.sign(&random, message).map_err(|_| SignatureError::new())?;
                signed.as_ref().to_vec()
            }
            SigningKey::Ed(pair) => pair.sign(message).as_ref().to_vec(),
        })
    }
}

impl JwtSigner for RingSigner {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

struct RingVerifier {
    algorithm: Algorithm,
    key: VerifyingKey,
}

enum VerifyingKey {
    Hmac(hmac::Key),
    Public(UnparsedPublicKey<Vec<u8>>),
    RsaComponents(PublicKeyComponents<Vec<u8>>, &'static RsaParameters),
}

impl VerifyingKey {
    fn new(algorithm: Algorithm, key: &DecodingKey) -> Result<Self> {
        let scheme = Scheme::of(algorithm);
        if key.family() != scheme.family() {
            return Err(ErrorKind::InvalidKeyFormat.into());
        }
        let public = |algorithm: &'static dyn VerificationAlgorithm, bytes: &[u8]| {
            Self::Public(UnparsedPublicKey::new(algorithm, bytes.to_vec()))
        };
        Ok(match (scheme, key.kind()) {
            (Scheme::Hmac(hash), _) => Self::Hmac(hmac::Key::new(hash, key.try_get_hmac_secret()?)),
            (Scheme::Rsa { verifies, .. }, DecodingKeyKind::RsaModulusExponent { n, e }) => {
                let components = PublicKeyComponents { n: n.clone(), e: e.clone() };
                Self::RsaComponents(components, verifies)
            }
            (Scheme::Rsa { verifies, .. }, DecodingKeyKind::SecretOrDer(bytes)) => {
                public(verifies, bytes)
            }
            (Scheme::Ec { verifies, .. }, DecodingKeyKind::SecretOrDer(bytes)) => {
                public(verifies, bytes)
            }
            (Scheme::Ed, DecodingKeyKind::SecretOrDer(bytes)) => public(&by_ring::ED25519, bytes),
            (Scheme::Ec { .. } | Scheme::Ed, DecodingKeyKind::RsaModulusExponent { .. }) => {
                return Err(ErrorKind::InvalidKeyFormat.into());
            }
        })
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(
        &self,
        message: &[u8],
        signature: &Vec<u8>,
    ) -> std::result::Result<(), SignatureError> {
        let verified = match &self.key {
            // In constant time.
            VerifyingKey::Hmac(key) => hmac::verify(key, message, signature),
            VerifyingKey::Public(key) => key.verify(message, signature),
            VerifyingKey::RsaComponents(key, parameters) => {
                key.verify(parameters, message, signature)
            }
        };
        verified.map_err(|_| SignatureError::new())
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

/// What `ring` calls an algorithm of tokens (RFC 7518, 3.1, and RFC 8037).
enum Scheme {
    Hmac(hmac::Algorithm),
    Rsa { signs: &'static dyn RsaEncoding, verifies: &'static RsaParameters },
    Ec { signs: &'static EcdsaSigningAlgorithm, verifies: &'static dyn VerificationAlgorithm },
    Ed,
}

impl Scheme {
    fn of(algorithm: Algorithm) -> Self {
        let rsa = |signs, verifies| Self::Rsa { signs, verifies };
        match algorithm {
            Algorithm::HS256 => Self::Hmac(hmac::HMAC_SHA256),
            Algorithm::HS384 => Self::Hmac(hmac::HMAC_SHA384),
            Algorithm::HS512 => Self::Hmac(hmac::HMAC_SHA512),
            Algorithm::RS256 => {
                rsa(&by_ring::RSA_PKCS1_SHA256, &by_ring::RSA_PKCS1_2048_8192_SHA256)
            }
            Algorithm::RS384 => {
                rsa(&by_ring::RSA_PKCS1_SHA384, &by_ring::RSA_PKCS1_2048_8192_SHA384)
            }
            Algorithm::RS512 => {
                rsa(&by_ring::RSA_PKCS1_SHA512, &by_ring::RSA_PKCS1_2048_8192_SHA512)
            }
            Algorithm::PS256 => rsa(&by_ring::RSA_PSS_SHA256, &by_ring::RSA_PSS_2048_8192_SHA256),
            Algorithm::PS384 => rsa(&by_ring::RSA_PSS_SHA384, &by_ring::RSA_PSS_2048_8192_SHA384),
            Algorithm::PS512 => rsa(&by_ring::RSA_PSS_SHA512, &by_ring::RSA_PSS_2048_8192_SHA512),
            Algorithm::ES256 => Self::Ec {
                signs: &by_ring::ECDSA_P256_SHA256_FIXED_SIGNING,
                verifies: &by_ring::ECDSA_P256_SHA256_FIXED,
            },
            Algorithm::ES384 => Self::Ec {
                signs: &by_ring::ECDSA_P384_SHA384_FIXED_SIGNING,
                verifies: &by_ring::ECDSA_P384_SHA384_FIXED,
            },
            Algorithm::EdDSA => Self::Ed,
        }
    }

    fn family(&self) -> AlgorithmFamily {
        match self {
            Self::Hmac(_) => AlgorithmFamily::Hmac,
            Self::Rsa { .. } => AlgorithmFamily::Rsa,
            Self::Ec { .. } => AlgorithmFamily::Ec,
            Self::Ed => AlgorithmFamily::Ed,
        }
    }
}

fn rsa_pair(der: &[u8]) -> Result<RsaKeyPair> {
    let pair = RsaKeyPair::from_der(der);
    Ok(pair.map_err(|error| ErrorKind::InvalidRsaKey(error.to_string()))?)
}

fn ec_pair(algorithm: &'static EcdsaSigningAlgorithm, der: &[u8]) -> Result<EcdsaKeyPair> {
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, der, &SystemRandom::new());
    Ok(pair.map_err(|_| ErrorKind::InvalidEcdsaKey)?)
}

/// Returns modulus and exponent. This crate does not need them, but the program may make keys of
/// its own.
fn rsa_components(der: &[u8]) -> Result<(Vec<u8>, Vec<u8>)> {
    let components = PublicKeyComponents::<Vec<u8>>::from(rsa_pair(der)?.public());
    Ok((components.n, components.e))
}

/// Returns the curve and the point of a public key, also for keys of the program.
fn ec_coordinates(der: &[u8], algorithm: Algorithm) -> Result<(EllipticCurve, Vec<u8>, Vec<u8>)> {
    let invalid = || ErrorKind::InvalidEcdsaKey.into();
    let curve = match algorithm {
        Algorithm::ES256 => EllipticCurve::P256,
        Algorithm::ES384 => EllipticCurve::P384,
        _ => return Err(invalid()),
    };
    let Scheme::Ec { signs, .. } = Scheme::of(algorithm) else { return Err(invalid()) };
    let pair = ec_pair(signs, der)?;
    // An uncompressed point (SEC 1, 2.3.3).
    let Some((4, point)) = pair.public_key().as_ref().split_first() else { return Err(invalid()) };
    let (x, y) = point.split_at(point.len() / 2);
    Ok((curve, x.to_vec(), y.to_vec()))
}
