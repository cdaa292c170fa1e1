//! Lines of styled text that fit a width: tables, and items that flow.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How a piece of text looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Look {
    #[default]
    Plain,
    /// Less important.
    Dim,
    /// The heading of a section.
    Heading,
    /// The heading of the section that the keys scroll.
    Focus,
    Good,
    Warning,
    Bad,
}

/// A piece of text with one look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) look: Look,
}

pub(crate) type Line = Vec<Cell>;

impl Cell {
    pub(crate) fn new(text: impl Into<String>, look: Look) -> Self {
        Self { text: text.into(), look }
    }

    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self::new(text, Look::Plain)
    }

    fn width(&self) -> usize {
        self.text.width()
    }
}

/// Cuts a text to a width. An ellipsis marks the cut.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(1);
    let fits = |character: &char| {
        let needed = character.width().unwrap_or(0);
        let is_in = needed <= left;
        left = if is_in { left - needed } else { 0 };
        is_in
    };
    let mut kept: String = text.chars().take_while(fits).collect();
    if width > 0 {
        kept.push('…');
    }
    kept
}

/// Cuts a line to a width.
pub(crate) fn cut_line(line: Line, width: usize) -> Line {
    let mut left = width;
    let mut kept = Line::new();
    for cell in line {
        if left == 0 {
            break;
        }
        let text = cut(&cell.text, left);
        left -= text.width().min(left);
        kept.push(Cell { text, ..cell });
    }
    kept
}

/// Puts items beside each other, with two spaces between them, in at most `lines_max` lines. Ends
/// with a mark if not all items fit.
pub(crate) fn flow(items: Vec<Cell>, width: usize, lines_max: usize) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut used = 0;
    for item in items {
        let needed = item.width();
        let fits = used + 2 + needed <= width;
        match lines.last_mut() {
            Some(line) if fits => {
                line.push(Cell::plain("  "));
                line.push(item);
                used += 2 + needed;
            }
            _ => {
                lines.push(vec![item]);
                used = needed;
            }
        }
    }
    if lines.len() > lines_max {
        lines.truncate(lines_max);
        if let Some(line) = lines.last_mut() {
            *line = cut_line(std::mem::take(line), width.saturating_sub(2));
            line.push(Cell::plain(" …"));
        }
    }
    lines.into_iter().map(|line| cut_line(line, width)).collect()
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) title: &'static str,
    pub(crate) size: Size,
    /// The column is left out if the table is narrower.
    pub(crate) from_width: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Size {
    /// This many characters, at the right.
    Number(usize),
    /// This many characters.
    Text(usize),
    /// This share of what is left, at the left.
    Share(usize),
}

/// Lays out the headings and rows of a table. Each row has a cell for each column.
pub(crate) fn table(columns: &[Column], rows: Vec<Line>, width: usize) -> Vec<Line> {
    let is_shown: Vec<bool> = columns.iter().map(|column| width >= column.from_width).collect();
    let widths = widths(columns, &is_shown, &rows, width);
    let titles: Line = columns.iter().map(|column| Cell::new(column.title, Look::Dim)).collect();
    let lay_out = |row: Line| {
        let mut line = Line::new();
        let cells = row.into_iter().zip(columns).zip(is_shown.iter().zip(&widths));
        for ((cell, column), (_, &width)) in cells.filter(|(_, (is_shown, _))| **is_shown) {
            if !line.is_empty() {
                line.push(Cell::plain(" "));
            }
            let text = cut(&cell.text, width);
            let space = " ".repeat(width - text.width().min(width));
            let text = match column.size {
                Size::Number(_) => space + &text,
                Size::Text(_) | Size::Share(_) => text + &space,
            };
            line.push(Cell { text, ..cell });
        }
        cut_line(line, width)
    };
    std::iter::once(titles).chain(rows).map(lay_out).collect()
}

/// Returns the width of each column. Without a limit, texts are as wide as their cells.
fn widths(columns: &[Column], is_shown: &[bool], rows: &[Line], width: usize) -> Vec<usize> {
    let shown = || columns.iter().zip(is_shown).filter(|(_, is_shown)| **is_shown);
    let fixed: usize = shown()
        .map(|(column, _)| match column.size {
            Size::Number(width) | Size::Text(width) => width + 1,
            Size::Share(_) => 1,
        })
        .sum();
    let shares: usize = shown()
        .map(|(column, _)| if let Size::Share(share) = column.size { share } else { 0 })
        .sum();
    let left = width.saturating_sub(fixed.saturating_sub(1));
    let width_of = |(index, column): (usize, &Column)| match column.size {
        Size::Number(width) => width,
        Size::Text(_) | Size::Share(_) if width == usize::MAX => {
            let cells = rows.iter().filter_map(|row| row.get(index)).map(Cell::width);
            cells.chain([column.title.width()]).max().unwrap_or(0)
        }
        Size::Text(width) => width,
        Size::Share(share) => left * share / shares.max(1),
    };
    columns.iter().enumerate().map(width_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(lines: &[Line]) -> Vec<String> {
        let of_line = |line: &Line| line.iter().map(|cell| cell.text.as_str()).collect();
        lines.iter().map(of_line).collect()
    }

    #[test]
    fn a_cut_is_shown_and_never_too_wide() {
        for (whole, width, expected) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("abcd", 1, "…"),
            ("abcd", 0, ""),
            // Wide characters take two columns.
            ("名前名前", 5, "名前…"),
            ("名前名前", 4, "名…"),
            ("a\u{301}bc", 3, "a\u{301}bc"),
        ] {
            assert_eq!(cut(whole, width), expected, "{whole} in {width}");
            assert!(cut(whole, width).width() <= width);
        }
    }

    #[test]
    fn items_flow_over_lines() {
        let items = || ["one", "two", "three"].map(Cell::plain).to_vec();
        assert_eq!(text(&flow(items(), 20, 9)), ["one  two  three"]);
        assert_eq!(text(&flow(items(), 9, 9)), ["one  two", "three"]);
        assert_eq!(text(&flow(items(), 5, 2)), ["one", "two …"]);
        assert_eq!(text(&flow(items(), 2, 9)), ["o…", "t…", "t…"]);
        assert!(flow(Vec::new(), 9, 9).is_empty());
    }

    #[test]
    fn a_table_fits_its_width() {
        let columns = [
            Column { title: "NAME", size: Size::Share(1), from_width: 0 },
            Column { title: "N", size: Size::Number(4), from_width: 0 },
            Column { title: "WHY", size: Size::Text(5), from_width: 20 },
        ];
        let rows = || vec![["abcdefghijk", "12", "long text"].map(Cell::plain).to_vec()];
        let lines = |width| text(&table(&columns, rows(), width));
        assert_eq!(lines(20), ["NAME         N WHY  ", "abcdefgh…   12 long…"]);
        assert_eq!(lines(12), ["NAME       N", "abcdef…   12"]);
        assert_eq!(lines(3), ["  …", "  …"]);
        assert_eq!(lines(usize::MAX), ["NAME           N WHY      ", "abcdefghijk   12 long text"]);
    }
}
