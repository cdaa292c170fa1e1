//! Checks when the app starts whether a type can be read from the fields of a query or a form.
//!
//! Fields are names with values, so for example a single number or text can never be read from
//! them. The type is deserialized from a probe without values, as in [`captures`](super::captures),
//! and the verdict counts only if it is the final result.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess,
    Visitor,
};

use super::captures::requires;
use crate::core::names::type_name_of;
use crate::extract::value_methods::for_each_value_method;

/// Returns the reason if a type cannot be read from any fields. `extractor` is the name of the
/// extractor, such as `Query`.
pub(in crate::extract) fn fields_mismatch<T: DeserializeOwned>(extractor: &str) -> Option<String> {
    let name = type_name_of::<T>();
    let (next, all) = (Cell::new(0), Cell::new(&[][..]));
    loop {
        let (at, tried) = (Place::Fields, next.get());
        // The type's code runs outside of a request here, so panics are ignored.
        let attempt = || T::deserialize(FieldsProbe { at, next: &next, all: &all });
        match catch_unwind(AssertUnwindSafe(attempt)) {
            Ok(Err(Verdict::Mismatch(what))) => {
                return Some(format!(
                    "it takes `{extractor}<{name}>`, which reads {what}, but queries and forms \
                     have named values: use a struct with `#[derive(Deserialize)]` and a field \
                     for each name"
                ));
            }
            // A field that may be left out is no mistake: the same type may also be read from JSON.
            Ok(Err(Verdict::Several { field, what })) if requires::<T>(all.get(), field) => {
                return Some(format!(
                    "it takes `{extractor}<{name}>`, whose field `{field}` is {what}, but a field \
                     of a query or a form is one value, or a list of values: give `{name}` the \
                     fields themselves, or take several parameters"
                ));
            }
            // The next attempt is about the next field of a struct.
            _ if next.get() == tried => return None,
            _ => {}
        }
    }
}

/// The result of the deserialization.
#[derive(Debug)]
enum Verdict {
    /// The type cannot be read from any fields.
    Mismatch(&'static str),
    /// A field of the type cannot be read.
    Several { field: &'static str, what: &'static str },
    /// A value cannot be read from a text.
    RefusesText,
    /// It depends on the fields.
    Unknown,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mismatch(what) | Self::Several { what, .. } => what,
            Self::RefusesText | Self::Unknown => "it depends on the fields",
        })
    }
}

impl std::error::Error for Verdict {}

impl de::Error for Verdict {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::Unknown
    }

    fn invalid_type(unexpected: de::Unexpected<'_>, _: &dyn de::Expected) -> Self {
        if let de::Unexpected::Str(_) = unexpected { Self::RefusesText } else { Self::Unknown }
    }
}

/// Stands in for the deserializer of fields at start-up, when there are no values.
#[derive(Clone, Copy)]
struct FieldsProbe<'a> {
    at: Place,
    /// The index of the field of a struct that the next attempt is about.
    next: &'a Cell<usize>,
    /// The fields of the struct.
    all: &'a Cell<&'static [&'static str]>,
}

#[derive(Clone, Copy)]
enum Place {
    /// All fields.
    Fields,
    /// One field, which is an element of a list: a pair of name and value.
    Pair,
    /// The value of the field of this name.
    Value(&'static str),
}

impl FieldsProbe<'_> {
    /// The verdict on a type that has one value.
    fn one<T>(self, what: &'static str) -> Result<T, Verdict> {
        Err(match self.at {
            Place::Fields => Verdict::Mismatch(what),
            Place::Pair => Verdict::Mismatch("a list of values"),
            Place::Value(_) => Verdict::Unknown,
        })
    }

    /// The verdict on a type that asks for several values. A field gets a text all the same, as
    /// from the real deserializer: dates, for example, ask for a tuple and read a text.
    fn several<'de, V: Visitor<'de>>(
        self,
        visitor: V,
        what: &'static str,
    ) -> Result<V::Value, Verdict> {
        match self.at {
            Place::Fields => Err(Verdict::Mismatch(what)),
            Place::Pair => Err(Verdict::Unknown),
            Place::Value(field) => match visitor.visit_str("1") {
                Err(Verdict::RefusesText) => Err(Verdict::Several { field, what }),
                _ => Err(Verdict::Unknown),
            },
        }
    }
}

macro_rules! one_value {
    ($($method:ident)*) => {
        $(
            fn $method<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Verdict> {
                self.one("one value")
            }
        )*
    };
}

