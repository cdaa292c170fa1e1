//! Static files, from a folder or embedded in the program.

mod content;
#[cfg(feature = "embed")]
mod embedded;
mod encoding;
mod file_response;
mod folder;
mod multipart_ranges;
mod path;
mod respond;
mod send;
mod untrusted;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use filoplume_runtime::Headers;

use self::content::{Found, Source};
pub use self::file_response::FileResponse;
use self::folder::{Folder, Symlinks};
use self::path::FilePath;
use self::respond::{Files, FilesHandler};
use self::untrusted::Untrusted;
use crate::log::log_without_subscriber;
use crate::routing::{Router, check_prefix, get};
use crate::working_directory;

/// Static files and how they are served, for [`files`](crate::App::files) of an app or a router.
///
/// ```no_run
/// use filoplume::prelude::*;
///
/// fn main() -> filoplume::Result<()> {
///     App::new()
///         .get("/api/hello", || "Hello!")
///         .files("/assets", StaticFiles::folder("public/assets").immutable())
///         .files("/", StaticFiles::folder("public").precompressed(true))
///         .listen("127.0.0.1:5000")
/// }
/// ```
///
/// ```
/// # use filoplume::prelude::*;
/// # let site = tempfile::tempdir()?;
/// # let public = site.path().to_owned();
/// # std::fs::write(public.join("digits.txt"), "0123456789")?;
/// let client = App::new().files("/", StaticFiles::folder(public)).test();
/// client
///     .get("/digits.txt")
///     .send()
///     .assert_text("0123456789")
///     .assert_header("accept-ranges", "bytes");
/// client
///     .get("/digits.txt")
///     .header("range", "bytes=-3")
///     .send()
///     .assert_status(206)
///     .assert_text("789");
/// client.get("/digits.txt").header("if-none-match", "*").send().assert_status(304);
/// client.get("/..%2fdigits.txt").send().assert_status(404);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Files are served for `GET` and `HEAD`, with ranges and all conditions of RFC 9110 (13 and 14).
/// Every response has an `ETag`, a `Last-Modified`, a `Content-Type` that is derived from the
/// extension, and `X-Content-Type-Options: nosniff`. Short files are sent from memory, long ones
/// are streamed in constant memory. If a file is written while it is sent, the connection is
/// closed, so that two versions are never mixed. Replace files by renaming, and responses that have
/// begun are completed.
///
/// The path of a folder is redirected to the path with a slash, which serves its `index.html`.
/// Folders are not listed.
///
/// These paths get a `404`: paths with `..`, encoded separators or double slashes; [symbolic
/// links](Self::symlinks_outside) that leave the folder; [hidden files](Self::hidden_files); FIFOs,
/// sockets and devices, on which the server never blocks; impossible file names; and files without
/// read permission, with a warning in the log.
///
/// The tag of a file in a folder is made from its size, times, and inode number. It is strong,
/// except for some milliseconds after a change. Servers on several machines have different tags for
/// the same file: behind a load balancer use [`embedded`](Self::embedded), whose tags are hashes of
/// the content, or turn off [the tag](Self::etag).
#[doc(alias("ServeDir", "send_from_directory"))]
#[must_use = "files are served by an app: `.files(\"/\", files)`"]
pub struct StaticFiles {
    location: Location,
    options: Options,
    mistakes: Vec<String>,
}

enum Location {
    Folder(PathBuf),
    #[cfg(feature = "embed")]
    Embedded(Box<dyn Source>),
}

/// How files are served.
#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is an option of its own that the program sets"
)]
struct Options {
    index: Option<String>,
    fallback: Option<String>,
    cache_control: Option<String>,
    headers: Headers,
    is_precompressed: bool,
    allows_hidden: bool,
    has_etag: bool,
    symlinks: Symlinks,
    untrusted: Option<Untrusted>,
}

impl StaticFiles {
    /// Returns the files in a folder and its subfolders. A relative path is relative to the working
    /// directory of the program.
    ///
    /// The folder is opened when the app starts. If it does not exist, the app does not start. A
    /// folder that replaces it later is not used. Files are looked up for each request.
    pub fn folder(path: impl Into<PathBuf>) -> Self {
        Self::new(Location::Folder(path.into()))
    }

