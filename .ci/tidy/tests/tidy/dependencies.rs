//! A program has one library of cryptography. A second one would also have to be built, and watched
//! for advisories.

use crate::source::read;

/// The libraries that compute signatures and key exchanges, or that others build for that.
const PROVIDERS: &[&str] = &[
    "aws-lc-fips-sys",
    "aws-lc-rs",
    "aws-lc-sys",
    "boring",
    "boring-sys",
    "ed25519-dalek",
    "graviola",
    "mbedtls",
    "openssl",
    "openssl-sys",
    "p256",
    "ring",
    "rsa",
    "wolfssl",
];

/// The lock files of workspaces that build the framework. That of `examples/deployment` is not
/// among them: the client library of PostgreSQL brings OpenSSL.
const LOCK_FILES: &[&str] =
    &["Cargo.lock", "crates/filoplume/fuzz/Cargo.lock", "crates/runtime/fuzz/Cargo.lock"];

#[test]
fn all_features_have_one_library_of_cryptography() {
    for path in LOCK_FILES {
        assert_eq!(providers(&read(path)), ["ring"], "{path}");
    }
}

/// Returns the libraries of cryptography that a lock file names.
fn providers(lock_file: &str) -> Vec<&str> {
    let names =
        lock_file.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    names.filter(|name| PROVIDERS.contains(name)).collect()
}

#[test]
fn a_second_library_is_found() {
    let lock_file = "[[package]]\nname = \"aws-lc-rs\"\nversion = \"1.19.0\"\n\n\
                     [[package]]\nname = \"base64\"\n\n[[package]]\nname = \"ring\"\n";
    assert_eq!(providers(lock_file), ["aws-lc-rs", "ring"]);
}
