//! The public surface of a crate as text, one line per item, read from rustdoc's JSON.
//!
//! Supports only the parts of the format that our crates need. Unknown parts are written as `?`.

use serde_json::Value;

/// The supported version of the JSON. It changes with the nightly.
pub const FORMAT_VERSION: u64 = 57;

/// Returns the sorted lines.
///
/// # Errors
///
/// Returns the version of the JSON if it is not the supported one.
pub fn lines(json: &Value) -> Result<Vec<String>, u64> {
    let version = json["format_version"].as_u64().unwrap_or(0);
    if version != FORMAT_VERSION {
        return Err(version);
    }
    let mut reader = Reader { index: &json["index"], lines: Vec::new() };
    reader.module(&item(reader.index, &json["root"])["inner"]["module"]["items"], "");
    reader.lines.sort();
    reader.lines.dedup();
    Ok(reader.lines)
}

struct Reader<'a> {
    index: &'a Value,
    lines: Vec<String>,
}

impl<'a> Reader<'a> {
    fn module(&mut self, items: &'a Value, path: &str) {
        for id in each(items) {
            let found = item(self.index, id);
            if found["visibility"] == "public" {
                self.public(found, text(&found["name"]), path);
            }
        }
    }

    fn public(&mut self, found: &'a Value, name: &str, path: &str) {
        let (kind, inner) = kind_of(found);
        let full = if path.is_empty() { name.to_owned() } else { format!("{path}::{name}") };
        match kind {
            "use" => {
                let target = item(self.index, &inner["id"]);
                if target["crate_id"] == 0 && target["inner"].is_object() {
                    self.public(target, text(&inner["name"]), path);
                } else {
                    self.lines.push(format!("use {}", text(&inner["source"])));
                }
            }
            "module" => {
                self.lines.push(format!("mod {full}"));
                self.module(&inner["items"], &full);
            }
            "function" => self.lines.push(function(inner, &full)),
            "constant" => self.lines.push(format!("const {full}: {}", typ(&inner["type"]))),
            "type_alias" => {
                let (parameters, _) = generics(&inner["generics"]);
                self.lines.push(format!("type {full}{parameters} = {}", typ(&inner["type"])));
            }
            "struct" | "enum" => self.data(kind, found, inner, &full),
            "trait" => {
                let bounds = bounds(&inner["bounds"]);
                self.lines.push(format!("trait {full}: {bounds}"));
                self.members(&inner["items"], &full, true);
            }
            _ => self.lines.push(format!("? {kind} {full}")),
        }
    }

    fn data(&mut self, kind: &str, data: &'a Value, inner: &'a Value, full: &str) {
        let index = self.index;
        let (parameters, _) = generics(&inner["generics"]);
        let is_open =
            each(&data["attrs"]).any(|attribute| attribute.to_string().contains("non_exhaustive"));
        let open = if is_open { "#[non_exhaustive] " } else { "" };
        self.lines.push(format!("{open}{kind} {full}{parameters}"));
        let fields = each(&inner["kind"]["plain"]["fields"]).chain(each(&inner["kind"]["tuple"]));
        for field in
            fields.map(|id| item(index, id)).filter(|field| field["visibility"] == "public")
        {
            self.lines.push(format!(
                "field {full}.{}: {}",
                text(&field["name"]),
                typ(&field["inner"]["struct_field"])
            ));
        }
        for variant in each(&inner["variants"]).map(|id| item(index, id)) {
            let kind = &variant["inner"]["variant"]["kind"];
            let field = |id| typ(&item(index, id)["inner"]["struct_field"]);
            let named = |id| format!("{}: {}", text(&item(index, id)["name"]), field(id));
            let content = match (&kind["tuple"], &kind["struct"]["fields"]) {
                (Value::Array(ids), _) => format!("({})", join(ids.iter().map(field), ", ")),
                (_, Value::Array(ids)) => format!(" {{ {} }}", join(ids.iter().map(named), ", ")),
                _ => String::new(),
            };
            self.lines.push(format!("variant {full}::{}{content}", text(&variant["name"])));
        }
        for id in each(&inner["impls"]) {
            self.implementation(&item(index, id)["inner"]["impl"], full);
        }
    }

    fn implementation(&mut self, implementation: &'a Value, full: &str) {
        let is_written =
            implementation["is_synthetic"] == false && implementation["blanket_impl"].is_null();
        if !is_written {
            return;
        }
        if implementation["trait"].is_null() {
            return self.members(&implementation["items"], full, false);
        }
        let (parameters, conditions) = generics(&implementation["generics"]);
        let name = path(&implementation["trait"]);
        // The compiler derives this trait together with `PartialEq`.
        if name != "StructuralPartialEq" {
            let of = typ(&implementation["for"]);
            self.lines.push(format!("impl{parameters} {name} for {of}{conditions}"));
        }
    }

    fn members(&mut self, items: &'a Value, full: &str, of_trait: bool) {
        let index = self.index;
        for member in each(items).map(|id| item(index, id)) {
            if !of_trait && member["visibility"] != "public" {
                continue;
            }
            let (kind, inner) = kind_of(member);
            let name = format!("{full}::{}", text(&member["name"]));
            self.lines.push(match kind {
                "function" if of_trait && inner["has_body"] == true => {
                    function(inner, &name) + " {}"
                }
                "function" => function(inner, &name),
                "assoc_const" => format!("const {name}: {}", typ(&inner["type"])),
                _ => format!("? {kind} {name}"),
            });
        }
    }
}

