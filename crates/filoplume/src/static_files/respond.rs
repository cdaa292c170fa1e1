//! Responds to a request for a file: finds the file, and evaluates conditions and ranges.

use std::sync::Arc;

use filoplume_runtime::{Headers, Method, Request, Response, StatusCode};

use super::Options;
use super::content::{Found, Source, Stored};
use super::encoding::{Variant, accepted_variants};
use super::path::FilePath;
use super::send::send;
use super::untrusted::{OCTETS, UNTRUSTED_HEADERS};
use crate::core::context::Context;
use crate::core::error::{Error, Result};
use crate::core::handler::{Handler, Parameters};
use crate::core::options::RouteOptions;
use crate::semantics::file_type::content_type;

/// The methods that are allowed for a file.
const ALLOW: &str = "GET, HEAD, OPTIONS";

/// The files of a source, with options.
pub(super) struct Files {
    pub(super) source: Box<dyn Source>,
    pub(super) options: Options,
}

/// The handler that serves the files.
pub(super) struct FilesHandler(pub(super) Arc<Files>);

/// The parameters of [`FilesHandler`], which takes the whole request.
pub(super) struct WholeRequest(Request);

impl Handler<WholeRequest> for FilesHandler {
    type Output = Result<Response>;

    fn call(&self, WholeRequest(request): WholeRequest, context: &Context<'_>) -> Result<Response> {
        // Names are decoded here. If the normal form of the path leads to another route, the client
        // is redirected there, so that it does not bypass the middleware of that route.
        if let Some(path) = context.router.normal_form_redirect(request.path()) {
            return redirect_to(&request, &path);
        }
        self.0.respond(&request, context.route().unwrap_or("/*"))
    }
}

impl Parameters for WholeRequest {
    fn from_request(request: Request, _: &Context<'_>) -> Result<Self, Result<Response>> {
        Ok(Self(request))
    }

    fn configure(_: &mut RouteOptions) {}
}

/// The result of looking up a path.
enum Target {
    File(Representation),
    /// A folder, requested without a slash at the end.
    Slash,
}

/// A file, and how it is sent.
struct Representation {
    stored: Stored,
    content_type: String,
    /// The value of `Content-Disposition`, if there is one.
    disposition: Option<String>,
    coding: Option<Variant>,
    is_fallback: bool,
}

impl Files {
    fn respond(&self, request: &Request, pattern: &str) -> Result<Response> {
        let target = self.find(request, pattern)?;
        match *request.method() {
            Method::GET | Method::HEAD => {}
            Method::OPTIONS => {
                let mut response = Response::new(StatusCode::NO_CONTENT.as_u16());
                response.set_header("allow", ALLOW)?;
                return Ok(response);
            }
            _ => {
                return Err(Error::from_status(StatusCode::METHOD_NOT_ALLOWED)
                    .with_known_header("allow", ALLOW));
            }
        }
        match target {
            Target::File(file) => self.send(request, file),
            Target::Slash => redirect(request),
        }
    }

    fn find(&self, request: &Request, pattern: &str) -> Result<Target> {
        let nothing = || Error::from_status(StatusCode::NOT_FOUND);
        let path = match path_below(pattern, request.path()) {
            Some(rest) => FilePath::parse(rest, self.options.allows_hidden).ok_or_else(nothing)?,
            // The prefix itself, without a slash.
            None if request.path().starts_with('/') => {
                FilePath { text: String::new(), is_folder: false }
            }
            None => return Err(nothing()),
        };
        let index = self.options.index.as_ref().map(|index| path.join(index));
        let is_folder = path.is_folder || {
            match if path.text.is_empty() { Found::Folder } else { self.source.find(&path.text)? } {
                Found::File(stored) => {
                    return self.choose_variant(request, &path.text, stored).map(Target::File);
                }
                Found::Folder => true,
                Found::Nothing => false,
            }
        };
        if let Some(index) = index.filter(|_| is_folder) {
            match self.source.find(&index)? {
                Found::File(stored) if path.is_folder => {
                    return self.choose_variant(request, &index, stored).map(Target::File);
                }
                Found::File(_) => return Ok(Target::Slash),
                Found::Folder | Found::Nothing => {}
            }
        }
        self.find_fallback(request, &path.text)
    }

