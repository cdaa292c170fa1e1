//! What the compiler says about a request of a test that is not sent.
//!
//! Without the methods here, it says only that a request has no such method. The bounds are for
//! every lifetime, because the compiler would refuse them at once if they depended on nothing.

use super::request::TestRequest;

/// A request that has a response. No type implements it.
#[diagnostic::on_unimplemented(
    message = "the request was not sent: write `.send()` before this method",
    label = "this is a method of the response, which `.send()` returns",
    note = "such as `client.get(\"/\").send().assert_status(200)`"
)]
pub trait Answered {}

/// Methods of a response that a request has not.
macro_rules! methods_of_a_response {
    ($($name:ident($($parameter:ty),*))*) => {
        impl TestRequest<'_> {
            $(
                /// Cannot be called: see the message of [`Answered`].
                #[doc(hidden)]
                pub fn $name(&self, $(_: $parameter),*) -> &Self
                where
                    for<'any> Self: Answered,
                {
                    self
                }
            )*
        }
    };
}

methods_of_a_response! {
    assert_status(u16)
    assert_header(&str, &str)
    assert_no_header(&str)
    assert_text(&str)
    assert_contains(&str)
    status()
    text()
}
