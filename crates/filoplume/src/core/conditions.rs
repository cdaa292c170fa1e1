//! Errors for failed preconditions.

use filoplume_runtime::StatusCode;

use super::error::{Error, Result};
use crate::semantics::conditional::Verdict;

impl Verdict {
    /// Returns `Ok` if the request may proceed, and the error response otherwise.
    ///
    /// # Errors
    ///
    /// `412` for [`Failed`](Self::Failed), `400` for [`Malformed`](Self::Malformed).
    pub fn ok(self) -> Result<()> {
        match self {
            Self::Proceed | Self::NotModified => Ok(()),
            Self::Failed => Err(Error::new(
                StatusCode::PRECONDITION_FAILED,
                "the current content does not meet the condition",
            )),
            Self::Malformed => Err(Error::bad_request(
                "`If-Match` or `If-None-Match` is not a list of entity tags",
            )),
        }
    }
}
