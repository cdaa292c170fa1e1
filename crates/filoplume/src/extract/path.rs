//! The captures of the path, typed.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::ops::{Deref, DerefMut};

use filoplume_runtime::{Request, StatusCode};
use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{self, DeserializeOwned, Deserializer, EnumAccess, IntoDeserializer, VariantAccess, Visitor};

use super::percent::{self, EncodingError};
use super::{Extract, Refusal};
use crate::core::captures::Captures;
use crate::core::context::Context;
use crate::core::error::Error;
use crate::core::options::RouteOptions;

/// The captures of the path: one as a value, several as a tuple in their order or as a struct by their names.
///
/// Captures are percent-decoded after the path was matched, so an encoded slash is part of a value and never a
/// separator. Everything that serde can read from text is possible: numbers, `bool`, `char`, text, enums by name,
/// `Option`, and types such as `uuid::Uuid`.
///
/// ```
/// use filoplume::prelude::*;
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Page { book: String, page: u32 }
///
/// let app = App::new()
///     .get("/users/{id}", |Path(id): Path<u64>| format!("user {id}"))
///     .get("/from/{from}/to/{to}", |Path((from, to)): Path<(String, String)>| format!("{from} to {to}"))
///     .get("/books/{book}/{page}", |Path(at): Path<Page>| format!("{} at {}", at.book, at.page));
/// let client = app.test();
/// client.get("/users/17").send().assert_text("user 17");
/// client.get("/from/K%C3%B6ln/to/Bonn").send().assert_text("Köln to Bonn");
/// client.get("/books/dune/12").send().assert_text("dune at 12");
/// client.get("/users/me").send().assert_status(400);
/// ```
///
/// Refused with `400` if a capture cannot be decoded or is not what the type wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned> Extract for Path<T> {
    type Rejection = PathRejection;

    fn extract(request: &mut Request, context: &Context<'_>) -> Result<Self, PathRejection> {
        let captures = context.captures_in(request.path());
        T::deserialize(Typed(&captures)).map(Self).map_err(|refused| refused.into_rejection(&captures))
    }

    fn configure(options: &mut RouteOptions) {
        options.require_captures();
    }
}

impl<T> Deref for Path<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Path<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// Why [`Path`] refused.
///
/// ```
/// use filoplume::extract::PathRejection;
/// use filoplume::prelude::*;
///
/// fn note(id: Result<Path<u64>, PathRejection>) -> Result<String> {
///     match id {
///         Ok(Path(id)) => Ok(format!("note {id}")),
///         Err(PathRejection::Invalid { .. }) => Err(Error::not_found("notes have numbers")),
///         Err(rejection) => Err(rejection.into()),
///     }
/// }
///
/// App::new().get("/notes/{id}", note).test().get("/notes/first").send().assert_status(404);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathRejection {
    /// A capture is not encoded as it should be.
    Encoding {
        /// The name of the capture.
        capture: String,
        /// What is wrong with it.
        error: EncodingError,
    },
    /// A capture cannot be read as what the handler wants.
    Invalid {
        /// The name of the capture.
        capture: String,
        /// What is wrong with it.
        message: String,
    },
    /// The type does not fit the pattern, such as a tuple of two for a pattern with one capture: a mistake of the program.
    Mismatch {
        /// What does not fit.
        message: String,
    },
}

impl fmt::Display for PathRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Encoding { capture, error } => write!(f, "`{capture}` in the path {error}"),
            Self::Invalid { capture, message } => write!(f, "`{capture}` in the path is wrong: {message}"),
            Self::Mismatch { message } => write!(f, "the type of `Path` does not fit the pattern: {message}"),
        }
    }
}

impl StdError for PathRejection {}

impl Refusal for PathRejection {
    fn describe(&self) -> Error {
        match self {
            Self::Encoding { capture, error } => {
                Error::bad_request(self.to_string()).with_field(capture, error.to_string())
            }
            Self::Invalid { capture, message } => {
                Error::bad_request(self.to_string()).with_field(capture, message)
            }
            Self::Mismatch { .. } => Error::status(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }
}

/// What serde finds wrong, and where.
#[derive(Debug)]
enum Refused {
    Plain(String),
    At(String, String),
    Encoding(String, EncodingError),
}

impl Refused {
    fn at(self, name: &str) -> Self {
        match self {
            Self::Plain(message) => Self::At(name.to_owned(), message),
            at => at,
        }
    }

    #[cold]
    fn into_rejection(self, captures: &Captures<'_>) -> PathRejection {
        match self {
            Self::At(capture, message) => PathRejection::Invalid { capture, message },
            Self::Encoding(capture, error) => PathRejection::Encoding { capture, error },
            Self::Plain(message) => match captures.iter().next() {
                Some((name, _)) if captures.len() == 1 => {
                    PathRejection::Invalid { capture: name.to_owned(), message }
                }
                _ => PathRejection::Mismatch { message },
            },
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(message) | Self::At(_, message) => f.write_str(message),
            Self::Encoding(_, error) => error.fmt(f),
        }
    }
}

impl StdError for Refused {}

impl de::Error for Refused {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Plain(message.to_string())
    }
}

/// All captures of a path, where matching left them. They are decoded when they are read.
#[derive(Clone, Copy)]
struct Typed<'a>(&'a Captures<'a>);

impl<'a> Typed<'a> {
    fn only(self) -> Result<Text<'a>, Refused> {
        match (self.0.len(), self.texts().next()) {
            (1, Some(text)) => Ok(text),
            (count, _) => Err(de::Error::custom(format_args!(
                "it is one value, and the pattern has {count} captures: use a tuple or a struct"
            ))),
        }
    }

