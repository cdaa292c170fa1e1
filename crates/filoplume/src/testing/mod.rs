//! Calls an app in process: with the same HTTP code as on a connection, but without a socket.
//!
//! ```
//! use filoplume::prelude::*;
//!
//! fn app() -> App {
//!     App::new()
//!         .get("/hello/{name}", |Path(name): Path<String>| format!("Hello, {name}!"))
//! }
//!
//! // In a test: a function with `#[test]`.
//! let client = app().test();
//! client.get("/hello/Ada").send().assert_status(200).assert_text("Hello, Ada!");
//! client.get("/goodbye").send().assert_status(404);
//! ```
//!
//! A [`TestClient`] keeps cookies as a browser does. It parses responses strictly: invalid HTTP
//! fails the test. A failed assertion prints the whole exchange.

mod client;
mod content;
mod cookies;
#[cfg(feature = "json")]
mod difference;
mod exchange;
#[cfg(feature = "sessions")]
mod forms;
mod multipart;
mod parse;
mod request;
mod response;
mod target;
mod unsent;

pub use client::TestClient;
pub use multipart::MultipartForm;
pub use request::TestRequest;
pub use response::TestResponse;
