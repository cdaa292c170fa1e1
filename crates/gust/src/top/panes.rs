//! The lists below the head, and how they share the screen.

use super::cells::{Cell, Line, Look};

/// The lists that can be scrolled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pane {
    Calls,
    Routes,
    Stories,
}

/// Fewest rows that are shown of a list, if it has as many and the screen has room.
const ROWS_MIN: usize = 4;

/// A list with its headings.
#[derive(Debug)]
pub(super) struct List {
    pane: Pane,
    /// The headings of the columns, then the rows.
    table: Vec<Line>,
}

impl List {
    pub(super) fn new(pane: Pane, table: Vec<Line>) -> Self {
        Self { pane, table }
    }

    fn rows(&self) -> usize {
        self.table.len().saturating_sub(1)
    }

    fn title(&self) -> String {
        let title = match self.pane {
            Pane::Calls => "running calls",
            Pane::Routes => "routes",
            Pane::Stories => "slow, failed and refused requests",
        };
        if self.rows() == 0 { format!("{title}: none") } else { title.to_owned() }
    }

    /// Returns the heading and all rows.
    pub(super) fn whole(self) -> Vec<Line> {
        let title = vec![Cell::new(self.title(), Look::Heading)];
        if self.rows() == 0 {
            return vec![title];
        }
        std::iter::once(title).chain(self.table).collect()
    }

    /// Returns some of its rows, with a heading that says how many there are.
    fn part(self, rows: usize, scroll: &mut usize, has_focus: bool) -> Vec<Line> {
        let all = self.rows();
        *scroll = (*scroll).min(all.saturating_sub(rows));
        let look = if has_focus { Look::Focus } else { Look::Heading };
        let mut title = vec![Cell::new(self.title(), look)];
        if rows == 0 && all > 0 {
            title.push(Cell::new(format!("  {all}"), Look::Dim));
            return vec![title];
        }
        if rows < all {
            let (first, last) = (*scroll + 1, *scroll + rows);
            title.push(Cell::new(format!("  {first} to {last} of {all}"), Look::Dim));
        }
        let mut lines = vec![title];
        let mut table = self.table.into_iter();
        lines.extend(table.next().filter(|_| all > 0));
        lines.extend(table.skip(*scroll).take(rows));
        lines
    }
}

/// Puts the lists below each other, in `room` lines. The list that has the focus gets the lines
/// that the others leave.
pub(super) fn arrange(
    lists: [List; 3],
    focus: Pane,
    scroll: &mut [usize; 3],
    room: usize,
) -> Vec<Line> {
    let counts = [0, 1, 2].map(|index| lists[index].rows());
    let shares = share(counts, focus as usize, room);
    let mut lines = Vec::new();
    for ((list, rows), scroll) in lists.into_iter().zip(shares).zip(scroll) {
        let has_focus = list.pane == focus;
        lines.extend(list.part(rows, scroll, has_focus));
    }
    lines
}

/// Returns how many rows each list gets. In addition, a list takes two lines for headings, or one
/// if it has no rows.
fn share(counts: [usize; 3], focus: usize, room: usize) -> [usize; 3] {
    let headings: usize = counts.iter().map(|&rows| if rows == 0 { 1 } else { 2 }).sum();
    let mut left = room.saturating_sub(headings);
    let mut shares = [0; 3];
    let mut give = |index: usize, most: usize| {
        let more = (counts[index] - shares[index]).min(most).min(left);
        shares[index] += more;
        left -= more;
    };
    let others = || (0..3).filter(|&index| index != focus);
    give(focus, ROWS_MIN);
    others().for_each(|index| give(index, ROWS_MIN));
    give(focus, usize::MAX);
    others().for_each(|index| give(index, usize::MAX));
    shares
}

/// Returns the page that explains the keys and the columns.
pub(super) fn help() -> Vec<Line> {
    let text = "gust top

r p w c        sort routes by requests, 99th percentile, waiting, computing
tab            move the next list
j k, arrows    scroll; page up and down, g and G for the start and the end
q              quit
?              leave this page

REQ/S          requests per second, since the last snapshot
P99            99th percentile of the times since the server's start
WAIT, COMP     calls that waited and that computed, on average since the
               last snapshot: seconds per second
idle           what the connections wait for that no thread holds
ended          why the server has ended connections, or could not accept them
refused        why it has refused requests and connections
RUNS           where the next call runs: on an event loop or the pool
ITS THREAD     what the thread of a call does, as the system tells it";
    let title = |index| if index == 0 { Look::Heading } else { Look::Plain };
    text.lines().enumerate().map(|(index, line)| vec![Cell::new(line, title(index))]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_with_the_focus_gets_what_the_others_leave() {
        assert_eq!(share([3, 100, 50], 1, 30), [3, 17, 4]);
        assert_eq!(share([0, 2, 50], 1, 30), [0, 2, 23]);
        assert_eq!(share([64, 100, 50], 0, 30), [16, 4, 4]);
        assert_eq!(share([64, 100, 50], 2, 9), [0, 0, 3]);
        assert_eq!(share([64, 100, 50], 2, 0), [0, 0, 0]);
        assert_eq!(share([0, 0, 0], 0, 30), [0, 0, 0]);
    }
}
