//! What is set for a whole app.

use std::error::Error as StdError;

use filoplume_runtime::Response;

use super::asked::Asked;
use super::error::{Error, Responder};
use super::states::States;
use crate::client::Proxies;

/// What is set for the whole app beside its routes.
#[derive(Default)]
pub(crate) struct Settings {
    pub(crate) is_development: bool,
    pub(crate) presenter: Option<Presenter>,
    pub(crate) translators: Vec<Translator>,
    /// For errors that say themselves how they are answered.
    pub(crate) responders: Vec<Responder>,
    pub(crate) proxies: Proxies,
    pub(crate) states: States,
}

/// Says how an error of another crate is answered.
type Translator = Box<dyn Fn(&(dyn StdError + 'static)) -> Option<Error> + Send + Sync>;

/// Presents errors in the program's own way.
pub(crate) type Presenter = Box<dyn Fn(&Error, &Asked) -> Option<Response> + Send + Sync>;
