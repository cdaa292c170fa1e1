//! The kind of an error, for readers who may not see its text.

use std::io;

use super::Error;
use crate::core::panics::Panicked;

impl Error {
    /// Returns the name of the type of the cause, with the kind of an I/O error among its causes,
    /// such as `ureq::Error: connection refused`. It contains no text of an error, which could
    /// reveal anything. `None` if there is no cause, or if the cause is only a text.
    pub(crate) fn kind(&self) -> Option<String> {
        if self.downcast_ref::<Panicked>().is_some() {
            return Some("a panic".to_owned());
        }
        self.inner.source.as_ref()?;
        let io_kind = self.downcast_ref::<io::Error>().map(io::Error::kind);
        let name = self.inner.source_type.and_then(short_name);
        match (name, io_kind) {
            (Some(name), Some(kind)) => Some(format!("{name}: {kind}")),
            (None, Some(kind)) => Some(format!("an I/O error: {kind}")),
            (name, None) => name,
        }
    }
}

/// Returns the crate and the last part of the name of a type. Programs seldom name the modules
/// between them. `None` for a type that says nothing about the error.
fn short_name(type_name: &'static str) -> Option<String> {
    let (package, rest) = type_name.split_once("::")?;
    if rest.contains('<') {
        // `Box<dyn Error>` and `Cow<str>` are in `alloc`.
        return (package != "alloc").then(|| type_name.to_owned());
    }
    let last = rest.rsplit_once("::").map_or(rest, |(_, last)| last);
    match (package, last) {
        ("alloc" | "core" | "std", "String" | "Error") => None,
        ("alloc" | "core" | "std", last) => Some(last.to_owned()),
        _ => Some(format!("{package}::{last}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_that_of_the_crate_and_the_type() {
        for (type_name, expected) in [
            ("ureq::error::Error", Some("ureq::Error")),
            ("shop::SoldOut", Some("shop::SoldOut")),
            ("core::num::error::ParseIntError", Some("ParseIntError")),
            ("std::io::error::Error", None),
            ("native::HandshakeError<net::Stream>", Some("native::HandshakeError<net::Stream>")),
            ("alloc::boxed::Box<dyn core::error::Error>", None),
            ("alloc::borrow::Cow<str>", None),
            ("alloc::string::String", None),
            ("&str", None),
        ] {
            assert_eq!(short_name(type_name).as_deref(), expected, "{type_name}");
        }
    }

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
