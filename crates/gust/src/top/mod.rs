//! `gust top`: shows the console of an app in a terminal.
//!
//! A thread reads the feed (`follow`) into `snapshot`s. The `view` keeps some of them, from which
//! it has `rates`, and makes lines for any size (`rows`, `panes`, `cells`). The `screen` has
//! the terminal and its keys. No other module uses the terminal, and only `follow` uses a socket.

mod cells;
mod follow;
mod panes;
mod rates;
mod rows;
mod screen;
mod snapshot;
mod view;

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use self::follow::{Trouble, follow};
use self::screen::Screen;
use self::snapshot::Snapshot;
use self::view::View;
use crate::args::top::{Feed, TopArguments};

/// How long to wait before the feed is asked for again, at first and at most.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Most snapshots that are awaited until rates can be computed from them.
const SNAPSHOTS_MAX: usize = 4;

/// A message of the thread that reads the feed.
#[derive(Debug)]
pub(crate) enum Update {
    Snapshot(Box<Snapshot>),
    Trouble(String),
    /// No snapshot has ever arrived, so the command line is probably wrong.
    Failed(String),
}

/// Shows the console until the user quits.
pub(crate) fn show(arguments: &TopArguments) -> Result<(), String> {
    let feed = arguments.feed()?;
    if arguments.once || !io::stdout().is_terminal() {
        return once(&feed);
    }
    let view = View::new(snapshot::escape(&feed.target.authority));
    let (updates, updated) = mpsc::channel();
    // The thread ends with the process.
    thread::spawn(move || read(&feed, &updates));
    Screen::open()?.run(view, &updated)
}

/// Prints the first snapshots as text, as soon as rates can be computed from them.
fn once(feed: &Feed) -> Result<(), String> {
    let mut view = View::new(String::new());
    let mut snapshots = 0;
    let followed = follow(feed, &mut |snapshot| {
        view.update(snapshot);
        snapshots += 1;
        let is_enough = view.has_rates() || snapshots >= SNAPSHOTS_MAX;
        if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    followed.map_err(|trouble| trouble.message)?;
    crate::print(&view.text());
    Ok(())
}

/// Reads the feed, and opens it again whenever it ends, until `updates` has no receiver. Gives up
/// if no snapshot has ever arrived.
fn read(feed: &Feed, updates: &mpsc::Sender<Update>) {
    let mut is_known = false;
    let mut pause = Pause::default();
    loop {
        let followed = follow(feed, &mut |snapshot| {
            is_known = true;
            pause = Pause::default();
            match updates.send(Update::Snapshot(Box::new(snapshot))) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        });
        let Err(Trouble { message, is_lasting }) = followed else { return };
        let update = if is_known { Update::Trouble(message) } else { Update::Failed(message) };
        if updates.send(update).is_err() || !is_known {
            return;
        }
        thread::sleep(pause.after(is_lasting));
    }
}

/// How long to wait before the feed is asked for again, if its trouble may pass.
#[derive(Debug)]
struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Self(RETRY_MIN)
    }
}

impl Pause {
    /// Returns how long to wait after a trouble. The next pause is longer.
    fn after(&mut self, is_lasting: bool) -> Duration {
        // While a server is deployed again, it may have no console for a while. So a lasting
        // trouble is retried as well, but seldom.
        let pause = if is_lasting { RETRY_MAX } else { self.0 };
        self.0 = (pause * 2).min(RETRY_MAX);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pauses_between_attempts_grow_up_to_a_bound() {
        let pauses = |troubles: &[bool]| -> Vec<u128> {
            let mut pause = Pause::default();
            troubles.iter().map(|is_lasting| pause.after(*is_lasting).as_millis()).collect()
        };
        assert_eq!(pauses(&[false; 6]), [500, 1000, 2000, 4000, 5000, 5000]);
        assert_eq!(pauses(&[true, true, false]), [5000; 3]);
    }
}
