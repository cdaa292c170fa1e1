//! Extractors: the parameters of handlers.

mod authorization;
mod cancel;
#[cfg(feature = "jwt")]
mod claims;
mod client_address;
#[cfg(feature = "tls")]
mod client_certificate;
mod content;
#[cfg(feature = "cookies")]
mod cookies;
mod early_hints;
#[cfg(feature = "form")]
mod few_fields;
#[cfg(feature = "form")]
mod form;
mod header;
pub mod headers;
#[cfg(feature = "json")]
mod json;
mod language;
#[cfg(feature = "multipart")]
mod multipart;
mod observed;
mod path;
mod percent;
mod plain;
mod plain_words;
mod probe;
#[cfg(feature = "form")]
mod query;
mod rejections;
#[cfg(any(feature = "json", feature = "form", feature = "validate"))]
mod serde_error;
mod state;
mod stopping;
#[cfg(feature = "form")]
mod urlencoded;
#[cfg(feature = "validate")]
mod valid;
mod value_methods;

pub use authorization::{AuthorizationRejection, Basic, Bearer, Scheme};
pub(crate) use authorization::{REALM, invalid_token, quoted};
#[cfg(feature = "jwt")]
pub(crate) use claims::VerifiedClaims;
#[cfg(feature = "jwt")]
pub use claims::{Claims, ClaimsRejection};
#[cfg(feature = "tls")]
pub use client_certificate::{ClientCertificate, ClientCertificateRejection};
pub use content::ContentRejection;
#[cfg(feature = "cookies")]
pub use cookie::{self, Cookie, SameSite};
#[cfg(feature = "cookies")]
pub use cookies::{COOKIES_MAX, Cookies, CookiesRejection, ProtectedCookies, SET_COOKIE_BYTES_MAX};
#[cfg(feature = "sessions")]
pub(crate) use cookies::{add_set_cookie, is_cookie_name};
#[cfg(feature = "form")]
pub use form::{Form, FormRejection};
pub use header::{Header, HeaderProblem, HeaderRejection, TypedHeader};
#[cfg(feature = "json")]
pub use json::{Json, JsonRejection};
#[cfg(feature = "multipart")]
pub use multipart::{Field, Multipart, MultipartLimits, MultipartProblem, MultipartRejection};
pub use observed::Observed;
pub use path::{Path, PathRejection};
pub use percent::EncodingError;
pub use plain::{Extension, ExtensionRejection, HeaderMap, RawQuery, Target};
#[cfg(feature = "form")]
pub use query::{Query, QueryRejection};
pub use state::State;
#[cfg(feature = "form")]
pub use urlencoded::FieldsError;
#[cfg(feature = "validate")]
pub use valid::{InvalidFields, Valid, ValidRejection};

pub use crate::client::{ClientAddr, Proxies};
pub use crate::core::extract::FromRequest;
use crate::core::extract::Rejection;
pub use crate::core::optional::ExtractOptional;
pub use crate::core::takes::Takes;
pub use crate::observe::{RouteReport, Story, StoryKind};
