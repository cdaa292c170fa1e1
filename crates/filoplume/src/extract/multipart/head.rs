//! The head of a part: its name, file name and type (RFC 7578, 4).

use std::borrow::Cow;

use filoplume_runtime::Headers;
use percent_encoding::percent_decode_str;

use super::rejection::MultipartProblem;
use crate::semantics::media_type::{essence, parameters, trim};

/// The parsed head of a part.
#[derive(Debug, Default)]
pub(super) struct PartHead {
    pub(super) name: String,
    pub(super) file_name: Option<String>,
    /// Whether there is a file name. Browsers send an empty one if no file was selected.
    pub(super) is_file: bool,
    pub(super) headers: Headers,
}

impl PartHead {
    /// Parses a head, without the empty line at its end.
    pub(super) fn parse(head: &[u8]) -> Result<Self, MultipartProblem> {
        let head = std::str::from_utf8(head).map_err(|_| MultipartProblem::HeadNotUtf8)?;
        let mut headers = Headers::new();
        for line in head.split("\r\n").filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').ok_or(MultipartProblem::Head)?;
            // `append` rejects names that are not tokens, which includes folded lines, and all
            // control characters except HTAB.
            headers.append(name, trim(value)).map_err(|_| MultipartProblem::Head)?;
        }
        let encoding = headers.get_str("content-transfer-encoding").unwrap_or("binary");
        if !["7bit", "8bit", "binary"].iter().any(|known| known.eq_ignore_ascii_case(encoding)) {
            return Err(MultipartProblem::TransferEncoding);
        }
        let mut dispositions = headers.get_all("content-disposition");
        let (Some(disposition), None) = (dispositions.next(), dispositions.next()) else {
            return Err(MultipartProblem::Disposition);
        };
        let disposition =
            std::str::from_utf8(disposition).map_err(|_| MultipartProblem::HeadNotUtf8)?;
        let Disposition { name, file_name } = Disposition::parse(disposition)?;
        drop(dispositions);
        let is_file = file_name.is_some();
        let file_name = file_name.and_then(|name| sanitize(&name));
        Ok(Self { name, file_name, is_file, headers })
    }
}

/// The parsed value of a `Content-Disposition`.
struct Disposition {
    name: String,
    /// The name as it was sent.
    file_name: Option<String>,
}

impl Disposition {
    fn parse(value: &str) -> Result<Self, MultipartProblem> {
        if !essence(value).eq_ignore_ascii_case("form-data") {
            return Err(MultipartProblem::Disposition);
        }
        let (mut name, mut plain, mut extended) = (None, None, None);
        for parameter in parameters(value) {
            let (key, value) = parameter.map_err(|_| MultipartProblem::Disposition)?;
            // Readers could disagree about which of two equal parameters counts.
            let before = if key.eq_ignore_ascii_case("name") {
                name.replace(unescape(&value))
            } else if key.eq_ignore_ascii_case("filename") {
                plain.replace(unescape(&value))
            } else if key.eq_ignore_ascii_case("filename*") {
                extended.replace(decode_extended(&value).ok_or(MultipartProblem::Disposition)?)
            } else {
                None
            };
            if before.is_some() {
                return Err(MultipartProblem::Disposition);
            }
        }
        // RFC 7578, 4.2 forbids `filename*`. Some clients send it anyway, and then it is more exact
        // than `filename`.
        Ok(Self { name: name.ok_or(MultipartProblem::Disposition)?, file_name: extended.or(plain) })
    }
}

/// Decodes what browsers encode in names: quotes and line breaks. They do not encode `%`, so other
/// escapes are kept.
fn unescape(value: &str) -> String {
    if !value.contains('%') {
        return value.to_owned();
    }
    let quotes = value.replace("%22", "\"");
    quotes.replace("%0D%0A", "\r\n").replace("%0D", "\r").replace("%0A", "\n")
}

/// Decodes `UTF-8'en'na%C3%AFve.txt` (RFC 8187, 3.2).
fn decode_extended(value: &str) -> Option<String> {
    let mut parts = value.splitn(3, '\'');
    let (charset, _language, encoded) = (parts.next()?, parts.next()?, parts.next()?);
    if charset.eq_ignore_ascii_case("utf-8") {
        return super::super::percent::decode(encoded.as_bytes()).ok().map(Cow::into_owned);
    }
    // The first 256 code points of Unicode are ISO-8859-1.
    charset
        .eq_ignore_ascii_case("iso-8859-1")
        .then(|| percent_decode_str(encoded).map(char::from).collect())
}

/// Returns the last segment of a path of any system, without control characters. Returns `None` if
/// the rest cannot be the name of a file.
fn sanitize(name: &str) -> Option<String> {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let clean: String = last.chars().filter(|found| !found.is_control()).collect();
    let clean = clean.trim();
    (!clean.is_empty() && clean != "." && clean != "..").then(|| clean.to_owned())
}

/// Returns the boundary in a `Content-Type`.
pub(super) fn boundary(content_type: &str) -> Result<Cow<'_, str>, BoundaryMissing> {
    if !essence(content_type).eq_ignore_ascii_case("multipart/form-data") {
        return Err(BoundaryMissing::OtherType);
    }
    let mut found = None;
    for parameter in parameters(content_type) {
        let (name, value) = parameter.map_err(|_| BoundaryMissing::Wrong)?;
        if name.eq_ignore_ascii_case("boundary") && found.replace(value).is_some() {
            return Err(BoundaryMissing::Wrong);
        }
    }
    found.filter(|boundary| is_boundary(boundary)).ok_or(BoundaryMissing::Wrong)
}

/// The reason why there is no boundary.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BoundaryMissing {
    OtherType,
    Wrong,
}

