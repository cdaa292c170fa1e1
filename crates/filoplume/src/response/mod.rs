//! Response types.

mod attachment;
mod camel_case_status;
mod html;
mod reader;
mod redirect;

pub use attachment::Attachment;
#[doc(hidden)]
pub use camel_case_status::CamelCaseStatus;
pub use html::Html;
pub use reader::{Pieces, Reader};
pub use redirect::Redirect;

pub use crate::core::response::IntoResponse;