impl<'de> Deserializer<'de> for FieldsProbe<'_> {
    type Error = Verdict;

    for_each_value_method! { one_value }

    // A type that asks for anything else may be readable.
    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Verdict> {
        Err(Verdict::Unknown)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Verdict> {
        match self.at {
            Place::Fields | Place::Pair => visitor.visit_some(self),
            // It may be missing in every request, if the type is also read from JSON.
            Place::Value(_) => Err(Verdict::Unknown),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Verdict> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Verdict> {
        match self.at {
            Place::Fields => visitor.visit_seq(OneElement(Self { at: Place::Pair, ..self })),
            Place::Value(_) => visitor.visit_seq(OneElement(self)),
            Place::Pair => Err(Verdict::Unknown),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Verdict> {
        self.several(visitor, "a tuple")
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Verdict> {
        self.several(visitor, "a tuple")
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Verdict> {
        self.one("one of several variants")
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Verdict> {
        match self.at {
            Place::Value(_) => self.several(visitor, "a map"),
            // Also a struct with `#[serde(flatten)]`.
            Place::Fields | Place::Pair => Err(Verdict::Unknown),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Verdict> {
        match self.at {
            Place::Value(_) => self.several(visitor, "a struct"),
            Place::Pair => Err(Verdict::Unknown),
            Place::Fields => {
                let index = self.next.get();
                self.all.set(fields);
                let Some(field) = fields.get(index) else { return Err(Verdict::Unknown) };
                self.next.set(index + 1);
                visitor.visit_map(OneField(Self { at: Place::Value(field), ..self }, field))
            }
        }
    }

    serde::forward_to_deserialize_any! {
        bytes byte_buf unit unit_struct identifier ignored_any
    }
}

/// A list with one element. The attempt ends with it.
struct OneElement<'a>(FieldsProbe<'a>);

impl<'de> SeqAccess<'de> for OneElement<'_> {
    type Error = Verdict;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Verdict> {
        seed.deserialize(self.0).map(Some)
    }
}

/// A struct that has only one of its fields.
struct OneField<'a>(FieldsProbe<'a>, &'static str);

impl<'de> MapAccess<'de> for OneField<'_> {
    type Error = Verdict;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Verdict> {
        let name: StrDeserializer<'_, Verdict> = self.1.into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Verdict> {
        seed.deserialize(self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use expect_test::expect;
    use serde::Deserialize;

    use super::*;

    #[derive(Default, Deserialize)]
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
        assert_eq!(fields_mismatch::<Search>("Query"), None);
    }

    #[derive(Deserialize)]
    enum Kind {
        Bug,
        Idea,
    }

    /// A type with everything that a query may have.
    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its `Deserialize` is used")]
    struct Search {
        q: String,
        kind: Kind,
        id: Id,
        page: Option<u32>,
        tags: Vec<String>,
        kinds: Vec<Kind>,
        since: std::net::IpAddr,
        #[serde(deserialize_with = "in_cents")]
        price: (u64, u64),
        maybe: Option<Page>,
        any: serde_json::Value,
        day: Day,
        days: Vec<Day>,
        #[serde(default)]
        nested: Page,
        #[serde(default)]
        map: HashMap<String, String>,
    }

    /// A date as some libraries read it: a tuple from binary formats, and a text from others.
    struct Day;

    impl<'de> Deserialize<'de> for Day {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct OfTuple;
            impl Visitor<'_> for OfTuple {
                type Value = Day;
                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("a date")
                }
                fn visit_str<E: de::Error>(self, text: &str) -> Result<Day, E> {
                    if text.len() == 10 { Ok(Day) } else { Err(E::custom("no date")) }
                }
            }
            deserializer.deserialize_tuple(2, OfTuple)
        }
    }

    fn in_cents<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(u64, u64), D::Error> {
        String::deserialize(deserializer).map(|text| (text.len() as u64, 0))
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its `Deserialize` is used")]
    struct Two<A, B> {
        first: A,
        second: B,
    }

    #[test]
    fn a_type_for_something_else_than_named_values_is_a_mismatch() {
        let reads = |reason: Option<String>, expected: &str| {
            assert!(reason.as_ref().unwrap().contains(expected), "{reason:?}");
        };
        reads(fields_mismatch::<(u32, u32)>("Query"), "which reads a tuple, but");
        reads(fields_mismatch::<Kind>("Query"), "which reads one of several variants, but");
        let of_second = "whose field `second` is a struct, but a field of a query or a form is one";
        reads(fields_mismatch::<Two<u32, Page>>("Query"), of_second);
        reads(fields_mismatch::<Two<u32, Vec<Page>>>("Form"), of_second);
        reads(fields_mismatch::<Two<Page, u8>>("Form"), "whose field `first` is a struct");
        reads(fields_mismatch::<Two<String, (u8, u8)>>("Form"), "`second` is a tuple");
        let map = fields_mismatch::<Two<String, HashMap<String, String>>>("Form");
        reads(map, "`second` is a map");
    }
}
