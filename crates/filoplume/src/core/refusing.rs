//! What the engine refused, as the cause of a `503`.

use std::error::Error as StdError;
use std::fmt;

use filoplume_runtime::Refusal;

/// Why the engine did not call the app.
#[derive(Debug)]
pub(crate) struct Refusing {
    pub(crate) reason: Refusal,
    /// Which limit was reached, and who has what is missing.
    pub(crate) because: String,
}

impl Refusing {
    /// What a developer can do about it.
    pub(crate) fn hint(&self) -> &'static str {
        match self.reason {
            Refusal::Memory => {
                "The engine refused the request before a handler was called: so much is buffered \
                 of all peers that there is no room for its content. `ServerConfig::memory_max` is \
                 the limit, and what a handler reads as `Body` is not collected."
            }
            Refusal::ClientThreads => {
                "The engine refused the request before its handler was called: an eighth of the \
                 threads reads contents of this client already. \
                 `ServerConfig::connections_per_client_max` says which clients are counted, and \
                 extractors that want their content whole, such as `Json`, hold no thread."
            }
            _ => {
                "The engine refused the request before its handler was called, because others of \
                 its route would have kept it waiting for too long. The limits are \
                 `ServerConfig::threads_max`, the number of the `Permits` that the route uses, and \
                 `ServerConfig::queue_timeout` for the wait."
            }
        }
    }
}

impl fmt::Display for Refusing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the engine refused it: {} ({})", self.reason, self.because)
    }
}

impl StdError for Refusing {}
