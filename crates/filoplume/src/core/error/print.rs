//! How an error is printed, in the log and when `main` returns it.

use std::fmt;

use filoplume_runtime::StatusCode;

use super::Error;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.inner.detail, &self.inner.source) {
            (Some(detail), _) => f.write_str(detail),
            (None, Some(source)) => write!(f, "{source}"),
            (None, None) => write!(f, "{}", self.inner.status),
        }
    }
}

impl fmt::Debug for Error {
    // `fn main() -> Result` prints this form, so it is written for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.inner.is_start_up && self.inner.status != StatusCode::INTERNAL_SERVER_ERROR {
            write!(f, "{}: ", self.inner.status)?;
        }
        write!(f, "{self}")?;
        for field in &self.inner.fields {
            write!(f, "\n  {}: {}", field.field, field.message)?;
        }
        let told = usize::from(self.inner.detail.is_none());
        let mut before = self.to_string();
        for cause in self.chain().skip(told) {
            let cause = cause.to_string();
            // The text of many errors already includes their cause.
            if !before.ends_with(&cause) {
                write!(f, "\n  caused by: {cause}")?;
            }
            before = cause;
        }
        Ok(())
    }
}
