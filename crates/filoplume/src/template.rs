//! Templates, rendered with minijinja.

use std::error::Error as StdError;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use ::minijinja;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior, Value};
use serde::Serialize;

pub use crate::context;
use crate::core::error::{Error, Result};
use crate::response::Html;
use crate::working_directory;

/// The maximum depth at which folders of templates are searched. It also ends cycles of symbolic
/// links.
const DEPTH_MAX: usize = 16;

/// File name endings of plain-text templates.
const TEXT_EXTENSIONS: [&str; 4] = ["txt", "md", "csv", "eml"];

/// File name endings of templates whose values are written as JSON.
const JSON_EXTENSIONS: [&str; 4] = ["json", "js", "yaml", "yml"];

/// Templates in the Jinja language, from a folder or embedded in the program.
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::template::{Templates, context};
///
/// # let folder = tempfile::tempdir()?;
/// # std::fs::write(folder.path().join("hello.html"), "<p>Hello, {{ name }}!</p>")?;
/// # let path = folder.path();
/// let app = App::new()
///     .get("/{name}", |Path(name): Path<String>, State(templates): State<Templates>| {
///         templates.render("hello.html", context! { name })
///     })
///     .state(Templates::from_folder(path)?);
/// app.test().get("/%3CAda%3E").send().assert_text("<p>Hello, &lt;Ada&gt;!</p>");
/// # Ok::<(), Error>(())
/// ```
///
/// Values are escaped for HTML, with two exceptions that depend on the ending of the template's
/// name. `.txt`, `.md`, `.csv` and `.eml` are plain text. In `.json`, `.js`, `.yaml` and `.yml`,
/// values are written as JSON. Printing an undefined value is an error; testing it, as in `{% if
/// user %}`, is not.
///
/// An error in a template is a `500`. Its location is logged, and is shown on the error page in
/// [development mode](crate::App::development). Templates of a folder are read when this value is
/// created, and a template that cannot be parsed is an error then. In builds with debug assertions
/// they are read again when they change.
#[derive(Clone)]
pub struct Templates {
    environment: Arc<Environment<'static>>,
}

impl Templates {
    /// Returns the templates below a folder. Their names are their paths, such as
    /// `users/list.html`. Hidden files are ignored.
    ///
    /// # Errors
    ///
    /// If the folder cannot be read, or a template cannot be parsed.
    pub fn from_folder(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let mut names = Vec::new();
        collect(folder, "", 0, &mut names).map_err(|error| {
            Error::start_up(format!(
                "the templates in {} cannot be read: {error}{}",
                folder.display(),
                working_directory::advice(folder, &error)
            ))
        })?;
        let mut environment = environment();
        environment.set_loader(minijinja::path_loader(folder));
        environment.set_auto_reload(cfg!(debug_assertions));
        for name in &names {
            environment.get_template(name).map_err(|error| {
                Error::start_up(format!(
                    "a template in {}: {}",
                    folder.display(),
                    TemplateError::of(name, error)
                ))
            })?;
        }
        Ok(Self { environment: Arc::new(environment) })
    }

    /// Returns templates that are embedded in the program as strings, by name.
    ///
    /// ```
    /// use filoplume::template::{Templates, context};
    ///
    /// let templates = Templates::from_strings([
    ///     // Or `include_str!("page.html")`:
    ///     ("page.html", "<h1>{% block title %}{% endblock %}</h1>"),
    ///     ("home.html", "{% extends 'page.html' %}{% block title %}{{ title }}{% endblock %}"),
    /// ])?;
    /// let page = templates.render("home.html", context! { title => "A & B" })?;
    /// assert_eq!(page.0, "<h1>A &amp; B</h1>");
    /// # Ok::<(), filoplume::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If a template cannot be parsed.
    pub fn from_strings(
        templates: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>,
    ) -> Result<Self> {
        let mut environment = environment();
        for (name, source) in templates {
            let name = name.into();
            environment
                .add_template_owned(name.clone(), source.into())
                .map_err(|error| Error::start_up(TemplateError::of(&name, error).to_string()))?;
        }
        Ok(Self { environment: Arc::new(environment) })
    }

    /// Returns the templates of a folder that `rust_embed` has embedded in the program.
    ///
    /// # Errors
    ///
    /// If a template is not UTF-8 or cannot be parsed.
    #[cfg(feature = "embed")]
    pub fn from_embedded<F: rust_embed::RustEmbed>() -> Result<Self> {
        let templates = F::iter().filter_map(|name| Some((F::get(&name)?, name)));
        let templates: Result<Vec<_>> = templates
            .map(|(file, name)| match String::from_utf8(file.data.into_owned()) {
                Ok(source) => Ok((name.into_owned(), source)),
                Err(_) => Err(Error::start_up(format!("the template {name} is not UTF-8"))),
            })
            .collect();
        Self::from_strings(templates?)
    }

    /// Sets whether templates of a folder are read again when they change. Default: only in builds
    /// with debug assertions.
    #[must_use]
    pub fn reload(self, is_reloading: bool) -> Self {
        self.configure(|environment| environment.set_auto_reload(is_reloading))
    }

