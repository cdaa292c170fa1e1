//! Conversions of [`Error`] into boxed errors, so that `?` works where the framework's errors meet
//! those of other code.
//!
//! [`Error`] itself does not implement `std::error::Error`. If it did, the conversion of all error
//! types into an [`Error`] would include `Error` itself, and conflict with the `From<T> for T` of
//! the standard library. So `?` could not accept all error types.

use std::error::Error as StdError;
use std::fmt;

use super::Error;

/// An [`Error`] as a type that implements `std::error::Error`.
struct Boxed(Error);

/// Lets `?` convert an [`Error`] in a function that returns a boxed error, such as `main`.
///
/// ```
/// use filoplume::prelude::*;
///
/// fn routes() -> Result<usize, Box<dyn std::error::Error + Send + Sync>> {
///     let app = App::new().get("/", || "hello");
///     app.build()?; // its error is a `filoplume::Error`
///     Ok("17".parse()?)
/// }
/// assert_eq!(routes()?, 17);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
impl From<Error> for Box<dyn StdError + Send + Sync> {
    fn from(error: Error) -> Self {
        Box::new(Boxed(error))
    }
}

/// Lets `?` convert an [`Error`] in a function that returns a boxed error, such as `main`.
impl From<Error> for Box<dyn StdError> {
    fn from(error: Error) -> Self {
        Box::new(Boxed(error))
    }
}

impl fmt::Display for Boxed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// `fn main() -> Result<(), Box<dyn Error>>` prints this form.
impl fmt::Debug for Boxed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for Boxed {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source = self.0.source()?;
        // Without a text of its own, the error shows that of its source, so the source is skipped.
        if self.0.detail().is_none() { source.source() } else { Some(source) }
    }
}