    fn find_fallback(&self, request: &Request, path: &str) -> Result<Target> {
        let Some(fallback) = &self.options.fallback else {
            return Err(Error::from_status(StatusCode::NOT_FOUND));
        };
        let is_read = [Method::GET, Method::HEAD].contains(request.method());
        if is_read && accepts_fallback_page(request.headers(), path) {
            if let Found::File(stored) = self.source.find(fallback)? {
                let file = self.choose_variant(request, fallback, stored)?;
                return Ok(Target::File(Representation { is_fallback: true, ..file }));
            }
        }
        // A client with another `Accept` gets another response.
        Err(Error::from_status(StatusCode::NOT_FOUND).with_known_header("vary", "accept"))
    }

    /// Chooses between a file and its compressed variants.
    fn choose_variant(
        &self,
        request: &Request,
        path: &str,
        stored: Stored,
    ) -> Result<Representation> {
        let (content_type, disposition) = match &self.options.untrusted {
            Some(untrusted) => untrusted.describe(path),
            None => (content_type(path).unwrap_or_else(|| OCTETS.to_owned()), None),
        };
        let plain = |stored| Representation {
            stored,
            content_type,
            disposition,
            coding: None,
            is_fallback: false,
        };
        if !self.options.is_precompressed {
            return Ok(plain(stored));
        }
        for coding in accepted_variants(request.headers().get_all("accept-encoding")) {
            if let Found::File(sibling) = self.source.find(&format!("{path}{}", coding.suffix))? {
                return Ok(Representation { coding: Some(coding), ..plain(sibling) });
            }
        }
        Ok(plain(stored))
    }

    fn send(&self, request: &Request, file: Representation) -> Result<Response> {
        let mut response = Response::default();
        self.describe(&file, response.headers_mut())?;
        let Representation { mut stored, content_type, .. } = file;
        if !self.options.has_etag {
            stored.validators = stored.validators.without_etag();
        }
        if self.options.is_precompressed {
            // The other variants may have the same date, and a client that sends it in an
            // `If-Range` may have a part of one of them.
            stored.validators = stored.validators.date_is_strong(false);
        }
        send(response, request.method(), request.headers(), stored, &content_type)
    }

    /// Sets the headers that are the same for ranges and the whole file.
    fn describe(&self, file: &Representation, headers: &mut Headers) -> Result<()> {
        headers.insert("content-type", &file.content_type)?;
        // The name of an uploaded file determines its type, not its first bytes.
        headers.insert("x-content-type-options", "nosniff")?;
        headers.insert("accept-ranges", "bytes")?;
        if let Some(etag) = file.stored.validators.etag_value().filter(|_| self.options.has_etag) {
            headers.insert("etag", etag)?;
        }
        if let Some(date) = file.stored.validators.last_modified_value() {
            headers.insert("last-modified", date)?;
        }
        let cache_control =
            if file.is_fallback { Some("no-cache") } else { self.options.cache_control.as_deref() };
        if let Some(value) = cache_control {
            headers.insert("cache-control", value)?;
        }
        if let Some(coding) = file.coding {
            headers.insert("content-encoding", coding.name)?;
        }
        // Set even if this client had no choice: another `Accept-Encoding` may get a compressed
        // variant.
        if self.options.is_precompressed {
            headers.append("vary", "accept-encoding")?;
        }
        if file.is_fallback {
            headers.append("vary", "accept")?;
        }
        for (name, value) in self.options.headers.iter() {
            headers.append(name, value)?;
        }
        if self.options.untrusted.is_some() {
            // Set after the program's headers, so that those cannot override them.
            for (name, value) in UNTRUSTED_HEADERS {
                headers.insert(name, value)?;
            }
        }
        match &file.disposition {
            Some(value) => headers.insert("content-disposition", value)?,
            None if self.options.untrusted.is_some() => {
                headers.remove("content-disposition");
            }
            None => {}
        }
        Ok(())
    }
}

/// Returns the part of a path below the files: what follows after as many slashes as the route's
/// pattern has. Returns `None` if the path is shorter.
fn path_below<'p>(pattern: &str, path: &'p str) -> Option<&'p str> {
    pattern.matches('/').try_fold(path, |rest, _| rest.split_once('/').map(|(_, rest)| rest))
}

/// Redirects to the path with a slash at the end.
fn redirect(request: &Request) -> Result<Response> {
    let path = request.path();
    // `//host/` and `/\host/` would redirect to another host. The segments below the files have
    // been checked, but not those that a prefix captures.
    if path.starts_with("//") || path.contains('\\') {
        return Err(Error::from_status(StatusCode::NOT_FOUND));
    }
    redirect_to(request, &format!("{path}/"))
}