    /// Returns the files that a type embeds in the program with the crate `rust-embed`.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use rust_embed::Embed;
    ///
    /// #[derive(Embed)]
    /// #[folder = "src/static_files"]
    /// struct Assets;
    ///
    /// let app = App::new().files("/sources", StaticFiles::embedded::<Assets>());
    /// app.test().get("/sources/mod.rs").send().assert_status(200);
    /// ```
    ///
    /// Their tags are hashes, which are the same on every machine. In debug builds `rust-embed`
    /// reads the files from the folder.
    #[cfg(feature = "embed")]
    pub fn embedded<A: rust_embed::RustEmbed + 'static>() -> Self {
        Self::new(Location::Embedded(Box::new(embedded::Embedded::<A>::new())))
    }

    fn new(location: Location) -> Self {
        let options = Options {
            index: Some("index.html".to_owned()),
            fallback: None,
            cache_control: None,
            headers: Headers::new(),
            is_precompressed: false,
            allows_hidden: false,
            has_etag: true,
            symlinks: Symlinks::Inside,
            untrusted: None,
        };
        Self { location, options, mistakes: Vec::new() }
    }

    /// Sets the name of the file that is served for its folder. Default: `index.html`.
    ///
    /// ```
    /// # use filoplume::prelude::*;
    /// # let site = tempfile::tempdir()?;
    /// # let public = site.path().to_owned();
    /// # std::fs::write(public.join("start.html"), "hello")?;
    /// let client =
    ///     App::new().files("/", StaticFiles::folder(public).index("start.html")).test();
    /// client.get("/").send().assert_text("hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn index(mut self, name: &str) -> Self {
        self.check_path("index", name);
        self.options.index = Some(name.to_owned());
        self
    }

    /// Answers folders with `404`.
    ///
    /// ```
    /// # use filoplume::prelude::*;
    /// # let site = tempfile::tempdir()?;
    /// # let public = site.path().to_owned();
    /// # std::fs::write(public.join("index.html"), "hello")?;
    /// let client = App::new().files("/", StaticFiles::folder(public).without_index()).test();
    /// client.get("/").send().assert_status(404);
    /// client.get("/index.html").send().assert_text("hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn without_index(mut self) -> Self {
        self.options.index = None;
        self
    }

    /// Sets the page that is served for missing files, with `200`: for single-page apps, whose
    /// scripts handle the path.
    ///
    /// It is served to clients that accept HTML. For paths with the extension of a known type, such
    /// as `.js` or `.png`, the client must name HTML explicitly, as browsers do when a user opens a
    /// page. So a missing script or image still is a `404`. The page is sent with
    /// `Cache-Control: no-cache`. If it is missing when the app starts, there is a warning, or an
    /// error if the files are embedded.
    ///
    /// ```
    /// # use filoplume::prelude::*;
    /// # let site = tempfile::tempdir()?;
    /// # let dist = site.path().to_owned();
    /// # std::fs::write(dist.join("index.html"), "app")?;
    /// let client =
    ///     App::new().files("/", StaticFiles::folder(dist).fallback("index.html")).test();
    /// client.get("/users/17").send().assert_status(200).assert_text("app");
    /// client.get("/gone.js").send().assert_status(404);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fallback(mut self, path: &str) -> Self {
        self.check_path("fallback", path);
        self.options.fallback = Some(path.to_owned());
        self
    }

    /// Sends a precompressed variant of a file to clients that accept it: `app.js.br`, `app.js.zst`
    /// or `app.js.gz` next to `app.js`. Default: off, because each request then looks for these
    /// files.
    ///
    /// ```
    /// # use filoplume::prelude::*;
    /// # let site = tempfile::tempdir()?;
    /// # let public = site.path().to_owned();
    /// # std::fs::write(public.join("app.js"), "run()")?;
    /// # std::fs::write(public.join("app.js.gz"), "(compressed)")?;
    /// let client =
    ///     App::new().files("/", StaticFiles::folder(public).precompressed(true)).test();
    /// client.get("/app.js").send().assert_text("run()");
    /// let response = client.get("/app.js").header("accept-encoding", "gzip").send();
    /// response.assert_header("content-encoding", "gzip").assert_text("(compressed)");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn precompressed(mut self, is_precompressed: bool) -> Self {
        self.options.is_precompressed = is_precompressed;
        self
    }

    /// Allows clients to reuse files for a time without a request: `Cache-Control: max-age`.
    /// Default: none, so clients guess from the date of the file (RFC 9111, 4.2.2).
    ///
    /// ```
    /// # use filoplume::prelude::*;
    /// # let site = tempfile::tempdir()?;
    /// # let public = site.path().to_owned();
    /// # std::fs::write(public.join("a.txt"), "a")?;
    /// use std::time::Duration;
    ///
    /// let files = StaticFiles::folder(public).max_age(Duration::from_secs(3600));
    /// App::new()
    ///     .files("/", files)
    ///     .test()
    ///     .get("/a.txt")
    ///     .send()
    ///     .assert_header("cache-control", "max-age=3600");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_age(self, time: Duration) -> Self {
        self.cache_control(&format!("max-age={}", time.as_secs()))
    }

    /// Allows clients to reuse files for a year without a request,
    /// `Cache-Control: max-age=31536000, immutable`. For names that change with the content.
    ///
    /// ```
    /// # use filoplume::prelude::*;
    /// # let site = tempfile::tempdir()?;
    /// # let assets = site.path().to_owned();
    /// # std::fs::write(assets.join("app.3f9a.js"), "run()")?;
    /// let client =
    ///     App::new().files("/assets", StaticFiles::folder(assets).immutable()).test();
    /// let response = client.get("/assets/app.3f9a.js").send();
    /// response.assert_header("cache-control", "max-age=31536000, immutable");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn immutable(self) -> Self {
        self.cache_control("max-age=31536000, immutable")
    }

    /// Sets the `Cache-Control` of the files.
    ///
    /// ```
    /// # use filoplume::prelude::*;
    /// # let site = tempfile::tempdir()?;
    /// # let public = site.path().to_owned();
    /// # std::fs::write(public.join("a.txt"), "a")?;
    /// let files = StaticFiles::folder(public).cache_control("private, no-cache");
    /// App::new()
    ///     .files("/", files)
    ///     .test()
    ///     .get("/a.txt")
    ///     .send()
    ///     .assert_header("cache-control", "private, no-cache");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cache_control(mut self, value: &str) -> Self {
        self.check_header("cache-control", value);
        self.options.cache_control = Some(value.to_owned());
        self
    }

    /// Adds a header to the files.
    ///
    /// ```
    /// # use filoplume::prelude::*;
    /// # let site = tempfile::tempdir()?;
    /// # let public = site.path().to_owned();
    /// # std::fs::write(public.join("a.txt"), "a")?;
    /// let files = StaticFiles::folder(public).header("access-control-allow-origin", "*");
    /// App::new()
    ///     .files("/", files)
    ///     .test()
    ///     .get("/a.txt")
    ///     .send()
    ///     .assert_header("access-control-allow-origin", "*");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if self.check_header(name, value) {
            // The header was checked before.
            let _ = self.options.headers.append(name, value);
        }
        self
    }

    /// Also serves files and folders whose names begin with a dot. Default: off.
    ///
    /// ```
    /// # use filoplume::prelude::*;
    /// # let site = tempfile::tempdir()?;
    /// # let public = site.path().to_owned();
    /// # std::fs::create_dir_all(public.join(".well-known"))?;
    /// # std::fs::write(public.join(".well-known/a.txt"), "a")?;
    /// let client =
    ///     App::new().files("/", StaticFiles::folder(public).hidden_files(true)).test();
    /// client.get("/.well-known/a.txt").send().assert_text("a");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn hidden_files(mut self, are_served: bool) -> Self {
        self.options.allows_hidden = are_served;
        self
    }

    /// Follows symbolic links to targets outside of the folder. Default: off; links within the
    /// folder are followed.
    pub fn symlinks_outside(mut self, are_followed: bool) -> Self {
        self.options.symlinks = if are_followed { Symlinks::Anywhere } else { Symlinks::Inside };
        self
    }

    /// Sends an `ETag`. Default: on.
    ///
    /// ```
    /// # use filoplume::prelude::*;
    /// # let site = tempfile::tempdir()?;
    /// # let public = site.path().to_owned();
    /// # std::fs::write(public.join("a.txt"), "a")?;
    /// let client = App::new().files("/", StaticFiles::folder(public).etag(false)).test();
    /// client.get("/a.txt").send().assert_text("a").assert_no_header("etag");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn etag(mut self, is_sent: bool) -> Self {
        self.options.has_etag = is_sent;
        self
    }

    fn check_path(&mut self, what: &str, path: &str) {
        let is_file =
            !path.contains('%') && FilePath::parse(path, true).is_some_and(|path| !path.is_folder);
        if !is_file {
            self.mistakes.push(format!(
                "the {what} of static files must be a path below their folder, such as \
                 \"index.html\", not \"{path}\""
            ));
        }
    }

    fn check_header(&mut self, name: &str, value: &str) -> bool {
        let result = Headers::new().append(name, value);
        if let Err(error) = &result {
            self.mistakes
                .push(format!("the header \"{name}\" of static files is invalid: {error}"));
        }
        result.is_ok()
    }

    fn open(self) -> Result<Files, Vec<String>> {
        let Self { location, options, mut mistakes } = self;
        if options.is_precompressed && options.untrusted.is_some() {
            mistakes.push(
                "static files cannot be both `untrusted` and `precompressed`: a user could upload \
                 `cat.png.br`, which would be sent in place of the `cat.png` of another"
                    .to_owned(),
            );
        }
        let is_embedded = !matches!(location, Location::Folder(_));
        let source: Option<Box<dyn Source>> = match location {
            Location::Folder(path) => match Folder::open(&path, options.symlinks) {
                Ok(folder) => Some(Box::new(folder)),
                Err(error) => {
                    let advice = working_directory::advice(&path, &error);
                    let path = path.display();
                    mistakes.push(format!(
                        "the folder \"{path}\" of static files cannot be opened: {error}{advice}"
                    ));
                    None
                }
            },
            #[cfg(feature = "embed")]
            Location::Embedded(source) => Some(source),
        };
        let fallback = options.fallback.as_deref().filter(|_| mistakes.is_empty());
        if let (Some(source), Some(page)) = (&source, fallback) {
            if !matches!(source.find(page), Ok(Found::File(_))) {
                mistakes.extend(missing_fallback(page, is_embedded));
            }
        }
        match source {
            Some(source) if mistakes.is_empty() => Ok(Files { source, options }),
            _ => Err(mistakes),
        }
    }
}