fn function(inner: &Value, name: &str) -> String {
    let (parameters, conditions) = generics(&inner["generics"]);
    let signature = &inner["sig"];
    let input = |input: &Value| match (text(&input[0]), typ(&input[1])) {
        ("self", of) if of == "Self" => "self".to_owned(),
        ("self", of) if of.starts_with('&') => of.replace("Self", "self"),
        (name, of) => format!("{name}: {of}"),
    };
    let inputs = join(each(&signature["inputs"]).map(input), ", ");
    let output = match &signature["output"] {
        Value::Null => String::new(),
        output => format!(" -> {}", typ(output)),
    };
    let constant = if inner["header"]["is_const"] == true { "const " } else { "" };
    format!("{constant}fn {name}{parameters}({inputs}){output}{conditions}")
}

fn typ(of: &Value) -> String {
    let Some((kind, inner)) = of.as_object().and_then(|object| object.iter().next()) else {
        return "?".to_owned();
    };
    let mutable = if inner["is_mutable"] == true { "mut " } else { "" };
    match kind.as_str() {
        "primitive" | "generic" => text(inner).to_owned(),
        "resolved_path" => path(inner),
        "slice" => format!("[{}]", typ(inner)),
        "array" => format!("[{}; {}]", typ(&inner["type"]), text(&inner["len"])),
        "tuple" => format!("({})", join(each(inner).map(typ), ", ")),
        "borrowed_ref" => {
            let lifetime =
                inner["lifetime"].as_str().map_or(String::new(), |lifetime| format!("{lifetime} "));
            format!("&{lifetime}{mutable}{}", typ(&inner["type"]))
        }
        "impl_trait" => format!("impl {}", bounds(inner)),
        "dyn_trait" => {
            let traits = each(&inner["traits"]).map(|bound| path(&bound["trait"]));
            let lifetime = inner["lifetime"].as_str().map(str::to_owned);
            format!("dyn {}", join(traits.chain(lifetime), " + "))
        }
        "qualified_path" => format!("{}::{}", typ(&inner["self_type"]), text(&inner["name"])),
        _ => format!("? {kind}"),
    }
}

/// Returns the last segment of a path, with its arguments. The module of a type is not a part of
/// the surface.
fn path(of: &Value) -> String {
    let name = text(&of["path"]).rsplit("::").next().unwrap_or_default();
    if let Value::Object(call) = &of["args"]["parenthesized"] {
        let output = if call["output"].is_null() {
            String::new()
        } else {
            format!(" -> {}", typ(&call["output"]))
        };
        return format!("{name}({}){output}", join(each(&call["inputs"]).map(typ), ", "));
    }
    let inner = &of["args"]["angle_bracketed"];
    let argument = |argument: &Value| match &argument["lifetime"] {
        Value::String(lifetime) => lifetime.clone(),
        _ => typ(&argument["type"]),
    };
    let bound = |constraint: &Value| {
        format!(
            "{} = {}",
            text(&constraint["name"]),
            typ(&constraint["binding"]["equality"]["type"])
        )
    };
    let arguments = join(
        each(&inner["args"]).map(argument).chain(each(&inner["constraints"]).map(bound)),
        ", ",
    );
    if arguments.is_empty() { name.to_owned() } else { format!("{name}<{arguments}>") }
}

fn bounds(of: &Value) -> String {
    let captured = |captured: &Value| text(&captured["lifetime"]).to_owned();
    let bound = |bound: &Value| match (&bound["outlives"], &bound["use"]) {
        (Value::String(lifetime), _) => lifetime.clone(),
        (_, Value::Array(_)) => format!("use<{}>", join(each(&bound["use"]).map(captured), ", ")),
        _ => path(&bound["trait_bound"]["trait"]),
    };
    join(each(of).map(bound), " + ")
}

/// Returns the parameters in angle brackets, and the conditions after `where`.
fn generics(of: &Value) -> (String, String) {
    let is_written = |parameter: &&Value| parameter["kind"]["type"]["is_synthetic"] != true;
    let parameter = |parameter: &Value| {
        let bounds = bounds(&parameter["kind"]["type"]["bounds"]);
        let colon = if bounds.is_empty() { "" } else { ": " };
        format!("{}{colon}{bounds}", text(&parameter["name"]))
    };
    let parameters = join(each(&of["params"]).filter(is_written).map(parameter), ", ");
    let condition = |condition: &Value| {
        let bound = &condition["bound_predicate"];
        format!("{}: {}", typ(&bound["type"]), bounds(&bound["bounds"]))
    };
    let conditions = join(each(&of["where_predicates"]).map(condition), ", ");
    let parameters = if parameters.is_empty() { parameters } else { format!("<{parameters}>") };
    let conditions =
        if conditions.is_empty() { conditions } else { format!(" where {conditions}") };
    (parameters, conditions)
}

pub(crate) fn kind_of(item: &Value) -> (&str, &Value) {
    let inner = item["inner"].as_object().and_then(|object| object.iter().next());
    inner.map_or(("?", &Value::Null), |(kind, inner)| (kind.as_str(), inner))
}

pub(crate) fn each(array: &Value) -> impl Iterator<Item = &Value> {
    array.as_array().into_iter().flatten()
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

pub(crate) fn item<'a>(index: &'a Value, id: &Value) -> &'a Value {
    &index[id.to_string()]
}

fn join(parts: impl Iterator<Item = String>, separator: &str) -> String {
    parts.collect::<Vec<_>>().join(separator)
}
