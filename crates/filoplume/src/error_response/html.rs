//! Renders errors as a page. The page is small, loads nothing, and escapes all texts.

use std::fmt;

use super::Report;
use super::development::Findings;
use super::hints::RouteLine;

/// The page follows the reader's light or dark theme. A strict `Content-Security-Policy` of the app
/// disables the style; the page is readable without it.
const STYLE: &str = "\
:root{color-scheme:light dark}\
body{margin:0;font:16px/1.5 system-ui,sans-serif}\
main{max-width:48rem;margin:12vh auto;padding:0 1.5rem}\
h1{font-size:1.6rem;margin:0}h1 span{opacity:.55;font-weight:400}\
code{font:14px/1.5 ui-monospace,monospace}";

/// Additional style in development mode.
const DEVELOPMENT_STYLE: &str = "\
h2{font-size:1rem;margin:2rem 0 .5rem}\
pre,table{font:14px/1.5 ui-monospace,monospace}\
pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:0;padding:.75rem 1rem;\
border-radius:.4rem;background:#8882}\
td{padding:0 1rem 0 0;vertical-align:top;overflow-wrap:anywhere}td:first-child{white-space:nowrap}\
.hint{border-left:.25rem solid #2a7;padding:.1rem 1rem}.alike{font-weight:700}";

/// Returns the page.
pub(super) fn page(report: &Report<'_>) -> String {
    let (code, title) = (report.status.as_str(), Escaped(&report.title));
    let more = if report.findings.is_some() { DEVELOPMENT_STYLE } else { "" };
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{code} {title}</title>\n\
         <style>{STYLE}{more}</style>\n</head>\n<body>\n<main>\n\
         <h1><span>{code}</span> {title}</h1>\n"
    );
    if let Some(detail) = report.error.detail() {
        // The app's text can be in any language.
        page.push_str(&format!("<p lang=\"\">{}</p>\n", Escaped(detail)));
    }
    if !report.error.fields().is_empty() {
        page.push_str("<ul lang=\"\">\n");
        for field in report.error.fields() {
            let (name, message) = (Escaped(&field.field), Escaped(&field.message));
            page.push_str(&format!("<li><code>{name}</code>: {message}</li>\n"));
        }
        page.push_str("</ul>\n");
    }
    if let Some(findings) = &report.findings {
        add_findings(&mut page, findings);
    }
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn add_findings(page: &mut String, findings: &Findings<'_>) {
    if let Some(hint) = &findings.hint {
        page.push_str(&format!("<p class=\"hint\">{}</p>\n", Escaped(hint)));
    }
    if !findings.causes.is_empty() {
        let causes: Vec<_> =
            findings.causes.iter().map(|cause| Escaped(cause).to_string()).collect();
        page.push_str(&format!("<h2>Causes</h2>\n<pre>{}</pre>\n", causes.join("\ncaused by: ")));
    }
    if let Some(route) = findings.route {
        let (methods, pattern) = (Escaped(&route.methods), Escaped(&route.pattern));
        let written_at = route.written_at.to_string();
        page.push_str(&format!(
            "<h2>Route</h2>\n<pre>{methods} {pattern}\nwritten at {}</pre>\n",
            Escaped(&written_at)
        ));
    }
    let request = findings.request;
    let (method, target) = (Escaped(&request.method), Escaped(&request.target));
    page.push_str(&format!("<h2>Request</h2>\n<pre>{method} {target}</pre>\n<table>\n"));
    for (name, value) in &request.headers {
        page.push_str(&format!("<tr><td>{}</td><td>{}</td></tr>\n", Escaped(name), Escaped(value)));
    }
    page.push_str("</table>\n");
    add_routes(page, &findings.routes);
    page.push_str("<p><small>Shown because the app runs in development mode.</small></p>\n");
}

fn add_routes(page: &mut String, routes: &[RouteLine<'_>]) {
    if routes.is_empty() {
        return;
    }
    page.push_str("<h2>Routes</h2>\n<table>\n");
    for route in routes {
        let class = if route.is_similar { " class=\"alike\"" } else { "" };
        let (methods, pattern) = (Escaped(route.methods), Escaped(route.pattern));
        page.push_str(&format!("<tr{class}><td>{methods}</td><td>{pattern}</td></tr>\n"));
    }
    page.push_str("</table>\n");
}

/// Escapes text for HTML, in content and in quoted attributes.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(['&', '<', '>', '"', '\'']) {
            f.write_str(&rest[..at])?;
            f.write_str(match rest.as_bytes()[at] {
                b'&' => "&amp;",
                b'<' => "&lt;",
                b'>' => "&gt;",
                b'"' => "&quot;",
                _ => "&#39;",
            })?;
            rest = &rest[at + 1..];
        }
        f.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(
            Escaped("<b a='x' c=\"y\">ö&amp;</b>").to_string(),
            "&lt;b a=&#39;x&#39; c=&quot;y&quot;&gt;ö&amp;amp;&lt;/b&gt;"
        );
    }
}
