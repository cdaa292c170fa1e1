//! The terminal: its size, its keys, and what is written to it.

use std::io::{self, BufWriter, IsTerminal as _, Stdout, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::style::{Attribute, Color, Print, SetAttribute, SetForegroundColor};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{execute, queue};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGTERM};

use super::Update;
use super::cells::{Cell, Line, Look};
use super::rows::Sort;
use super::view::{Action, View};

/// How long to wait for a key before the feed is checked.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// How many lines a page key scrolls.
const PAGE_LINES: isize = 10;

/// A terminal that shows this program alone. Dropping it restores the terminal.
#[derive(Debug)]
pub(crate) struct Screen {
    out: BufWriter<Stdout>,
    /// The user wants no colours.
    is_plain: bool,
    /// The system wants the program to end.
    is_stopped: Arc<AtomicBool>,
}

/// What a wait for a key has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waited {
    Nothing,
    Event,
    /// The terminal was closed.
    HungUp,
}

/// What a key means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Quit,
    Act(Action),
}

impl Screen {
    pub(crate) fn open() -> Result<Self, String> {
        let failed = |error: io::Error| format!("cannot use the terminal: {error}; try --once");
        let is_stopped = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&is_stopped)).map_err(failed)?;
        }
        // See no-color.org.
        let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        enable_raw_mode().map_err(failed)?;
        // From here on, dropping the screen restores the terminal.
        let mut screen = Self { out: BufWriter::new(io::stdout()), is_plain, is_stopped };
        execute!(screen.out, EnterAlternateScreen, Hide).map_err(failed)?;
        Ok(screen)
    }

    /// Shows the view until the user quits. Returns an error if no snapshot has ever arrived.
    pub(crate) fn run(
        mut self,
        mut view: View,
        updates: &mpsc::Receiver<Update>,
    ) -> Result<(), String> {
        let failed = |error: io::Error| format!("cannot use the terminal: {error}");
        let mut is_changed = true;
        loop {
            while let Ok(update) = updates.try_recv() {
                is_changed = true;
                match update {
                    Update::Snapshot(snapshot) => view.update(*snapshot),
                    Update::Trouble(message) => view.trouble(message),
                    Update::Failed(message) => return Err(message),
                }
            }
            if std::mem::take(&mut is_changed) {
                self.draw(&mut view).map_err(failed)?;
            }
            let waited = wait_for_key().map_err(failed)?;
            if waited == Waited::HungUp || self.is_stopped.load(Ordering::Relaxed) {
                return Ok(());
            }
            if waited == Waited::Nothing {
                continue;
            }
            // A change of the size is an event as well, and needs a new drawing.
            is_changed = true;
            if let Event::Key(pressed) = event::read().map_err(failed)? {
                match key(pressed) {
                    Some(Key::Quit) => return Ok(()),
                    Some(Key::Act(action)) => view.act(action),
                    None => {}
                }
            }
        }
    }

    fn draw(&mut self, view: &mut View) -> io::Result<()> {
        let (width, height) = size()?;
        let lines = view.screen(width.into(), height.into());
        queue!(self.out, BeginSynchronizedUpdate)?;
        for (row, line) in (0..height).zip(lines.iter().chain(std::iter::repeat(&Line::new()))) {
            queue!(self.out, MoveTo(0, row))?;
            for cell in line {
                self.write(cell)?;
            }
            queue!(self.out, Clear(ClearType::UntilNewLine))?;
        }
        queue!(self.out, EndSynchronizedUpdate)?;
        self.out.flush()
    }

    fn write(&mut self, cell: &Cell) -> io::Result<()> {
        let (attribute, color) = match cell.look {
            Look::Plain => (None, None),
            Look::Dim => (Some(Attribute::Dim), None),
            Look::Heading => (Some(Attribute::Bold), None),
            Look::Focus => (Some(Attribute::Reverse), None),
            Look::Good => (None, Some(Color::Green)),
            Look::Warning => (Some(Attribute::Bold), Some(Color::Yellow)),
            Look::Bad => (Some(Attribute::Bold), Some(Color::Red)),
        };
        if let Some(attribute) = attribute {
            queue!(self.out, SetAttribute(attribute))?;
        }
        if let Some(color) = color.filter(|_| !self.is_plain) {
            queue!(self.out, SetForegroundColor(color))?;
        }
        queue!(self.out, Print(&cell.text), SetAttribute(Attribute::Reset))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If the terminal was closed, there is nothing to restore.
        let _ = execute!(self.out, EndSynchronizedUpdate, LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// Waits for a key for a moment. A closed terminal is detected here, because crossterm would read
/// its end again and again, and never return.
fn wait_for_key() -> io::Result<Waited> {
    let (stdin, mut wait) = (io::stdin(), KEY_WAIT);
    if stdin.is_terminal() {
        let mut input = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut input, Some(&wait.try_into().map_err(io::Error::other)?)) {
            // A change of the size is a signal, which ends the wait.
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if input[0].revents().contains(PollFlags::HUP) {
            return Ok(Waited::HungUp);
        }
        wait = Duration::ZERO;
    } else if !io::stdout().is_terminal() {
        // A closed terminal is no longer reported as a terminal. It was one when the program began.
        return Ok(Waited::HungUp);
    }
    Ok(if event::poll(wait)? { Waited::Event } else { Waited::Nothing })
}

fn key(pressed: KeyEvent) -> Option<Key> {
    if pressed.kind == KeyEventKind::Release {
        return None;
    }
    let has_control = pressed.modifiers.contains(KeyModifiers::CONTROL);
    let action = match pressed.code {
        KeyCode::Char('c' | 'd') if has_control => return Some(Key::Quit),
        KeyCode::Char('q') | KeyCode::Esc => return Some(Key::Quit),
        KeyCode::Char('r') => Action::Sort(Sort::Requests),
        KeyCode::Char('p') => Action::Sort(Sort::P99),
        KeyCode::Char('w') => Action::Sort(Sort::Waiting),
        KeyCode::Char('c') => Action::Sort(Sort::Computing),
        KeyCode::Char('?' | 'h') => Action::Help,
        KeyCode::Char('j') | KeyCode::Down => Action::Scroll(1),
        KeyCode::Char('k') | KeyCode::Up => Action::Scroll(-1),
        KeyCode::PageDown | KeyCode::Char(' ') => Action::Scroll(PAGE_LINES),
        KeyCode::PageUp => Action::Scroll(-PAGE_LINES),
        KeyCode::Char('g') | KeyCode::Home => Action::ScrollToEnd { is_last: false },
        KeyCode::Char('G') | KeyCode::End => Action::ScrollToEnd { is_last: true },
        KeyCode::Tab => Action::NextPane,
        _ => return None,
    };
    Some(Key::Act(action))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_meanings_of_the_help() {
        let plain = |code| key(KeyEvent::new(code, KeyModifiers::NONE));
        for (code, expected) in [
            (KeyCode::Char('q'), Some(Key::Quit)),
            (KeyCode::Char('c'), Some(Key::Act(Action::Sort(Sort::Computing)))),
            (KeyCode::Char('w'), Some(Key::Act(Action::Sort(Sort::Waiting)))),
            (KeyCode::Char('p'), Some(Key::Act(Action::Sort(Sort::P99)))),
            (KeyCode::Char('r'), Some(Key::Act(Action::Sort(Sort::Requests)))),
            (KeyCode::Up, Some(Key::Act(Action::Scroll(-1)))),
            (KeyCode::Char('j'), Some(Key::Act(Action::Scroll(1)))),
            (KeyCode::Tab, Some(Key::Act(Action::NextPane))),
            (KeyCode::Char('x'), None),
        ] {
            assert_eq!(plain(code), expected, "{code:?}");
        }
        let stop = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(key(stop), Some(Key::Quit), "raw mode has no SIGINT");
    }
}
