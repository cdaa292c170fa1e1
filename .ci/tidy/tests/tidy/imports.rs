//! Reads which items of its own crate a Rust file names.
//!
//! This is no parser of Rust. It knows paths that begin with `crate`, `super` or `self`, groups in
//! braces, the module that a path stands in, and what is compiled only for tests.

use std::collections::{HashMap, HashSet};

use crate::source::is_word;

/// A path from the root of a crate, such as `["engine", "worker", "Worker"]`. The last name of a
/// glob import is `*`.
pub(crate) type Path = Vec<String>;

/// Returns the paths into its own crate that a file has, except in its tests. `module` is the
/// file's own module, from the root.
pub(crate) fn paths(module: &[&str], text: &str) -> Vec<Path> {
    let mut reader = Reader::new(module, text);
    reader.read();
    reader.paths.into_iter().map(|(path, _)| path).collect()
}

/// Returns what the names of a crate's root stand for: each item that its root imports, re-exports
/// included, with its path.
pub(crate) fn root_names(root: &str) -> HashMap<String, Path> {
    let mut reader = Reader::new(&[], root);
    reader.read();
    let named = |(path, name): (Path, Option<String>)| Some((name?, path));
    reader.paths.into_iter().filter_map(named).collect()
}

/// Returns the module of a file, by its path below the folder of the crate's root.
pub(crate) fn module_of(path: &str) -> Vec<&str> {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let mut module: Vec<&str> = path.split('/').collect();
    if matches!(module.last(), Some(&("mod" | "lib" | "main"))) {
        module.pop();
    }
    module
}

struct Reader {
    tokens: Vec<String>,
    at: usize,
    /// The modules that the file declares. A `use` may name them without `self`.
    children: HashSet<String>,
    /// The modules around the next token, from the root.
    module: Path,
    /// How deep in braces the next token is.
    depth: usize,
    /// The depths at which the inline modules around the next token end.
    inline: Vec<usize>,
    /// The paths, each with its name in this file if a `use` declares it.
    paths: Vec<(Path, Option<String>)>,
}

impl Reader {
    fn new(module: &[&str], text: &str) -> Self {
        let tokens = tokens(text);
        let declared = tokens.windows(2).filter(|words| words[0] == "mod");
        Self {
            children: declared.map(|words| words[1].clone()).collect(),
            tokens,
            at: 0,
            module: module.iter().map(|&name| name.to_owned()).collect(),
            depth: 0,
            inline: Vec::new(),
            paths: Vec::new(),
        }
    }

    fn token(&self, ahead: usize) -> &str {
        self.tokens.get(self.at + ahead).map_or("", String::as_str)
    }

