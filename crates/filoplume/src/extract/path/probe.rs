//! Whether a type fits the captures of a pattern, found out when the app starts.
//!
//! A type says by its `Deserialize` what it reads: a tuple of how many values, a struct with which
//! fields. So it is deserialized once from a probe that knows the names of the captures and no
//! values. Only what fails with every path is a mistake: a tuple of another length, several
//! captures for one value, a field that no capture fills and that is neither optional nor has a
//! default. The verdict counts only if it is what the whole deserialization ends with, so a type
//! that makes up for an error is left alone, and so is everything that the probe cannot know.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, Visitor,
};

use crate::core::captures::Capture;
use crate::core::names::type_name_of;

/// Texts that stand for captures until a field of a struct accepts one: a number, a word, and what
/// is often parsed. A field that accepts none of them hides whether those behind it are needed.
const SAMPLES: [&str; 8] = [
    "1",
    "a",
    "00000000-0000-0000-0000-000000000000",
    "2000-01-01",
    "2000-01-01T00:00:00Z",
    "00:00:00",
    "127.0.0.1",
    "true",
];

/// Says why a type can be read from no path that a pattern with these captures matches, if that is
/// so.
pub(super) fn mismatch<T: DeserializeOwned>(captures: &[Capture]) -> Option<String> {
    let names: Vec<&str> = captures.iter().map(|capture| &*capture.name).collect();
    let mut samples = vec![0; names.len()];
    loop {
        let mut failed = None;
        let probe = Probe { names: &names, samples: &samples, failed: &mut failed };
        // It is code of the user, and this is no request: what it does with a sample is no matter.
        let result = catch_unwind(AssertUnwindSafe(|| T::deserialize(probe)));
        if let Ok(Err(Verdict::Mismatch(reason))) = result {
            return Some(format!(
                "`Path<{}>` does not fit the pattern: {reason}",
                type_name_of::<T>()
            ));
        }
        // The next sample for the capture that was not accepted, if there is one.
        let sample = failed.and_then(|index: usize| samples.get_mut(index))?;
        *sample += 1;
        if *sample == SAMPLES.len() {
            return None;
        }
    }
}

/// What one attempt ends with.
#[derive(Debug)]
enum Verdict {
    /// It cannot be read from any path.
    Mismatch(String),
    /// Whether it can depends on the path.
    Unknown,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mismatch(reason) => f.write_str(reason),
            Self::Unknown => f.write_str("it depends on the path"),
        }
    }
}

impl std::error::Error for Verdict {}

impl de::Error for Verdict {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::Unknown
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Mismatch(format!(
            "no capture fills the field `{field}`: write `{{{field}}}` in the pattern, or make \
             the field an `Option` or `#[serde(default)]`"
        ))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let fields = listed(expected);
        Self::Mismatch(format!(
            "it has no field for the capture `{field}`: its fields are {fields}"
        ))
    }
}

/// All captures, as [`Typed`](super::deserializer::Typed) hands them out, without their values.
struct Probe<'a> {
    names: &'a [&'a str],
    /// Which of the samples stands for which capture.
    samples: &'a [usize],
    /// The capture whose sample was not accepted.
    failed: &'a mut Option<usize>,
}

impl Probe<'_> {
    /// What the pattern captures, as a part of a sentence.
    fn captured(&self) -> String {
        match self.names {
            [name] => format!("the pattern has one capture, `{name}`"),
            names => format!("the pattern has {} captures, {}", names.len(), listed(names)),
        }
    }

    fn one_value(&self) -> Verdict {
        match self.names {
            [_] => Verdict::Unknown,
            _ => Verdict::Mismatch(format!(
                "it is one value, and {}: take a tuple with a type for each, or a struct with a \
                 field for each",
                self.captured()
            )),
        }
    }

    fn values(&self, wanted: usize) -> Verdict {
        if wanted == self.names.len() {
            return Verdict::Unknown;
        }
        let values = if wanted == 1 { "value" } else { "values" };
        let captured = self.captured();
        let advice = match self.names {
            [_] => "take that as `Path<T>`, or write more captures",
            _ => "the tuple has one type for each capture",
        };
        Verdict::Mismatch(format!("it is a tuple of {wanted} {values}, and {captured}: {advice}"))
    }
}

