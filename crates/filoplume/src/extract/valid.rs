//! Validation of typed input, before a handler receives it.

use std::error::Error as StdError;
use std::fmt;
use std::ops::{Deref, DerefMut};

use filoplume_runtime::{Request, Response, StatusCode};
use garde::{Report, Validate};

use super::serde_error::shortened;
use super::{FromRequest, Rejection, Takes};
use crate::core::context::Context;
use crate::core::error::{Error, FieldError, Result};
use crate::core::extract::reject;
use crate::core::options::RouteOptions;
use crate::core::response::IntoResponse;

/// The maximum number of invalid fields in an error. A list with a million invalid items must not
/// cause a response of a hundred megabytes.
const FIELDS_MAX: usize = 100;

/// Extracts a value with another extractor and validates it with [garde](https://docs.rs/garde):
/// `Valid<Json<T>>`, `Valid<Form<T>>`, `Valid<Query<T>>`, `Valid<Path<T>>`.
///
/// ```
/// use filoplume::prelude::*;
/// use garde::Validate;
/// use serde::Deserialize;
///
/// #[derive(Deserialize, Validate)]
/// struct SignUp {
///     #[garde(length(min = 2))]
///     name: String,
///     #[garde(range(min = 18))]
///     age: u8,
/// }
///
/// let app = App::new().post("/sign-up", |Valid(Json(sign_up)): Valid<Json<SignUp>>| {
///     format!("welcome, {} ({})", sign_up.name, sign_up.age)
/// });
/// let client = app.test();
/// let post = |body: &str| {
///     client.post("/sign-up").header("content-type", "application/json").body(body).send()
/// };
/// post(r#"{"name":"Ada","age":36}"#).assert_text("welcome, Ada (36)");
/// post(r#"{"name":"A","age":3}"#).assert_status(422);
/// ```
///
/// It rejects what the other extractor rejects, and invalid values with `422` and the invalid
/// fields. The rules are derived by the crate `garde`, which must be a dependency of the app.
#[doc(alias("Validated"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Valid<E>(pub E);

/// What can be validated without further values.
///
/// It replaces garde's `Validate` in the bounds of [`Valid`], so that the compiler's message says
/// which derive is missing.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no rules for `Valid`: derive `garde::Validate` for it",
    label = "it is not `garde::Validate`",
    note = "the derive is in garde 0.22: `cargo add garde@0.22 --features derive`; that of another \
            version implements another trait",
    note = "`Valid` is around the extractor: `Valid<Json<T>>`, `Valid<Form<T>>` or \
            `Valid<Query<T>>`; rules with a context cannot be checked by it: call \
            `validate_with` in the handler"
)]
pub trait HasRules {
    /// Checks the rules.
    ///
    /// # Errors
    ///
    /// If a field is invalid.
    fn check(&self) -> Result<(), Report>;
}

#[diagnostic::do_not_recommend]
impl<T: Validate<Context: Default> + ?Sized> HasRules for T {
    fn check(&self) -> Result<(), Report> {
        self.validate()
    }
}

impl<E> FromRequest for Valid<E>
where
    E: FromRequest + Deref,
    E::Target: HasRules,
{
    const TAKES: Takes = E::TAKES;
    type Rejection = ValidRejection<E::Rejection>;

    fn from_request(request: &mut Request, context: &Context<'_>) -> Result<Self, Self::Rejection> {
        let value = E::from_request(request, context).map_err(ValidRejection::Refused)?;
        match value.check() {
            Ok(()) => Ok(Self(value)),
            Err(report) => Err(ValidRejection::Invalid(InvalidFields::of(report))),
        }
    }

    fn configure(options: &mut RouteOptions) {
        E::configure(options);
    }
}

impl<E> Deref for Valid<E> {
    type Target = E;

    fn deref(&self) -> &E {
        &self.0
    }
}

impl<E> DerefMut for Valid<E> {
    fn deref_mut(&mut self) -> &mut E {
        &mut self.0
    }
}

/// The error if a [`Valid`] cannot be extracted.
///
/// ```
/// use filoplume::extract::{JsonRejection, ValidRejection};
/// use filoplume::prelude::*;
/// use garde::Validate;
///
/// #[derive(serde::Deserialize, Validate)]
/// struct Note { #[garde(length(min = 3))] title: String }
///
/// fn add(note: Result<Valid<Json<Note>>, ValidRejection<JsonRejection>>) -> Result<String> {
///     match note {
///         Ok(Valid(Json(note))) => Ok(note.title),
///         Err(ValidRejection::Invalid(invalid)) => {
///             Ok(format!("{} is wrong", invalid.fields()[0].field))
///         }
///         Err(ValidRejection::Refused(rejection)) => Err(rejection.into()),
///         Err(other) => Err(Error::bad_request(other.to_string())),
///     }
/// }
///
/// let client = App::new().post("/", add).test();
/// client.post("/").json(&serde_json::json!({"title": "a"})).send().assert_text("title is wrong");
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ValidRejection<R> {
    /// The inner extractor rejected the request.
    Refused(R),
    /// The value is invalid.
    Invalid(InvalidFields),
}

