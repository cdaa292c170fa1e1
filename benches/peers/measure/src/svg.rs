//! What all charts begin with: the background, the title, and colors for light and for dark pages.
//!
//! gust draws its charts by itself, because they are parts of its HTML report and use the style
//! sheet of that page. These are files that pages show as images.

/// Where titles and notes start.
pub const MARGIN: usize = 20;

const LIGHT: &str = "\
    .ground { fill: #ffffff; stroke: #d0d7de; }\n\
    text { font: 13px system-ui, sans-serif; fill: #1f2328; }\n\
    .title { font-size: 17px; font-weight: 600; }\n\
    .note { fill: #59636e; }\n";

const DARK: &str = "\
    .ground { fill: #0d1117; stroke: #3d444d; }\n\
    text { fill: #e6edf3; }\n\
    .note { fill: #9198a1; }\n";

/// Begins an image, which ends with `</svg>`. It has a background, so that it can be read on any
/// page. The rules of `light` apply everywhere, and those of `dark` are added on a dark page.
pub fn begin(title: &str, width: usize, height: usize, light: &str, dark: &str) -> String {
    let title = escape(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" \
         role=\"img\">\n<title>{title}</title>\n<style>\n{LIGHT}{light}@media \
         (prefers-color-scheme: dark) {{\n{DARK}{dark}}}\n</style>\n<rect class=\"ground\" \
         x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n<text class=\"title\" \
         x=\"{MARGIN}\" y=\"34\">{title}</text>\n",
        width - 1,
        height - 1
    )
}

/// Returns the text escaped for use between tags.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