    fn read(&mut self) {
        while self.at < self.tokens.len() {
            match self.token(0) {
                "#" if self.is_for_tests() => self.skip_item(),
                "mod" if self.token(2) == "{" => {
                    self.module.push(self.token(1).to_owned());
                    self.inline.push(self.depth);
                    self.depth += 1;
                    self.at += 3;
                }
                "{" => {
                    self.depth += 1;
                    self.at += 1;
                }
                "}" => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.inline.last() == Some(&self.depth) {
                        self.inline.pop();
                        self.module.pop();
                    }
                    self.at += 1;
                }
                "use" => {
                    self.at += 1;
                    self.path(true);
                }
                "crate" | "super" | "self" if self.token(1) == "::" => self.path(false),
                _ => self.at += 1,
            }
        }
    }

    /// Returns whether the next tokens are an attribute that compiles its item only for tests.
    fn is_for_tests(&self) -> bool {
        let ahead = |words: &[&str]| (0..).zip(words).all(|(at, word)| self.token(at) == *word);
        if ahead(&["#", "[", "cfg", "(", "test"]) {
            return true;
        }
        if !ahead(&["#", "[", "cfg", "(", "all", "("]) {
            return false;
        }
        // In `all`, `test` must be a condition of its own, and not a part of one, as in
        // `not(test)`.
        let mut depth = 1;
        for token in &self.tokens[self.at + 6..] {
            match token.as_str() {
                "test" if depth == 1 => return true,
                "(" => depth += 1,
                ")" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        false
    }

    /// Skips an attribute and the item, field or statement that it belongs to.
    fn skip_item(&mut self) {
        while self.token(0) == "#" {
            self.at += 1;
            self.skip_group();
        }
        // Only a field, a variant or an arm ends at a comma.
        let is_item = self.is_item();
        let is_use = self.token(0) == "use";
        while self.at < self.tokens.len() {
            match self.token(0) {
                ";" => return self.at += 1,
                "," if !is_item => return self.at += 1,
                "}" => return,
                "{" => {
                    self.skip_group();
                    if !is_use {
                        return;
                    }
                }
                "(" | "[" => self.skip_group(),
                _ => self.at += 1,
            }
        }
    }

    /// Returns whether the next tokens begin an item, and moves behind its visibility.
    fn is_item(&mut self) -> bool {
        if self.token(0) == "pub" {
            self.at += 1;
            if self.token(0) == "(" {
                self.skip_group();
            }
        }
        matches!(
            self.token(0),
            "const"
                | "enum"
                | "fn"
                | "impl"
                | "mod"
                | "static"
                | "struct"
                | "trait"
                | "type"
                | "use"
        )
    }

    /// Skips brackets and what is between them.
    fn skip_group(&mut self) {
        let mut open = 0usize;
        while self.at < self.tokens.len() {
            match self.token(0) {
                "(" | "[" | "{" => open += 1,
                ")" | "]" | "}" => open = open.saturating_sub(1),
                _ => {}
            }
            self.at += 1;
            if open == 0 {
                return;
            }
        }
    }

    /// Reads a path from its first name. In a `use`, a path may be of another crate.
    fn path(&mut self, is_use: bool) {
        if is_use && self.token(0) == "{" {
            return self.group(|reader| reader.path(true));
        }
        let mut base = match self.token(0) {
            "crate" => Vec::new(),
            "super" | "self" => self.module.clone(),
            name if self.children.contains(name) => return self.tree(self.module.clone(), is_use),
            _ => return,
        };
        loop {
            match self.token(0) {
                "crate" | "self" => {}
                "super" => _ = base.pop(),
                _ => break,
            }
            self.at += 1;
            if self.token(0) != "::" {
                // `use super as parent`, or the value `self`.
                return;
            }
            self.at += 1;
        }
        self.tree(base, is_use);
    }

    /// Reads the rest of a path: names, and in a `use` a group of them, or a glob.
    fn tree(&mut self, mut base: Path, is_use: bool) {
        loop {
            match self.token(0) {
                "{" if is_use => return self.group(|reader| reader.tree(base.clone(), true)),
                // In a group, `self` is the module before the group.
                "self" => {}
                name if name == "*" || name.starts_with(is_word) => base.push(name.to_owned()),
                // `crate::` before something else, such as a variable of a macro.
                _ => break,
            }
            self.at += 1;
            if self.token(0) != "::" {
                break;
            }
            self.at += 1;
        }
        let mut name = base.last().cloned();
        if is_use && self.token(0) == "as" {
            name = Some(self.token(1).to_owned());
            self.at += 2;
        }
        // In a macro, anything may follow `crate::`. Then the path is empty.
        if !base.is_empty() {
            self.paths.push((base, name.filter(|_| is_use)));
        }
    }

    /// Reads a group in braces with a function that reads one of its paths.
    fn group(&mut self, mut read: impl FnMut(&mut Self)) {
        self.at += 1;
        while !matches!(self.token(0), "}" | "") {
            read(self);
            // A path of another crate is not read.
            while self.at < self.tokens.len() && !matches!(self.token(0), "," | "}") {
                if self.token(0) == "{" { self.skip_group() } else { self.at += 1 }
            }
            if self.token(0) == "," {
                self.at += 1;
            }
        }
        self.at += 1;
    }
}

/// Returns the words and signs of a text, without comments and literals.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if first.is_whitespace() {
            first.len_utf8()
        } else if let Some(length) = comment(rest).or_else(|| literal(rest)) {
            length
        } else {
            let word = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let length = if rest.starts_with("::") { 2 } else { word.max(first.len_utf8()) };
            tokens.push(rest[..length].to_owned());
            length
        };
        rest = &rest[length..];
    }
    tokens
}

/// Returns the length of the comment that a text begins with.
fn comment(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    let inside = text.strip_prefix("/*")?;
    Some(inside.find("*/").map_or(text.len(), |end| end + 4))
}

