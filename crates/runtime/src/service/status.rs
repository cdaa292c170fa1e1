//! Statuses as numbers or as constants.

use http::StatusCode;

/// A status: a number such as `404`, or a constant such as [`StatusCode::NOT_FOUND`].
///
/// A number below 100 or above 999 is no status code and becomes `500`.
///
/// ```
/// use filoplume_runtime::{Response, StatusCode};
///
/// assert_eq!(Response::new(404).status(), StatusCode::NOT_FOUND);
/// assert_eq!(Response::new(StatusCode::NOT_FOUND).status(), 404);
/// assert_eq!(Response::new(17).status(), 500);
/// ```
pub trait IntoStatus {
    /// Returns the status.
    fn into_status(self) -> StatusCode;
}

impl IntoStatus for StatusCode {
    #[inline]
    fn into_status(self) -> StatusCode {
        self
    }
}

impl IntoStatus for u16 {
    #[inline]
    fn into_status(self) -> StatusCode {
        StatusCode::from_u16(self).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}
