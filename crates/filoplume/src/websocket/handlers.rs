//! The closures of a socket.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use filoplume_runtime::note_caught_panic;
use filoplume_websocket::CloseCode;

use super::message::{FromMessage, MessageRef, SocketResult, Unacceptable};
use super::socket::{CloseReason, Socket};
use crate::core::error::Error;
use crate::core::panics::Panicked;
use crate::log::{Throttle, log_without_subscriber};

type OnOpen = Box<dyn FnOnce(&Socket) -> Option<Error> + Send>;
type OnMessage = Box<dyn FnMut(&Socket, MessageRef<'_>) -> Result<(), Failure> + Send>;
type OnClose = Box<dyn FnOnce(&Socket, &CloseReason) + Send>;

/// The closures of a socket. No other socket has them, so they may change what they capture.
#[derive(Default)]
pub(super) struct Handlers {
    open: Option<OnOpen>,
    message: Option<OnMessage>,
    close: Option<OnClose>,
}

/// A closure that handles messages.
///
/// It stands for `FnMut(&Socket, M) -> R` in bounds, so that the compiler's message is about
/// messages: that of `FnMut` recommends other types for swapped parameters.
///
/// `Kind` is inferred. The compiler speaks of this trait, and not of `FnMut`, only if it has two
/// implementations to choose from.
///
/// `FnMut` is a supertrait so that the compiler infers the type of `socket` in
/// `|socket, text: String|`. The price is that it counts the parameters before it looks at this
/// trait: for `|text: String|` it says only that two are expected.
#[diagnostic::on_unimplemented(
    message = "a closure that handles messages takes the socket first, by reference: \
               `|socket: &Socket, text: String| ..`",
    label = "not `|socket: &Socket, text: String| ..`",
    note = "the second parameter is a `String`, a `Vec<u8>`, a `Message` or a `Json<T>`"
)]
pub trait MessageFn<M, R, Kind>: FnMut(&Socket, M) -> R {}

impl<M, R, F: FnMut(&Socket, M) -> R> MessageFn<M, R, SocketFirst> for F {}

impl<M, R, F: FnMut(&Socket, M) -> R + Never> MessageFn<M, R, Nothing> for F {}

/// The kind of all closures that handle messages.
#[derive(Debug)]
pub struct SocketFirst;

/// A kind without closures.
#[derive(Debug)]
pub struct Nothing;

/// No type implements it.
pub trait Never {}

/// Why a message was not handled.
enum Failure {
    Unacceptable(Unacceptable),
    Failed(Error),
}

impl Handlers {
    pub(super) fn on_open<R: SocketResult>(
        &mut self,
        open: impl FnOnce(&Socket) -> R + Send + 'static,
    ) {
        self.open = Some(Box::new(|socket| open(socket).into_error()));
    }

    pub(super) fn on_message<M: FromMessage, R: SocketResult, K>(
        &mut self,
        mut handle: impl MessageFn<M, R, K> + Send + 'static,
    ) {
        self.message = Some(Box::new(move |socket, message| {
            let message = M::from_message(message).map_err(Failure::Unacceptable)?;
            match handle(socket, message).into_error() {
                Some(error) => Err(Failure::Failed(error)),
                None => Ok(()),
            }
        }));
    }

    pub(super) fn on_close(&mut self, close: impl FnOnce(&Socket, &CloseReason) + Send + 'static) {
        self.close = Some(Box::new(close));
    }

    pub(super) fn open(&mut self, socket: &Socket) {
        let Some(open) = self.open.take() else { return };
        match catch_unwind(AssertUnwindSafe(|| open(socket))) {
            Ok(None) => {}
            Ok(Some(error)) => fail(socket, &error),
            Err(panic) => self.panicked(socket, &*panic),
        }
    }

    pub(super) fn message(&mut self, socket: &Socket, message: MessageRef<'_>) {
        let Some(handle) = &mut self.message else { return };
        match catch_unwind(AssertUnwindSafe(|| handle(socket, message))) {
            Ok(Ok(())) => {}
            Ok(Err(Failure::Unacceptable(unacceptable))) => {
                socket.close(unacceptable.code, &unacceptable.reason);
            }
            Ok(Err(Failure::Failed(error))) => fail(socket, &error),
            Err(panic) => self.panicked(socket, &*panic),
        }
    }

    pub(super) fn close(&mut self, socket: &Socket, reason: &CloseReason) {
        if let Some(close) = self.close.take() {
            close(socket, reason);
        }
    }

    /// Logs the panic of a closure and closes the socket, as for an error.
    #[cold]
    fn panicked(&mut self, socket: &Socket, panic: &(dyn Any + Send)) {
        note_caught_panic();
        // The values that it has captured may be inconsistent.
        self.message = None;
        let panicked = Panicked::caught(panic);
        static LOG: Throttle = Throttle::new();
        if let Some(left_out) = LOG.admit() {
            log_without_subscriber(&format!("a closure of a WebSocket {panicked}{left_out}"));
            let (socket, left_out) = (socket.id(), left_out.field());
            tracing::error!(socket, %panicked, left_out, "a closure of a WebSocket panicked");
        }
        socket.close(CloseCode::INTERNAL_ERROR, "");
    }
}

/// Logs the error of a closure and closes the socket. The peer is not told the reason.
fn fail(socket: &Socket, error: &Error) {
    log_failure(Some(socket.id()), error);
    socket.close(CloseCode::INTERNAL_ERROR, "");
}

/// Logs that a closure has failed, but not each time: a peer can cause that with each connection.
pub(super) fn log_failure(socket: Option<u64>, error: &Error) {
    static LOG: Throttle = Throttle::new();
    if let Some(left_out) = LOG.admit() {
        log_without_subscriber(&format!(
            "a closure of a WebSocket has failed: {error:?}{left_out}"
        ));
        let left_out = left_out.field();
        tracing::error!(socket, ?error, left_out, "a closure of a WebSocket has failed");
    }
}
