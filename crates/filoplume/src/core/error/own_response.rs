//! Errors whose type implements [`IntoResponse`], and their conversion by `?`.
//!
//! A type can implement both `std::error::Error`, which lets `?` convert it into an [`Error`], and
//! [`IntoResponse`], which sets its status. The conversion cannot use the second implementation: it
//! is generic over all error types, and Rust has no specialization. So the program registers the
//! type with [`App::error_response`](crate::App::error_response). If it is not registered, a log
//! line says so.

use std::any::TypeId;
use std::error::Error as StdError;
use std::iter::FusedIterator;
use std::marker::PhantomData;

use filoplume_runtime::{InvalidHeader, Response};

use super::{Error, Message, Result};
use crate::core::response::IntoResponse;

/// The type in which errors store their cause.
type Cause = Box<dyn StdError + Send + Sync>;

/// Converts a cause of one particular type into its response. Returns causes of other types
/// unchanged.
pub(crate) type Responder = fn(Cause) -> std::result::Result<Result<Response>, Cause>;

/// The [`Responder`] for errors of type `E`.
pub(crate) fn responder<E>(cause: Cause) -> std::result::Result<Result<Response>, Cause>
where
    E: StdError + IntoResponse + Send + Sync + 'static,
{
    let error = cause.downcast::<E>()?;
    // For the log, if the response is a 5xx error without a cause.
    let text = error.to_string();
    Ok(error.into_response().map_err(|own| match own.source() {
        None if own.status().is_server_error() => own.with_source(Message(text)),
        _ => own,
    }))
}

impl Error {
    /// Records that `?` converted an error of type `E` into this error.
    pub(crate) fn converted_from<E: 'static>(mut self) -> Self {
        self.inner.is_converted = true;
        self.inner.source_type = Some(std::any::type_name::<E>());
        // The response to an invalid header is always a 500.
        if TypeId::of::<E>() != TypeId::of::<InvalidHeader>() && is_response::<E>() {
            self.inner.own_response = Some(std::any::type_name::<E>());
        }
        self
    }

    /// Returns the response of the cause's own type. Returns the error unchanged if `?` did not
    /// convert it, or if no responder is registered for its type.
    pub(crate) fn into_own_response(
        mut self,
        responders: &[Responder],
    ) -> std::result::Result<Result<Response>, Self> {
        if !self.inner.is_converted {
            return Err(self);
        }
        for respond in responders {
            let Some(cause) = self.inner.source.take() else { break };
            match respond(cause) {
                Ok(response) => return Ok(response),
                Err(cause) => self.inner.source = Some(cause),
            }
        }
        Err(self)
    }

    /// Returns advice if this is a plain 500 although the type of its cause defines another
    /// response.
    pub(crate) fn lost_response_advice(&self) -> Option<String> {
        let name = self.inner.own_response?;
        let short = name.rsplit("::").next().unwrap_or(name);
        Some(format!(
            "`{name}` implements `IntoResponse`, but `?` converted it into a plain 500: \
             add `.error_response::<{short}>()` to the app, or let the handler return `Result<_, \
             {short}>`"
        ))
    }
}

/// Returns whether a type implements `IntoResponse`.
///
/// Stable Rust has no direct way to check this for a type parameter. But as its documentation says,
/// [`Iterator::fuse`] does not change an iterator that implements `FusedIterator`, and the probe
/// implements it only if `E` implements `IntoResponse`. If that behaviour changed, only the advice
/// in the log would be missing.
fn is_response<E>() -> bool {
    let mut probe = FuseProbe::<E>(0, PhantomData).fuse();
    // A fused iterator returns nothing after its first `None`.
    probe.next().is_none() && probe.next().is_some()
}

/// An iterator that returns `None` first and items afterwards.
struct FuseProbe<E>(u8, PhantomData<fn() -> E>);

impl<E> Iterator for FuseProbe<E> {
    type Item = ();

    fn next(&mut self) -> Option<()> {
        self.0 = self.0.saturating_add(1);
        (self.0 > 1).then_some(())
    }
}

impl<E: IntoResponse> FusedIterator for FuseProbe<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_response_detects_implementations() {
        assert!(
            is_response::<Error>()
                && is_response::<String>()
                && is_response::<Option<&'static str>>()
        );
        assert!(
            !is_response::<std::io::Error>()
                && !is_response::<u32>()
                && !is_response::<Option<u32>>()
        );
    }
}
