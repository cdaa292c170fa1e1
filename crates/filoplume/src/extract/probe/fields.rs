//! Checks when the app starts whether a type can be read from the fields of a query or a form.
//!
//! Fields are names with values, so for example a single number or text can never be read from
//! them. The type is deserialized from a probe without values, as in [`captures`](super::captures),
//! and the verdict counts only if it is the final result.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, SeqAccess, Visitor};

use crate::core::names::type_name_of;
use crate::extract::value_methods::for_each_value_method;

/// Returns the reason if a type cannot be read from any fields. `extractor` is the name of the
/// extractor, such as `Query`.
pub(in crate::extract) fn fields_mismatch<T: DeserializeOwned>(extractor: &str) -> Option<String> {
    // The type's code runs outside of a request here, so panics are ignored.
    let result = catch_unwind(AssertUnwindSafe(|| T::deserialize(FieldsProbe::Fields)));
    let Ok(Err(Verdict::Mismatch(what))) = result else { return None };
    let name = type_name_of::<T>();
    Some(format!(
        "it takes `{extractor}<{name}>`, which reads {what}, but queries and forms have named \
         values: use a struct with `#[derive(Deserialize)]` and a field for each name"
    ))
}

/// The result of the deserialization.
#[derive(Debug)]
enum Verdict {
    /// The type cannot be read from any fields.
    Mismatch(&'static str),
    /// It depends on the fields.
    Unknown,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mismatch(what) => what,
            Self::Unknown => "it depends on the fields",
        })
    }
}

impl std::error::Error for Verdict {}

impl de::Error for Verdict {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::Unknown
    }
}

/// Stands in for the deserializer of fields at start-up, when there are no values.
#[derive(Clone, Copy)]
enum FieldsProbe {
    /// All fields.
    Fields,
    /// One field, which is an element of a list: a pair of name and value.
    Field,
}

macro_rules! one_value {
    ($($method:ident)*) => {
        $(
            fn $method<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Verdict> {
                Err(Verdict::Mismatch(match self {
                    Self::Fields => "one value",
                    Self::Field => "a list of values",
                }))
            }
        )*
    };
}

impl<'de> Deserializer<'de> for FieldsProbe {
    type Error = Verdict;

    for_each_value_method! { one_value }

    // Other types may be readable.
    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Verdict> {
        Err(Verdict::Unknown)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Verdict> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Verdict> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Verdict> {
        match self {
            Self::Fields => visitor.visit_seq(FieldList),
            Self::Field => Err(Verdict::Unknown),
        }
    }

    serde::forward_to_deserialize_any! {
        bytes byte_buf unit unit_struct tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// The fields as a list of pairs.
struct FieldList;

impl<'de> SeqAccess<'de> for FieldList {
    type Error = Verdict;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Verdict> {
        seed.deserialize(FieldsProbe::Field).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use expect_test::expect;
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its `Deserialize` is used")]
    struct Page {
        page: u32,
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its `Deserialize` is used")]
    struct Id(u32);

    #[test]
    fn a_type_for_one_value_is_a_mismatch() {
        expect![
            "it takes `Query<u32>`, which reads one value, but queries and forms have named \
             values: use a struct with `#[derive(Deserialize)]` and a field for each name"
        ]
        .assert_eq(&fields_mismatch::<u32>("Query").unwrap());
        expect![
            "it takes `Form<Vec<String>>`, which reads a list of values, but queries and forms \
             have named values: use a struct with `#[derive(Deserialize)]` and a field for each \
             name"
        ]
        .assert_eq(&fields_mismatch::<Vec<String>>("Form").unwrap());
        assert!(fields_mismatch::<Id>("Query").is_some());
        assert!(fields_mismatch::<Option<String>>("Query").is_some());
    }

    #[test]
    fn types_with_names_are_accepted() {
        assert_eq!(fields_mismatch::<Page>("Query"), None);
        assert_eq!(fields_mismatch::<Option<Page>>("Query"), None);
        assert_eq!(fields_mismatch::<HashMap<String, String>>("Query"), None);
        assert_eq!(fields_mismatch::<Vec<(String, String)>>("Query"), None);
        assert_eq!(fields_mismatch::<serde_json::Value>("Query"), None);
        assert_eq!(fields_mismatch::<()>("Query"), None);
    }
}
