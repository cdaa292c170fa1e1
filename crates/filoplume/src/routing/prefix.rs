//! Prefixes of nested routers, and how they are compared with patterns and paths.
//!
//! The middleware of a prefix protects everything below it. So a path counts as below the prefix if
//! any component could read it that way. For the comparison, paths are percent-decoded and
//! case-folded, `\` is a separator, and the segments that a file system ignores are left out.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// The segments of a prefix or a pattern, with their text case-folded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prefix(Vec<Segment>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(String),
    /// A capture with the literal text around it.
    Capture {
        before: String,
        after: String,
    },
    /// The rest of the path.
    Rest,
}

impl Prefix {
    /// Parses a pattern in the form that paths are matched against, in which literal braces are
    /// encoded.
    pub(super) fn of(matched: &str) -> Self {
        let mut segments = Vec::new();
        for segment in matched.split('/') {
            match segment.split_once('{') {
                None => push_literals(&mut segments, &fold(segment)),
                Some((_, name)) if name.starts_with('*') => segments.push(Segment::Rest),
                Some((before, name)) => {
                    let after = name.split_once('}').map_or("", |(_, after)| after);
                    let (before, after) = (fold(before), fold(after));
                    // To a component that decodes the path first, an encoded slash is a separator.
                    let (outer, before) = before.rsplit_once('/').unwrap_or(("", &before));
                    let (after, inner) = after.split_once('/').unwrap_or((&after, ""));
                    push_literals(&mut segments, outer);
                    segments.push(Segment::Capture {
                        before: before.to_owned(),
                        after: after.to_owned(),
                    });
                    push_literals(&mut segments, inner);
                }
            }
        }
        Self(segments)
    }

    /// Returns whether a pattern is written below this prefix: each of its first segments equals
    /// that of the prefix or is narrower.
    pub(super) fn covers(&self, pattern: &Self) -> bool {
        self.0.len() <= pattern.0.len()
            && self.0.iter().zip(&pattern.0).all(|(own, other)| own.covers(other))
    }

    /// Returns whether the captures of a pattern may match a path below this prefix.
    ///
    /// Only the literal text before the first capture can exclude it: a capture with an encoded
    /// slash can reach any depth.
    pub(super) fn may_contain_paths_of(&self, pattern: &Self) -> bool {
        let is_literal = |segment: &&Segment| matches!(segment, Segment::Literal(_));
        let head = pattern.0.iter().take_while(is_literal);
        head.clone().count() < pattern.0.len()
            && self.0.iter().zip(head).all(|(own, other)| own.covers(other))
    }

    /// Returns whether a pattern is this prefix followed by `{*rest}`.
    pub(super) fn has_catch_all(&self, pattern: &Self) -> bool {
        self.covers(pattern) && pattern.0.get(self.0.len()) == Some(&Segment::Rest)
    }

    /// Returns whether a pattern is this prefix followed by a capture.
    pub(super) fn has_capture_below(&self, pattern: &Self) -> bool {
        self.covers(pattern) && matches!(pattern.0.get(self.0.len()), Some(Segment::Capture { .. }))
    }

    /// Returns whether the segments of a path begin with this prefix.
    fn begins<'p>(&self, mut path: impl Iterator<Item = &'p str>) -> bool {
        self.0.iter().all(|segment| path.next().is_some_and(|text| segment.fits(text)))
    }

    pub(super) fn is_longer_than(&self, other: &Self) -> bool {
        self.0.len() > other.0.len()
    }

    /// Returns a sort key. Narrower prefixes come first, in the precedence of routes: text before
    /// captures, longer before shorter.
    pub(super) fn rank(&self) -> Vec<u8> {
        let rank = |segment: &Segment| match segment {
            Segment::Literal(_) => 0,
            Segment::Capture { before, after } if before.is_empty() && after.is_empty() => 2,
            Segment::Capture { .. } => 1,
            Segment::Rest => 3,
        };
        self.0.iter().map(rank).chain([3]).collect()
    }
}

impl Segment {
    /// Returns whether this segment matches everything that the other segment matches.
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Rest) | (Self::Rest | Self::Literal(_), Self::Capture { .. }) => false,
            (_, Self::Literal(text)) => self.fits(text),
            (Self::Capture { before, after }, Self::Capture { .. }) => {
                self == other || (before.is_empty() && after.is_empty())
            }
        }
    }

    fn fits(&self, text: &str) -> bool {
        match self {
            Self::Literal(literal) => literal == text,
            Self::Capture { before, after } => {
                let captured =
                    text.strip_prefix(&**before).and_then(|rest| rest.strip_suffix(&**after));
                captured.is_some_and(|captured| !captured.is_empty())
            }
            Self::Rest => true,
        }
    }
}

/// A path in the form that is compared with prefixes.
pub(super) struct FoldedPath<'p> {
    folded: Cow<'p, str>,
    /// The same path with its `..` resolved, if it has any. It is stored because a path is compared
    /// with many prefixes.
    resolved: Option<String>,
}

impl<'p> FoldedPath<'p> {
    pub(super) fn of(path: &'p str) -> Self {
        let folded = fold(path);
        let resolved = segments(&folded).any(|segment| segment == "..").then(|| resolve(&folded));
        Self { folded, resolved }
    }