/// The invalid fields of a value.
///
/// ```
/// use filoplume::extract::{InvalidFields, QueryRejection, ValidRejection};
/// use filoplume::prelude::*;
/// use garde::Validate;
///
/// #[derive(serde::Deserialize, Validate)]
/// struct Search {
///     #[garde(range(min = 1))]
///     page: u32,
/// }
///
/// /// One line for each field that is wrong.
/// fn told(fields: &InvalidFields) -> String {
///     fields
///         .fields()
///         .iter()
///         .map(|wrong| format!("{}: {}\n", wrong.field, wrong.message))
///         .collect()
/// }
///
/// let app = App::new().get(
///     "/",
///     |query: Result<Valid<Query<Search>>, ValidRejection<QueryRejection>>| match query {
///         Err(ValidRejection::Invalid(fields)) => told(&fields),
///         _ => "found".to_owned(),
///     },
/// );
/// app.test().get("/?page=0").send().assert_text("page: lower than 1\n");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidFields {
    fields: Vec<FieldError>,
    /// The number of invalid fields that are not in the list.
    omitted: usize,
}

impl InvalidFields {
    fn of(report: Report) -> Self {
        let mut errors = report.into_inner();
        let omitted = errors.len().saturating_sub(FIELDS_MAX);
        errors.truncate(FIELDS_MAX);
        let fields = errors.into_iter();
        let fields = fields.map(|(path, error)| FieldError {
            field: shortened(path.to_string()),
            message: error.message().to_owned(),
        });
        Self { fields: fields.collect(), omitted }
    }

    /// Returns the invalid fields, at most the first hundred.
    pub fn fields(&self) -> &[FieldError] {
        &self.fields
    }
}

impl fmt::Display for InvalidFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&*self.fields, self.omitted) {
            ([one], 0) if one.field.is_empty() => {
                write!(f, "the input is not valid: {}", one.message)
            }
            ([one], 0) => write!(f, "`{}` is not valid: {}", one.field, one.message),
            (fields, 0) => write!(f, "{} fields are not valid", fields.len()),
            (fields, omitted) => {
                write!(f, "{} fields are not valid; these are the first", fields.len() + omitted)
            }
        }
    }
}

impl StdError for InvalidFields {}

impl Rejection for InvalidFields {
    fn describe(&self) -> Error {
        let error = Error::new(StatusCode::UNPROCESSABLE_ENTITY, self.to_string());
        self.fields
            .iter()
            .fold(error, |error, field| error.with_field(&*field.field, &*field.message))
    }
}

impl<R: IntoResponse> IntoResponse for ValidRejection<R> {
    fn into_response(self) -> Result<Response> {
        match self {
            Self::Refused(rejection) => rejection.into_response(),
            Self::Invalid(fields) => Err(reject(fields)),
        }
    }
}

impl<R: fmt::Display> fmt::Display for ValidRejection<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(rejection) => rejection.fmt(f),
            Self::Invalid(fields) => fields.fmt(f),
        }
    }
}

impl<R: StdError + 'static> StdError for ValidRejection<R> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Refused(rejection) => rejection.source(),
            Self::Invalid(_) => None,
        }
    }
}

impl<R: Rejection> Rejection for ValidRejection<R> {
    fn describe(&self) -> Error {
        match self {
            Self::Refused(rejection) => rejection.describe(),
            Self::Invalid(fields) => fields.describe(),
        }
    }
}

#[cfg(all(test, feature = "form"))]
mod tests {
    use super::*;
    use crate::extract::{ContentRejection, FormRejection};

    #[test]
    fn a_field_with_a_long_name_is_shortened() {
        let mut report = Report::new();
        report.append(garde::Path::new("n".repeat(100_000)), garde::Error::new("no"));
        let fields = InvalidFields::of(report);
        assert!(fields.fields()[0].field.len() < 1000, "{}", fields.fields()[0].field.len());
    }

    #[test]
    fn the_source_is_that_of_what_was_refused() {
        let refused = ValidRejection::Refused(FormRejection::Content(ContentRejection::TimedOut));
        let source = refused.source().map(ToString::to_string);
        assert_eq!(source.as_deref(), Some("the content did not arrive in time"));
    }
}
