//! Graceful shutdown on SIGTERM and SIGINT.

use std::io;
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::execution::scheduling::with_normal_policy;
use crate::server::ShutdownHandle;

/// Shuts down at the first signal. The second one ends the process as by default.
pub(crate) fn shutdown_on_signals(handle: ShutdownHandle) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    thread::Builder::new().name("filoplume-signals".to_owned()).spawn(with_normal_policy(
        move || {
            let mut has_begun = false;
            for signal in signals.forever() {
                if has_begun {
                    tracing::warn!(signal, "received a second signal: ending at once");
                    // Gives the process the exit status that the sender of the signal expects.
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                    return;
                }
                has_begun = true;
                tracing::info!(signal, "received a signal: shutting down");
                handle.shutdown();
            }
        },
    ))?;
    Ok(())
}
