//! The state of the display: the last snapshots, and what the keys have chosen. It has no terminal
//! and no clock.

use super::cells::{Cell, Line, Look, cut_line, flow};
use super::panes::{self, Pane};
use super::rates::Snapshots;
use super::rows::{self, Sort};
use super::snapshot::Snapshot;

/// A screen with fewer lines is low.
const LOW: usize = 30;

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Sort(Sort),
    /// By lines; negative is up.
    Scroll(isize),
    /// To the start or the end.
    ScrollToEnd {
        is_last: bool,
    },
    NextPane,
    Help,
}

#[derive(Debug)]
pub(crate) struct View {
    /// The address of the console.
    address: String,
    snapshots: Snapshots,
    /// Why no snapshots come at the moment.
    trouble: Option<String>,
    pub(super) sort: Sort,
    pub(super) focus: Pane,
    /// How many rows of each list are above what is shown.
    scroll: [usize; 3],
    shows_help: bool,
}

impl View {
    pub(crate) fn new(address: String) -> Self {
        Self {
            address,
            snapshots: Snapshots::default(),
            trouble: None,
            sort: Sort::default(),
            focus: Pane::Routes,
            scroll: [0; 3],
            shows_help: false,
        }
    }

    /// Shows the next snapshot.
    pub(crate) fn update(&mut self, snapshot: Snapshot) {
        self.trouble = None;
        self.snapshots.add(snapshot);
    }

    /// Returns whether there are rates.
    pub(crate) fn has_rates(&self) -> bool {
        self.snapshots.have_rates()
    }

    /// Shows why no snapshots come. The last one stays on the screen.
    pub(crate) fn trouble(&mut self, message: String) {
        self.trouble = Some(message);
    }

    pub(crate) fn act(&mut self, action: Action) {
        match action {
            Action::Help => self.shows_help = !self.shows_help,
            // Any other key leaves the help, and does nothing else.
            _ if self.shows_help => self.shows_help = false,
            Action::Sort(sort) => {
                self.sort = sort;
                self.scroll[Pane::Routes as usize] = 0;
            }
            Action::Scroll(lines) => {
                let scroll = &mut self.scroll[self.focus as usize];
                *scroll = scroll.saturating_add_signed(lines);
            }
            Action::ScrollToEnd { is_last } => {
                self.scroll[self.focus as usize] = if is_last { usize::MAX } else { 0 };
            }
            Action::NextPane => {
                self.focus = match self.focus {
                    Pane::Calls => Pane::Routes,
                    Pane::Routes => Pane::Stories,
                    Pane::Stories => Pane::Calls,
                }
            }
        }
    }

    /// Returns the lines of a screen: at most `height`, each at most `width` wide.
    pub(crate) fn screen(&mut self, width: usize, height: usize) -> Vec<Line> {
        let mut lines = if self.shows_help { panes::help() } else { self.overview(width, height) };
        lines.truncate(height);
        lines.into_iter().map(|line| cut_line(line, width)).collect()
    }

    fn overview(&mut self, width: usize, height: usize) -> Vec<Line> {
        let mut lines = self.head(width, height);
        let Some(now) = self.snapshots.last() else { return lines };
        let room = height.saturating_sub(lines.len() + 1);
        let lists = self.lists(now, width);
        lines.extend(panes::arrange(lists, self.focus, &mut self.scroll, room));
        lines.truncate(height.saturating_sub(1));
        let keys = "q quit  ? help  tab list  jk scroll  sort: r requests  p p99  w waiting  \
                    c computing";
        lines.resize(height.saturating_sub(1), Line::new());
        lines.push(vec![Cell::new(keys, Look::Dim)]);
        lines
    }

    /// Returns everything as plain text.
    pub(crate) fn text(&self) -> String {
        let mut lines = self.head(usize::MAX, usize::MAX);
        if let Some(now) = self.snapshots.last() {
            for list in self.lists(now, usize::MAX) {
                lines.push(Line::new());
                lines.extend(list.whole());
            }
        }
        let text_of = |line: Line| {
            let text: String = line.into_iter().map(|cell| cell.text).collect();
            text.trim_end().to_owned() + "\n"
        };
        lines.into_iter().map(text_of).collect()
    }

    /// Returns what is above the lists. On a low screen it is shortened, so that the lists have
    /// room.
    fn head(&self, width: usize, height: usize) -> Vec<Line> {
        let mut lines = Vec::new();
        if let Some(trouble) = &self.trouble {
            lines.push(vec![Cell::new(format!("{trouble}; trying again"), Look::Bad)]);
        }
        let Some(now) = self.snapshots.last() else {
            lines.push(vec![Cell::plain(format!("connecting to {}", self.address))]);
            return lines;
        };
        let items =
            rows::totals(now, self.snapshots.per_second(|snapshot| snapshot.requests.total));
        lines.extend(flow(items, width, if height < LOW { 4 } else { 6 }));
        let lines_max = if height < LOW { 1 } else { 3 };
        for (title, items) in [
            ("limits", rows::limits(now)),
            ("checks", rows::checks(now)),
            ("loops", rows::loops(now)),
            ("idle", rows::idle(now)),
            ("ended", rows::reasons(&now.ended)),
            ("refused", rows::reasons(&now.refusals)),
        ] {
            if !items.is_empty() {
                let items = std::iter::once(Cell::new(title, Look::Dim)).chain(items).collect();
                lines.extend(flow(items, width, lines_max));
            }
        }
        lines
    }

    fn lists(&self, now: &Snapshot, width: usize) -> [panes::List; 3] {
        let routes = rows::sorted(self.snapshots.with_rates(now), self.sort);
        [
            panes::List::new(Pane::Calls, rows::calls(now, width)),
            panes::List::new(Pane::Routes, rows::routes(&routes, self.sort, width)),
            panes::List::new(Pane::Stories, rows::stories(now, width)),
        ]
    }
}

#[cfg(test)]
mod tests;
