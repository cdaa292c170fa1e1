//! Finds the forms of a page, and the CSRF token that a browser would send with one of them.

use std::fmt;

use super::response::TestResponse;
use super::target::{path_of, resolve};
use crate::middleware::{CSRF_FIELD, CSRF_HEADER};

/// The forms of a page.
#[derive(Clone)]
pub(super) struct PageForms {
    /// The request for the page, such as `GET /notes`.
    page: String,
    forms: Vec<PageForm>,
    /// The first token of the page, in a form or outside of forms.
    first_token: Option<String>,
}

#[derive(Clone, Default)]
struct PageForm {
    id: Option<String>,
    /// The method and target, followed by those of the buttons that have their own.
    sent_to: Vec<(&'static str, String)>,
    /// The names of the fields before the token, or of all fields if there is no token.
    before: Vec<String>,
    token: Option<String>,
}

/// The hidden field of a form, as a browser sends it.
pub(super) struct TokenField<'f> {
    pub(super) token: &'f str,
    /// The names of the fields that the form has before it.
    pub(super) before: &'f [String],
}

impl PageForms {
    pub(super) fn of(page: &TestResponse) -> Self {
        let mut forms = Self { page: page.requested(), forms: Vec::new(), first_token: None };
        forms.read(page.text(), page.target());
        forms
    }

    /// Returns whether a form of the page is sent to this target with `POST`.
    pub(super) fn has_form_to(&self, target: &str) -> bool {
        !self.forms_to(target).is_empty()
    }

    /// Returns the token that a browser sends with the form for this target.
    ///
    /// # Errors
    ///
    /// The message for the test, if there is no such form, or one of several has no token: a
    /// browser sends the one that the user chooses.
    pub(super) fn token_for(&self, target: &str) -> Result<TokenField<'_>, String> {
        let forms = self.forms_to(target);
        let mut fields = Vec::new();
        for form in &forms {
            let Some(token) = form.token.as_deref() else {
                return Err(format!(
                    "a form of the page `{}` that is sent to POST {target} has no field \
                     `{CSRF_FIELD}`\n{self}",
                    self.page
                ));
            };
            fields.push(TokenField { token, before: &form.before });
        }
        fields.into_iter().next().ok_or_else(|| {
            format!(
                "the page `{}` has no form that is sent to POST {target}; a request of a script \
                 needs `.header(\"{CSRF_HEADER}\", token)`\n{self}",
                self.page
            )
        })
    }

    /// Returns the token that a script of the page sends.
    ///
    /// # Errors
    ///
    /// The message for the test, if the page has no token.
    pub(super) fn token_of_script(&self) -> Result<&str, String> {
        self.first_token
            .as_deref()
            .ok_or_else(|| format!("the page `{}` has no field `{CSRF_FIELD}`\n{self}", self.page))
    }

    /// Returns the forms for a target. Forms with the same query take precedence: it may choose
    /// what happens.
    fn forms_to(&self, target: &str) -> Vec<&PageForm> {
        let sent_to = |matches: &dyn Fn(&str) -> bool| -> Vec<&PageForm> {
            let is_wanted =
                |(method, action): &(&str, String)| *method == "POST" && matches(action);
            self.forms.iter().filter(|form| form.sent_to.iter().any(is_wanted)).collect()
        };
        let exact = sent_to(&|action| action == target);
        if exact.is_empty() { sent_to(&|action| path_of(action) == path_of(target)) } else { exact }
    }

    fn read(&mut self, html: &str, target: &str) {
        let method_of = |tag: &Tag, name: &str| {
            let method = tag.get(name).unwrap_or_default();
            if method.eq_ignore_ascii_case("post") { "POST" } else { "GET" }
        };
        let action_of = |tag: &Tag, name: &str| resolve(target, tag.get(name).unwrap_or_default());
        let tags = tags(html);
        // All forms are collected first, because a field may name a form that comes later.
        let mut open = None;
        let mut owners = Vec::new();
        for tag in &tags {
            match (tag.name.as_str(), tag.is_end) {
                // Forms do not nest: browsers ignore the inner tag.
                ("form", false) if open.is_none() => {
                    open = Some(self.forms.len());
                    let action = action_of(tag, "action");
                    self.forms.push(PageForm {
                        id: tag.get("id").map(str::to_owned),
                        sent_to: action
                            .map(|to| (method_of(tag, "method"), to))
                            .into_iter()
                            .collect(),
                        ..PageForm::default()
                    });
                }
                ("form", true) => open = None,
                _ => {}
            }
            owners.push(open);
        }
        for (tag, owner) in tags.iter().zip(owners) {
            let is_control = matches!(&*tag.name, "input" | "select" | "textarea" | "button");
            if !is_control || tag.is_end || tag.get("disabled").is_some() {
                continue;
            }
            let token = (tag.get("name") == Some(CSRF_FIELD)).then(|| tag.get("value")).flatten();
            if self.first_token.is_none() {
                self.first_token = token.map(str::to_owned);
            }
            let form = match tag.get("form") {
                Some(id) => self.forms.iter_mut().find(|form| form.id.as_deref() == Some(id)),
                None => owner.and_then(|owner| self.forms.get_mut(owner)),
            };
            let Some(form) = form else { continue };
            if tag.get("formaction").is_some() || tag.get("formmethod").is_some() {
                let (of_form, to_form) = form.sent_to.first().cloned().unwrap_or_default();
                let has = |name| tag.get(name).is_some();
                let method = if has("formmethod") { method_of(tag, "formmethod") } else { of_form };
                let action =
                    if has("formaction") { action_of(tag, "formaction") } else { Some(to_form) };
                form.sent_to.extend(action.map(|to| (method, to)));
            }
            if form.token.is_none() {
                match (token, tag.get("name")) {
                    (Some(token), _) => form.token = Some(token.to_owned()),
                    (None, Some(name)) => form.before.push(name.to_owned()),
                    (None, None) => {}
                }
            }
        }
    }
}

