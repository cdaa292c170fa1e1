//! Puts a report between two markers of a page of the documentation, and its charts into a folder
//! beside.

use std::fs;
use std::io;

use crate::build::main_folder;

/// A part of a page, between two markers.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The path below the folder of the documentation.
    page: &'static str,
    marker: &'static str,
}

pub const MEASURED: Place = Place { page: "benchmarks/peers.md", marker: "measured" };
pub const CLIENTS: Place = Place { page: "benchmarks/load-generators.md", marker: "clients" };
pub const CLAIMS: Place = Place { page: "benchmarks/claims.md", marker: "claims" };

pub const LIVE: Place = Place { page: "benchmarks/live.md", marker: "live" };

impl Place {
    fn begin(self) -> String {
        format!("<!-- {}:begin -->", self.marker)
    }

    fn end(self) -> String {
        format!("<!-- {}:end -->", self.marker)
    }
}

/// A chart: the name of its file, what it shows, and the drawing.
#[derive(Clone, Debug)]
pub struct Chart {
    pub name: String,
    pub title: String,
    pub svg: String,
}

/// Writes the charts, and replaces the earlier report.
pub fn write(place: Place, report: &str, charts: &[Chart]) -> io::Result<()> {
    let docs = main_folder().join("docs");
    let page = docs.join(place.page);
    let text = fs::read_to_string(&page)?;
    // Nothing is written if the page has no markers.
    let text = replaced(place, &text, &section(report, charts)).map_err(io::Error::other)?;
    if !charts.is_empty() {
        fs::create_dir_all(docs.join("charts"))?;
    }
    for chart in charts {
        fs::write(docs.join("charts").join(format!("{}.svg", chart.name)), &chart.svg)?;
    }
    fs::write(page, text)
}

/// The report without its title, with links to the charts between its head and its parts.
fn section(report: &str, charts: &[Chart]) -> String {
    let mut head_and_rest = report.splitn(2, "\n## ");
    let head = head_and_rest.next().unwrap_or("");
    // The page has a title of its own above the markers.
    let head = head.lines().filter(|line| !line.starts_with("# ")).collect::<Vec<_>>().join("\n");
    let mut section = format!("{}\n", head.trim());
    for chart in charts {
        section.push_str(&format!("\n![{}](../charts/{}.svg)\n", chart.title, chart.name));
    }
    if let Some(rest) = head_and_rest.next() {
        section.push_str(&format!("\n## {}\n", rest.trim_end()));
    }
    section
}

/// The text with everything between the markers replaced.
fn replaced(place: Place, text: &str, section: &str) -> Result<String, String> {
    let missing = |marker: &str| format!("docs/{} has no {marker}", place.page);
    let (opening, closing) = (place.begin(), place.end());
    let begin = text.find(&opening).ok_or_else(|| missing(&opening))? + opening.len();
    let end = text[begin..].find(&closing).ok_or_else(|| missing(&closing))? + begin;
    Ok(format!("{}\n\n{}\n\n{}", &text[..begin], section.trim(), &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_markers_is_replaced() {
        let (begin, end) = (CLAIMS.begin(), CLAIMS.end());
        let text = format!("before\n{begin}\nold\n{end}\nafter\n");
        let once = replaced(CLAIMS, &text, "new\n").unwrap();
        assert_eq!(once, format!("before\n{begin}\n\nnew\n\n{end}\nafter\n"));
        assert_eq!(replaced(CLAIMS, &once, "new").unwrap(), once);
    }

    #[test]
    fn a_page_without_markers_is_refused() {
        let (begin, end) = (CLAIMS.begin(), CLAIMS.end());
        assert!(replaced(CLAIMS, "text", "new").unwrap_err().ends_with(&begin));
        assert!(replaced(CLAIMS, &begin, "new").unwrap_err().ends_with(&end));
        assert!(replaced(CLAIMS, &format!("{end} {begin}"), "new").is_err());
    }

    #[test]
    fn every_place_is_on_its_page() {
        for place in [MEASURED, CLIENTS, CLAIMS, LIVE] {
            let text = fs::read_to_string(main_folder().join("docs").join(place.page)).unwrap();
            assert!(replaced(place, &text, "new").is_ok(), "{}", place.page);
        }
    }

    #[test]
    fn a_section_has_its_charts_below_the_head() {
        let chart =
            Chart { name: "plain64".to_owned(), title: "Plain".to_owned(), svg: String::new() };
        let report = "# Measured\n\n- a machine\n\n## plain64\n\ntable\n\n## sleep\n\ntable\n";
        assert_eq!(
            section(report, &[chart]),
            "- a machine\n\n![Plain](../charts/plain64.svg)\n\n## plain64\n\ntable\n\n## \
             sleep\n\ntable\n"
        );
    }
}
