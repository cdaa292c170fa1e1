//! What kind of error it is, for those who may not read its text.

use std::io;

use super::Error;
use crate::core::names::public_names;
use crate::core::panics::Panicked;

impl Error {
    /// Returns the name of the type of the cause, with the kind of an I/O error among its causes,
    /// such as `ureq::Error: connection refused`. It has nothing of the texts, which may contain
    /// anything. `None` if there is no cause, or only a text.
    pub(crate) fn kind(&self) -> Option<String> {
        if self.downcast_ref::<Panicked>().is_some() {
            return Some("a panic".to_owned());
        }
        self.inner.source.as_ref()?;
        let io_kind = self.downcast_ref::<io::Error>().map(io::Error::kind);
        let name = self.inner.source_type.map(public_names).filter(|name| !is_vague(name));
        match (name, io_kind) {
            (Some(name), Some(kind)) => Some(format!("{name}: {kind}")),
            (None, Some(kind)) => Some(format!("an I/O error: {kind}")),
            (name, None) => name,
        }
    }
}

/// Returns whether a type says nothing about the error.
fn is_vague(name: &str) -> bool {
    name.starts_with("Box<dyn ") || matches!(name, "&str" | "String" | "Cow<str>" | "Error")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_a_type_and_no_text() {
        let io = || io::Error::new(io::ErrorKind::ConnectionRefused, "secret");
        let parse = "x".parse::<u32>().unwrap_err();
        let boxed: Box<dyn std::error::Error + Send + Sync> = Box::new(io());
        for (error, kind) in [
            (Error::internal("secret"), None),
            (Error::internal("secret".to_owned()), None),
            (Error::unavailable("secret"), None),
            (Error::internal(parse), Some("ParseIntError")),
            (Error::from(io()), Some("an I/O error: connection refused")),
            (Error::internal(boxed), Some("an I/O error: connection refused")),
            (
                Error::internal(Panicked { message: "secret".to_owned(), location: None }),
                Some("a panic"),
            ),
        ] {
            assert_eq!(error.kind().as_deref(), kind, "{error:?}");
        }
    }
}
