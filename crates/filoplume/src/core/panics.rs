//! Panics of handlers and middleware as errors.
//!
//! The payload of a panic has its message, but only the panic hook knows its location, and a
//! process has one hook. So the first app in development mode, and no other, replaces the hook. The
//! new hook records the location for its thread and calls the previous hook. In production the
//! location is only in the output of the program's own hook, which is standard error by default.

use std::any::Any;
use std::cell::RefCell;
use std::error::Error as StdError;
use std::fmt;
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};

use filoplume_runtime::Request;

/// A panic, as the source of a `500`.
#[derive(Debug)]
pub(crate) struct Panicked {
    pub(crate) message: String,
    /// File, line and column; in development mode only.
    pub(crate) location: Option<String>,
}

/// Tells middleware further out that a panic became another response, which does not carry it any
/// more. That middleware adds it to the request.
#[derive(Clone, Debug, Default)]
pub(crate) struct PanicFlag(Arc<AtomicBool>);

impl PanicFlag {
    /// Returns the flag of a request, if it has one.
    pub(crate) fn of(request: &Request) -> Option<Self> {
        request.extensions().get().cloned()
    }

    /// Returns the flag of a request, and adds one if it has none.
    #[cfg(feature = "sessions")]
    pub(crate) fn add_to(request: &mut Request) -> Self {
        request.extensions_mut().get_or_insert_default::<Self>().clone()
    }

    // The same thread reads it, when the inner middleware has returned.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    #[cfg(feature = "sessions")]
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

thread_local! {
    /// The location of the latest panic of this thread.
    static LOCATION: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Starts to record the locations of panics. It takes effect once per process.
pub(crate) fn record_panic_locations() {
    static INSTALLED: Once = Once::new();
    // A panicking thread cannot change the hook.
    if std::thread::panicking() {
        return;
    }
    INSTALLED.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let location = info.location().map(ToString::to_string);
            LOCATION.with(|recorded| {
                // It is borrowed only if these lines panic themselves.
                if let Ok(mut recorded) = recorded.try_borrow_mut() {
                    *recorded = location;
                }
            });
            before(info);
        }));
    });
}

impl Panicked {
    /// Takes the panic that this thread has just caught.
    #[cold]
    pub(crate) fn caught(panic: &(dyn Any + Send)) -> Self {
        let location = LOCATION.with(RefCell::take);
        Self { message: panic_message(panic), location }
    }
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.location {
            Some(location) => write!(f, "panicked at {location}: {}", self.message),
            None => write!(f, "panicked: {}", self.message),
        }
    }
}

impl StdError for Panicked {}

/// Returns the message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
