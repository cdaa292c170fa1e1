//! WebSockets: connections on which both sides send messages at any time.
//!
//! ```
//! use filoplume::prelude::*;
//! use filoplume::websocket::{Rooms, Socket, WebSocketUpgrade};
//!
//! let app = App::new().state(Rooms::new()).websocket(
//!     "/chat/{room}",
//!     |Path(name): Path<String>, State(rooms): State<Rooms>, upgrade: WebSocketUpgrade| {
//!         let (room, all) = (name.clone(), rooms.clone());
//!         upgrade
//!             .on_open(move |socket: &Socket| all.join(&room, socket))
//!             .on_message(move |_: &Socket, text: String| {
//!                 rooms.broadcast(&name, text);
//!             })
//!     },
//! );
//! # app.test();
//! ```
//!
//! A handler takes a [`WebSocketUpgrade`] and returns it with closures. They run on the event loop
//! and may block, like handlers. A [`Socket`] sends from any thread, and [`Rooms`] send to many.
//! A silent socket needs no thread and less than a kilobyte.
//!
//! The socket answers pings, sends pings to a silent peer, does the closing handshake, and tells
//! its peer with 1001 that the server shuts down. Everything that a peer decides is bounded: see
//! the methods of [`WebSocketUpgrade`].

// A file uses only files that are listed below it.
//
//   upgrade               the handshake and the settings
//   blocking              the socket on a thread
//   negotiated            the result of a handshake
//   protocol              the socket on the event loop
//   handlers              its closures, and how they fail
//   room, rooms, socket, outbox, pace, leaving  sending from any thread; these know each other
//   joined                messages between the rooms of several instances
//   frames                the frames that wait for a peer
//   message, config, origins

mod blocking;
mod config;
mod frames;
mod handlers;
#[cfg(feature = "redis")]
mod joined;
mod leaving;
mod memberships;
mod message;
mod negotiated;
mod origins;
mod outbox;
mod pace;
mod protocol;
mod room;
mod room_counts;
mod rooms;
mod socket;
mod upgrade;

pub use filoplume_websocket::{CloseCode, Limits};
#[cfg(feature = "websocket-deflate")]
pub use filoplume_websocket::{DeflateConfig, DeflateOptions};

pub use self::blocking::BlockingSocket;
pub use self::message::{AsMessage, FromMessage, Message, MessageRef, SocketResult, Unacceptable};
pub use self::origins::AllowOrigins;
pub use self::room::{Broadcast, Room};
pub use self::rooms::Rooms;
pub use self::socket::{CloseReason, SendError, Socket};
pub use self::upgrade::WebSocketUpgrade;
