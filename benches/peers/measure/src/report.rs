//! Makes one Markdown table from the figures of several rounds.

use std::fmt::Write as _;

/// The figure that shows whether a round was disturbed.
pub const OTHERS_KEY: &str = "others";

/// If other processes use more cores than this, the requests/s and latencies of a round are worth
/// nothing.
pub const DISTURBED_ABOVE: f64 = 0.2;

/// The results of one run.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    numbers: Vec<(&'static str, f64)>,
    texts: Vec<(&'static str, String)>,
    pub problems: Vec<String>,
}

impl Figures {
    pub fn number(mut self, key: &'static str, value: f64) -> Self {
        self.numbers.push((key, value));
        self
    }

    pub fn text(mut self, key: &'static str, value: String) -> Self {
        self.texts.push((key, value));
        self
    }

    pub fn problems(mut self, problems: Vec<String>) -> Self {
        self.problems.extend(problems);
        self
    }

    pub fn get(&self, key: &str) -> Option<f64> {
        self.numbers.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }
}

/// One column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub key: &'static str,
    pub title: &'static str,
    pub digits: usize,
    pub show: Show,
}

/// How a column shows several rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// The median.
    Median,
    /// The median, the smallest and the largest, and the median of the ratios to the reference in
    /// the same round.
    Compared,
    /// The words of the last round.
    Text,
}

/// One row of a table: a server, and its results in each round.
#[derive(Debug)]
pub struct Row {
    pub label: String,
    pub is_ours: bool,
    pub rounds: Vec<Result<Figures, String>>,
    /// How often a disturbed round was run again.
    pub repeats: usize,
}

impl Row {
    pub fn new(label: &str, is_ours: bool) -> Self {
        Self { label: label.to_owned(), is_ours, rounds: Vec::new(), repeats: 0 }
    }

    /// The median of a figure over the rounds.
    pub fn median(&self, key: &str) -> Option<f64> {
        let values = sorted(figures(self).filter_map(|figures| figures.get(key)));
        (!values.is_empty()).then(|| median(&values))
    }

    /// The words of the last round that did not fail.
    pub fn last_text(&self, key: &str) -> Option<&str> {
        let last = self.rounds.iter().rev().find_map(|round| round.as_ref().ok())?;
        last.texts.iter().find(|(name, _)| *name == key).map(|(_, text)| text.as_str())
    }

    /// The problems of all rounds.
    pub fn problems(&self) -> String {
        let mut problems: Vec<&str> = Vec::new();
        for round in &self.rounds {
            match round {
                Ok(figures) => problems.extend(figures.problems.iter().map(String::as_str)),
                Err(error) => problems.push(error),
            }
        }
        // The output of a program may have line breaks and bars, which would break the table.
        problems.join("; ").replace('\n', " ").replace('|', "/")
    }

    /// The number of rounds that were disturbed even after the last repeat, and the number of
    /// repeats. Empty if both are zero.
    fn disturbed(&self) -> String {
        let disturbed = figures(self).filter(|figures| is_disturbed(figures)).count();
        let rounds = self.rounds.len();
        match (disturbed, self.repeats) {
            (0, 0) => String::new(),
            (disturbed, 0) => format!("**{disturbed} of {rounds}**"),
            (0, repeats) => format!("0 of {rounds}, {repeats} repeated"),
            (disturbed, repeats) => format!("**{disturbed} of {rounds}**, {repeats} repeated"),
        }
    }
}

/// Renders the table of servers. Ratios are to the row with the label `reference`, round by round.
pub fn table(columns: &[Column], rows: &[Row], reference: &str) -> String {
    table_of("server", columns, rows, reference)
}

/// Renders a table whose first column has the title `of`.
pub fn table_of(of: &str, columns: &[Column], rows: &[Row], reference: &str) -> String {
    let reference = rows.iter().find(|row| row.label == reference);
    let mut text = format!("| {of} |");
    for column in columns {
        let _ = write!(text, " {} |", column.title);
        if column.show == Show::Compared && reference.is_some() {
            text.push_str(" ratio |");
        }
    }
    let tells_disturbed = columns.iter().any(|column| column.key == OTHERS_KEY);
    if tells_disturbed {
        text.push_str(" disturbed rounds |");
    }
    text.push_str(" problems |\n|---|");
    let ratios = columns
        .iter()
        .filter(|column| column.show == Show::Compared && reference.is_some())
        .count();
    text.push_str(&"---|".repeat(columns.len() + ratios + usize::from(tells_disturbed) + 1));
    text.push('\n');
    for row in rows {
        let _ = write!(text, "| {} |", row.label);
        for column in columns {
            let _ = write!(text, " {} |", cell(row, column));
            if let (Show::Compared, Some(reference)) = (column.show, reference) {
                let _ = write!(text, " {} |", ratio(row, reference, column.key));
            }
        }
        if tells_disturbed {
            let _ = write!(text, " {} |", row.disturbed());
        }
        let _ = writeln!(text, " {} |", row.problems());
    }
    text
}

