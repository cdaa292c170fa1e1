//! Panics of handlers and middleware as errors.
//!
//! A panic's message comes with it; its place is known to the panic hook only, of which a process
//! has one. So the hook is taken over by the first app in development mode, and by no other: it
//! notes the place for its own thread and hands on to the hook that was there. In production the
//! place is in what the hook of the program prints, by default to standard error.

use std::any::Any;
use std::cell::RefCell;
use std::error::Error as StdError;
use std::fmt;
use std::panic;
use std::sync::Once;

/// A panic, as the cause of a `500`.
#[derive(Debug)]
pub(crate) struct Panicked {
    pub(crate) message: String,
    /// File, line and column, in development mode.
    pub(crate) place: Option<String>,
}

thread_local! {
    /// Where the latest panic of this thread was.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Has the places of panics noted from now on, once a process.
pub(crate) fn note_places_of_panics() {
    static TAKEN: Once = Once::new();
    // A hook cannot be changed by a thread that panics.
    if std::thread::panicking() {
        return;
    }
    TAKEN.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let place = info.location().map(ToString::to_string);
            PLACE.with(|noted| {
                // Only a panic within these lines could hold it.
                if let Ok(mut noted) = noted.try_borrow_mut() {
                    *noted = place;
                }
            });
            before(info);
        }));
    });
}

impl Panicked {
    /// What was caught on this thread just now.
    #[cold]
    pub(crate) fn caught(panic: &(dyn Any + Send)) -> Self {
        let place = PLACE.with(RefCell::take);
        Self { message: panic_message(panic), place }
    }
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "panicked at {place}: {}", self.message),
            None => write!(f, "panicked: {}", self.message),
        }
    }
}

impl StdError for Panicked {}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