fn redirect_to(request: &Request, path: &str) -> Result<Response> {
    let query = request.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut response = Response::new(StatusCode::PERMANENT_REDIRECT.as_u16());
    response.set_header("location", format!("{path}{query}"))?;
    Ok(response)
}

/// Returns whether the fallback page is a suitable response.
fn accepts_fallback_page(headers: &Headers, path: &str) -> bool {
    let Some(accept) = headers.get_str("accept") else { return !has_known_ending(path) };
    let accepts = |wanted: &str| {
        accept.split(',').any(|range| {
            let mut parts = range.split(';').map(str::trim);
            let is_wanted = parts.next().is_some_and(|range| range.eq_ignore_ascii_case(wanted));
            is_wanted && !parts.any(has_zero_weight)
        })
    };
    accepts("text/html") || (!has_known_ending(path) && (accepts("text/*") || accepts("*/*")))
}

/// Returns whether a parameter is a weight of 0, which means "not acceptable".
fn has_zero_weight(parameter: &str) -> bool {
    let Some((name, weight)) = parameter.split_once('=') else { return false };
    name.eq_ignore_ascii_case("q") && weight.parse() == Ok(0.0_f32)
}

fn has_known_ending(path: &str) -> bool {
    mime_guess::from_path(path).first_raw().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_below_a_pattern_is_found_by_counting_slashes() {
        let rows = [
            ("/*", "/", Some("")),
            ("/*", "/a/b", Some("a/b")),
            ("/*", "//a", Some("/a")),
            ("/*", "*", None),
            ("/static/", "/static/", Some("")),
            ("/static/{*file}", "/static/a/b", Some("a/b")),
            ("/static/{*file}", "/static//a", Some("/a")),
            ("/{tenant}/files/*", "/t/files/a", Some("a")),
            ("/{tenant}/files/*", "/t/files", None),
        ];
        for (pattern, path, expected) in rows {
            assert_eq!(path_below(pattern, path), expected, "{path} below {pattern}");
        }
    }

    #[test]
    fn the_fallback_page_is_for_clients_that_ask_for_pages() {
        let rows = [
            ("users/17", None, true),
            ("users/17", Some("*/*"), true),
            ("users/17", Some("text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"), true),
            ("users/17", Some("application/json"), false),
            ("users/17", Some("application/json, */*;q=0"), false),
            ("users/17", Some("text/html;q=0.000"), false),
            ("users/john.doe", Some("*/*"), true),
            ("app.js", None, false),
            ("app.js", Some("*/*"), false),
            ("app.js", Some("TEXT/HTML, */*"), true),
        ];
        for (path, accept, expected) in rows {
            let mut headers = Headers::new();
            if let Some(accept) = accept {
                headers.append("accept", accept).expect("it is a header");
            }
            assert_eq!(accepts_fallback_page(&headers, path), expected, "{path} for {accept:?}");
        }
    }
    struct NoFiles;

    impl Source for NoFiles {
        fn find(&self, _: &str) -> Result<Found> {
            Ok(Found::Nothing)
        }
    }

    fn get(path: &str) -> Request {
        let request = http::Request::get(path).body(Vec::new()).expect("it is valid");
        Request::try_from(request).expect("it is valid")
    }

    #[test]
    fn that_there_is_no_fallback_page_depends_on_what_the_client_accepts() {
        let vary = |options: Options| {
            let files = Files { source: Box::new(NoFiles), options };
            let error = files.find_fallback(&get("/x"), "x").err().expect("there are no files");
            let response = error.into_pending_response();
            (response.status().as_u16(), response.headers().get_str("vary").map(str::to_owned))
        };
        let folder = || super::super::StaticFiles::folder("site");
        let accept = Some("accept".to_owned());
        assert_eq!(vary(folder().fallback("index.html").options), (404, accept));
        assert_eq!(vary(folder().options), (404, None));
    }

    #[test]
    fn a_redirect_to_a_folder_stays_on_its_host() {
        let location = |path: &str| {
            redirect(&get(path)).ok()?.headers().get_str("location").map(str::to_owned)
        };
        assert_eq!(location("/docs?a=b").as_deref(), Some("/docs/?a=b"));
        assert_eq!(location("//host"), None);
    }
}
