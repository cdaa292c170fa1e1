//! Refusals by the engine, as the source of a `503`.

use std::error::Error as StdError;
use std::fmt;

use filoplume_runtime::Refusal;

/// The reason why the engine did not call the app.
#[derive(Debug)]
pub(crate) struct EngineRefusal {
    pub(crate) reason: Refusal,
    /// The limit that was reached, and what occupies the resource.
    pub(crate) because: String,
}

impl EngineRefusal {
    /// Returns advice for the developer.
    pub(crate) fn hint(&self) -> &'static str {
        match self.reason {
            Refusal::Memory => {
                "The engine refused the request before a handler was called: the contents that are \
                 buffered for all peers leave no room for another. Raise \
                 `ServerConfig::memory_max`, or read the content as `Body`, which is not buffered."
            }
            Refusal::Spool => {
                "The engine refused the request before a handler was called: its content did not \
                 fit into the disk space for contents that arrive, or could not be written there. \
                 The limit is `ServerConfig::spooled_bytes_max`, and the folder \
                 `ServerConfig::spool_folder`. The log has errors of the disk."
            }
            Refusal::Descriptors => {
                "The engine refused the request before its handler was called: files that are \
                 sent, contents that wait in files and contents that handlers read hold the \
                 descriptors that are not reserved, or this client holds an eighth of them. Raise \
                 the limit of open files of the process (`ulimit -n`, or `LimitNOFILE` of systemd)."
            }
            Refusal::ClientThreads => {
                "The engine refused the request before its handler was called: an eighth of the \
                 threads already read contents of this client. \
                 `ServerConfig::connections_per_client_max` defines which clients are counted. \
                 Extractors that collect the content, such as `Json`, occupy no thread."
            }
            _ => {
                "The engine refused the request before its handler was called: other requests of \
                 its route would have kept it waiting for too long. The limits are \
                 `ServerConfig::threads_max`, the number of `Permits` that the route uses, and \
                 `ServerConfig::queue_timeout` for the wait."
            }
        }
    }
}

impl fmt::Display for EngineRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the engine refused the request: {} ({})", self.reason, self.because)
    }
}

impl StdError for EngineRefusal {}
