//! Deserializes values from the captures of a path.

use std::borrow::Cow;

use serde::de::value::{CowStrDeserializer, MapDeserializer, SeqDeserializer};
use serde::de::{Deserializer, IntoDeserializer, Visitor};

use super::PathError;
use crate::core::captures::Captures;
use crate::extract::percent;
use crate::extract::value_methods::for_each_value_method;

/// Deserializes from all captures of a path. They are decoded when they are read.
#[derive(Clone, Copy)]
pub(super) struct CapturesDeserializer<'a>(pub(super) &'a Captures<'a>);

impl<'a> CapturesDeserializer<'a> {
    fn only(self) -> Result<CaptureDeserializer<'a>, PathError> {
        match (self.0.len(), self.texts().next()) {
            (1, Some(text)) => Ok(text),
            (count, _) => Err(PathError::Mismatch(format!(
                "it is one value, but the pattern has {count} captures: use a tuple or a struct"
            ))),
        }
    }

    fn texts(self) -> impl Iterator<Item = CaptureDeserializer<'a>> {
        self.0.iter().map(|(name, encoded)| CaptureDeserializer { name, encoded })
    }

    fn sequence<'de, V: Visitor<'de>>(
        self,
        wanted: Option<usize>,
        visitor: V,
    ) -> Result<V::Value, PathError> {
        if let Some(wanted) = wanted.filter(|&wanted| wanted != self.0.len()) {
            return Err(PathError::Mismatch(format!(
                "it has {wanted} values, but the pattern has {} captures",
                self.0.len()
            )));
        }
        visitor.visit_seq(SeqDeserializer::new(self.texts()))
    }

    fn map<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathError> {
        visitor.visit_map(MapDeserializer::new(self.texts().map(|text| (text.name, text))))
    }
}

macro_rules! forward_to_only {
    ($($method:ident)*) => {
        $(
            fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathError> {
                self.only()?.$method(visitor)
            }
        )*
    };
}

impl<'de> Deserializer<'de> for CapturesDeserializer<'_> {
    type Error = PathError;

    for_each_value_method! { forward_to_only }

    forward_to_only! { deserialize_bytes deserialize_byte_buf deserialize_identifier }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathError> {
        if self.0.len() == 1 { self.only()?.deserialize_any(visitor) } else { self.map(visitor) }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathError> {
        visitor.visit_some(self)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathError> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, PathError> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, PathError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathError> {
        self.sequence(None, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, PathError> {
        self.sequence(Some(length), visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, PathError> {
        self.sequence(Some(length), visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathError> {
        self.map(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, PathError> {
        self.map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, PathError> {
        self.only()?.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathError> {
        visitor.visit_unit()
    }
}

/// Deserializes from one capture.
#[derive(Clone, Copy)]
struct CaptureDeserializer<'a> {
    name: &'a str,
    encoded: &'a str,
}

impl<'a> CaptureDeserializer<'a> {
    fn decode(self) -> Result<Cow<'a, str>, PathError> {
        percent::decode_text(self.encoded)
            .map_err(|error| PathError::Encoding(self.name.to_owned(), error))
    }
}

impl<'de> IntoDeserializer<'de, PathError> for CaptureDeserializer<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! parse_as {
    ($($method:ident $visit:ident $type:ty, $what:literal;)*) => {
        $(
            fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathError> {
                let text = self.decode()?;
                let visited = match text.parse::<$type>() {
                    Ok(value) => visitor.$visit(value),
                    Err(_) => Err(PathError::Plain(format!("`{text}` is not {}", $what))),
                };
                visited.map_err(|error| error.at(self.name))
            }
        )*
    };
}

impl<'de> Deserializer<'de> for CaptureDeserializer<'_> {
    type Error = PathError;

    parse_as! {
        deserialize_bool visit_bool bool, "`true` or `false`";
        deserialize_i8 visit_i8 i8, "a whole number from -128 to 127";
        deserialize_i16 visit_i16 i16, "a whole number of 16 bits";
        deserialize_i32 visit_i32 i32, "a whole number of 32 bits";
        deserialize_i64 visit_i64 i64, "a whole number of 64 bits";
        deserialize_i128 visit_i128 i128, "a whole number of 128 bits";
        deserialize_u8 visit_u8 u8, "a whole number from 0 to 255";
        deserialize_u16 visit_u16 u16, "a whole number from 0 to 65535";
        deserialize_u32 visit_u32 u32, "a whole number from 0 to 4294967295";
        deserialize_u64 visit_u64 u64, "a whole number from 0 up";
        deserialize_u128 visit_u128 u128, "a whole number from 0 up";
        deserialize_f32 visit_f32 f32, "a number";
        deserialize_f64 visit_f64 f64, "a number";
        deserialize_char visit_char char, "a single character";
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathError> {
        let visited = match self.decode()? {
            Cow::Borrowed(text) => visitor.visit_str(text),
            Cow::Owned(text) => visitor.visit_string(text),
        };
        visited.map_err(|error: PathError| error.at(self.name))
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathError> {
        let text = self.decode()?;
        visitor.visit_bytes(text.as_bytes()).map_err(|error: PathError| error.at(self.name))
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathError> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, PathError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, PathError> {
        let variant = CowStrDeserializer::<PathError>::new(self.decode()?);
        visitor.visit_enum(variant).map_err(|error| error.at(self.name))
    }

    serde::forward_to_deserialize_any! {
        str string identifier unit unit_struct seq tuple tuple_struct map struct ignored_any
    }
}
