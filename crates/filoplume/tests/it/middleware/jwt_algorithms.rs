//! Each algorithm of tokens, against tokens that another implementation has signed: OpenSSL, by way
//! of Python's `cryptography`. The keys are for these tests only.

use std::time::Duration;

use filoplume::middleware::{Jwt, JwtAlgorithm, JwtError, JwtKey};
use serde_json::json;

const SECRET: &str = "a secret of sixty-four bytes, which is as long as HS512 wants it";

macro_rules! pair {
    ($name:literal) => {
        (
            include_str!(concat!("../assets/jwt/", $name, ".private.pem")),
            include_str!(concat!("../assets/jwt/", $name, ".public.pem")),
        )
    };
}

/// Returns a key that signs and checks, and one that only checks.
fn keys(algorithm: JwtAlgorithm) -> (JwtKey, JwtKey) {
    let (private, public) = match algorithm {
        JwtAlgorithm::HS256 => {
            return (JwtKey::hs256(SECRET).unwrap(), JwtKey::hs256(SECRET).unwrap());
        }
        JwtAlgorithm::HS512 => {
            return (JwtKey::hs512(SECRET).unwrap(), JwtKey::hs512(SECRET).unwrap());
        }
        JwtAlgorithm::ES256 => pair!("p256"),
        JwtAlgorithm::ES384 => pair!("p384"),
        JwtAlgorithm::EdDSA => pair!("ed25519"),
        _ => pair!("rsa"),
    };
    (
        JwtKey::pair_pem(algorithm, private, public).unwrap(),
        JwtKey::public_pem(algorithm, public).unwrap(),
    )
}

/// The algorithms, each with a token that another implementation has signed.
fn signed_elsewhere() -> Vec<(JwtAlgorithm, &'static str)> {
    let lines = include_str!("../assets/jwt/tokens.txt").lines();
    lines
        .map(|line| {
            let (algorithm, token) = line.split_once(' ').unwrap();
            (algorithm.parse().unwrap(), token)
        })
        .collect()
}

#[test]
fn tokens_of_another_implementation_are_valid_and_changed_ones_are_not() {
    assert_eq!(signed_elsewhere().len(), 11);
    for (algorithm, token) in signed_elsewhere() {
        let jwt = Jwt::new(keys(algorithm).1);
        assert_eq!(jwt.verify(token).unwrap()["sub"], "ada", "{algorithm:?}");
        let (message, signature) = token.rsplit_once('.').unwrap();
        let middle = signature.len() / 2;
        let other = if &signature[middle..=middle] == "A" { "B" } else { "A" };
        let changed =
            format!("{message}.{}{other}{}", &signature[..middle], &signature[middle + 1..]);
        assert_eq!(jwt.verify(&changed), Err(JwtError::Signature), "{algorithm:?}");
        for signature in ["", "AAAA", &signature[..signature.len() - 4]] {
            assert!(jwt.verify(&format!("{message}.{signature}")).is_err(), "{algorithm:?}");
        }
    }
}

#[test]
fn a_pair_of_keys_signs_what_its_public_key_accepts() {
    for (algorithm, _) in signed_elsewhere() {
        let (pair, public) = keys(algorithm);
        let token = Jwt::new(pair).issue(&json!({"sub": "ada"}), Duration::from_secs(60)).unwrap();
        assert_eq!(Jwt::new(public).verify(&token).unwrap()["sub"], "ada", "{algorithm:?}");
    }
}

#[test]
fn a_token_is_accepted_for_its_own_algorithm_only() {
    for (algorithm, token) in signed_elsewhere() {
        for (other, _) in signed_elsewhere().into_iter().filter(|(other, _)| *other != algorithm) {
            let verified = Jwt::new(keys(other).1).verify(token);
            assert_eq!(verified, Err(JwtError::Algorithm), "{algorithm:?} for {other:?}");
        }
    }
}
