//! Handlers: closures and functions whose parameters are extractors.

use std::marker::PhantomData;
use std::sync::Arc;

use filoplume_runtime::{Request, Response};

use super::context::Context;
use super::error::Result;
use super::extract::FromRequest;
use super::options::RouteOptions;
use super::response::{IntoResponse, respond};
use super::takes::{check_takes, most};

/// A function that answers the requests of a route: a closure or function with up to twelve
/// [extractors](FromRequest) as parameters. Its result [is converted into a
/// response](IntoResponse). It may block for any length of time.
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
    note = "a handler is a closure or function with up to twelve parameters, each with its type: \
            `|Path(id): Path<u64>, State(db): State<Db>| ..`; a boxed one is `Box<dyn Fn() -> \
            String + Send + Sync>`",
    note = "pass the handler itself, without calling it: `hello` rather than `hello()`, \
            `|| \"hello\"` rather than a text, `move || pages.index()` for a method",
    note = "a value of `get(..)` or `post(..)` belongs into `.route(\"/\", get(hello))`, a \
            `Router` into `.nest(..)` or `.merge(..)`, `StaticFiles` into `.files(..)`"
)]
pub trait Handler<P>: Send + Sync + 'static {
    /// The return type of the handler.
    type Output;

    /// Calls the handler.
    fn call(&self, parameters: P, context: &Context<'_>) -> Self::Output;
}

/// The parameters of a handler, as a tuple of [extractors](FromRequest).
///
/// It is separate from [`Handler`], so that the compiler can name the parameter that is not an
/// extractor.
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::{Handler, Parameters};
///
/// /// Adds a page below the prefix that all pages have.
/// fn page<P: Parameters>(
///     app: App,
///     name: &str,
///     handler: impl Handler<P, Output: IntoResponse>,
/// ) -> App {
///     app.get(&format!("/pages/{name}"), handler)
/// }
///
/// let app = page(App::new(), "about", || "about us");
/// app.test().get("/pages/about").send().assert_text("about us");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` are not the parameters of a handler",
    note = "a handler has up to twelve parameters, and each is an extractor"
)]
pub trait Parameters: Sized + 'static {
    /// Extracts the parameters from a request.
    ///
    /// # Errors
    ///
    /// The response to the request, if an extractor rejects it.
    fn from_request(request: Request, context: &Context<'_>) -> Result<Self, Result<Response>>;

    /// Sets what a route with these parameters needs. It is called once per route when the app
    /// starts.
    fn configure(options: &mut RouteOptions);

    /// Fails to compile if two parameters take the same part of the request, or if the rejection of
    /// a parameter has no status. Evaluated where a route is added.
    #[doc(hidden)]
    const CHECKED: () = ();
}

/// A closure or function that several threads may call at once.
///
/// It replaces `Send + Sync` in the bounds of [`Handler`], so that the compiler's message is about
/// handlers. The message of `Sync` recommends an `RwLock`, which does not help with a connection:
/// an `RwLock<T>` is `Sync` only if `T` is.
///
/// The type parameter makes it a trait of the closure itself. Without it the compiler would notice
/// that the closure's result implements the trait, and recommend to call the closure.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be called by several threads at once",
    label = "it captures a value that threads cannot share",
    note = "handlers and middleware must be `Send + Sync`: check what this closure captures",
    note = "a connection that is not `Sync`, such as `rusqlite::Connection`, belongs in a pool: \
            pass the pool to `.state(..)` and extract it with `State(pool): State<Pool>`; put a \
            single connection into a `Mutex`",
    note = "use `Arc` in place of `Rc`, an atomic in place of `Cell`, a `Mutex` in place of \
            `RefCell`"
)]
pub trait Shareable<Of = Self>: Send + Sync {}

#[diagnostic::do_not_recommend]
impl<T: Send + Sync> Shareable<T> for T {}

/// Fails to compile if a handler is invalid. It is for `const` blocks in the methods that add
/// routes: the compiler then reports the line that calls the method, which is in the user's code.
pub(crate) const fn check_handler<P: Parameters, H: Handler<P, Output: IntoResponse>>() {
    let () = P::CHECKED;
    let () = <H::Output as IntoResponse>::CHECKED;
}

macro_rules! handlers {
    ($($parameter:ident)*) => {
        impl<F, R, $($parameter),*> Handler<($($parameter,)*)> for F
        where
            F: Fn($($parameter),*) -> R + Shareable + 'static,
        {
            type Output = R;

            #[allow(non_snake_case, reason = "a macro for any number of parameters")]
            #[inline]
            fn call(&self, ($($parameter,)*): ($($parameter,)*), _: &Context<'_>) -> R {
                self($($parameter),*)
            }
        }

        impl<$($parameter: FromRequest + 'static),*> Parameters for ($($parameter,)*) {
            #[allow(unused_mut, unused_variables, reason = "a macro for any number of parameters")]
            #[inline]
            fn from_request(
                mut request: Request,
                context: &Context<'_>,
            ) -> Result<Self, Result<Response>> {
                Ok(($(
                    match $parameter::from_request(&mut request, context) {
                        Ok(value) => value,
                        Err(rejection) => return Err(rejection.into_error_response()),
                    },
                )*))
            }

            fn configure(options: &mut RouteOptions) {
                options.take(const { most(&[$($parameter::TAKES),*]) });
                $($parameter::configure(options);)*
            }

            const CHECKED: () = {
                check_takes(&[$($parameter::TAKES),*]);
                $(
                    assert!(
                        <$parameter::Rejection as IntoResponse>::SAYS_STATUS,
                        "the `Rejection` of a parameter has no status, so the response would be a \
                         200: use `type Rejection = Error`, with an error such as \
                         `Error::unauthorized(text)`"
                    );
                )*
            };
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

/// A handler whose parameter types are erased, as routes store it.
pub(crate) trait Endpoint: Send + Sync {
    fn call(&self, request: Request, context: &Context<'_>) -> Result<Response>;
    fn configure(&self, options: &mut RouteOptions);
}

struct Erased<H, P> {
    handler: H,
    parameters: PhantomData<fn(P)>,
}

impl<H, P> Endpoint for Erased<H, P>
where
    H: Handler<P, Output: IntoResponse>,
    P: Parameters,
{
    fn call(&self, request: Request, context: &Context<'_>) -> Result<Response> {
        respond(request, |request| {
            P::from_request(request, context)
                .map(|parameters| self.handler.call(parameters, context))
        })
    }

    fn configure(&self, options: &mut RouteOptions) {
        P::configure(options);
    }
}

pub(crate) fn erase<P: Parameters>(
    handler: impl Handler<P, Output: IntoResponse>,
) -> Box<dyn Endpoint> {
    Box::new(Erased { handler, parameters: PhantomData })
}

/// An endpoint that several routes share.
pub(crate) struct SharedEndpoint(pub(crate) Arc<dyn Endpoint>);

impl Endpoint for SharedEndpoint {
    fn call(&self, request: Request, context: &Context<'_>) -> Result<Response> {
        self.0.call(request, context)
    }

    fn configure(&self, options: &mut RouteOptions) {
        self.0.configure(options);
    }
}
