//! The documents: links, names and tables that must agree with the source.

use std::collections::{BTreeSet, HashSet};
use std::fs;

use crate::source::{File, documents, is_word, mentions, none, read, root, rust_files};

#[test]
fn every_example_is_named_in_the_guide() {
    let guide: String = documents().into_iter().map(|document| document.text).collect();
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.join("src/main.rs").exists() && !mentions(&guide, &name) {
            found.push(format!("no document names the example `{name}`"));
        }
    }
    none(&found);
}

#[test]
fn every_setting_is_in_the_guide() {
    let guide = read("docs/guide/configuration.md");
    let setters = |path| {
        let text = read(path);
        let names = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("pub fn ")?.split_once("(mut self"));
        names.map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
    };
    let fields = |path| {
        let text = read(path);
        let names = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("pub ")?.split_once(": usize,"));
        names.map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
    };
    let settings =
        [setters("crates/runtime/src/config.rs"), fields("crates/http1/src/limits.rs")].concat();
    assert!(settings.len() > 20, "the settings are no longer found: {settings:?}");
    let missing: Vec<_> =
        settings.iter().filter(|name| !guide.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "not in docs/guide/configuration.md: {missing:?}");
}

/// The reasons are the values of a label, and operators write alerts for them.
#[test]
fn every_reason_of_a_refusal_is_in_the_guide() {
    let guide = read("docs/guide/observing.md");
    let texts = |path: &str, begin: &str, end: &str| -> Vec<String> {
        let text = read(path);
        let texts = text.lines().filter_map(|line| line.split_once(begin)?.1.strip_suffix(end));
        texts.map(str::to_owned).collect()
    };
    let of_requests = texts("crates/http1/src/error.rs", " => \"", "\",");
    let others = texts("crates/runtime/src/budget/refusal.rs", "f.write_str(\"", "\"),");
    assert!(of_requests.len() > 20 && others.len() > 10, "the reasons are no longer found");
    let reasons = of_requests.iter().chain(&others);
    let missing: Vec<_> = reasons.filter(|text| !guide.contains(&format!("`{text}`"))).collect();
    assert!(missing.is_empty(), "not in docs/guide/observing.md: {missing:?}");
}

