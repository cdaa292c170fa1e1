//! The captures of a path as serde reads them.

use std::borrow::Cow;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{self, Deserializer, EnumAccess, IntoDeserializer, VariantAccess, Visitor};

use super::Refused;
use crate::core::captures::Captures;
use crate::extract::percent;

/// All captures of a path, where matching left them. They are decoded when they are read.
#[derive(Clone, Copy)]
pub(super) struct Typed<'a>(pub(super) &'a Captures<'a>);

impl<'a> Typed<'a> {
    fn only(self) -> Result<Text<'a>, Refused> {
        match (self.0.len(), self.texts().next()) {
            (1, Some(text)) => Ok(text),
            (count, _) => Err(Refused::Mismatch(format!(
                "it is one value, and the pattern has {count} captures: use a tuple or a struct"
            ))),
        }
    }

    fn texts(self) -> impl Iterator<Item = Text<'a>> {
        self.0.iter().map(|(name, encoded)| Text { name, encoded })
    }

    fn sequence<'de, V: Visitor<'de>>(
        self,
        wanted: Option<usize>,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        if let Some(wanted) = wanted.filter(|&wanted| wanted != self.0.len()) {
            return Err(Refused::Mismatch(format!(
                "it has {wanted} values, and the pattern has {} captures",
                self.0.len()
            )));
        }
        visitor.visit_seq(SeqDeserializer::new(self.texts()))
    }

    fn map<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_map(MapDeserializer::new(self.texts().map(|text| (text.name, text))))
    }
}

macro_rules! forward_to_only {
    ($($method:ident)*) => {
        $(
            fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
                self.only()?.$method(visitor)
            }
        )*
    };
}

impl<'de> Deserializer<'de> for Typed<'_> {
    type Error = Refused;

    forward_to_only! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32
        deserialize_f64 deserialize_char deserialize_str deserialize_string deserialize_bytes
        deserialize_byte_buf deserialize_identifier
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        if self.0.len() == 1 { self.only()?.deserialize_any(visitor) } else { self.map(visitor) }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_some(self)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.sequence(None, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.sequence(Some(length), visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.sequence(Some(length), visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.map(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.only()?.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_unit()
    }
}

/// The text of one capture.
#[derive(Clone, Copy)]
struct Text<'a> {
    name: &'a str,
    encoded: &'a str,
}

impl<'a> Text<'a> {
    fn decode(self) -> Result<Cow<'a, str>, Refused> {
        percent::decode_text(self.encoded)
            .map_err(|error| Refused::Encoding(self.name.to_owned(), error))
    }
}

impl<'de> IntoDeserializer<'de, Refused> for Text<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! parse_as {
    ($($method:ident $visit:ident $type:ty, $what:literal;)*) => {
        $(
            fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
                let text = self.decode()?;
                match text.parse::<$type>() {
                    Ok(value) => visitor.$visit(value).map_err(|refused: Refused| refused.at(self.name)),
                    Err(_) => Err(Refused::At(self.name.to_owned(), format!("`{text}` is not {}", $what))),
                }
            }
        )*
    };
}

impl<'de> Deserializer<'de> for Text<'_> {
    type Error = Refused;

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

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let visited = match self.decode()? {
            Cow::Borrowed(text) => visitor.visit_str(text),
            Cow::Owned(text) => visitor.visit_string(text),
        };
        visited.map_err(|refused: Refused| refused.at(self.name))
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let text = self.decode()?;
        visitor.visit_bytes(text.as_bytes()).map_err(|refused: Refused| refused.at(self.name))
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_enum(self).map_err(|refused| refused.at(self.name))
    }

    serde::forward_to_deserialize_any! {
        str string identifier unit unit_struct seq tuple tuple_struct map struct ignored_any
    }
}

impl<'de> EnumAccess<'de> for Text<'_> {
    type Error = Refused;
    type Variant = UnitVariant;

    fn variant_seed<V: de::DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, UnitVariant), Refused> {
        Ok((seed.deserialize(self)?, UnitVariant))
    }
}

/// The variants that a text can name: those without content.
struct UnitVariant;

impl<'de> VariantAccess<'de> for UnitVariant {
    type Error = Refused;

    fn unit_variant(self) -> Result<(), Refused> {
        Ok(())
    }

    fn newtype_variant_seed<T: de::DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, Refused> {
        Err(de::Error::custom("a variant with content cannot stand in a path"))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Refused> {
        Err(de::Error::custom("a variant with content cannot stand in a path"))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Refused> {
        Err(de::Error::custom("a variant with content cannot stand in a path"))
    }
}