    /// Adds a value that all templates can use.
    ///
    /// ```
    /// use filoplume::template::{Templates, context};
    ///
    /// let templates =
    ///     Templates::from_strings([("a.html", "{{ site }}")])?.global("site", "Notes");
    /// assert_eq!(templates.render("a.html", context! {})?.0, "Notes");
    /// # Ok::<(), filoplume::Error>(())
    /// ```
    #[must_use]
    pub fn global(self, name: impl Into<String>, value: impl Serialize) -> Self {
        let value = value_of(&value);
        self.configure(|environment| environment.add_global(name.into(), value))
    }

    /// Changes the environment: filters, functions, tests, escaping.
    ///
    /// ```
    /// use filoplume::template::{Templates, context};
    ///
    /// let templates = Templates::from_strings([("a.html", "{{ name|shout }}")])?.configure(
    ///     |environment| environment.add_filter("shout", |text: String| text.to_uppercase()),
    /// );
    /// assert_eq!(templates.render("a.html", context! { name => "ada" })?.0, "ADA");
    /// # Ok::<(), filoplume::Error>(())
    /// ```
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut Environment<'static>)) -> Self {
        change(Arc::make_mut(&mut self.environment));
        self
    }

    /// Renders a template as HTML with the values of a context, which is a `context! { .. }` or any
    /// type that implements `Serialize`.
    ///
    /// # Errors
    ///
    /// If the template does not exist, is not escaped for HTML, or fails. The error is a `500`
    /// whose details are only logged.
    #[doc(alias("render_template"))]
    pub fn render(&self, name: &str, context: impl Serialize) -> Result<Html<String>> {
        if !matches!(escape(name), AutoEscape::Html) {
            return Err(Error::internal(format!(
                "the template {name} is not escaped for HTML: render it with `render_text`"
            )));
        }
        self.render_text(name, context).map(Html)
    }

    /// Renders a template of any kind, for example for mails or for responses of other types.
    ///
    /// # Errors
    ///
    /// If the template does not exist or fails. The error is a `500` whose details are only logged.
    pub fn render_text(&self, name: &str, context: impl Serialize) -> Result<String> {
        let context = value_of(&context);
        let rendered =
            self.environment.get_template(name).and_then(|template| template.render(context));
        rendered.map_err(|error| {
            let mut error = TemplateError::of(name, error);
            if error.source.kind() == ErrorKind::TemplateNotFound {
                error.known = self.names();
            }
            let hint = error.hint();
            Error::internal(error).with_hint(hint)
        })
    }

    /// Returns the names of the templates, sorted.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> =
            self.environment.templates().map(|(name, _)| name.to_owned()).collect();
        names.sort();
        names
    }
}

impl fmt::Debug for Templates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.environment.templates().map(|(name, _)| name).collect();
        f.debug_tuple("Templates").field(&names).finish()
    }
}

/// Creates the context of a template: `context! { title, notes => db.notes()? }`. A name alone
/// stands for the variable of that name. Values can be anything that implements `Serialize`,
/// including other contexts.
///
/// ```
/// use filoplume::template::{Templates, context};
/// use serde::Serialize;
///
/// #[derive(Serialize)]
/// struct Note {
///     title: String,
/// }
///
/// let templates = Templates::from_strings([(
///     "notes.html",
///     "{% for note in notes %}{{ count }} {{ note.title }}{% endfor %}",
/// )])?;
/// let notes = vec![Note { title: "Tea".to_owned() }];
/// let page = templates.render("notes.html", context! { count => notes.len(), notes })?;
/// assert_eq!(page.0, "1 Tea");
/// # Ok::<(), filoplume::Error>(())
/// ```
// Differs from minijinja's macro, which accepts structs of the app only if they are wrapped.
#[macro_export]
macro_rules! context {
    (@value $name:ident) => { $crate::template::value_of(&$name) };
    (@value $name:ident => $value:expr) => { $crate::template::value_of(&$value) };
    ($($name:ident $(=> $value:expr)?),* $(,)?) => {
        $crate::template::values_of([
            $((::core::stringify!($name), $crate::context!(@value $name $(=> $value)?))),*
        ])
    };
    ($($other:tt)*) => {
        ::core::compile_error!(
            "write `name` or `name => value`, separated by commas: \
             `context! { user, title => \"Notes\" }`"
        )
    };
}

/// Used by [`context!`](crate::context!).
#[doc(hidden)]
pub fn value_of(value: &impl Serialize) -> Value {
    Value::from(Serde(value))
}