/// Lists the forms.
impl fmt::Display for PageForms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.forms.is_empty() {
            return f.write_str("The page has no forms.");
        }
        f.write_str("The forms of the page:")?;
        for form in &self.forms {
            let with = if form.token.is_some() { "with" } else { "without" };
            for (method, action) in &form.sent_to {
                write!(f, "\n- {method} {action}, {with} the field `{CSRF_FIELD}`")?;
            }
        }
        Ok(())
    }
}

struct Tag {
    /// In lower case.
    name: String,
    is_end: bool,
    /// The names are in lower case.
    attributes: Vec<(String, String)>,
}

impl Tag {
    fn get(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str())
    }
}

/// Returns the tags of a page, without those in comments and in the text of scripts.
fn tags(mut html: &str) -> Vec<Tag> {
    let mut tags = Vec::new();
    while let Some((_, rest)) = html.split_once('<') {
        if let Some(comment) = rest.strip_prefix("!--") {
            html = comment.split_once("-->").map_or("", |(_, rest)| rest);
            continue;
        }
        let (is_end, rest) = rest.strip_prefix('/').map_or((false, rest), |rest| (true, rest));
        if !rest.starts_with(|first: char| first.is_ascii_alphabetic()) {
            html = rest;
            continue;
        }
        let end = rest.find(is_separator).unwrap_or(rest.len());
        let name = rest[..end].to_ascii_lowercase();
        let (attributes, rest) = attributes(&rest[end..]);
        html = rest;
        if !is_end && matches!(&*name, "script" | "style" | "textarea" | "title") {
            let closing = format!("</{name}");
            html = rest.to_ascii_lowercase().find(&closing).map_or("", |at| &rest[at..]);
        }
        tags.push(Tag { name, is_end, attributes });
    }
    tags
}

fn is_separator(character: char) -> bool {
    character.is_ascii_whitespace() || matches!(character, '/' | '>')
}