/// The compiler's advice and the guide list the extractors that can be in an `Option`.
#[test]
fn the_guide_lists_the_optional_extractors() {
    let source = rust_files("crates/filoplume/src");
    let implemented: BTreeSet<String> = source
        .iter()
        .flat_map(|file| file.text.lines())
        .filter(|line| line.starts_with("impl"))
        .filter_map(|line| line.split_once("ExtractOptional for ")?.1.split_once(" {"))
        .map(|(name, _)| name.to_owned())
        .collect();
    let listed = |text: &str, start: &str| {
        let sentence =
            text.split_once(start).and_then(|(_, rest)| rest.split(['.', ';', '"']).next());
        let names = sentence.unwrap_or_default().split('`').skip(1).step_by(2);
        names.filter(|name| *name != "Option").map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let optional = read("crates/filoplume/src/core/optional.rs");
    let guide = read("docs/guide/handlers.md");
    assert!(implemented.len() > 5, "the implementations are no longer found: {implemented:?}");
    assert_eq!(listed(&optional, "`Option` works with"), implemented, "the compiler's advice");
    assert_eq!(listed(&guide, "It is possible for"), implemented, "docs/guide/handlers.md");
}

/// The first table says what holds, the second what longer runs have found.
#[test]
fn every_fuzz_target_is_in_both_tables() {
    let page = read("docs/testing.md");
    let rows = |header: &str| {
        let table = page.split_once(header).map(|(_, rest)| rest).unwrap_or_default();
        table.split("\n\n").next().unwrap_or_default().to_owned()
    };
    let tables = [rows("| target | what holds |"), rows("| target | executions | found |")];
    let folders = fs::read_dir(root().join("crates")).unwrap().map(|entry| {
        let name = entry.unwrap().file_name();
        format!("crates/{}/fuzz/fuzz_targets", name.to_str().unwrap())
    });
    let targets: Vec<File> = folders
        .filter(|path| root().join(path).is_dir())
        .flat_map(|path| rust_files(&path))
        .collect();
    assert!(targets.len() > 10, "only {} fuzz targets are found", targets.len());
    let mut found = Vec::new();
    for File { path, .. } in targets {
        let name = path.rsplit('/').next().unwrap().trim_end_matches(".rs");
        if !tables.iter().all(|table| table.contains(&format!("\n| `{name}`"))) {
            found.push(format!("{path} is not in both tables of docs/testing.md"));
        }
    }
    none(&found);
}

/// The lists of features name all of them, and none that does not exist.
#[test]
fn the_lists_of_features_are_complete() {
    let manifest = read("crates/filoplume/Cargo.toml");
    let section = manifest.split_once("\n[features]\n").unwrap().1.split_once("\n[").unwrap().0;
    let features: BTreeSet<&str> = section
        .lines()
        .filter(|line| line.starts_with(char::is_alphabetic))
        .filter_map(|line| Some(line.split_once(" = ")?.0))
        .filter(|name| *name != "default")
        .collect();
    assert!(features.len() > 20, "the features are no longer found: {features:?}");
    let paragraph = |text: &str, start: &str| {
        let rest = text.split_once(start).map(|(_, rest)| rest).unwrap_or_default();
        rest.split("\n\n").next().unwrap_or_default().to_owned()
    };
    // The names of features are in the first column.
    let table = |text: &str| {
        let rest = text.split_once("| feature |").map(|(_, rest)| rest).unwrap_or_default();
        let rows = rest.split("\n\n").next().unwrap_or_default().lines();
        rows.filter_map(|row| row.strip_prefix("| ")?.split(" | ").next()).collect::<String>()
    };
    let lists = [
        ("README.md", paragraph(&read("README.md"), "An app builds only what it uses.")),
        (
            "crates/filoplume/src/lib.rs",
            paragraph(&read("crates/filoplume/src/lib.rs"), "# Features"),
        ),
        ("crates/filoplume/README.md", table(&read("crates/filoplume/README.md"))),
        ("docs/guide/getting-started.md", table(&read("docs/guide/getting-started.md"))),
    ];
    let mut found = Vec::new();
    for (path, list) in lists {
        let named: BTreeSet<&str> = list.split('`').skip(1).step_by(2).collect();
        for feature in features.difference(&named) {
            found.push(format!("{path} does not list the feature `{feature}`"));
        }
        for name in named.difference(&features) {
            found.push(format!("{path} lists `{name}`, which is no feature"));
        }
    }
    none(&found);
}

/// The guide lists the methods of `Plan`.
#[test]
fn the_guide_names_methods_of_plans() {
    let source = read("crates/runtime/src/service/plan.rs");
    let guide = read("docs/guide/execution.md");
    let items = guide.lines().filter_map(|line| line.strip_prefix("- `")?.split_once('`'));
    let names: Vec<&str> = items.map(|(name, _)| name).collect();
    assert!(names.len() >= 5, "the list is no longer found: {names:?}");
    let missing: Vec<_> =
        names.iter().filter(|name| !source.contains(&format!("pub fn {name}("))).collect();
    assert!(missing.is_empty(), "docs/guide/execution.md: there is no `Plan::{missing:?}`");
}

/// `Type::function` must be a function in a file that mentions the type, and `Enum::Variant` must
/// be two words of one file.
#[test]
fn the_map_names_existing_functions() {
    let source = rust_files("crates");
    let map = read("docs/ARCHITECTURE.md");
    let exists = |name: &str| match name.rsplit_once("::") {
        None => source.iter().any(|file| mentions(&file.text, name)),
        Some((of, last)) => {
            let is_function = last.starts_with(char::is_lowercase);
            let last = if is_function { format!("fn {last}") } else { last.to_owned() };
            let has_both = |file: &File| mentions(&file.text, of) && mentions(&file.text, &last);
            source.iter().any(has_both)
                || (of.is_empty() && source.iter().any(|file| mentions(&file.text, &last)))
        }
    };
    let is_rust = |span: &&str| {
        (span.contains("::") || span.contains('_')) && span.chars().all(|c| is_word(c) || c == ':')
    };
    let names: HashSet<_> = map.split('`').skip(1).step_by(2).filter(is_rust).collect();
    assert!(names.len() > 40, "the names are no longer found: {names:?}");
    let missing: Vec<_> = names.into_iter().filter(|name| !exists(name)).collect();
    assert!(
        missing.is_empty(),
        "docs/ARCHITECTURE.md names what is not in the source: {missing:?}"
    );
}

#[test]
fn links_have_targets() {
    let mut found = Vec::new();
    for document in documents() {
        let folder = root().join(&document.path);
        let folder = folder.parent().unwrap();
        let links = document
            .text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split_once(')'))
            .map(|(link, _)| link);
        for link in links.filter(|link| !link.contains("://") && !link.starts_with('#')) {
            let path = link.split('#').next().unwrap_or_default();
            if !folder.join(path).exists() {
                found.push(format!("{} links to {link}, which does not exist", document.path));
            }
        }
    }
    none(&found);
}

/// A README is in the package of its crate, which has no other documents.
#[test]
fn links_of_a_package_do_not_leave_it() {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let path = format!("crates/{}/README.md", entry.unwrap().file_name().to_str().unwrap());
        for link in read(&path).split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.starts_with("..") {
                found.push(format!("{path} links to {link}, which is not in the package"));
            }
        }
    }
    none(&found);
}

/// A row of the table has a link to a file and the name of a test in it.
#[test]
fn every_promise_names_its_test() {
    let promises = read("SECURITY.md");
    let rows: Vec<&str> =
        promises.lines().filter(|line| line.starts_with("| ") && line.contains(".rs)")).collect();
    assert!(rows.len() > 20, "the table is no longer found");
    let has_test = |row: &str| {
        let (path, rest) = row.split_once("](")?.1.split_once(')')?;
        let test = rest.split('`').nth(1)?;
        read(path).contains(&format!("fn {test}(")).then_some(())
    };
    let found: Vec<String> = rows
        .into_iter()
        .filter(|row| has_test(row).is_none())
        .map(|row| format!("SECURITY.md: there is no such test: {row}"))
        .collect();
    none(&found);
}

#[test]
fn no_conflict_is_left_in_a_document() {
    let is_marker = |line: &str| line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ");
    let mut found = Vec::new();
    for document in documents() {
        if document.text.lines().any(is_marker) {
            found.push(format!("{} has both sides of a conflict", document.path));
        }
    }
    none(&found);
}

#[test]
fn the_changelog_has_room_for_the_next_change() {
    assert!(read("CHANGELOG.md").contains("\n## [Unreleased]\n"));
}
