//! Methods that add information to an error.

use std::any::type_name_of_val;
use std::borrow::Cow;
use std::error::Error as StdError;

use filoplume_runtime::{AsHeaderValue, InvalidHeader};

use super::no_error::NoError;
use super::{Error, FieldError, Result};

impl Error {
    /// Sets the cause. It is logged, never sent.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// fn quantity(text: String) -> Result<String> {
    ///     let count: u32 = text
    ///         .parse()
    ///         .map_err(|error| Error::bad_request("no number").with_source(error))?;
    ///     Ok(format!("{count} pieces"))
    /// }
    ///
    /// let client = App::new().post("/", quantity).test();
    /// client.post("/").body("many").send().assert_status(400).assert_contains("no number");
    /// ```
    #[doc(alias = "with_cause")]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        // A `NoError` is kept, because only it explains why the response is a 500.
        if !self.inner.source.as_deref().is_some_and(|source| source.is::<NoError>()) {
            self.inner.source_type = Some(type_name_of_val(&source));
            self.inner.source = Some(source.into());
        }
        self
    }

    /// Takes the cause of another error if this one has none.
    pub(crate) fn with_cause_of(mut self, other: Self) -> Self {
        if self.inner.source.is_none() {
            self.inner.source = other.inner.source;
            self.inner.source_type = other.inner.source_type;
        }
        self
    }

    /// Adds an error in one field.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().post("/sign-up", || {
    ///     Err::<(), _>(
    ///         Error::unprocessable("please look at the form again")
    ///             .with_field("email", "is taken"),
    ///     )
    /// });
    /// let response = app.test().post("/sign-up").send();
    /// response.assert_status(422).assert_contains(r#""field":"email""#);
    /// ```
    pub fn with_field(mut self, field: impl Into<String>, message: impl Into<String>) -> Self {
        self.inner.fields.push(FieldError { field: field.into(), message: message.into() });
        self
    }

    /// Sets the URI that identifies this kind of problem (RFC 9457, 3.1.1).
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().post("/buy", || {
    ///     let error = Error::new(StatusCode::PAYMENT_REQUIRED, "30 are missing");
    ///     Err::<(), _>(
    ///         error
    ///             .with_type("https://example.org/problems/no-money")
    ///             .with_title("Not enough money"),
    ///     )
    /// });
    /// app.test()
    ///     .post("/buy")
    ///     .send()
    ///     .assert_contains(r#""type":"https://example.org/problems/no-money""#);
    /// ```
    pub fn with_type(mut self, uri: impl Into<Cow<'static, str>>) -> Self {
        self.inner.problem_type = Some(uri.into());
        self
    }

    /// Sets the title of this kind of problem (RFC 9457, 3.1.3). Use it together with a
    /// [type](Self::with_type). If no title is set, the title is the name of the status.
    ///
    /// ```
    /// use filoplume::Error;
    ///
    /// let error = Error::conflict("bob has it")
    ///     .with_type("https://example.org/problems/lent")
    ///     .with_title("Lent out");
    /// assert_eq!(error.title(), Some("Lent out"));
    /// ```
    pub fn with_title(mut self, title: impl Into<Cow<'static, str>>) -> Self {
        self.inner.title = Some(title.into());
        self
    }

    /// Adds a member to the problem details that JSON clients receive (RFC 9457, 3.2).
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().post("/buy", || {
    ///     Err::<(), _>(Error::conflict("not enough money").with_member("balance", 30)?)
    /// });
    /// assert!(app.test().post("/buy").send().text().contains(r#""balance":30"#));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the value cannot be serialized as JSON.
    #[cfg(feature = "json")]
    pub fn with_member(
        mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl serde::Serialize,
    ) -> Result<Self> {
        let json = serde_json::to_string(&value).map_err(Self::internal)?;
        self.inner.members.push((name.into(), json));
        Ok(self)
    }

    /// Adds a header to the response, such as `WWW-Authenticate` or `Retry-After`. Headers of the
    /// same name stay.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/", || -> Result<()> {
    ///     Err(Error::unavailable("back in a minute").with_header("retry-after", "60")?)
    /// });
    /// app.test().get("/").send().assert_status(503).assert_header("retry-after", "60");
    /// ```
    ///
    /// # Errors
    ///
    /// If the name is not a token, or the value contains a control character.
    pub fn with_header(
        mut self,
        name: &str,
        value: impl AsHeaderValue,
    ) -> Result<Self, InvalidHeader> {
        self.inner.headers.append(name, value)?;
        Ok(self)
    }

    /// Like `with_header`, but replaces the headers of the same name.
    pub(crate) fn with_replaced_header(
        mut self,
        name: &str,
        value: impl AsHeaderValue,
    ) -> Result<Self, InvalidHeader> {
        self.inner.headers.insert(name, value)?;
        Ok(self)
    }

    /// Like `with_header`, for a header that is known to be valid.
    pub(crate) fn with_known_header(mut self, name: &str, value: impl AsHeaderValue) -> Self {
        let added = self.inner.headers.append(name, value);
        debug_assert!(added.is_ok(), "{name} is a valid header");
        self
    }
}
