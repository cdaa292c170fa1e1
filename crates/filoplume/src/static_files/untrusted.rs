//! Files that users have uploaded.

use super::StaticFiles;
use crate::semantics::content_disposition::attachment;
use crate::semantics::file_type;

/// The type of files without a known type.
pub(super) const OCTETS: &str = "application/octet-stream";

/// Headers of every response. If a browser shows a document after all, `sandbox` removes its origin
/// and scripts, and `default-src 'none'` blocks everything that it would load.
pub(super) const UNTRUSTED_HEADERS: [(&str, &str); 2] = [
    ("x-content-type-options", "nosniff"),
    ("content-security-policy", "default-src 'none'; sandbox"),
];

/// Image types that browsers show and that cannot contain scripts, unlike `image/svg+xml`.
const INLINE_IMAGES: [&str; 5] =
    ["image/avif", "image/gif", "image/jpeg", "image/png", "image/webp"];

/// How uploaded files are sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Untrusted {
    shows_images: bool,
}

impl Untrusted {
    /// Returns the type and the `Content-Disposition` of a file. Types that a browser could run or
    /// apply in another page are not sent: with `nosniff`, a script or a style sheet without its
    /// type is not used.
    pub(super) fn describe(self, path: &str) -> (String, Option<String>) {
        let guessed = file_type::content_type(path).unwrap_or_default();
        let is_image = INLINE_IMAGES.contains(&&*guessed);
        let is_media = guessed.starts_with("audio/") || guessed.starts_with("video/");
        let content_type = if is_image || is_media { guessed } else { OCTETS.to_owned() };
        (content_type, (!(is_image && self.shows_images)).then(|| attachment(path)))
    }
}

impl StaticFiles {
    /// Serves files that users have uploaded, so that browsers do not treat them as pages of this
    /// site.
    ///
    /// Browsers save every file instead of showing it (`Content-Disposition: attachment`), under
    /// its own name. Only images, sounds and videos keep their type. Every response has
    /// `X-Content-Type-Options: nosniff` and a `Content-Security-Policy` with `sandbox`, which
    /// [`header`](Self::header) cannot change. A folder is not answered with its `index.html`. With
    /// [`precompressed`](Self::precompressed) the app does not start: users could upload variants
    /// of each other's files.
    ///
    /// ```
    /// # use filoplume::prelude::*;
    /// # let site = tempfile::tempdir()?;
    /// # let uploads = site.path().to_owned();
    /// # std::fs::write(uploads.join("page.html"), "<script>steal()</script>")?;
    /// let client =
    ///     App::new().files("/uploads", StaticFiles::folder(uploads).untrusted()).test();
    /// let response = client.get("/uploads/page.html").send();
    /// response.assert_header("content-disposition", r#"attachment; filename="page.html""#);
    /// response.assert_header("content-type", "application/octet-stream");
    /// response.assert_header("x-content-type-options", "nosniff");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A separate host, such as `usercontent.example`, also keeps such files away from the cookies
    /// of the site.
    pub fn untrusted(mut self) -> Self {
        self.options.index = None;
        self.options.untrusted.get_or_insert_default();
        self
    }

    /// Like [`untrusted`](Self::untrusted), but browsers may show AVIF, GIF, JPEG, PNG and WebP
    /// images. SVG is not among them: it can contain scripts.
    ///
    /// ```
    /// # use filoplume::prelude::*;
    /// # let site = tempfile::tempdir()?;
    /// # let uploads = site.path().to_owned();
    /// # std::fs::write(uploads.join("cat.png"), "cat")?;
    /// # std::fs::write(uploads.join("cat.svg"), "<svg/>")?;
    /// let client = App::new()
    ///     .files("/uploads", StaticFiles::folder(uploads).untrusted_images())
    ///     .test();
    /// let image = client.get("/uploads/cat.png").send();
    /// image
    ///     .assert_header("content-type", "image/png")
    ///     .assert_no_header("content-disposition");
    /// let drawing = client.get("/uploads/cat.svg").send();
    /// drawing.assert_header("content-disposition", r#"attachment; filename="cat.svg""#);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn untrusted_images(self) -> Self {
        let mut files = self.untrusted();
        files.options.untrusted = Some(Untrusted { shows_images: true });
        files
    }
}
