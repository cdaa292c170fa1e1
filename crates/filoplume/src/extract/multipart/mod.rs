//! Forms with files, read as they arrive (RFC 7578).

mod field;
mod head;
mod limits;
mod parser;
mod rejection;

use std::fmt;

use filoplume_runtime::{Body, Request};

pub use field::Field;
pub use limits::MultipartLimits;
pub use rejection::{MultipartProblem, MultipartRejection};

use self::head::{BoundaryMissing, boundary};
use self::parser::Parser;
use super::content::check_content;
use super::{FromRequest, Takes};
use crate::core::context::Context;

/// Extracts a form with files, `multipart/form-data`. Its fields are read one after the other, as
/// they arrive, in constant memory.
///
/// ```
/// use filoplume::prelude::*;
///
/// fn upload(mut form: Multipart) -> Result<String> {
///     let mut answer = String::new();
///     while let Some(field) = form.next_field()? {
///         let name = field.name().to_owned();
///         match field.file_name().map(str::to_owned) {
///             Some(file) => {
///                 answer += &format!("{name}: {file} of {} bytes\n", field.bytes()?.len())
///             }
///             None => answer += &format!("{name}: {}\n", field.text()?),
///         }
///     }
///     Ok(answer)
/// }
///
/// let client = App::new().post("/upload", upload).test();
/// let form = "--xyz\r\n\
///     Content-Disposition: form-data; name=\"title\"\r\n\r\n\
///     A cat\r\n\
///     --xyz\r\n\
///     Content-Disposition: form-data; name=\"photo\"; filename=\"cat.png\"\r\n\
///     Content-Type: image/png\r\n\r\n\
///     meow\r\n\
///     --xyz--\r\n";
/// let upload = client
///     .post("/upload")
///     .header("content-type", "multipart/form-data; boundary=xyz")
///     .body(form);
/// upload.send().assert_text("title: A cat\nphoto: cat.png of 4 bytes\n");
/// ```
///
/// If a field is not read to its end, [`next_field`](Self::next_field) skips the rest. Read large
/// files with [`io::Read`](std::io::Read) or save them with [`Field::save_to`]. [`MultipartLimits`]
/// define the maximum lengths.
///
/// It rejects content of another type with `415`, and a type without a boundary with `400`. Other
/// errors are found while the fields are read: a malformed form is a `400` with the position, and
/// one that exceeds a limit is a `413`.
#[doc(alias("multer", "upload"))]
pub struct Multipart {
    parser: Parser<Body>,
    /// The maximum length that the route accepts.
    content_bytes_max: Option<u64>,
}

impl Multipart {
    /// Sets the limits of the rest of the form.
    pub fn set_limits(&mut self, limits: MultipartLimits) {
        self.parser.limits = limits.on_route(self.content_bytes_max);
    }

    /// Returns the next field, or `None` after the last one.
    ///
    /// # Errors
    ///
    /// If the form is malformed or too long, or could not be read. All further calls return the
    /// same error.
    pub fn next_field(&mut self) -> Result<Option<Field<'_>>, MultipartRejection> {
        let is_there = self.parser.next_part()?;
        Ok(is_there.then(|| Field::new(&mut self.parser)))
    }
}

impl FromRequest for Multipart {
    const TAKES: Takes = Takes::Stream;
    type Rejection = MultipartRejection;

    fn from_request(
        request: &mut Request,
        context: &Context<'_>,
    ) -> Result<Self, MultipartRejection> {
        let mut types = request.headers().get_all("content-type");
        let content_type = match (types.next(), types.next()) {
            (Some(content_type), None) => std::str::from_utf8(content_type).ok(),
            _ => None,
        };
        drop(types);
        let content_type = content_type.ok_or(MultipartRejection::ContentType)?;
        let boundary = boundary(content_type).map_err(|missing| match missing {
            BoundaryMissing::OtherType => MultipartRejection::ContentType,
            BoundaryMissing::Wrong => MultipartRejection::Boundary,
        })?;
        let boundary = boundary.into_owned();
        check_content(request).map_err(MultipartRejection::Content)?;
        let content_bytes_max = context.content_bytes_max();
        let limits = MultipartLimits::new().on_route(content_bytes_max);
        let body = std::mem::take(request.body_mut());
        Ok(Self { parser: Parser::new(body, &boundary, limits), content_bytes_max })
    }
}

impl fmt::Debug for Multipart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Multipart").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_a_handler_keep_the_maximum_of_its_route() {
        let parser = Parser::new(Body::default(), "b", MultipartLimits::new());
        let mut form = Multipart { parser, content_bytes_max: Some(7) };
        form.set_limits(MultipartLimits::new());
        assert_eq!(form.parser.limits.total(), 7);
        form.set_limits(MultipartLimits::new().total_bytes_max(9));
        assert_eq!(form.parser.limits.total(), 9);
    }
}
