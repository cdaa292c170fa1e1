//! Logs streamed responses when their reader has ended, or the senders of a pushed body.

use std::fs::File;
use std::io::{self, Read};
use std::thread;
use std::time::Instant;

use filoplume_runtime::pushed::{Ended, Outcome};
use filoplume_runtime::{FileBody, Refusal, Response, ResponseBody, StatusCode, Timing};

use super::{Entry, Output, RequestInfo, duration_of, trace_id_of};
use crate::core::context::Context;
use crate::core::error::in_one_line;
use crate::middleware::RequestId;

/// Returns whether the content of a response is read while it is sent.
pub(super) fn is_streamed(response: &Response) -> bool {
    matches!(
        response.body(),
        ResponseBody::Sized { .. }
            | ResponseBody::File { .. }
            | ResponseBody::Unsized(_)
            | ResponseBody::Pushed(_)
    )
}

/// The times of a response that begins to be sent.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    pub(super) started: Instant,
    pub(super) answered: Instant,
    /// Where the time went until it was answered, if the request was measured.
    pub(super) timing: Option<Timing>,
}

/// Logs the response when it was sent or broken off.
pub(super) fn log_when_sent(
    output: &Output,
    mut request: RequestInfo,
    context: Context<'_>,
    begun: Begun,
    response: &mut Response,
) {
    let length = match response.body() {
        ResponseBody::Sized { length, .. } | ResponseBody::File { length, .. } => Some(*length),
        _ => None,
    };
    request.trace_id = trace_id_of(&request, response);
    let line = PendingLine {
        output: output.clone(),
        status: response.status(),
        route: context.route().map(str::to_owned),
        request_id: context.request_id().cloned(),
        request,
        begun,
        length,
        bytes: 0,
        end: None,
        refused: None,
    };
    let body = std::mem::take(response.body_mut());
    *response.body_mut() = match body {
        ResponseBody::Sized { reader, length } => {
            ResponseBody::Sized { reader: Box::new(LoggedReader { reader, line }), length }
        }
        ResponseBody::File { content, length } => {
            ResponseBody::File { content: Box::new(LoggedReader { reader: content, line }), length }
        }
        ResponseBody::Unsized(reader) => {
            ResponseBody::Unsized(Box::new(LoggedReader { reader, line }))
        }
        ResponseBody::Pushed(pushed) => {
            ResponseBody::Pushed(Box::new(pushed.on_end(move |ended| line.pushed(ended))))
        }
        other => other,
    };
}

/// A reader that logs its end.
struct LoggedReader<R> {
    // Declared before the line, so that it is dropped first and its drop counts for the duration.
    reader: R,
    line: PendingLine,
}

impl<R: Read> Read for LoggedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let result = self.reader.read(buffer);
        match &result {
            Ok(0) if !buffer.is_empty() => self.line.end = Some(Ok(())),
            Ok(read) => self.line.bytes += *read as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => self.line.end = Some(Err(in_one_line(error))),
        }
        result
    }
}

impl<R: FileBody> FileBody for LoggedReader<R> {
    fn part(&self) -> Option<(&File, u64)> {
        self.reader.part()
    }

    fn advance(&mut self, bytes: u64) -> io::Result<()> {
        self.line.bytes += bytes;
        let advanced = self.reader.advance(bytes);
        advanced.inspect_err(|error| self.line.end = Some(Err(in_one_line(error))))
    }
}

/// The data of the response, until it is logged.
struct PendingLine {
    output: Output,
    request: RequestInfo,
    status: StatusCode,
    route: Option<String>,
    request_id: Option<RequestId>,
    begun: Begun,
    /// The announced length.
    length: Option<u64>,
    /// The bytes read so far.
    bytes: u64,
    /// How the body ended, if it has.
    end: Option<Result<(), String>>,
    /// Why the client got a `503` in place of the response.
    refused: Option<Refusal>,
}

impl PendingLine {
    /// Logs a body that was pushed.
    fn pushed(mut self, ended: &Ended<'_>) {
        self.bytes = ended.bytes;
        match &ended.outcome {
            Outcome::Complete => self.end = Some(Ok(())),
            Outcome::Failed(error) => self.end = Some(Err(in_one_line(*error))),
            Outcome::Refused(refusal) => {
                self.status = StatusCode::SERVICE_UNAVAILABLE;
                self.refused = Some(*refusal);
            }
            // The client has gone.
            _ => {}
        }
    }

    /// Returns why the response is incomplete.
    fn reason(&self) -> Option<String> {
        if let Some(refusal) = self.refused {
            return Some(format!("refused: {refusal}"));
        }
        // A reader of known length is not read again after its last byte.
        let is_whole = self.length.is_some_and(|length| self.bytes >= length);
        let reason = match (&self.end, self.length) {
            (Some(Err(error)), _) => error,
            _ if is_whole => return None,
            (Some(Ok(())), None) => return None,
            (Some(Ok(())), Some(_)) => "the reader ended early",
            (None, _) if thread::panicking() => "the reader panicked",
            (None, _) => "the connection ended before the response",
        };
        Some(format!("broken off: {reason}"))
    }
}

impl Drop for PendingLine {
    fn drop(&mut self) {
        let error = self.reason();
        let Begun { started, answered, timing } = self.begun;
        let timing = timing.map(|mut timing| {
            timing.write = answered.elapsed();
            timing
        });
        self.output.log(&Entry {
            request: &self.request,
            status: self.status,
            route: self.route.as_deref(),
            bytes: Some(self.bytes),
            duration: duration_of(timing, started),
            timing,
            request_id: self.request_id.as_ref().map(RequestId::as_str),
            trace_id: self.request.trace_id,
            error: error.as_deref(),
        });
    }
}