macro_rules! one_value {
    ($($method:ident)*) => {
        $(
            fn $method<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Verdict> {
                Err(self.one_value())
            }
        )*
    };
}

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Verdict;

    one_value! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32
        deserialize_f64 deserialize_char deserialize_str deserialize_string deserialize_bytes
        deserialize_byte_buf deserialize_identifier
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Verdict> {
        Err(self.one_value())
    }

    // A type that asks for anything, a list or a map says nothing of what it needs.
    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Verdict> {
        Err(Verdict::Unknown)
    }

    serde::forward_to_deserialize_any! { unit unit_struct seq map ignored_any }

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

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, _: V) -> Result<V::Value, Verdict> {
        Err(self.values(length))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        _: V,
    ) -> Result<V::Value, Verdict> {
        Err(self.values(length))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Verdict> {
        let all_are_filled = fields.iter().all(|field| self.names.contains(field));
        let all_are_read = self.names.iter().all(|name| fields.contains(name));
        if all_are_filled && all_are_read {
            return Err(Verdict::Unknown);
        }
        let mut captures = Samples { probe: self, next: 0 };
        visitor.visit_map(&mut captures)
    }
}

/// The captures as the fields of a struct, with a sample for each value.
struct Samples<'a> {
    probe: Probe<'a>,
    next: usize,
}

impl<'de> MapAccess<'de> for &mut Samples<'_> {
    type Error = Verdict;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Verdict> {
        let Some(name) = self.probe.names.get(self.next) else { return Ok(None) };
        self.next += 1;
        let name: StrDeserializer<'_, Verdict> = (*name).into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Verdict> {
        let index = self.next.saturating_sub(1);
        let sample = self.probe.samples.get(index).copied().unwrap_or_default();
        // A mistake within the value of one field is not one of the whole.
        seed.deserialize(Sample(sample)).map_err(|_| {
            *self.probe.failed = Some(index);
            Verdict::Unknown
        })
    }
}

/// A value that stands for a capture.
#[derive(Clone, Copy)]
struct Sample(usize);

impl Sample {
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

    serde::forward_to_deserialize_any! {
        str string identifier unit unit_struct seq tuple tuple_struct map struct ignored_any
    }
}

