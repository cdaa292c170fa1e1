//! Checks when the app starts whether a type can be read from the captures of a pattern.
//!
//! It deserializes the type once from a probe that knows the names of the captures but no values.
//! The type's `Deserialize` then shows what it reads: a tuple of some length, or a struct with
//! certain fields. Only types that fail for every path are mistakes: a tuple of another length, one
//! value for several captures, or a required field without a capture. The verdict counts only if it
//! is the final result of the deserialization. So types that recover from an error are accepted, as
//! are types that the probe cannot judge.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, Visitor,
};

use super::sample::{SAMPLES, Sample};
use super::verdict::{Verdict, list};
use crate::core::captures::Capture;
use crate::core::names::type_name_of;
use crate::extract::value_methods::for_each_value_method;

/// Returns the reason if a type cannot be read from any path that matches a pattern with these
/// captures.
pub(in crate::extract) fn captures_mismatch<T: DeserializeOwned>(
    captures: &[Capture],
) -> Option<String> {
    let names: Vec<&str> = captures.iter().map(|capture| &*capture.name).collect();
    let mut samples = vec![0; names.len()];
    loop {
        let mut failed = None;
        let probe = CapturesProbe { names: &names, samples: &samples, failed: &mut failed };
        // The type's code runs outside of a request here, so panics on a sample are ignored.
        let result = catch_unwind(AssertUnwindSafe(|| T::deserialize(probe)));
        if let Ok(Err(Verdict::Mismatch(reason))) = result {
            return Some(format!(
                "`Path<{}>` does not fit the pattern: {reason}",
                type_name_of::<T>()
            ));
        }
        // Tries the next sample for the capture that was not accepted.
        let sample = failed.and_then(|index: usize| samples.get_mut(index))?;
        *sample += 1;
        if *sample == SAMPLES.len() {
            return None;
        }
    }
}

/// Returns whether a struct with these fields requires `field`, as far as the probe can tell.
#[cfg(feature = "form")]
pub(super) fn requires<T: DeserializeOwned>(fields: &[&str], field: &str) -> bool {
    let capture = |name: &&&str| (***name).to_owned();
    let others = fields.iter().filter(|name| **name != field).map(|name| capture(&name));
    let others: Vec<Capture> =
        others.map(|name| Capture { name, skip: 0, suffix: 0, is_rest: false }).collect();
    let missing = format!("there is no capture for the field `{field}`");
    captures_mismatch::<T>(&others).is_some_and(|reason| reason.contains(&missing))
}

/// Stands in for the deserializer of captures at start-up, when there are no values.
struct CapturesProbe<'a> {
    names: &'a [&'a str],
    /// The index of the sample for each capture.
    samples: &'a [usize],
    /// The capture whose sample was not accepted.
    failed: &'a mut Option<usize>,
}

