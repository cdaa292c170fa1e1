//! From figures of several rounds to one Markdown table.

use std::fmt::Write as _;

/// What one run gave.
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

    fn get(&self, key: &str) -> Option<f64> {
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
    /// The median, the smallest and the largest, and the ratio to the reference's of the same round.
    Compared,
    /// Words, those of the last round.
    Text,
}

/// One row of a table: a server, and what it gave in each round.
#[derive(Debug)]
pub struct Row {
    pub label: String,
    pub rounds: Vec<Result<Figures, String>>,
}

/// Renders the table; ratios are to the row with the label `reference`, round by round.
pub fn table(columns: &[Column], rows: &[Row], reference: &str) -> String {
    let reference = rows.iter().find(|row| row.label == reference);
    let mut text = String::from("| server |");
    for column in columns {
        let _ = write!(text, " {} |", column.title);
        if column.show == Show::Compared && reference.is_some() {
            text.push_str(" ratio |");
        }
    }
    text.push_str(" problems |\n|---|");
    let ratios = columns.iter().filter(|column| column.show == Show::Compared && reference.is_some()).count();
    text.push_str(&"---|".repeat(columns.len() + ratios + 1));
    text.push('\n');
    for row in rows {
        let _ = write!(text, "| {} |", row.label);
        for column in columns {
            let _ = write!(text, " {} |", cell(row, column));
            if let (Show::Compared, Some(reference)) = (column.show, reference) {
                let _ = write!(text, " {} |", ratio(row, reference, column.key));
            }
        }
        let _ = writeln!(text, " {} |", problems(row));
    }
    text
}

fn cell(row: &Row, column: &Column) -> String {
    if column.show == Show::Text {
        let last = row.rounds.iter().rev().find_map(|round| round.as_ref().ok());
        let text = last.and_then(|figures| figures.texts.iter().find(|(key, _)| *key == column.key));
        return text.map_or_else(String::new, |(_, text)| text.clone());
    }
    let values = sorted(figures(row).filter_map(|figures| figures.get(column.key)));
    let (Some(least), Some(most)) = (values.first(), values.last()) else { return "-".to_owned() };
    let shown = number(median(&values), column.digits);
    if column.show == Show::Median || values.len() == 1 {
        return shown;
    }
    format!("{shown} ({}..{})", number(*least, column.digits), number(*most, column.digits))
}

/// The median of the ratios within each round: what slowed a round down slowed both.
fn ratio(row: &Row, reference: &Row, key: &str) -> String {
    let pairs = row.rounds.iter().zip(&reference.rounds).filter_map(|(ours, theirs)| {
        let (Ok(ours), Ok(theirs)) = (ours, theirs) else { return None };
        Some(ours.get(key)? / theirs.get(key)?)
    });
    let ratios = sorted(pairs.filter(|ratio| ratio.is_finite()));
    if ratios.is_empty() { "-".to_owned() } else { format!("{:.2}", median(&ratios)) }
}

fn problems(row: &Row) -> String {
    let mut problems: Vec<&str> = Vec::new();
    for round in &row.rounds {
        match round {
            Ok(figures) => problems.extend(figures.problems.iter().map(String::as_str)),
            Err(error) => problems.push(error),
        }
    }
    problems.join("; ")
}

fn figures(row: &Row) -> impl Iterator<Item = &Figures> {
    row.rounds.iter().filter_map(|round| round.as_ref().ok())
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

/// With commas between the thousands.
fn number(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), None), |(a, b)| (a, Some(b)));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_a_round() {
        let row = |label: &str, values: [f64; 3]| Row {
            label: label.to_owned(),
            rounds: values.iter().map(|&value| Ok(Figures::default().number("rate", value))).collect(),
        };
        let columns = [Column { key: "rate", title: "requests/s", digits: 0, show: Show::Compared }];
        let rows = [row("a", [100.0, 1000.0, 10.0]), row("b", [200.0, 2000.0, 30.0])];
        let lines = table(&columns, &rows, "a");
        assert_eq!(
            lines,
            "| server | requests/s | ratio | problems |\n|---|---|---|---|\n\
             | a | 100 (10..1,000) | 1.00 |  |\n| b | 200 (30..2,000) | 2.00 |  |\n"
        );
    }
}
