//! Response types.

mod attachment;
mod html;
mod reader;
mod redirect;

pub use attachment::Attachment;
pub use html::Html;
pub use reader::{Pieces, Reader};
pub use redirect::Redirect;

pub use crate::core::response::IntoResponse;
