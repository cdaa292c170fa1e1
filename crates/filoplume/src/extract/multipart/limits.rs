//! How much of a form is accepted.

/// Most parts of a form. Each costs a program more than its bytes, such as a file.
const PARTS_MAX: usize = 1_000;

/// Longest head of a part. It has a name, a file name and a type; a file name has 255 bytes at most
/// on disks, and three times as many when it is percent-encoded.
const HEAD_BYTES_MAX: usize = 8 * 1024;

/// Longest field in memory. Texts that people type are far below.
const MEMORY_BYTES_MAX: u64 = 1024 * 1024;

/// Longest form. The server's own bound is as high:
/// [`ServerConfig::content_bytes_max`](crate::ServerConfig::content_bytes_max).
const TOTAL_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// How much of a form [`Multipart`](super::Multipart) accepts. What is more is a `413`.
///
/// ```
/// use filoplume::extract::MultipartLimits;
/// use filoplume::prelude::*;
///
/// fn upload(mut form: Multipart) -> Result<String> {
///     form.set_limits(MultipartLimits::new().field_bytes_max(2 * 1024 * 1024));
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
    /// `None`: as long as the form.
    pub(super) field_bytes_max: Option<u64>,
    /// `None`: what the route says.
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

    /// Sets how many fields a form has at most. Default: 1,000.
    pub fn parts_max(mut self, parts: usize) -> Self {
        self.parts_max = parts;
        self
    }

    /// Sets the longest head of a field: its name, file name and type. Default: 8 KiB.
    pub fn head_bytes_max(mut self, bytes: usize) -> Self {
        self.head_bytes_max = bytes;
        self
    }

    /// Sets the longest field that [`bytes`](super::Field::bytes) and [`text`](super::Field::text)
    /// collect in memory. Default: 1 MiB, whatever the route accepts: a limit that was raised for a
    /// file on its way to the disk is not one for a text in memory.
    pub fn memory_bytes_max(mut self, bytes: u64) -> Self {
        self.memory_bytes_max = bytes;
        self
    }

    /// Sets the longest field, whether it is read, saved or skipped. Default: as long as the form
    /// may be ([`total_bytes_max`](Self::total_bytes_max)), so that a route that accepts more
    /// accepts longer files.
    pub fn field_bytes_max(mut self, bytes: u64) -> Self {
        self.field_bytes_max = Some(bytes);
        self
    }

    /// Sets the longest form, everything included. Default: what the route accepts
    /// ([`Route::content_bytes_max`](crate::Route::content_bytes_max)), or 64 MiB. What the route
    /// accepts, or else the server's bound, stands before it: a form cannot be longer than the
    /// content.
    pub fn total_bytes_max(mut self, bytes: u64) -> Self {
        self.total_bytes_max = Some(bytes);
        self
    }

    /// These limits for a route that accepts so much, if it says.
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