fn cell(row: &Row, column: &Column) -> String {
    if column.show == Show::Text {
        return row.last_text(column.key).unwrap_or_default().to_owned();
    }
    let values = sorted(figures(row).filter_map(|figures| figures.get(column.key)));
    let (Some(least), Some(most)) = (values.first(), values.last()) else { return "-".to_owned() };
    let shown = number(median(&values), column.digits);
    if column.show == Show::Median || values.len() == 1 {
        return shown;
    }
    format!("{shown} ({}..{})", number(*least, column.digits), number(*most, column.digits))
}

/// The median of the ratios within each round. Whatever slowed a round down slowed both rows down.
fn ratio(row: &Row, reference: &Row, key: &str) -> String {
    let pairs = row.rounds.iter().zip(&reference.rounds).filter_map(|(ours, theirs)| {
        let (Ok(ours), Ok(theirs)) = (ours, theirs) else { return None };
        Some(ours.get(key)? / theirs.get(key)?)
    });
    let ratios = sorted(pairs.filter(|ratio| ratio.is_finite()));
    if ratios.is_empty() { "-".to_owned() } else { format!("{:.2}", median(&ratios)) }
}

fn figures(row: &Row) -> impl Iterator<Item = &Figures> {
    row.rounds.iter().filter_map(|round| round.as_ref().ok())
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The middle of sorted values. There must be at least one.
pub fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

/// Formats a number with commas between the thousands.
pub fn number(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let (whole, fraction) =
        text.split_once('.').map_or((text.as_str(), None), |(a, b)| (a, Some(b)));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        let left = whole.len() - index;
        if index > 0 && left % 3 == 0 && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    match fraction {
        Some(fraction) => format!("{grouped}.{fraction}"),
        None => grouped,
    }
}

/// Whether other processes used so much of the machine that the figures are worth nothing.
pub fn is_disturbed(figures: &Figures) -> bool {
    others(figures) > DISTURBED_ABOVE
}

/// The cores that other processes used.
pub fn others(figures: &Figures) -> f64 {
    figures.get(OTHERS_KEY).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_a_round() {
        let columns =
            [Column { key: "rate", title: "requests/s", digits: 0, show: Show::Compared }];
        let rows =
            [row("a", "rate", &[100.0, 1000.0, 10.0]), row("b", "rate", &[200.0, 2000.0, 30.0])];
        let lines = table(&columns, &rows, "a");
        assert_eq!(
            lines,
            "| server | requests/s | ratio | problems |\n|---|---|---|---|\n\
             | a | 100 (10..1,000) | 1.00 |  |\n| b | 200 (30..2,000) | 2.00 |  |\n"
        );
    }

    #[test]
    fn disturbed_and_repeated_rounds_are_told() {
        let columns = [Column { key: OTHERS_KEY, title: "others", digits: 2, show: Show::Median }];
        let mut rows =
            [row("a", OTHERS_KEY, &[0.1, 0.3, 0.4]), row("b", OTHERS_KEY, &[0.1, 0.0, 0.2])];
        rows[0].repeats = 5;
        let lines = table(&columns, &rows, "");
        assert_eq!(
            lines,
            "| server | others | disturbed rounds | problems |\n|---|---|---|---|\n\
             | a | 0.30 | **2 of 3**, 5 repeated |  |\n| b | 0.10 |  |  |\n"
        );
    }

    #[test]
    fn a_run_that_failed_is_a_problem_and_no_figure() {
        let mut failed = Row::new("a", false);
        failed.rounds.push(Err("it | hangs\nfor ever".to_owned()));
        assert_eq!(failed.median("rate"), None);
        assert_eq!(failed.problems(), "it / hangs for ever");
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_two() {
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
        assert_eq!(row("a", "rate", &[9.0, 1.0, 2.0]).median("rate"), Some(2.0));
    }

    #[test]
    fn thousands_have_commas() {
        assert_eq!(
            [number(999.0, 0), number(1000.0, 0), number(1_234_567.891, 2), number(-1000.0, 0)],
            ["999", "1,000", "1,234,567.89", "-1,000"]
        );
    }

    fn row(label: &str, key: &'static str, values: &[f64]) -> Row {
        let mut row = Row::new(label, false);
        row.rounds =
            values.iter().map(|&value| Ok(Figures::default().number(key, value))).collect();
        row
    }
}