/// Returns the length of the text or character literal that a text begins with. The quote of a
/// lifetime is not one.
fn literal(text: &str) -> Option<usize> {
    let quoted = text.trim_start_matches(['b', 'c']);
    let prefix = text.len() - quoted.len();
    if let Some(raw) = quoted.strip_prefix('r') {
        let hashes = raw.chars().take_while(|&c| c == '#').count();
        let inside = raw[hashes..].strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(hashes));
        let length = inside.find(&end).map_or(inside.len(), |at| at + end.len());
        return Some(prefix + 1 + hashes + 1 + length);
    }
    let mut characters = quoted.char_indices();
    match characters.next()?.1 {
        '"' => {
            while let Some((at, character)) = characters.next() {
                match character {
                    '\\' => _ = characters.next(),
                    '"' => return Some(prefix + at + 1),
                    _ => {}
                }
            }
            Some(text.len())
        }
        '\'' => {
            let is_escape = characters.next()?.1 == '\\';
            if is_escape {
                characters.next();
            }
            let mut ends = characters.take_while(|&(_, c)| is_escape || c == '\'');
            ends.find(|&(_, c)| c == '\'').map(|(at, _)| prefix + at + 1)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let found: Vec<_> =
            paths(&["a", "b"], text).into_iter().map(|path| path.join("::")).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn paths_are_found_in_every_form() {
        check("use crate::one::Two;", &["one::Two"]);
        check("pub(crate) use crate::one::*;", &["one::*"]);
        check("use crate::one::Two as Three;", &["one::Two"]);
        check("let a = crate::one::two(3);", &["one::two"]);
        check("fn f(a: &crate::One<crate::two::Three>) {}", &["One", "two::Three"]);
        check("use std::io; use http::Method;", &[]);
        check("pub(crate) fn f(); pub(in crate::one) fn g();", &["one"]);
    }

    #[test]
    fn groups_are_read_at_any_depth() {
        check("use crate::{one, two::Three};", &["one", "two::Three"]);
        check(
            "use crate::{\n    one::{self, Two, three::{Four, five}},\n    six as seven, eight,\n};",
            &["one", "one::Two", "one::three::Four", "one::three::five", "six", "eight"],
        );
        check(
            "use crate::one::{two::*, three}; crate::four();",
            &["one::two::*", "one::three", "four"],
        );
        check("use super::super::{one, two::{three}};", &["one", "two::three"]);
        check(
            "use {std::{fs, io}, crate::{one, two}, super::three}; crate::four",
            &["one", "two", "a::three", "four"],
        );
        check("$crate::one(); crate::$name;", &["one"]);
    }

    #[test]
    fn super_and_self_are_resolved() {
        check("use super::one;", &["a::one"]);
        check("use super::super::one::Two;", &["one::Two"]);
        check("use self::one::Two; self::two();", &["a::b::one::Two", "a::b::two"]);
        check("mod c { use super::super::super::one; } use super::two;", &["one", "a::two"]);
        check(
            "mod c { fn f() { { super::one(); } } fn g() { super::two(); } }",
            &["a::b::one", "a::b::two"],
        );
        check("mod c; pub use c::One;", &["a::b::c::One"]);
    }

    #[test]
    fn what_only_tests_compile_is_left_out() {
        check("#[cfg(test)] use crate::{one, two}; use crate::three;", &["three"]);
        check("#[cfg(all(test, unix))]\nmod tests { use crate::one; } crate::two();", &["two"]);
        check(
            "#[cfg(all(unix, test))] pub(crate) use crate::one::Two; crate::three!()",
            &["three"],
        );
        check(
            "#[cfg(test)] #[allow(a)] fn f<A, B>(a: A, b: B) { crate::one(); } crate::two();",
            &["two"],
        );
        check("struct A { #[cfg(test)] pub a: crate::one::B, c: crate::two::D }", &["two::D"]);
        check(
            "struct A { c: crate::two::D, #[cfg(test)] a: crate::one::B } crate::E",
            &["two::D", "E"],
        );
        check("A { #[cfg(test)] a: B { c: crate::one(), }, d: crate::two() }", &["two"]);
        check("#[cfg(not(test))] use crate::one;", &["one"]);
        check("#[cfg(all(unix, not(test)))] use crate::one;", &["one"]);
        check("#[cfg(any(test, unix))] use crate::one;", &["one"]);
    }

    #[test]
    fn comments_and_literals_are_no_code() {
        check("// crate::one\n/* crate::two */ crate::three", &["three"]);
        check(r##"f("crate::one \" crate::two", r#"" crate::three"#); crate::four"##, &["four"]);
        check(r#"['"', '\'', b'"', '\\', '\u{22}']; crate::one("'"); crate::two"#, &["one", "two"]);
        check("fn f<'a>(a: &'a str, b: &'static crate::One) {}", &["One"]);
    }

    #[test]
    fn the_root_says_what_its_names_stand_for() {
        let root = "mod one; pub use crate::one::{Two, three::Four as Five}; pub use one::Six;
            #[cfg(feature = \"a\")] pub use self::one::Seven; pub use other::Eight;";
        let names = root_names(root);
        let path = |name: &str| names.get(name).map(|path| path.join("::"));
        assert_eq!(path("Two").as_deref(), Some("one::Two"));
        assert_eq!(path("Five").as_deref(), Some("one::three::Four"));
        assert_eq!(path("Six").as_deref(), Some("one::Six"));
        assert_eq!(path("Seven").as_deref(), Some("one::Seven"));
        assert_eq!((path("Four"), path("Eight")), (None, None));
    }

    #[test]
    fn a_file_is_a_module() {
        assert_eq!(module_of("one/two.rs"), ["one", "two"]);
        assert_eq!(module_of("one/mod.rs"), ["one"]);
        assert_eq!(module_of("lib.rs"), [""; 0]);
    }
}
