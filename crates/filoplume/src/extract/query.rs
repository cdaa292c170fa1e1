//! The query, as a typed handler parameter.

use std::error::Error as StdError;
use std::fmt;
use std::ops::{Deref, DerefMut};

use filoplume_runtime::Request;
use serde::de::DeserializeOwned;

use super::probe::fields_mismatch;
use super::urlencoded::{self, FieldsError};
use super::{FromRequest, Rejection};
use crate::core::context::Context;
use crate::core::error::Error;
use crate::core::options::RouteOptions;

/// Extracts the query, deserialized as a `T`. `T` is usually a struct with
/// `#[derive(Deserialize)]`.
///
/// A field that may be missing is an `Option` or has `#[serde(default)]`. A field that may occur
/// several times is a `Vec` with `#[serde(default)]`. A request without a query is read as one in
/// which every field is missing.
///
/// ```
/// use filoplume::prelude::*;
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Search {
///     q: String,
///     page: Option<u32>,
///     #[serde(default)]
///     tag: Vec<String>,
/// }
///
/// let app = App::new().get("/search", |Query(search): Query<Search>| {
///     format!("{} on page {} of {:?}", search.q, search.page.unwrap_or(1), search.tag)
/// });
/// let client = app.test();
/// client
///     .get("/search?q=red+fox&tag=a&tag=b")
///     .send()
///     .assert_text(r#"red fox on page 1 of ["a", "b"]"#);
/// client.get("/search?q=fox&page=two").send().assert_status(400);
/// client.get("/search").send().assert_status(400);
/// ```
///
/// It rejects a query that cannot be decoded or does not match `T` with `400` and the field. The
/// status is not `422`, because the query is a part of the target and not content (RFC 9110,
/// 15.5.21).
#[doc(alias("args", "search_params"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned> FromRequest for Query<T> {
    type Rejection = QueryRejection;

    fn from_request(request: &mut Request, _: &Context<'_>) -> Result<Self, QueryRejection> {
        let query = request.query().unwrap_or_default();
        urlencoded::read(query.as_bytes()).map(Self).map_err(QueryRejection)
    }

    fn configure(options: &mut RouteOptions) {
        if let Some(mistake) = fields_mismatch::<T>("Query") {
            options.refuse_route(mistake);
        }
    }
}

impl<T> Deref for Query<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Query<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// The error if a [`Query`] cannot be extracted.
///
/// ```
/// use filoplume::extract::QueryRejection;
/// use filoplume::prelude::*;
///
/// #[derive(Default, serde::Deserialize)]
/// struct Search {
///     page: u32,
/// }
///
/// let app = App::new().get("/", |query: Result<Query<Search>, QueryRejection>| {
///     let Query(search) = query.unwrap_or_default(); // a wrong query is as none
///     format!("page {}", search.page)
/// });
/// app.test().get("/?page=two").send().assert_text("page 0");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryRejection(pub FieldsError);

impl fmt::Display for QueryRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the query cannot be read: {}", self.0)
    }
}

impl StdError for QueryRejection {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.0)
    }
}

impl Rejection for QueryRejection {
    fn describe(&self) -> Error {
        if let FieldsError::Unreadable { .. } = &self.0 {
            return Error::internal(self.clone());
        }
        let error = Error::bad_request(self.to_string());
        match self.0.field() {
            Some((field, message)) => error.with_field(field, message),
            None => error,
        }
    }
}