impl CapturesProbe<'_> {
    /// Describes the captures of the pattern.
    fn captured(&self) -> String {
        match self.names {
            [name] => format!("the pattern has one capture, `{name}`"),
            names => format!("the pattern has {} captures, {}", names.len(), list(names)),
        }
    }

    fn one_value(&self) -> Verdict {
        match self.names {
            [_] => Verdict::Unknown,
            _ => Verdict::Mismatch(format!(
                "it is one value, but {}: use a tuple with a type for each, or a struct with a \
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
            [_] => "use `Path<T>`, or add captures to the pattern",
            _ => "use one type for each capture",
        };
        Verdict::Mismatch(format!("it is a tuple of {wanted} {values}, but {captured}: {advice}"))
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

impl<'de> Deserializer<'de> for CapturesProbe<'_> {
    type Error = Verdict;

    for_each_value_method! { one_value }

    one_value! { deserialize_bytes deserialize_byte_buf deserialize_identifier }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Verdict> {
        Err(self.one_value())
    }

    // A type that reads any value, a list or a map does not show what it requires.
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
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Verdict> {
        let mut captures = SampleFields { probe: self, next: 0 };
        visitor.visit_map(&mut captures)
    }
}

/// The captures as fields of a struct, with a sample as the value of each.
struct SampleFields<'a> {
    probe: CapturesProbe<'a>,
    next: usize,
}

impl<'de> MapAccess<'de> for &mut SampleFields<'_> {
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
        seed.deserialize(Sample(sample)).map_err(|verdict| match verdict {
            Verdict::Several(what) => {
                let field = self.probe.names.get(index).copied().unwrap_or_default();
                Verdict::Mismatch(format!(
                    "its field `{field}` is {what}, but a capture is one value: read a `String`, \
                     and split it in the handler"
                ))
            }
            // An error in the value of one field is not a mismatch of the type.
            _ => {
                *self.probe.failed = Some(index);
                Verdict::Unknown
            }
        })
    }
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
        expected.assert_eq(
            &captures_mismatch::<T>(&pattern.captures).unwrap_or_else(|| "fits".to_owned()),
        );
    }

    #[track_caller]
    fn fits<T: DeserializeOwned>(pattern: &str) {
        check::<T>(pattern, &expect!["fits"]);
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its `Deserialize` is used")]
    struct Page<A = u32> {
        book: A,
        page: u32,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its `Deserialize` is used")]
    struct Strict {
        a: u32,
    }

    #[test]
    fn a_field_has_one_value() {
        let captures = Pattern::parse("/{book}/{page}").unwrap().captures;
        let list = captures_mismatch::<Page<Vec<u32>>>(&captures).unwrap();
        let expected = "its field `book` is a list, but a capture is one value: read a `String`";
        assert!(list.contains(expected), "{list}");
        for reason in [
            captures_mismatch::<Page<Strict>>(&Pattern::parse("/{book}/{page}").unwrap().captures),
            captures_mismatch::<Page<Option<Strict>>>(
                &Pattern::parse("/{page}/{book}").unwrap().captures,
            ),
        ] {
            assert!(reason.as_ref().unwrap().contains("`book` is a struct"), "{reason:?}");
        }
    }

    #[test]
    fn a_tuple_has_a_type_for_each_capture() {
        check::<(u32, u32)>(
            "/{id}",
            &expect![
                "`Path<(u32, u32)>` does not fit the pattern: it is a tuple of 2 values, but the \
                 pattern has one capture, `id`: use `Path<T>`, or add captures to the pattern"
            ],
        );
        check::<(u32,)>(
            "/{a}/{b}",
            &expect![
                "`Path<(u32,)>` does not fit the pattern: it is a tuple of 1 value, but the \
                 pattern has 2 captures, `a`, `b`: use one type for each capture"
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
                "`Path<u32>` does not fit the pattern: it is one value, but the pattern has 2 \
                 captures, `a`, `b`: use a tuple with a type for each, or a struct with a field \
                 for each"
            ],
        );
        #[derive(Deserialize)]
        #[expect(dead_code, reason = "only its `Deserialize` is used")]
        struct Id(u32);
        #[derive(Deserialize)]
        enum Color {
            Red,
        }
        assert!(captures_mismatch::<Id>(&Pattern::parse("/{a}/{b}").unwrap().captures).is_some());
        assert!(
            captures_mismatch::<Option<u32>>(&Pattern::parse("/{a}/{b}").unwrap().captures)
                .is_some()
        );
        assert!(
            captures_mismatch::<Color>(&Pattern::parse("/{a}/{b}").unwrap().captures).is_some()
        );
        fits::<Id>("/{id}");
        fits::<Color>("/{color}");
        fits::<Option<String>>("/{id}");
        fits::<IpAddr>("/{ip}");
    }

    #[test]
    fn a_struct_needs_a_capture_for_each_field() {
        check::<Page>(
            "/{book}",
            &expect![
                "`Path<filoplume::extract::Page>` does not fit the \
                 pattern: there is no capture for the field `page`: write `{page}` in the pattern, \
                 or make the \
                 field an `Option` or `#[serde(default)]`"
            ],
        );
        fits::<Page>("/{book}/{page}");
        fits::<Page>("/{shop}/{book}/{page}");
        // Types that are parsed from text are probed with samples.
        let pattern = Pattern::parse("/{book}").unwrap().captures;
        assert!(captures_mismatch::<Page<String>>(&pattern).is_some());
        assert!(captures_mismatch::<Page<IpAddr>>(&pattern).is_some());
        assert!(captures_mismatch::<Page<char>>(&pattern).is_some());
        assert!(captures_mismatch::<Page<Option<bool>>>(&pattern).is_some());
    }

    #[test]
    fn optional_fields_need_no_capture() {
        #[derive(Deserialize)]
        #[expect(dead_code, reason = "only its `Deserialize` is used")]
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
        assert!(
            captures_mismatch::<Lenient>(&Pattern::parse("/{book}").unwrap().captures).is_some()
        );
    }

    #[test]
    fn types_that_the_probe_cannot_judge_are_accepted() {
        #[derive(Deserialize)]
        #[serde(untagged)]
        #[expect(dead_code, reason = "only its `Deserialize` is used")]
        enum Either {
            One { a: u32 },
            Two { b: u32 },
        }
        #[derive(Deserialize)]
        #[expect(dead_code, reason = "only its `Deserialize` is used")]
        struct Flat {
            a: String,
            #[serde(flatten)]
            rest: HashMap<String, String>,
        }
        #[derive(Debug)]
        #[expect(dead_code, reason = "only its `Deserialize` is used")]
        struct Odd(u32);
        impl<'de> Deserialize<'de> for Odd {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                if text == "odd" { Ok(Self(1)) } else { Err(serde::de::Error::custom("not odd")) }
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
    fn a_capture_without_a_field_is_a_mistake_if_unknown_fields_are_denied() {
        check::<Strict>(
            "/{a}/{b}",
            &expect![
                "`Path<filoplume::extract::Strict>` does not fit the \
                 pattern: \
                 it has no field for the capture `b`: its fields are `a`"
            ],
        );
    }

    #[test]
    fn a_character_may_be_a_digit() {
        #[derive(Debug)]
        #[expect(dead_code, reason = "only its `Deserialize` is used")]
        struct Digit(u32);
        impl<'de> Deserialize<'de> for Digit {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let digit = char::deserialize(deserializer)?.to_digit(10);
                digit.map(Self).ok_or_else(|| serde::de::Error::custom("not a digit"))
            }
        }
        let pattern = Pattern::parse("/{book}").unwrap();
        let mistake = captures_mismatch::<Page<Digit>>(&pattern.captures).unwrap();
        assert!(mistake.contains("there is no capture for the field `page`"), "{mistake}");
    }
}
