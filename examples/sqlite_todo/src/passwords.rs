//! Hashes of passwords, as docs/guide/sessions.md describes.

use std::sync::LazyLock;

use argon2::password_hash::rand_core::OsRng;
use argon2::password_hash::{PasswordHash, SaltString};
use argon2::{Argon2, PasswordHasher, PasswordVerifier};
use filoplume::{Error, Result};

/// Returns the text to store.
pub(crate) fn hash(password: &str) -> Result<String> {
    let salt = SaltString::generate(&mut OsRng);
    let hash = Argon2::default().hash_password(password.as_bytes(), &salt);
    Ok(hash.map_err(|error| Error::internal(error.to_string()))?.to_string())
}

/// Checks a password against the stored text, `None` for an unknown name. An unknown name takes as
/// long as a wrong password, so the time does not reveal which names exist.
pub(crate) fn is_right(password: &str, stored: Option<&str>) -> Result<bool> {
    static NOBODY: LazyLock<String> = LazyLock::new(|| hash("nobody").unwrap_or_default());
    let hash = PasswordHash::new(stored.unwrap_or(&NOBODY));
    let hash = hash.map_err(|error| Error::internal(error.to_string()))?;
    let matches = Argon2::default().verify_password(password.as_bytes(), &hash).is_ok();
    Ok(matches && stored.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_password_of_a_user_is_right() {
        let stored = hash("correct horse").unwrap();
        assert!(is_right("correct horse", Some(&stored)).unwrap());
        assert!(!is_right("correct", Some(&stored)).unwrap());
        assert!(!is_right("nobody", None).unwrap());
        assert!(is_right("correct horse", Some("no hash")).is_err());
    }
}