/// RFC 2046, 5.1.1.
fn is_boundary(text: &str) -> bool {
    (1..=70).contains(&text.len())
        && !text.ends_with(' ')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::needless_pass_by_value, reason = "rows read better with values")]

    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(head: &str, expected: Expect) {
        let parsed = match PartHead::parse(head.as_bytes()) {
            Ok(head) => {
                format!(
                    "{:?} {:?} {:?}",
                    head.name,
                    head.file_name,
                    head.headers.get_str("content-type")
                )
            }
            Err(problem) => format!("{problem:?}"),
        };
        expected.assert_eq(&parsed);
    }

    #[track_caller]
    fn check_disposition(parameters: &str, expected: Expect) {
        check(&format!("Content-Disposition: form-data; {parameters}"), expected);
    }

    #[test]
    fn a_head_has_a_name_a_file_name_and_a_type() {
        check(
            "content-disposition:form-data;name=a\r\nContent-Type: text/plain",
            expect![[r#""a" None Some("text/plain")"#]],
        );
        check_disposition(
            r#"name="a b"; filename="x.txt""#,
            expect![[r#""a b" Some("x.txt") None"#]],
        );
        check_disposition(r#"filename=x.txt; name=a"#, expect![[r#""a" Some("x.txt") None"#]]);
        check_disposition(r#"name="ä"; filename="ö.txt""#, expect![[r#""ä" Some("ö.txt") None"#]]);
        check_disposition(r#"name="""#, expect![[r#""" None None"#]]);
        check_disposition(
            "name=a\r\nContent-Transfer-Encoding: 8BIT",
            expect![[r#""a" None None"#]],
        );
    }

    #[test]
    fn file_names_are_read_as_clients_write_them() {
        check_disposition(
            r#"name=a; filename="50%22 100%25.txt""#,
            expect![[r#""a" Some("50\" 100%25.txt") None"#]],
        );
        check_disposition(
            r#"name=a; filename="say \"hi\".txt""#,
            expect![[r#""a" Some("say \"hi\".txt") None"#]],
        );
        check_disposition(
            r#"name=a; filename="x.txt"; filename*=UTF-8''na%C3%AFve.txt"#,
            expect![[r#""a" Some("naïve.txt") None"#]],
        );
        check_disposition(
            "name=a; filename*=iso-8859-1'en'na%EFve.txt",
            expect![[r#""a" Some("naïve.txt") None"#]],
        );
    }

    #[test]
    fn file_names_lose_their_folders() {
        for (sent, told) in [
            ("../../etc/passwd", Some("passwd")),
            (r"C:\fakepath\cat.jpg", Some("cat.jpg")),
            ("a%0D%0Ab\u{7f}.txt", Some("ab.txt")),
            ("a%0Db%0Ac.txt", Some("abc.txt")),
            ("..", None),
            ("/", None),
            (" . ", None),
            ("", None),
            (".htaccess", Some(".htaccess")),
        ] {
            let head = format!("Content-Disposition: form-data; name=a; filename=\"{sent}\"");
            let head = head.replace('\u{7f}', "%7F");
            let head = PartHead::parse(head.as_bytes()).unwrap();
            let told = told.map(|told| if sent.contains('\u{7f}') { "ab%7F.txt" } else { told });
            assert_eq!(head.file_name.as_deref(), told, "{sent}");
            assert!(head.is_file);
        }
        check_disposition(
            "name=a; filename*=utf-8''..%2F%00x%2fy%00.txt",
            expect![[r#""a" Some("y.txt") None"#]],
        );
    }

    #[test]
    fn ambiguous_heads_are_rejected() {
        check("", expect!["Disposition"]);
        check("Content-Disposition: attachment; name=a", expect!["Disposition"]);
        check("Content-Disposition: form-data", expect!["Disposition"]);
        check_disposition("name=a; name=b", expect!["Disposition"]);
        check_disposition("name=a; filename=b; filename=c", expect!["Disposition"]);
        check_disposition("name=a; filename*=utf-8''%f", expect!["Disposition"]);
        check_disposition("name=a; filename*=koi8-r''x", expect!["Disposition"]);
        check_disposition("name=\"a", expect!["Disposition"]);
        check_disposition(
            "name=a\r\ncontent-disposition: form-data; name=b",
            expect!["Disposition"],
        );
        check_disposition("name=a\r\n folded: line", expect!["Head"]);
        check_disposition("name=a\0b", expect!["Head"]);
        check_disposition("name=a\nx: y", expect!["Head"]);
        check_disposition("name=a\r\nno colon", expect!["Head"]);
        check_disposition(
            "name=a\r\nContent-Transfer-Encoding: base64",
            expect!["TransferEncoding"],
        );
        let not_utf8 = PartHead::parse(b"Content-Disposition: form-data; name=\"\xff\"");
        assert_eq!(not_utf8.unwrap_err(), MultipartProblem::HeadNotUtf8);
    }

    #[test]
    fn boundaries_are_quoted_or_not() {
        let boundary = |content_type| boundary(content_type).map(Cow::into_owned);
        assert_eq!(boundary("multipart/form-data; boundary=abc"), Ok("abc".to_owned()));
        assert_eq!(
            boundary(r#"Multipart/Form-Data; charset=x; Boundary="a b:c""#),
            Ok("a b:c".to_owned())
        );
        assert_eq!(boundary("multipart/mixed; boundary=abc"), Err(BoundaryMissing::OtherType));
        let long = format!("multipart/form-data; boundary={}", "a".repeat(71));
        let twice = "multipart/form-data; boundary=a; boundary=b";
        for wrong in [
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "multipart/form-data; boundary=\"a \"",
            &long,
            twice,
        ] {
            assert_eq!(boundary(wrong), Err(BoundaryMissing::Wrong), "{wrong}");
        }
    }
}
