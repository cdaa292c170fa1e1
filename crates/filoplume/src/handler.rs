//! Handlers: closures and functions whose parameters are extractors.

use std::marker::PhantomData;

use filoplume_runtime::{Request, Response};

use crate::context::Context;
use crate::error::Result;
use crate::extract::{Extract, check_takes, most};
use crate::response::IntoResponse;
use crate::routing::RouteOptions;

/// What answers the requests of a route: a closure or function with up to twelve [extractors](Extract) as parameters
/// that returns something that [becomes a response](IntoResponse). It may block for as long as it likes.
///
/// ```
/// use filoplume::prelude::*;
///
/// fn greet(Path(name): Path<String>) -> String {
///     format!("Hello, {name}!")
/// }
///
/// let app = App::new().get("/", || "Hello!").get("/{name}", greet);
/// app.test().get("/Ada").send().assert_text("Hello, Ada!");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler",
    label = "not a handler",
    note = "a handler is a closure or function, `Fn(..) -> ..`, that is `Send + Sync + 'static`",
    note = "each parameter is an extractor with its type written: `|Path(id): Path<u64>, State(db): State<Db>|`",
    note = "what it returns becomes a response: text, `Json`, `Html`, a status, `Response`, or a `Result` of these"
)]
pub trait Handler<Parameters>: Send + Sync + 'static {
    /// Answers a request.
    ///
    /// # Errors
    ///
    /// If an extractor refuses, or the handler returns an error.
    fn call(&self, request: Request, context: &Context<'_>) -> Result<Response>;

    /// Says what a route with this handler needs. Called once a route when the app starts.
    fn configure(options: &mut RouteOptions)
    where
        Self: Sized;
}

macro_rules! handlers {
    ($($parameter:ident)*) => {
        impl<F, R, $($parameter),*> Handler<($($parameter,)*)> for F
        where
            F: Fn($($parameter),*) -> R + Send + Sync + 'static,
            R: IntoResponse,
            $($parameter: Extract + 'static,)*
        {
            #[allow(non_snake_case, unused_mut, unused_variables, reason = "a macro for any number of parameters")]
            #[inline]
            fn call(&self, mut request: Request, context: &Context<'_>) -> Result<Response> {
                const { check_takes(&[$($parameter::TAKES),*]) };
                $(
                    let $parameter = match $parameter::extract(&mut request, context) {
                        Ok(value) => value,
                        Err(rejection) => return rejection.into_response(),
                    };
                )*
                self($($parameter),*).into_response()
            }

            fn configure(options: &mut RouteOptions) {
                options.take(const { most(&[$($parameter::TAKES),*]) });
                $($parameter::configure(options);)*
            }
        }
    };
}

handlers!();
handlers!(A);
handlers!(A B);
handlers!(A B C);
handlers!(A B C D);
handlers!(A B C D E);
handlers!(A B C D E G);
handlers!(A B C D E G H);
handlers!(A B C D E G H I);
handlers!(A B C D E G H I J);
handlers!(A B C D E G H I J K);
handlers!(A B C D E G H I J K L);
handlers!(A B C D E G H I J K L M);

/// A handler whose parameters are forgotten, as routes keep it.
pub(crate) trait Endpoint: Send + Sync {
    fn call(&self, request: Request, context: &Context<'_>) -> Result<Response>;
    fn configure(&self, options: &mut RouteOptions);
}

struct Erased<H, Parameters> {
    handler: H,
    parameters: PhantomData<fn(Parameters)>,
}

impl<H: Handler<Parameters>, Parameters> Endpoint for Erased<H, Parameters> {
    fn call(&self, request: Request, context: &Context<'_>) -> Result<Response> {
        self.handler.call(request, context)
    }

    fn configure(&self, options: &mut RouteOptions) {
        H::configure(options);
    }
}

pub(crate) fn erase<Parameters: 'static>(handler: impl Handler<Parameters>) -> Box<dyn Endpoint> {
    Box::new(Erased { handler, parameters: PhantomData })
}
