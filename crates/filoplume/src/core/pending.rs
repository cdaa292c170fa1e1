//! Failures on their way to the client: the responses that carry an error, and the log lines.

use std::any::Any;

use filoplume_runtime::{Response, note_caught_panic};

use super::context::Context;
use super::error::Error;
use super::panics::Panicked;
use crate::log::log_without_subscriber;

impl Context<'_> {
    /// Returns the response that carries a panic, and logs the panic.
    #[cold]
    pub(crate) fn panicked(self, panic: &(dyn Any + Send)) -> Response {
        let route = self.route().unwrap_or("no route");
        let method = self.asked.method().as_str();
        note_caught_panic();
        let panicked = Panicked::caught(panic);
        if let Some(left_out) = self.settings.throttles.panics.admit(route) {
            let message = &*panicked.message;
            tracing::error!(
                method,
                route,
                panic = message,
                left_out = left_out.field(),
                "a handler panicked"
            );
            log_without_subscriber(&format!("{method} {route} panicked: {message}{left_out}"));
        }
        Error::internal(panicked).into_pending_response()
    }

    /// Returns the response that carries an error, and logs the error if it is a server error.
    #[inline(never)]
    pub(crate) fn pending(self, error: Error) -> Response {
        let error = match self.map_error(error).into_own_response(&self.settings.responders) {
            Ok(Ok(response)) => return response,
            Ok(Err(own)) => own,
            Err(error) => error,
        };
        if error.status().is_server_error() {
            self.log(&error);
        }
        error.into_pending_response()
    }

    #[cold]
    fn log(self, error: &Error) {
        let route = self.route().unwrap_or("no route");
        let Some(left_out) = self.settings.throttles.failures.admit(route) else { return };
        let method = self.asked.method().as_str();
        let in_one_line = error.in_one_line();
        tracing::error!(
            method,
            route,
            status = error.status().as_u16(),
            error = in_one_line,
            left_out = left_out.field(),
            "a request failed"
        );
        log_without_subscriber(&format!("{method} {route} failed: {in_one_line}{left_out}"));
        if let Some(advice) = error.lost_response_advice() {
            tracing::warn!(method, route, "{advice}");
            log_without_subscriber(&advice);
        }
    }

    fn map_error(self, error: Error) -> Error {
        let translated = self
            .settings
            .error_mappers
            .iter()
            .find_map(|map_error| error.chain().find_map(map_error));
        match translated {
            Some(translated) => translated.with_cause_of(error),
            None => error,
        }
    }
}
