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
    spawn("filoplume-signals", move || {
        // Gives the process the exit status that the sender of the signal expects.
        let end = |signal| drop(signal_hook::low_level::emulate_default_handler(signal));
        obey(signals.forever(), move || handle.shutdown(), end);
    })
}

/// Calls `shut_down` at the first signal and `end` at the second one.
///
/// The thread that receives signals writes no log: a log whose reader has stopped blocks for ever,
/// and that may be why the process has to end.
fn obey(
    signals: impl IntoIterator<Item = i32>,
    shut_down: impl Fn() + Clone + Send + 'static,
    end: impl FnOnce(i32),
) {
    let mut signals = signals.into_iter();
    let Some(signal) = signals.next() else { return };
    let in_thread = shut_down.clone();
    let spawned = spawn("filoplume-shutdown", move || {
        in_thread();
        tracing::info!(signal, "received a signal: shutting down");
    });
    if spawned.is_err() {
        shut_down();
    }
    if let Some(signal) = signals.next() {
        end(signal);
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(with_normal_policy(run)).map(drop)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_second_signal_ends_the_process_though_the_shutdown_blocks() {
        // The shutdown blocks as if it wrote to a log that nobody reads.
        let (begins, begun) = crossbeam_channel::bounded(1);
        let (_never, blocks) = crossbeam_channel::bounded::<()>(0);
        let shut_down = move || {
            begins.send(()).unwrap();
            let _ = blocks.recv();
        };
        let ended = Cell::new(None);
        obey([SIGTERM, SIGINT], shut_down, |signal| ended.set(Some(signal)));
        begun.recv_timeout(Duration::from_secs(30)).unwrap();
        assert_eq!(ended.get(), Some(SIGINT));
    }

    #[test]
    fn one_signal_does_not_end_the_process() {
        let (begins, begun) = crossbeam_channel::bounded(2);
        obey([SIGTERM], move || begins.send(()).unwrap(), |_| panic!("there is no second signal"));
        begun.recv_timeout(Duration::from_secs(30)).unwrap();
    }
}