/// Names as a sentence has them.
fn listed(names: &[&str]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::net::IpAddr;

    use expect_test::{Expect, expect};
    use serde::Deserialize;

    use super::*;
    use crate::routing::Pattern;

    #[track_caller]
    fn check<T: DeserializeOwned>(pattern: &str, expected: &Expect) {
        let pattern = Pattern::parse(pattern).unwrap();
        expected.assert_eq(&mismatch::<T>(&pattern.captures).unwrap_or_else(|| "fits".to_owned()));
    }

    #[track_caller]
    fn fits<T: DeserializeOwned>(pattern: &str) {
        check::<T>(pattern, &expect!["fits"]);
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only what it asks for matters")]
    struct Page<A = u32> {
        book: A,
        page: u32,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only what it asks for matters")]
    struct Strict {
        a: u32,
    }

    #[test]
    fn a_tuple_has_a_type_for_each_capture() {
        check::<(u32, u32)>(
            "/{id}",
            &expect![
                "`Path<(u32, u32)>` does not fit the pattern: it is a tuple of 2 values, and the \
                 pattern has one capture, `id`: take that as `Path<T>`, or write more captures"
            ],
        );
        check::<(u32,)>(
            "/{a}/{b}",
            &expect![
                "`Path<(u32,)>` does not fit the pattern: it is a tuple of 1 value, and the \
                 pattern has 2 captures, `a`, `b`: the tuple has one type for each capture"
            ],
        );
        fits::<(u32,)>("/{id}");
        fits::<(u32, String)>("/{a}/{b}");
        fits::<[u32; 2]>("/{a}/{b}");
    }

    #[test]
    fn one_value_is_for_one_capture() {
        check::<u32>(
            "/{a}/{b}",
            &expect![
                "`Path<u32>` does not fit the pattern: it is one value, and the pattern has 2 \
                 captures, `a`, `b`: take a tuple with a type for each, or a struct with a field \
                 for each"
            ],
        );
        #[derive(Deserialize)]
        #[expect(dead_code, reason = "only what it asks for matters")]
        struct Id(u32);
        #[derive(Deserialize)]
        enum Color {
            Red,
        }
        assert!(mismatch::<Id>(&Pattern::parse("/{a}/{b}").unwrap().captures).is_some());
        assert!(mismatch::<Option<u32>>(&Pattern::parse("/{a}/{b}").unwrap().captures).is_some());
        assert!(mismatch::<Color>(&Pattern::parse("/{a}/{b}").unwrap().captures).is_some());
        fits::<Id>("/{id}");
        fits::<Color>("/{color}");
        fits::<Option<String>>("/{id}");
        fits::<IpAddr>("/{ip}");
    }

    #[test]
    fn a_struct_has_its_fields_filled() {
        check::<Page>(
            "/{book}",
            &expect![
                "`Path<filoplume::extract::path::probe::tests::Page>` does not fit the pattern: \
                 no capture fills the field `page`: write `{page}` in the pattern, or make the \
                 field an `Option` or `#[serde(default)]`"
            ],
        );
        fits::<Page>("/{book}/{page}");
        fits::<Page>("/{shop}/{book}/{page}");
        // What is parsed from text is found out about by samples.
        let pattern = Pattern::parse("/{book}").unwrap().captures;
        assert!(mismatch::<Page<String>>(&pattern).is_some());
        assert!(mismatch::<Page<IpAddr>>(&pattern).is_some());
        assert!(mismatch::<Page<char>>(&pattern).is_some());
        assert!(mismatch::<Page<Option<bool>>>(&pattern).is_some());
    }

    #[test]
    fn fields_that_may_be_missing_may_be_missing() {
        #[derive(Deserialize)]
        #[expect(dead_code, reason = "only what it asks for matters")]
        struct Lenient {
            book: String,
            page: Option<u32>,
            #[serde(default)]
            line: u32,
            #[serde(skip)]
            word: u32,
            #[serde(alias = "language")]
            tongue: String,
        }
        fits::<Lenient>("/{book}/{language}");
        assert!(mismatch::<Lenient>(&Pattern::parse("/{book}").unwrap().captures).is_some());
    }

    #[test]
    fn what_cannot_be_known_is_no_mistake() {
        #[derive(Deserialize)]
        #[serde(untagged)]
        #[expect(dead_code, reason = "only what it asks for matters")]
        enum Either {
            One { a: u32 },
            Two { b: u32 },
        }
        #[derive(Deserialize)]
        #[expect(dead_code, reason = "only what it asks for matters")]
        struct Flat {
            a: String,
            #[serde(flatten)]
            rest: HashMap<String, String>,
        }
        #[derive(Debug)]
        #[expect(dead_code, reason = "only what it asks for matters")]
        struct Odd(u32);
        impl<'de> Deserialize<'de> for Odd {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                if text == "odd" { Ok(Self(1)) } else { Err(de::Error::custom("not odd")) }
            }
        }
        struct Forgiving;
        impl<'de> Deserialize<'de> for Forgiving {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let _ = <(u32, u32)>::deserialize(deserializer);
                Ok(Self)
            }
        }
        fits::<Either>("/{a}/{b}");
        fits::<Flat>("/{b}");
        fits::<Page<Odd>>("/{book}");
        fits::<Forgiving>("/{a}");
        fits::<HashMap<String, String>>("/{a}/{b}");
        fits::<Vec<String>>("/{a}/{b}");
        fits::<()>("/{a}");
    }

    #[test]
    fn captures_without_a_field_are_a_mistake_where_unknown_fields_are_denied() {
        check::<Strict>(
            "/{a}/{b}",
            &expect![
                "`Path<filoplume::extract::path::probe::tests::Strict>` does not fit the pattern: \
                 it has no field for the capture `b`: its fields are `a`"
            ],
        );
    }
}
