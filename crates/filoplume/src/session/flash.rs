//! Messages that are shown once, on the next page.

use filoplume_runtime::Request;
use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::Session;
use crate::core::context::Context;
use crate::core::error::{Error, Result};
use crate::core::extract::FromRequest;
use crate::core::options::RouteOptions;

/// The name of the messages in the session.
const NAME: &str = "filoplume.flash";

/// Maximum number of waiting messages; older ones are dropped. A page shows a handful, and a
/// session is always read as a whole.
const MESSAGES_MAX: usize = 20;

/// Messages for the next page, such as the one after a redirect. They are kept in the session.
///
/// ```
/// use filoplume::Key;
/// use filoplume::middleware::Sessions;
/// use filoplume::prelude::*;
/// use filoplume::session::Flash;
///
/// let app = App::new()
///     .post("/notes", |flash: Flash| -> Result<Redirect> {
///         flash.success("The note is saved.")?;
///         Ok(Redirect::to("/notes"))
///     })
///     .get("/notes", |flash: Flash| -> Result<String> {
///         let messages = flash.take()?;
///         let lines =
///             messages.iter().map(|message| format!("{}: {}\n", message.level, message.text));
///         Ok(lines.collect())
///     })
///     .with(Sessions::in_cookie(Key::generate()));
/// # let client = app.test();
/// # let saved = client.post("/notes").send();
/// # let cookie = saved.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
/// # let page = client.get("/notes").header("cookie", &cookie).send();
/// # page.assert_text("success: The note is saved.\n");
/// ```
#[derive(Clone, Debug)]
pub struct Flash {
    session: Session,
}

/// A message of [`Flash`]. Templates can use its `level` and `text`.
///
/// ```
/// use filoplume::Key;
/// use filoplume::middleware::Sessions;
/// use filoplume::prelude::*;
/// use filoplume::session::FlashMessage;
///
/// fn line(message: &FlashMessage) -> String {
///     format!("[{}] {}", message.level, message.text)
/// }
///
/// let app = App::new()
///     .get("/", |flash: Flash| -> Result<String> {
///         flash.error("The disk is full.")?;
///         Ok(flash.take()?.iter().map(line).collect())
///     })
///     .with(Sessions::in_cookie(Key::generate()));
/// app.test().get("/").send().assert_text("[error] The disk is full.");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlashMessage {
    /// The kind of message, such as `success`. Suitable as a CSS class.
    pub level: String,
    /// The text. It is plain text: templates escape it.
    pub text: String,
}

impl Flash {
    /// Adds a message.
    ///
    /// # Errors
    ///
    /// If the response has already been made.
    pub fn push(&self, level: impl Into<String>, text: impl Into<String>) -> Result<()> {
        let mut messages: Vec<(String, String)> = self.session.get(NAME)?.unwrap_or_default();
        messages.push((level.into(), text.into()));
        let surplus = messages.len().saturating_sub(MESSAGES_MAX);
        messages.drain(..surplus);
        self.session.insert(NAME, messages)
    }

    /// Adds a message of the level `success`.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    pub fn success(&self, text: impl Into<String>) -> Result<()> {
        self.push("success", text)
    }

    /// Adds a message of the level `info`.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    pub fn info(&self, text: impl Into<String>) -> Result<()> {
        self.push("info", text)
    }

    /// Adds a message of the level `error`.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    pub fn error(&self, text: impl Into<String>) -> Result<()> {
        self.push("error", text)
    }

    /// Removes and returns the messages, including those of this request.
    ///
    /// # Errors
    ///
    /// If the response has already been made.
    pub fn take(&self) -> Result<Vec<FlashMessage>> {
        let messages: Vec<(String, String)> = self.session.take(NAME)?.unwrap_or_default();
        Ok(messages.into_iter().map(|(level, text)| FlashMessage { level, text }).collect())
    }
}

impl Serialize for FlashMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut message = serializer.serialize_struct("FlashMessage", 2)?;
        message.serialize_field("level", &self.level)?;
        message.serialize_field("text", &self.text)?;
        message.end()
    }
}

impl FromRequest for Flash {
    type Rejection = Error;

    fn from_request(request: &mut Request, context: &Context<'_>) -> Result<Self> {
        Session::from_request(request, context).map(|session| Self { session })
    }

    fn configure(options: &mut RouteOptions) {
        Session::configure(options);
    }
}

#[cfg(test)]
mod tests {
    use crate::middleware::Sessions;
    use crate::{App, Key};

    use super::*;

    #[test]
    fn a_session_keeps_the_latest_twenty_messages() {
        let handler = |flash: Flash| -> Result<String> {
            for number in 0..=MESSAGES_MAX {
                flash.info(number.to_string())?;
            }
            let texts: Vec<String> = flash.take()?.into_iter().map(|shown| shown.text).collect();
            Ok(texts.join(" "))
        };
        let app = App::new().get("/", handler).with(Sessions::in_cookie(Key::generate()));
        let latest: Vec<String> = (1..=MESSAGES_MAX).map(|number| number.to_string()).collect();
        app.test().get("/").send().assert_text(&latest.join(" "));
    }
}
