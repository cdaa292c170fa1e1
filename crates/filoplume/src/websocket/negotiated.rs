//! The result of a handshake.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use filoplume_websocket::{Decoder, Encoder, Limits};

use super::config::Config;
use super::handlers::Handlers;
use super::outbox::{Bounds, Form, Outbox};
use super::protocol::SocketProtocol;
use super::socket::Socket;
use crate::observe::SocketCounts;

/// What both ends agreed on, and what belongs to the socket.
pub(super) struct Negotiated {
    pub(super) codec: Codec,
    pub(super) subprotocol: Option<Box<str>>,
    pub(super) handlers: Handlers,
    pub(super) config: Config,
    pub(super) counts: Option<Arc<SocketCounts>>,
}

pub(super) struct Codec {
    pub(super) decoder: Decoder,
    pub(super) encoder: Encoder,
    form: Form,
    /// The value of `Sec-WebSocket-Extensions`.
    pub(super) extension: Option<String>,
}

impl Codec {
    /// Returns the server's codec without extensions.
    pub(super) fn plain(limits: Limits) -> Self {
        let (decoder, encoder) = (Decoder::server(limits), Encoder::server());
        Self { decoder, encoder, form: Form::Plain, extension: None }
    }

    /// Adds the compression that both sides support, if any.
    #[cfg(feature = "websocket-deflate")]
    pub(super) fn negotiate(self, config: &Config, offers: &str) -> Self {
        let agreed = config.deflate.and_then(|(deflate, options)| {
            let (params, extension) = deflate.accept(offers)?;
            Some((params, extension, options))
        });
        let Some((params, extension, options)) = agreed else { return self };
        let form = if params.server_no_context_takeover {
            Form::deflated(params.server_max_window_bits, options)
        } else {
            Form::Plain
        };
        Self {
            decoder: self.decoder.with_deflate(&params),
            encoder: self.encoder.with_deflate(&params, options),
            form,
            extension: Some(extension),
        }
    }
}

impl Negotiated {
    pub(super) fn into_protocol(self) -> SocketProtocol {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);

        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let Codec { decoder, encoder, form, .. } = self.codec;
        let bounds = Bounds::of(&self.config);
        let outbox = Outbox::new(id, self.subprotocol, form, encoder, bounds, self.counts);
        let socket = Socket { outbox: Arc::new(outbox) };
        SocketProtocol::new(socket, decoder, self.handlers, self.config.times)
    }
}
