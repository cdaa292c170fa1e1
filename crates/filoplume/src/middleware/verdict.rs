//! The result of a check of credentials, and a comparison in constant time.

use subtle::ConstantTimeEq;

use crate::core::error::{Error, Result};

/// The result of a closure of [`BasicAuth`](crate::middleware::BasicAuth) or
/// [`BearerAuth`](crate::middleware::BearerAuth): a `bool`, or an `Option` with the user, which
/// handlers take as [`Extension`](crate::Extension). Either can be in a `Result`, if the check can
/// fail.
///
/// ```
/// use filoplume::middleware::BearerAuth;
/// use filoplume::prelude::*;
/// use std::io;
///
/// #[derive(Clone)]
/// struct User(String);
///
/// /// `Err` if the tokens cannot be read, `None` if this one is not among them.
/// fn user_of(token: &str) -> io::Result<Option<User>> {
///     Ok((token == "t0ken").then(|| User("ada".to_owned())))
/// }
///
/// let app = App::new()
///     .get("/", |Extension(User(name)): Extension<User>| name)
///     .with(BearerAuth::new(user_of));
/// app.test().get("/").bearer("t0ken").send().assert_text("ada");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say whether credentials are right",
    note = "return `bool`, `Option<User>` with `User: Clone + Send + Sync + 'static`, or a \
            `Result` of these"
)]
pub trait Verdict {
    /// The user or client.
    type Identity: Clone + Send + Sync + 'static;

    /// Returns the user or client, or `None` if the credentials are wrong.
    ///
    /// # Errors
    ///
    /// If the credentials could not be checked.
    fn into_identity(self) -> Result<Option<Self::Identity>>;
}

impl Verdict for bool {
    type Identity = ();

    fn into_identity(self) -> Result<Option<()>> {
        Ok(self.then_some(()))
    }
}

impl<T: Clone + Send + Sync + 'static> Verdict for Option<T> {
    type Identity = T;

    fn into_identity(self) -> Result<Self> {
        Ok(self)
    }
}

impl<V: Verdict, E: Into<Error>> Verdict for Result<V, E> {
    type Identity = V::Identity;

    fn into_identity(self) -> Result<Option<V::Identity>> {
        self.map_err(Into::into)?.into_identity()
    }
}

/// Returns whether `given` equals `secret`. The time reveals nothing about the secret, not even its
/// length.
///
/// ```
/// use filoplume::middleware::secrets_match;
///
/// assert!(secrets_match("sesame", "sesame"));
/// assert!(!secrets_match("sesam", "sesame"));
/// ```
///
/// For tokens and configured passwords. Store passwords of users as hashes made for that, such as
/// Argon2; crates for these compare in constant time themselves.
#[doc(alias("constant_time_eq", "compare_digest", "timingSafeEqual"))]
pub fn secrets_match(given: impl AsRef<[u8]>, secret: impl AsRef<[u8]>) -> bool {
    let (given, secret) = (given.as_ref(), secret.as_ref());
    let mut is_same = given.len().ct_eq(&secret.len());
    // One step per byte of the input, whatever the secret is.
    for (index, byte) in given.iter().enumerate() {
        let other =
            index.checked_rem(secret.len()).and_then(|index| secret.get(index)).unwrap_or(&0);
        is_same &= byte.ct_eq(other);
    }
    bool::from(is_same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_secret_matches() {
        for (given, secret, expected) in [
            ("", "", true),
            ("a", "", false),
            ("", "a", false),
            ("abc", "abc", true),
            ("abd", "abc", false),
            ("abcabc", "abc", false),
            ("ab", "abc", false),
        ] {
            assert_eq!(secrets_match(given, secret), expected, "{given:?} {secret:?}");
        }
    }
}
