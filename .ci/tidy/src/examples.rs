//! Finds public items without an example in rustdoc's JSON.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::public_api::{FORMAT_VERSION, each, item, kind_of, text};

/// The kinds of items that need an example. Constants and aliases are too small to need one.
const KINDS: [&str; 5] = ["struct", "enum", "trait", "function", "macro"];

/// Returns the paths of the reachable items whose docs have no block of code. An item with several
/// paths has one line.
///
/// # Errors
///
/// Returns the version of the JSON if it is not the supported one.
pub fn missing(json: &Value) -> Result<Vec<String>, u64> {
    let version = json["format_version"].as_u64().unwrap_or(0);
    if version != FORMAT_VERSION {
        return Err(version);
    }
    let mut reader = Reader { index: &json["index"], seen: BTreeSet::new(), missing: Vec::new() };
    reader.module(item(reader.index, &json["root"]), "");
    reader.missing.sort();
    Ok(reader.missing)
}

struct Reader<'a> {
    index: &'a Value,
    /// The IDs of the visited items. Re-exports and preludes lead to the same items.
    seen: BTreeSet<String>,
    missing: Vec<String>,
}

impl<'a> Reader<'a> {
    fn module(&mut self, module: &'a Value, path: &str) {
        let items = each(&module["inner"]["module"]["items"]);
        let mut public: Vec<_> = items
            .map(|id| item(self.index, id))
            .filter(|found| found["visibility"] == "public")
            .collect();
        // Items come before modules, so that the shortest path of an item is reported.
        public.sort_by_key(|found| !found["inner"]["module"].is_null());
        for found in public {
            self.public(found, text(&found["name"]), path);
        }
    }

    fn public(&mut self, found: &'a Value, name: &str, path: &str) {
        let (kind, inner) = kind_of(found);
        if kind == "use" {
            let target = item(self.index, &inner["id"]);
            // Items of other crates are documented in those crates.
            if target["crate_id"] == 0 && target["inner"].is_object() {
                self.public(target, text(&inner["name"]), path);
            }
            return;
        }
        if !self.seen.insert(found["id"].to_string()) {
            return;
        }
        let full = if path.is_empty() { name.to_owned() } else { format!("{path}::{name}") };
        if kind == "module" {
            self.module(found, &full);
        } else if KINDS.contains(&kind) && !has_example(found["docs"].as_str().unwrap_or_default())
        {
            self.missing.push(full);
        }
    }
}

/// Returns whether the docs have code that the doc tests compile.
fn has_example(docs: &str) -> bool {
    let mut is_within = false;
    docs.lines().filter_map(|line| line.trim_start().strip_prefix("```")).any(|language| {
        is_within = !is_within;
        is_within && !language.starts_with("text")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reachable_items_without_code_are_reported_once() {
        let public = |id: u64, name: &str, docs: &str, inner: Value| {
            let (crate_id, visibility) = (0, "public");
            json!({
                "id": id,
                "crate_id": crate_id,
                "visibility": visibility,
                "name": name,
                "docs": docs,
                "inner": inner,
            })
        };
        let renamed = json!({ "id": 7, "name": "Renamed", "source": "hidden::Seventh" });
        let mut index = json!({
            "0": public(0, "krate", "", json!({ "module": { "items": [1, 2, 3, 4, 5] } })),
            "1": public(1, "Bare", "A thing.", json!({ "struct": {} })),
            "2": public(2, "Shown", "A thing.\n\n```\nlet a = 1;\n```", json!({ "enum": {} })),
            "3": public(3, "inner", "", json!({ "module": { "items": [1, 6] } })),
            "4": public(4, "", "", json!({ "use": renamed })),
            "5": public(5, "Private", "", json!({ "struct": {} })),
            "6": public(6, "LIMIT", "A constant.", json!({ "constant": {} })),
            "7": public(7, "Seventh", "", json!({ "trait": {} })),
        });
        index["5"]["visibility"] = json!("crate");
        let json = json!({ "format_version": FORMAT_VERSION, "root": 0, "index": index });
        assert_eq!(missing(&json), Ok(vec!["Bare".to_owned(), "Renamed".to_owned()]));
        assert_eq!(missing(&json!({ "format_version": 1 })), Err(1));
    }

    #[test]
    fn only_code_is_an_example() {
        assert!(has_example("A thing.\n\n```\nlet a = 1;\n```"));
        assert!(has_example("```text\na table\n```\n\n```no_run\nrun();\n```"));
        assert!(!has_example("A thing."));
        assert!(!has_example("```text\na table\n```\n\n```text\nanother\n```"));
    }
}
