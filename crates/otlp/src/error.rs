//! The error of an exporter that could not be started.

use std::fmt;

/// Why an exporter could not be started. The message names the setting and the way out.
///
/// ```
/// use filoplume_otlp::Otlp;
///
/// let error = Otlp::new().endpoint("https://collector.example:4318").start().unwrap_err();
/// assert!(error.to_string().contains("a collector on this machine"));
/// ```
#[derive(Debug)]
pub struct OtlpError {
    message: String,
    source: Option<std::io::Error>,
}

impl OtlpError {
    pub(crate) fn new(message: String) -> Self {
        Self { message, source: None }
    }

    pub(crate) fn thread(source: std::io::Error) -> Self {
        Self { message: "the exporter's thread cannot be started".to_owned(), source: Some(source) }
    }
}

impl fmt::Display for OtlpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for OtlpError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
