//! The limits of multipart forms.

/// The default maximum number of parts. Each part costs more than its bytes, for example a file.
const PARTS_MAX: usize = 1_000;

/// The default maximum length of a part's head. It has a name, a file name and a type. A file name
/// on disk has at most 255 bytes, and percent-encoding triples that.
const HEAD_BYTES_MAX: usize = 8 * 1024;

/// The default maximum length of a field in memory. Texts that people type are far shorter.
const MEMORY_BYTES_MAX: u64 = 1024 * 1024;

/// The default maximum length of a form. It equals the server's limit
/// ([`ServerConfig::content_bytes_max`](crate::ServerConfig::content_bytes_max)).
const TOTAL_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The limits of a [`Multipart`](super::Multipart) form. Exceeding one is a `413`.
///
/// ```
/// use filoplume::extract::MultipartLimits;
/// use filoplume::prelude::*;
///
/// fn upload(mut form: Multipart) -> Result<String> {
///     form.set_limits(MultipartLimits::new().memory_bytes_max(2 * 1024 * 1024));
///     let mut sizes = Vec::new();
///     while let Some(field) = form.next_field()? {
///         sizes.push(field.bytes()?.len());
///     }
///     Ok(format!("{sizes:?}"))
/// }
/// # let _ = App::new().post("/", upload).test();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "limits do nothing until they are set"]
pub struct MultipartLimits {
    pub(super) parts_max: usize,
    pub(super) head_bytes_max: usize,
    pub(super) memory_bytes_max: u64,
    /// `None` for the maximum length of the form.
    pub(super) field_bytes_max: Option<u64>,
    /// `None` for the maximum of the route.
    pub(super) total_bytes_max: Option<u64>,
}

impl Default for MultipartLimits {
    fn default() -> Self {
        Self {
            parts_max: PARTS_MAX,
            head_bytes_max: HEAD_BYTES_MAX,
            memory_bytes_max: MEMORY_BYTES_MAX,
            field_bytes_max: None,
            total_bytes_max: None,
        }
    }
}

impl MultipartLimits {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum number of fields. Default: 1,000.
    pub fn parts_max(mut self, parts: usize) -> Self {
        self.parts_max = parts;
        self
    }

    /// Sets the maximum length of a field's head, which has its name, file name and type. Default:
    /// 8 KiB.
    pub fn head_bytes_max(mut self, bytes: usize) -> Self {
        self.head_bytes_max = bytes;
        self
    }

    /// Sets the maximum length of a field that [`bytes`](super::Field::bytes) and
    /// [`text`](super::Field::text) collect in memory. Default: 1 MiB. It does not depend on the
    /// maximum of the route: a route that accepts large files does not have to accept long texts in
    /// memory.
    pub fn memory_bytes_max(mut self, bytes: u64) -> Self {
        self.memory_bytes_max = bytes;
        self
    }

    /// Sets the maximum length of a field, whether it is read, saved or skipped. Default: the
    /// maximum length of the form ([`total_bytes_max`](Self::total_bytes_max)), so that a route
    /// that accepts longer forms accepts longer files.
    pub fn field_bytes_max(mut self, bytes: u64) -> Self {
        self.field_bytes_max = Some(bytes);
        self
    }

    /// Sets the maximum length of the whole form. Default: the maximum of the route
    /// ([`Route::content_bytes_max`](crate::Route::content_bytes_max)), or 64 MiB. The maximum of
    /// the route, or otherwise the server's limit, also applies, since a form cannot be longer than
    /// the content.
    pub fn total_bytes_max(mut self, bytes: u64) -> Self {
        self.total_bytes_max = Some(bytes);
        self
    }

    /// Returns these limits with the defaults for a route.
    pub(super) fn on_route(mut self, content_bytes_max: Option<u64>) -> Self {
        self.total_bytes_max = self.total_bytes_max.or(content_bytes_max);
        self
    }

    pub(super) fn field(&self) -> u64 {
        self.field_bytes_max.unwrap_or_else(|| self.total())
    }

    pub(super) fn total(&self) -> u64 {
        self.total_bytes_max.unwrap_or(TOTAL_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_was_set_counts_before_that_of_the_route() {
        let limits = MultipartLimits::new();
        assert_eq!((limits.total(), limits.field()), (TOTAL_BYTES_MAX, TOTAL_BYTES_MAX));
        let limits = limits.on_route(Some(7));
        assert_eq!((limits.total(), limits.field()), (7, 7));
        let limits = MultipartLimits::new().total_bytes_max(9).on_route(Some(7));
        assert_eq!((limits.total(), limits.field()), (9, 9));
        let limits = MultipartLimits::new().field_bytes_max(3).on_route(Some(7));
        assert_eq!((limits.total(), limits.field()), (7, 3));
    }
}
