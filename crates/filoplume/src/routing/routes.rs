//! The list of the routes of an app, for people.

use std::fmt;

/// The routes of an app. `Display` prints them as a table.
///
/// ```
/// use filoplume::prelude::*;
///
/// let app = App::new()
///     .get("/", || "hi")
///     .route("/notes/{id}", get(|| "a note").delete(|| "gone"))
///     .nest(
///         "/admin",
///         Router::new().get("/", || "all").with(middleware::BasicAuth::user("ada", "sesame")),
///     );
/// assert_eq!(
///     app.routes().to_string(),
///     "\
/// GET     /
/// GET     /notes/{id}
/// DELETE  /notes/{id}
/// GET     /admin       behind BasicAuth
/// "
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes(pub(crate) Vec<RouteInfo>);

/// One route of an app.
///
/// ```
/// use filoplume::prelude::*;
///
/// let app = App::new()
///     .get("/", || "hi")
///     .nest("/notes", Router::new().post("/{id}", || "changed"));
/// let changing: Vec<_> = app
///     .routes()
///     .iter()
///     .filter(|route| route.methods != "GET")
///     .map(|route| route.pattern.clone())
///     .collect();
/// assert_eq!(changing, ["/notes/{id}"]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouteInfo {
    /// The methods, separated by commas, or `ANY`. `FALLBACK` for a fallback, and for files at the
    /// root of a router.
    pub methods: String,
    /// The pattern, including the prefixes of its routers.
    pub pattern: String,
    /// The types of the middleware around the route, the outermost first; `a closure` for a
    /// closure.
    pub behind: Vec<String>,
    /// The source location: file, line and column.
    pub written_at: String,
}

impl Routes {
    /// Returns the routes: those of a router in the order in which they were added, then those of
    /// its nested routers, then its fallback.
    pub fn iter(&self) -> std::slice::Iter<'_, RouteInfo> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a Routes {
    type Item = &'a RouteInfo;
    type IntoIter = std::slice::Iter<'a, RouteInfo>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.iter().map(|route| route.methods.len()).max().unwrap_or(0).max(6);
        let longest = self.iter().map(|route| route.pattern.chars().count()).max().unwrap_or(0);
        for route in self {
            write!(f, "{:width$}  ", route.methods)?;
            if route.behind.is_empty() {
                writeln!(f, "{}", route.pattern)?;
            } else {
                writeln!(f, "{:longest$}  behind {}", route.pattern, route.behind.join(", "))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    /// So that two apps are printed alike.
    #[test]
    fn methods_have_the_width_of_the_longest_common_one() {
        let app = crate::App::new().get("/", || "hi");
        assert_eq!(app.routes().to_string(), "GET     /\n");
    }
}