/// Returns the attributes of a tag, and the text after the tag.
fn attributes(mut rest: &str) -> (Vec<(String, String)>, &str) {
    let mut attributes = Vec::new();
    loop {
        rest = rest.trim_start_matches(|next: char| next != '>' && is_separator(next));
        if let Some(rest) = rest.strip_prefix('>') {
            return (attributes, rest);
        }
        if rest.is_empty() {
            return (attributes, rest);
        }
        // An equals sign at the start belongs to the name.
        let end = rest.char_indices().skip(1).find(|(_, next)| *next == '=' || is_separator(*next));
        let (name, after) = rest.split_at(end.map_or(rest.len(), |(at, _)| at));
        let (value, after) = match after.trim_start().strip_prefix('=') {
            Some(value) => attribute_value(value.trim_start()),
            None => ("", after),
        };
        attributes.push((name.to_ascii_lowercase(), unescaped(value)));
        rest = after;
    }
}

fn attribute_value(text: &str) -> (&str, &str) {
    for quote in ['"', '\''] {
        if let Some(text) = text.strip_prefix(quote) {
            return text.split_once(quote).unwrap_or((text, ""));
        }
    }
    let end = text.find(|next: char| next.is_ascii_whitespace() || next == '>');
    text.split_at(end.unwrap_or(text.len()))
}

/// Replaces the character references that templates write into attributes.
fn unescaped(value: &str) -> String {
    let mut parts = value.split('&');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let reference =
            part.split_once(';').and_then(|(name, rest)| Some((character(name)?, rest)));
        match reference {
            Some((character, rest)) => {
                text.push(character);
                text.push_str(rest);
            }
            None => {
                text.push('&');
                text.push_str(part);
            }
        }
    }
    text
}

fn character(name: &str) -> Option<char> {
    match name {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(digits) => u32::from_str_radix(digits, 16),
                None => number.parse(),
            };
            char::from_u32(code.ok()?)
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "rows read better with values")]
    #[track_caller]
    fn check(html: &str, expected: Expect) {
        let mut page = PageForms { page: String::new(), forms: Vec::new(), first_token: None };
        page.read(html, "/notes/7?all");
        let line = |form: &PageForm| {
            format!("{:?} {:?} after {:?}\n", form.sent_to, form.token, form.before)
        };
        expected.assert_eq(&page.forms.iter().map(line).collect::<String>());
    }

    #[test]
    fn forms_are_read_as_browsers_read_them() {
        check(
            "<FORM Method=Post Action=/m?a&amp;b><input name=_csrf value=t>",
            expect![[r#"
                [("POST", "/m?a&b")] Some("t") after []
            "#]],
        );
        check(
            "<form method = 'post' action=\"&#x2f;m\"><input type=file name='a' />\n<select name=s>\
             </select><input type=\"hidden\" name=\"_csrf\" value=\"t\"></form>\
             <form>a</form><input name=_csrf value=u>",
            expect![[r#"
                [("POST", "/m")] Some("t") after ["a", "s"]
                [("GET", "/notes/7?all")] None after []
            "#]],
        );
    }

    #[test]
    fn what_a_browser_does_not_send_does_not_count() {
        check(
            "<form method=post action=a><!-- <input name=_csrf value=t> -->\
             <script>'<input name=_csrf value=t>'</script><textarea><input name=_csrf value=t>\
             </textarea><input name=_csrf value=t disabled></form>",
            expect![[r#"
                [("POST", "/notes/a")] None after []
            "#]],
        );
        // Forms do not nest.
        check(
            "<form method=post action=a><form method=post action=b><input name=_csrf value=t>",
            expect![[r#"
                [("POST", "/notes/a")] Some("t") after []
            "#]],
        );
    }

    #[test]
    fn fields_and_buttons_may_name_their_form_and_target() {
        check(
            "<input name=_csrf value=t form=late><form id=late method=post action=..>\
             <button formaction=/drop><button formmethod=get>",
            expect![[r#"
                [("POST", "/"), ("POST", "/drop"), ("GET", "/")] Some("t") after []
            "#]],
        );
    }

    #[test]
    fn no_page_makes_the_reader_panic() {
        let page = "<a <form method='é' =x action=\"/é&#xe9;&#99999999;\" ><!-- <script></sé";
        for (at, _) in page.char_indices() {
            let _ = tags(&page[at..]);
            let _ = tags(&page[..at]);
        }
    }
}