/// Returns the mistake that the fallback page is missing. In a folder this is only a warning, since
/// the page may come later: files are looked up for each request, and many build tools empty the
/// folder and write it again while the app runs. Embedded files stay as they are, except in builds
/// for debugging, which read the folder.
fn missing_fallback(page: &str, is_embedded: bool) -> Option<String> {
    let mistake = format!("the fallback \"{page}\" of static files does not exist");
    if is_embedded && !cfg!(debug_assertions) {
        return Some(mistake);
    }
    let warning = format!("{mistake}; without it, missing files are a 404");
    tracing::warn!("{warning}");
    log_without_subscriber(&warning);
    None
}

impl fmt::Debug for StaticFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let location: &dyn fmt::Debug = match &self.location {
            Location::Folder(path) => path,
            #[cfg(feature = "embed")]
            Location::Embedded(_) => &"embedded",
        };
        f.debug_struct("StaticFiles")
            .field("from", location)
            .field("options", &self.options)
            .finish()
    }
}

impl Router {
    /// Serves files below a prefix. At `/` they are the fallback, so all routes take precedence.
    ///
    /// ```no_run
    /// use filoplume::prelude::*;
    ///
    /// let docs = Router::new().files("/", StaticFiles::folder("docs"));
    /// let app = App::new().nest("/docs", docs);
    /// ```
    ///
    /// Below a prefix, methods other than `GET`, `HEAD` and `OPTIONS` get a `405`. At `/` they get
    /// a `405` if the file exists, and a `404` otherwise.
    #[track_caller]
    pub fn files(mut self, prefix: &str, files: StaticFiles) -> Self {
        let place = std::panic::Location::caller();
        let files = match files.open() {
            Ok(files) => Arc::new(files),
            Err(mistakes) => {
                self.mistakes.extend(mistakes.iter().map(|mistake| format!("{mistake} ({place})")));
                return self;
            }
        };
        if prefix == "/" {
            return self.fallback(FilesHandler(files));
        }
        if let Err(mistake) = check_prefix(prefix) {
            self.mistakes.push(format!("files \"{prefix}\" ({place}): {mistake}"));
            return self;
        }
        // The table of routes redirects the prefix itself to the first of these two.
        self.route(&format!("{prefix}/"), get(FilesHandler(Arc::clone(&files))))
            .route(&format!("{prefix}/{{*file}}"), get(FilesHandler(files)))
    }
}
