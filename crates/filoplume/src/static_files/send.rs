//! Applies the conditions and ranges of a request to a file.

use filoplume_runtime::{Headers, Method, Response, ResponseBody, StatusCode};

use super::content::Stored;
use super::multipart_ranges::MultipartRanges;
use crate::core::error::{Error, Result};
use crate::semantics::conditional::{Conditions, Verdict, not_modified};
use crate::semantics::range::{ByteRange, Selection, select};

/// Adds the content to a response that already has the headers of the file: the part that `method`
/// and `headers` of the request ask for. Conditions are evaluated before ranges (RFC 9110, 13.2.2).
pub(super) fn send(
    mut response: Response,
    method: &Method,
    headers: &Headers,
    stored: Stored,
    content_type: &str,
) -> Result<Response> {
    let Stored { mut content, length, validators } = stored;
    let conditions = Conditions::of(headers);
    let verdict = conditions.evaluate(method, Some(&validators));
    verdict.ok()?;
    if verdict == Verdict::NotModified {
        not_modified(&mut response);
        return Ok(response);
    }
    let range = range_header(method, headers).filter(|_| conditions.range_applies(&validators));
    match range.map_or(Selection::Whole, |range| select(range, length)) {
        Selection::Whole => {
            let all = length.checked_sub(1).map(|last| ByteRange { start: 0, last });
            *response.body_mut() = match all {
                // The engine omits the content, so it need not be read.
                Some(all) if *method == Method::HEAD => content.into_reader(all)?,
                Some(all) => content.into_body(all)?,
                None => ResponseBody::Empty,
            };
        }
        Selection::One(range) => {
            response.set_status(StatusCode::PARTIAL_CONTENT.as_u16());
            response.set_header("content-range", range.of(length).to_string())?;
            *response.body_mut() = content.into_body(range)?;
        }
        Selection::Several(ranges) => {
            if let Some(first) = ranges.first() {
                content.try_read(first.start)?;
            }
            response.set_status(StatusCode::PARTIAL_CONTENT.as_u16());
            send_parts(&mut response, MultipartRanges::new(content, content_type, length, ranges))?;
        }
        Selection::Unsatisfiable => {
            let error = Error::new(
                StatusCode::RANGE_NOT_SATISFIABLE,
                format!("the file has only {length} bytes"),
            );
            return Err(error.with_known_header("content-range", format!("bytes */{length}")));
        }
    }
    Ok(response)
}

fn send_parts(response: &mut Response, parts: MultipartRanges) -> Result<()> {
    response.set_header("content-type", parts.content_type())?;
    let length = parts.length();
    response.set_reader(parts, length);
    Ok(())
}

/// Returns the `Range` of a `GET`, the only method for which it is defined (RFC 9110, 14.2). Two of
/// them count as none.
fn range_header<'a>(method: &Method, headers: &'a Headers) -> Option<&'a str> {
    let mut values = headers.get_all("range");
    let value = values.next()?;
    let is_defined = *method == Method::GET && values.next().is_none();
    if is_defined { std::str::from_utf8(value).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_of_a_get_counts() {
        let rows: [(Method, &[&str], Option<&str>); 4] = [
            (Method::GET, &["bytes=0-1"], Some("bytes=0-1")),
            (Method::HEAD, &["bytes=0-1"], None),
            (Method::GET, &["bytes=0-1", "bytes=0-1"], None),
            (Method::GET, &[], None),
        ];
        for (method, fields, expected) in rows {
            let mut headers = Headers::new();
            for field in fields {
                headers.append("range", field).expect("it is a header");
            }
            assert_eq!(range_header(&method, &headers), expected, "{method} {fields:?}");
        }
    }
}