    fn texts(self) -> impl Iterator<Item = Text<'a>> {
        self.0.iter().map(|(name, encoded)| Text { name, encoded })
    }

    fn sequence<'de, V: Visitor<'de>>(self, wanted: Option<usize>, visitor: V) -> Result<V::Value, Refused> {
        if let Some(wanted) = wanted.filter(|&wanted| wanted != self.0.len()) {
            return Err(de::Error::custom(format_args!(
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

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Refused> {
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
        percent::decode_text(self.encoded).map_err(|error| Refused::Encoding(self.name.to_owned(), error))
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

    fn variant_seed<V: de::DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, UnitVariant), Refused> {
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

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, Refused> {
        Err(de::Error::custom("a variant with content cannot stand in a path"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde::Deserialize;

    use super::*;
    use crate::routing::Pattern;

    fn read<T: DeserializeOwned>(captures: &[(&str, &str)]) -> Result<T, String> {
        let pattern: String = captures.iter().map(|(name, _)| format!("/{{{name}}}")).collect();
        let path: String = captures.iter().map(|(_, text)| format!("/{text}")).collect();
        let pattern = Pattern::parse(&pattern).unwrap();
        let captures = Captures::new(&pattern.captures, &path);
        T::deserialize(Typed(&captures)).map_err(|refused| match refused {
            Refused::Plain(message) => message,
            Refused::At(name, message) => format!("{name}: {message}"),
            Refused::Encoding(name, error) => format!("{name} {error}"),
        })
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum Color {
        Red,
        Green,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Id(u64);

    #[derive(Debug, Deserialize, PartialEq)]
    struct Both {
        color: Color,
        id: Option<Id>,
    }

    #[test]
    fn one_capture_is_a_value() {
        assert_eq!(read(&[("id", "17")]), Ok(17_u64));
        assert_eq!(read(&[("id", "17")]), Ok(Id(17)));
        assert_eq!(read(&[("id", "17")]), Ok((17_i8,)));
        assert_eq!(read(&[("id", "-1.5")]), Ok(-1.5_f32));
        assert_eq!(read(&[("name", "a b")]), Ok("a b".to_owned()));
        assert_eq!(read(&[("letter", "%C3%B6")]), Ok('ö'));
        assert_eq!(read(&[("name", "a%2Fb+c")]), Ok("a/b+c".to_owned()));
        assert_eq!(read(&[("color", "red")]), Ok(Color::Red));
    }

    #[test]
    fn several_are_a_tuple_a_struct_a_list_or_a_map() {
        let captures = [("color", "green"), ("id", "3")];
        assert_eq!(read(&captures), Ok((Color::Green, 3_u8)));
        assert_eq!(read(&captures), Ok(Both { color: Color::Green, id: Some(Id(3)) }));
        assert_eq!(read(&captures), Ok(vec!["green".to_owned(), "3".to_owned()]));
        let map =
            HashMap::from([("color".to_owned(), "green".to_owned()), ("id".to_owned(), "3".to_owned())]);
        assert_eq!(read(&captures), Ok(map));
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(
            read::<u8>(&[("id", "256")]),
            Err("id: `256` is not a whole number from 0 to 255".to_owned())
        );
        assert_eq!(read::<String>(&[("id", "%ff")]), Err("id is not UTF-8".to_owned()));
        assert!(
            read::<(u8, String)>(&[("a", "1"), ("b", "%4")])
                .is_err_and(|message| message.starts_with("b has"))
        );
        let captures = [("color", "blue"), ("id", "3")];
        assert_eq!(
            read::<Both>(&captures),
            Err("color: unknown variant `blue`, expected `red` or `green`".to_owned())
        );
        assert_eq!(
            read::<(u8, u8, u8)>(&captures),
            Err("it has 3 values, and the pattern has 2 captures".to_owned())
        );
        assert!(read::<u8>(&captures).is_err_and(|message| message.contains("use a tuple")));
    }
}
