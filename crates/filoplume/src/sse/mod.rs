//! Server-sent events (WHATWG HTML, section 9.2): events from the server to an `EventSource` of a
//! page.
//!
//! A [`Hub`] sends the same events to many clients, a [`channel`] to one. A client needs no thread:
//! ten thousand silent ones cost little more than idle connections.
//!
//! ```no_run
//! use filoplume::prelude::*;
//! use filoplume::sse::{Event, EventStream, Hub, LastEventId};
//! use std::thread;
//! use std::time::Duration;
//!
//! fn feed(State(hub): State<Hub>, last: LastEventId) -> EventStream {
//!     hub.subscribe(&last)
//! }
//!
//! fn main() -> Result<()> {
//!     let hub = Hub::new().replay(100);
//!     let ticking = hub.clone();
//!     thread::spawn(move || {
//!         for second in 0.. {
//!             ticking.send(Event::new(format!("second {second}")));
//!             thread::sleep(Duration::from_secs(1));
//!         }
//!     });
//!     App::new().state(hub).get("/feed", feed).listen("127.0.0.1:5000")
//! }
//! ```

mod event;
mod hub;
#[cfg(feature = "redis")]
mod joined;
mod last_event_id;
mod stream;

pub use crate::broadcast::{Delivered, SlowClients};
pub use event::{Event, IntoEvent, InvalidEvent};
pub use hub::Hub;
pub use last_event_id::LastEventId;
pub use stream::{EventSender, EventStream, channel};
