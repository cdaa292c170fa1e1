//! The items that most apps need: `use filoplume::prelude::*;`.

#[cfg(feature = "cookies")]
pub use crate::extract::Cookies;
#[cfg(feature = "json")]
pub use crate::extract::Json;
#[cfg(feature = "multipart")]
pub use crate::extract::Multipart;
#[cfg(feature = "validate")]
pub use crate::extract::Valid;
pub use crate::extract::{ClientAddr, Extension, Header, Path, State};
#[cfg(feature = "form")]
pub use crate::extract::{Form, Query};
pub use crate::middleware::{self, Middleware, Next};
#[doc(hidden)]
pub use crate::response::CamelCaseStatus as _;
pub use crate::response::{Html, IntoResponse, Redirect};
pub use crate::routing::{Route, Router, any, delete, get, patch, post, put};
#[cfg(feature = "sessions")]
pub use crate::session::{Flash, Session};
#[cfg(feature = "static-files")]
pub use crate::static_files::{FileResponse, StaticFiles};
#[cfg(feature = "templates")]
pub use crate::template::{Templates, context};
pub use crate::{
    App, Body, Error, Health, Method, Request, Response, Result, ServerConfig, StatusCode,
};