/// Used by [`context!`](crate::context!).
#[doc(hidden)]
pub fn values_of<const COUNT: usize>(values: [(&'static str, Value); COUNT]) -> Value {
    Value::from_pairs(values)
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(escape);
    environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    // Errors then include the lines around the location.
    environment.set_debug(true);
    environment
}

/// Returns how values are escaped: for HTML, unless the name requires something else.
fn escape(name: &str) -> AutoEscape {
    let name =
        [".j2", ".jinja2", ".jinja"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    let ending =
        Path::new(name).extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
    match ending.as_deref() {
        Some(ending) if TEXT_EXTENSIONS.contains(&ending) => AutoEscape::None,
        Some(ending) if JSON_EXTENSIONS.contains(&ending) => AutoEscape::Json,
        _ => AutoEscape::Html,
    }
}

/// Collects the names of the templates below a folder.
fn collect(
    folder: &Path,
    prefix: &str,
    depth: usize,
    names: &mut Vec<String>,
) -> std::io::Result<()> {
    if depth > DEPTH_MAX {
        return Ok(());
    }
    for entry in std::fs::read_dir(folder)? {
        let path: PathBuf = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if name.starts_with('.') {
            continue;
        }
        let name = format!("{prefix}{name}");
        if path.is_dir() {
            collect(&path, &format!("{name}/"), depth + 1, names)?;
        } else if path.is_file() && is_template(&name) {
            names.push(name);
        }
    }
    Ok(())
}

/// Returns whether a file is read when the templates are created. Images next to templates are not
/// templates. Other files are read when they are used.
fn is_template(name: &str) -> bool {
    let ending = Path::new(name).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    TEXT_EXTENSIONS.contains(&ending)
        || JSON_EXTENSIONS.contains(&ending)
        || ["html", "htm", "xml", "svg", "css", "j2", "jinja", "jinja2"].contains(&ending)
}

/// An error in a template, with its location and the lines around it.
#[derive(Debug)]
struct TemplateError {
    name: String,
    source: minijinja::Error,
    /// The names of all templates, if this one does not exist.
    known: Vec<String>,
}

/// How many names of templates a hint lists.
const NAMES_MAX: usize = 20;

impl TemplateError {
    fn of(name: &str, source: minijinja::Error) -> Self {
        Self { name: source.name().unwrap_or(name).to_owned(), source, known: Vec::new() }
    }

    /// Returns what a developer can do about the error.
    fn hint(&self) -> Option<String> {
        match self.source.kind() {
            ErrorKind::UndefinedError => {
                // The text names the value: "`user` is undefined".
                let text = self.source.detail().unwrap_or_default();
                let name = text.split('`').nth(1).unwrap_or("the value");
                Some(format!(
                    "Give `{name}` to `context!`, or use `|default(\"\")` where it may be missing."
                ))
            }
            ErrorKind::TemplateNotFound if self.known.is_empty() => {
                Some("There are no templates.".to_owned())
            }
            ErrorKind::TemplateNotFound => Some(format!("The templates are {}.", self.list())),
            _ => None,
        }
    }

    /// Returns the names of the templates as a text.
    fn list(&self) -> String {
        let names = self.known.iter().take(NAMES_MAX).map(|name| format!("`{name}`"));
        let names = names.collect::<Vec<_>>().join(", ");
        let more = self.known.len().saturating_sub(NAMES_MAX);
        if more > 0 { format!("{names} and {more} more") } else { names }
    }
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "template {}", self.name)?;
        if let Some(line) = self.source.line() {
            write!(f, ", line {line}")?;
        }
        write!(f, ": {}", self.source.kind())?;
        let is_missing = self.source.kind() == ErrorKind::TemplateNotFound;
        // The detail names the missing template. Only another template that includes it or extends
        // it has a line; without a line, the name is there already.
        let detail = self.source.detail().filter(|_| !is_missing || self.source.line().is_some());
        if let Some(detail) = detail {
            write!(f, ": {detail}")?;
        }
        if is_missing && !self.known.is_empty() {
            write!(f, "; the templates are {}", self.list())?;
        }
        // The values of the context are not included: they may be secrets, and many people can read
        // logs.
        let (Some(text), Some(line)) = (self.source.template_source(), self.source.line()) else {
            return Ok(());
        };
        for (number, text) in (1..).zip(text.lines()).skip(line.saturating_sub(3)).take(5) {
            let mark = if number == line { '>' } else { ' ' };
            write!(f, "\n {mark} {number:>4} | {text}")?;
        }
        Ok(())
    }
}

impl StdError for TemplateError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_of_unknown_kinds_are_escaped_for_html() {
        for name in
            ["a.html", "a.HTM", "a.xml", "a.svg", "a", "a.tpl", "a.html.j2", "a.jinja", "dir.txt/a"]
        {
            assert!(matches!(escape(name), AutoEscape::Html), "{name}");
        }
        for name in ["a.txt", "a.md.j2", "mail/a.eml", "a.csv"] {
            assert!(matches!(escape(name), AutoEscape::None), "{name}");
        }
        for name in ["a.json", "a.js", "a.yaml"] {
            assert!(matches!(escape(name), AutoEscape::Json), "{name}");
        }
    }

    #[test]
    fn a_missing_template_is_reported_with_those_that_exist() {
        let templates =
            Templates::from_strings([("a.html", "{% include 'b.html' %}"), ("c.html", "")]);
        let templates = templates.unwrap();
        let error = |name| format!("{:?}", templates.render(name, ()).unwrap_err());
        let exist = "; the templates are `a.html`, `c.html`";
        assert_eq!(error("b.html"), format!("template b.html: template not found{exist}"));
        let text = error("a.html");
        assert!(text.contains(&format!("non-existing template 'b.html'{exist}")), "{text}");
    }
}
