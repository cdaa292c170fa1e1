//! Sample values, from which a probe deserializes the fields of a struct.

use serde::de::value::StrDeserializer;
use serde::de::{Deserializer, IntoDeserializer, Visitor};

use super::verdict::Verdict;

/// Texts that are tried as the value of a capture until the field of a struct accepts one: a
/// number, a word, and other formats that are often parsed. If a field accepts none of them, it is
/// unknown whether the fields after it are required.
pub(super) const SAMPLES: [&str; 8] = [
    "1",
    "a",
    "00000000-0000-0000-0000-000000000000",
    "2000-01-01",
    "2000-01-01T00:00:00Z",
    "00:00:00",
    "127.0.0.1",
    "true",
];

/// Deserializes a value from one of the [`SAMPLES`].
#[derive(Clone, Copy)]
pub(super) struct Sample(pub(super) usize);

impl Sample {
    /// The verdict on a field that asks for more than the one value of a capture. It gets the text
    /// all the same, as from the real deserializer: dates, for example, ask for a tuple and read a
    /// text.
    fn several<'de, V: Visitor<'de>>(
        self,
        visitor: V,
        what: &'static str,
    ) -> Result<V::Value, Verdict> {
        visitor.visit_str(self.text()).map_err(|verdict| match verdict {
            Verdict::RefusesText => Verdict::Several(what),
            other => other,
        })
    }

    fn text(self) -> &'static str {
        SAMPLES.get(self.0).copied().unwrap_or_default()
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $type:ty;)*) => {
        $(
            fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Verdict> {
                visitor.$visit(self.text().parse::<$type>().unwrap_or_default())
            }
        )*
    };
}

impl<'de> Deserializer<'de> for Sample {
    type Error = Verdict;

    numbers! {
        deserialize_i8 visit_i8 i8;
        deserialize_i16 visit_i16 i16;
        deserialize_i32 visit_i32 i32;
        deserialize_i64 visit_i64 i64;
        deserialize_i128 visit_i128 i128;
        deserialize_u8 visit_u8 u8;
        deserialize_u16 visit_u16 u16;
        deserialize_u32 visit_u32 u32;
        deserialize_u64 visit_u64 u64;
        deserialize_u128 visit_u128 u128;
        deserialize_f32 visit_f32 f32;
        deserialize_f64 visit_f64 f64;
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Verdict> {
        visitor.visit_str(self.text())
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Verdict> {
        visitor.visit_bool(true)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Verdict> {
        visitor.visit_char(self.text().chars().next().unwrap_or('a'))
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Verdict> {
        visitor.visit_bytes(self.text().as_bytes())
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Verdict> {
        self.deserialize_bytes(visitor)
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

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Verdict> {
        let variant = variants.get(self.0).or(variants.first()).copied().unwrap_or_default();
        let variant: StrDeserializer<'_, Verdict> = variant.into_deserializer();
        visitor.visit_enum(variant)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Verdict> {
        self.several(visitor, "a list")
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

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Verdict> {
        self.several(visitor, "a map")
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Verdict> {
        self.several(visitor, "a struct")
    }

    serde::forward_to_deserialize_any! { str string identifier unit unit_struct ignored_any }
}
