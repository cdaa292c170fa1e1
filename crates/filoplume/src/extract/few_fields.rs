//! Reads a few fields with different names, and allocates nothing but what their type keeps.
//!
//! `serde_html_form` collects all fields in a hash map first, and `serde_path_to_error` notes the
//! name of each. Most queries have a few fields, each of them once, and match their type. What
//! cannot be read here is read by those two, which then say what is wrong. So each value that is
//! read here must be read as `serde_html_form` reads it.

use std::borrow::Cow;
use std::fmt;
use std::iter;

use serde::de::value::{CowStrDeserializer, MapDeserializer, SeqDeserializer};
use serde::de::{Deserialize, Deserializer, IntoDeserializer, Visitor};

use super::percent;

/// The maximum number of fields. Each is compared with all others, and has its place on the stack.
const FIELDS_MAX: usize = 8;

/// Deserializes a value from fields. Returns `None` if there are many, if a name occurs twice, or
/// if anything is wrong.
pub(super) fn read_few<'de, T: Deserialize<'de>>(input: &'de [u8]) -> Option<T> {
    let mut fields = [const { None }; FIELDS_MAX];
    let pairs = input.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty());
    for (index, pair) in pairs.enumerate() {
        let mut parts = pair.splitn(2, |&byte| byte == b'=');
        let name = Text::decode(parts.next().unwrap_or_default())?;
        let value = Text::decode(parts.next().unwrap_or_default())?;
        let is_known = |known: &(Text<'_>, Text<'_>)| known.0.0 == name.0;
        if fields.iter().flatten().any(is_known) {
            return None;
        }
        *fields.get_mut(index)? = Some((name, value));
    }
    T::deserialize(Fields(fields.into_iter().flatten())).ok()
}

/// The fields cannot be read here.
#[derive(Debug)]
struct Unread;

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the fields cannot be read")
    }
}

impl std::error::Error for Unread {}

impl serde::de::Error for Unread {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

/// Deserializes from all fields.
struct Fields<I>(I);

impl<'de, I: Iterator<Item = (Text<'de>, Text<'de>)>> Deserializer<'de> for Fields<I> {
    type Error = Unread;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        visitor.visit_map(MapDeserializer::new(self.0))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Unread> {
        visitor.visit_newtype_struct(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Deserializes from the name or the value of a field.
struct Text<'de>(Cow<'de, str>);

impl<'de> Text<'de> {
    /// Decodes a part of a field, in which `+` is a space.
    fn decode(part: &'de [u8]) -> Option<Self> {
        if !part.contains(&b'+') {
            return percent::decode(part).ok().map(Self);
        }
        let part: Vec<u8> = part.iter().map(|&b| if b == b'+' { b' ' } else { b }).collect();
        percent::decode(&part).ok().map(|text| Self(Cow::Owned(text.into_owned())))
    }
}

impl<'de> IntoDeserializer<'de, Unread> for Text<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! parse_as {
    ($($method:ident $visit:ident $type:ty;)*) => {
        $(
            fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
                visitor.$visit(self.0.parse::<$type>().map_err(|_| Unread)?)
            }
        )*
    };
}

impl<'de> Deserializer<'de> for Text<'de> {
    type Error = Unread;

    parse_as! {
        deserialize_i8 visit_i8 i8;
        deserialize_i16 visit_i16 i16;
        deserialize_i32 visit_i32 i32;
        deserialize_i64 visit_i64 i64;
        deserialize_u8 visit_u8 u8;
        deserialize_u16 visit_u16 u16;
        deserialize_u32 visit_u32 u32;
        deserialize_u64 visit_u64 u64;
        deserialize_f32 visit_f32 f32;
        deserialize_f64 visit_f64 f64;
    }

    /// A box of a form sends `on` if it is ticked, and nothing if it is not.
    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        match &*self.0 {
            "true" | "on" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            _ => Err(Unread),
        }
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        match self.0 {
            Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
            Cow::Owned(text) => visitor.visit_string(text),
        }
    }

