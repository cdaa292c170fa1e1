//! Whether a type can be read from the fields of a query or a form, found out when the app starts.
//!
//! A type says by its `Deserialize` what it reads. A number or a text cannot be read from names and
//! values, whatever these are. As with the [types of paths](super::path), the verdict counts only
//! if it is what the whole deserialization ends with.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, SeqAccess, Visitor};

use crate::core::names::type_name_of;

/// Says why a type can be read from no fields, if that is so. `extractor` is what takes it:
/// `Query`.
pub(super) fn mismatch<T: DeserializeOwned>(extractor: &str) -> Option<String> {
    // It is code of the user, and this is no request.
    let result = catch_unwind(AssertUnwindSafe(|| T::deserialize(Probe::Fields)));
    let Ok(Err(Verdict::Mismatch(what))) = result else { return None };
    let name = type_name_of::<T>();
    Some(format!(
        "it takes `{extractor}<{name}>`, {what}, and what comes there is names with values: take \
         a struct with `#[derive(Deserialize)]` and a field for each name"
    ))
}

/// What the deserialization ends with.
#[derive(Debug)]
enum Verdict {
    /// It cannot be read from any fields.
    Mismatch(&'static str),
    /// Whether it can depends on the fields.
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

/// What a type is read from, without its content.
#[derive(Clone, Copy)]
enum Probe {
    /// All fields.
    Fields,
    /// One of them, for a list: a pair of name and value.
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

impl<'de> Deserializer<'de> for Probe {
    type Error = Verdict;

    one_value! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32
        deserialize_f64 deserialize_char deserialize_str deserialize_string
    }

    // What else is asked for may be possible.
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
            Self::Fields => visitor.visit_seq(List),
            Self::Field => Err(Verdict::Unknown),
        }
    }

    serde::forward_to_deserialize_any! {
        bytes byte_buf unit unit_struct tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// The fields as a list.
struct List;

impl<'de> SeqAccess<'de> for List {
    type Error = Verdict;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Verdict> {
        seed.deserialize(Probe::Field).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use expect_test::expect;
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only what it asks for matters")]
    struct Page {
        page: u32,
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only what it asks for matters")]
    struct Id(u32);

    #[test]
    fn a_value_is_not_read_from_fields() {
        expect![
            "it takes `Query<u32>`, one value, and what comes there is names with values: take a \
             struct with `#[derive(Deserialize)]` and a field for each name"
        ]
        .assert_eq(&mismatch::<u32>("Query").unwrap());
        expect![
            "it takes `Form<Vec<String>>`, a list of values, and what comes there is names with \
             values: take a struct with `#[derive(Deserialize)]` and a field for each name"
        ]
        .assert_eq(&mismatch::<Vec<String>>("Form").unwrap());
        assert!(mismatch::<Id>("Query").is_some());
        assert!(mismatch::<Option<String>>("Query").is_some());
    }

    #[test]
    fn what_has_names_is_read_from_fields() {
        assert_eq!(mismatch::<Page>("Query"), None);
        assert_eq!(mismatch::<Option<Page>>("Query"), None);
        assert_eq!(mismatch::<HashMap<String, String>>("Query"), None);
        assert_eq!(mismatch::<Vec<(String, String)>>("Query"), None);
        assert_eq!(mismatch::<serde_json::Value>("Query"), None);
        assert_eq!(mismatch::<()>("Query"), None);
    }
}
