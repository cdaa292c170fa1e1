//! What can be the value of a field.

/// A type that can be the value of a header: a text or bytes, which is everything with
/// `AsRef<[u8]>`. A number is written as a text:
///
/// ```
/// use filoplume_http1::Headers;
///
/// let mut headers = Headers::new();
/// headers.append("X-Count", 17.to_string())?;
/// assert_eq!(headers.get_str("x-count"), Some("17"));
/// # Ok::<(), filoplume_http1::InvalidHeader>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the value of a header: write it as a text, such as \
               `value.to_string()`",
    label = "neither a text nor bytes"
)]
pub trait AsHeaderValue {
    /// Returns the bytes of the value.
    fn as_header_value(&self) -> &[u8];
}

// Otherwise the compiler would explain that `AsRef` is missing.
#[diagnostic::do_not_recommend]
impl<T: AsRef<[u8]> + ?Sized> AsHeaderValue for T {
    #[inline]
    fn as_header_value(&self) -> &[u8] {
        self.as_ref()
    }
}
