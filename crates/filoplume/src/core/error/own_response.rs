//! Error types that say themselves how they are answered, and what `?` makes of them.
//!
//! A type may have both: `std::error::Error`, by which `?` makes an [`Error`] of it, and
//! [`IntoResponse`], which says its status. The conversion cannot use the second one, because it is
//! for all types and Rust has no specialization. So the app is told of the type
//! ([`App::error_response`](crate::App::error_response)), and if it was not, the log says so.

use std::any::TypeId;
use std::error::Error as StdError;
use std::iter::FusedIterator;
use std::marker::PhantomData;

use filoplume_runtime::{InvalidHeader, Response};

use super::{Error, Message, Result};
use crate::core::response::IntoResponse;

/// A cause as errors keep it.
type Cause = Box<dyn StdError + Send + Sync>;

/// Makes the response of a cause if it has a certain type, and else returns it.
pub(crate) type Responder = fn(Cause) -> std::result::Result<Result<Response>, Cause>;

/// Makes the response of errors of type `E`.
pub(crate) fn responder<E>(cause: Cause) -> std::result::Result<Result<Response>, Cause>
where
    E: StdError + IntoResponse + Send + Sync + 'static,
{
    let error = cause.downcast::<E>()?;
    // For the log, if the response is a failure of ours that does not say why.
    let text = error.to_string();
    Ok(error.into_response().map_err(|own| match own.source() {
        None if own.status_code().is_server_error() => own.with_source(Message(text)),
        _ => own,
    }))
}

impl Error {
    /// Notes that this error was made of one of type `E` by `?`.
    pub(crate) fn converted_from<E: 'static>(mut self) -> Self {
        self.inner.is_converted = true;
        // That of a header is always a 500.
        if TypeId::of::<E>() != TypeId::of::<InvalidHeader>() && is_response::<E>() {
            self.inner.own_response = Some(std::any::type_name::<E>());
        }
        self
    }

    /// Returns the response that the cause makes of itself, or the error again: if it was not made
    /// by `?`, or of another type.
    pub(crate) fn answer_itself(
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

    /// Says what to do if this is a plain 500 although its cause knows another answer.
    pub(crate) fn lost_response(&self) -> Option<String> {
        let name = self.inner.own_response?;
        let short = name.rsplit("::").next().unwrap_or(name);
        Some(format!(
            "`{name}` says by `IntoResponse` how it is answered, and `?` made a plain 500 of it: \
             add `.error_response::<{short}>()` to the app, or let the handler return `Result<_, \
             {short}>`"
        ))
    }
}

/// Returns whether a type becomes a response.
///
/// Nothing in stable Rust asks this of a type parameter. But an iterator that is fused already is
/// left alone by [`Iterator::fuse`], as its documentation says, and whether this one is depends on
/// the type. Should that change, it is the advice in the log that is missing.
fn is_response<E>() -> bool {
    let mut probe = Probe::<E>(0, PhantomData).fuse();
    // Its own `None` is the last thing that a fused one says.
    probe.next().is_none() && probe.next().is_some()
}

/// Gives nothing when it is first asked, and something after that.
struct Probe<E>(u8, PhantomData<fn() -> E>);

impl<E> Iterator for Probe<E> {
    type Item = ();

    fn next(&mut self) -> Option<()> {
        self.0 = self.0.saturating_add(1);
        (self.0 > 1).then_some(())
    }
}

impl<E: IntoResponse> FusedIterator for Probe<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_a_response_is_known_of_any_type() {
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