    /// Returns whether the path is below a prefix, either as written or after its `..` are
    /// resolved.
    pub(super) fn is_below(&self, prefix: &Prefix) -> bool {
        let forms = [Some(&*self.folded), self.resolved.as_deref()];
        forms.into_iter().flatten().any(|path| prefix.begins(segments(path)))
    }
}

fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split(['/', '\\']).filter(|segment| !matches!(*segment, "" | "."))
}

fn resolve(path: &str) -> String {
    let mut resolved = Vec::new();
    for segment in segments(path) {
        if segment == ".." {
            resolved.pop();
        } else {
            resolved.push(segment);
        }
    }
    resolved.join("/")
}

fn push_literals(segments: &mut Vec<Segment>, text: &str) {
    let names = text.split('/').filter(|name| !name.is_empty());
    segments.extend(names.map(|name| Segment::Literal(name.to_owned())));
}

/// Decodes a text and folds its case, because the file systems of macOS and Windows ignore case.
/// Converting to uppercase first finds more letters that are equal there, such as `ſ` and `s`.
fn fold(text: &str) -> Cow<'_, str> {
    let is_folded = |byte: u8| byte.is_ascii() && !byte.is_ascii_uppercase() && byte != b'%';
    if text.bytes().all(is_folded) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(percent_decode_str(text).decode_utf8_lossy().to_uppercase().to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_below_a_prefix_if_any_reader_could_take_it_for_one() {
        let rows = [
            ("/admin", "/admin", true),
            ("/admin", "/admin/", true),
            ("/admin", "/admin/a/b", true),
            ("/admin", "/administrator", false),
            ("/admin", "/x/admin", false),
            ("/admin", "/", false),
            ("/admin", "/%61dmin/a", true),
            ("/admin", "/admin%2fa", true),
            ("/admin", "/%2Fadmin%5Ca", true),
            ("/admin", "//admin/a", true),
            ("/admin", "/./admin/a", true),
            ("/admin", "/x/../admin/a", true),
            ("/admin", "/x/%2e%2e/admin/a", true),
            ("/admin", "/x%2f..%2fadmin", true),
            ("/admin", "/../admin/a", true),
            ("/admin", "/admin/../a", true),
            ("/admin", "/ADMIN/a", true),
            ("/admin", "/%41dmin/a", true),
            ("/admin", "/adm\\in", false),
            ("/admin", "\\admin\\a", true),
            ("/admin", "/%2561dmin", false),
            ("/Users", "/uſers/a", true),
            ("/CAFÉ", "/caf%c3%a9/a", true),
            ("/a%2Fb", "/a/b/c", true),
            ("/{tenant}/admin", "/x/admin/a", true),
            ("/{tenant}/admin", "/x/y/admin", false),
            ("/@{name}", "/@ada/a", true),
            ("/@{name}", "/@", false),
            ("/{name}.d", "/x.d/a", true),
            ("/files/{*rest}", "/files/a/b", true),
            ("/files/{*rest}", "/files", false),
        ];
        for (prefix, path, expected) in rows {
            assert_eq!(
                FoldedPath::of(path).is_below(&Prefix::of(prefix)),
                expected,
                "{path} below {prefix}"
            );
        }
    }

    #[test]
    fn a_pattern_is_covered_by_a_prefix_it_is_written_below() {
        let rows = [
            ("/admin", "/admin", true),
            ("/admin", "/admin/{id}", true),
            ("/admin", "/Admin/{id}", true),
            ("/admin", "/{page}", false),
            ("/admin", "/{*rest}", false),
            ("/admin", "/admin/{*rest}", true),
            ("/admin/x", "/admin/{*rest}", false),
            ("/{tenant}", "/{other}/x", true),
            ("/{tenant}", "/acme/x", true),
            ("/@{name}", "/@ada/x", true),
            ("/@{name}", "/{name}/x", false),
            ("/{name}.json", "/{name}", false),
            ("/{name}.json", "/{other}.json/x", true),
            ("/%7Bx%7D", "/{x}", false),
        ];
        for (prefix, pattern, expected) in rows {
            assert_eq!(
                Prefix::of(prefix).covers(&Prefix::of(pattern)),
                expected,
                "{pattern} below {prefix}"
            );
        }
    }

    #[test]
    fn only_text_before_the_first_capture_excludes_a_pattern() {
        let rows = [
            ("/admin", "/{page}", true),
            ("/admin/deep", "/{page}", true),
            ("/admin", "/{*rest}", true),
            ("/admin", "/users/{id}", false),
            ("/admin", "/about", false),
            ("/static/private", "/static/{*file}", true),
            ("/{tenant}/admin", "/files/{*file}", true),
        ];
        for (prefix, pattern, expected) in rows {
            let result = Prefix::of(prefix).may_contain_paths_of(&Prefix::of(pattern));
            assert_eq!(result, expected, "{pattern} into {prefix}");
        }
    }

    #[test]
    fn narrower_prefixes_come_first() {
        let mut prefixes = ["/{a}", "/{a}/b", "/x", "/x/{b}", "/@{a}", "/{a}.d"];
        prefixes.sort_by_key(|prefix| Prefix::of(prefix).rank());
        assert_eq!(prefixes, ["/x/{b}", "/x", "/@{a}", "/{a}.d", "/{a}/b", "/{a}"]);
    }
}