    /// Whether an empty text is a value depends on its type.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        if self.0.is_empty() { Err(Unread) } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Unread> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        visitor.visit_seq(SeqDeserializer::new(iter::once(self)))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unread> {
        visitor.visit_enum(CowStrDeserializer::new(self.0))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        i128 u128 char str string bytes byte_buf unit unit_struct tuple tuple_struct map struct
        identifier
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Debug;

    use proptest::prelude::*;
    use serde::Deserialize;
    use serde::de::DeserializeOwned;

    use super::*;

    #[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum Size {
        Small,
        Large,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Weight(f32);

    #[derive(Debug, Deserialize, PartialEq)]
    struct Everything {
        #[serde(default)]
        a: u8,
        b: Option<i64>,
        #[serde(default)]
        c: String,
        d: Option<Size>,
        #[serde(default)]
        e: Vec<u16>,
        #[serde(default)]
        f: bool,
        g: Option<Weight>,
        h: Option<char>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(untagged)]
    enum Either {
        Numbered { a: String },
        Named { c: String },
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Flat {
        a: Option<String>,
        #[serde(flatten)]
        rest: BTreeMap<String, String>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Wrapped(BTreeMap<String, String>);

    /// Both readers return the same value, or this one leaves the fields to the other.
    fn agrees<T: DeserializeOwned + Debug + PartialEq>(input: &str) -> bool {
        let Some(read) = read_few::<T>(input.as_bytes()) else { return false };
        assert_eq!(serde_html_form::from_str(input), Ok(read), "{input}");
        true
    }

    fn all_agree(input: &str) {
        agrees::<Everything>(input);
        agrees::<Either>(input);
        agrees::<Flat>(input);
        agrees::<Wrapped>(input);
        agrees::<BTreeMap<String, Option<u8>>>(input);
        agrees::<BTreeMap<u8, bool>>(input);
        agrees::<BTreeMap<String, Vec<String>>>(input);
        agrees::<Vec<(String, String)>>(input);
        agrees::<()>(input);
        agrees::<Option<Wrapped>>(input);
    }

    #[test]
    fn values_are_read_here() {
        for input in [
            "",
            "a=1",
            "a=255&b=-9223372036854775808&c=caf%C3%A9+au%20lait&d=large&e=7&f=on&g=1.5&h=%2B",
            "&&c=&unknown=x&f=false",
            "c",
        ] {
            assert!(agrees::<Everything>(input), "{input}");
        }
        assert!(agrees::<Wrapped>("a=b&c=d"));
        assert!(agrees::<Flat>("a=b&c=d"));
        assert!(agrees::<Either>("c=d"));
        assert!(agrees::<BTreeMap<u8, bool>>("1=true&2=false"));
        assert!(agrees::<BTreeMap<String, Vec<String>>>("a=b"));
        let eight: Vec<String> = (0..FIELDS_MAX).map(|number| format!("{number}=x")).collect();
        assert!(agrees::<Wrapped>(&eight.join("&")));
        assert!(!agrees::<Wrapped>(&format!("{}&9=x", eight.join("&"))), "one more");
    }

    #[test]
    fn what_is_wrong_or_needs_grouping_is_left_to_the_other_reader() {
        for input in ["a=256", "a=", "b=", "d=huge", "e=1&e=2", "f=yes", "f=", "g=x", "h=ab"] {
            assert!(!agrees::<Everything>(input), "{input}");
        }
        for input in ["c=%", "c=%zz", "c=%FF", "%FF=c", "c=%2", "c=+%"] {
            assert!(read_few::<Everything>(input.as_bytes()).is_none(), "{input}");
        }
        assert!(read_few::<Everything>(b"c=\xff").is_none());
        assert!(!agrees::<Vec<(String, String)>>("a=b"));
    }

    proptest! {
        #[test]
        fn both_readers_agree(
            input in "([a-i]{1,2}(=(true|on|small|[0-9]{1,3}|[-b-m+.]{0,3}|%C3%B6|%41))?&?){0,10}"
        ) {
            all_agree(&input);
        }
    }
}
