//! Handlers: closures and functions whose parameters are extractors.

use std::marker::PhantomData;
use std::sync::Arc;

use filoplume_runtime::{Request, Response};

use super::context::Context;
use super::error::Result;
use super::extract::Extract;
use super::options::RouteOptions;
use super::response::{IntoResponse, respond};
use super::takes::{check_takes, most};

/// What answers the requests of a route: a closure or function with up to twelve
/// [extractors](Extract) as parameters that returns something that [becomes a
/// response](IntoResponse). It may block for as long as it likes.
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
    note = "a handler is a closure or function with up to twelve parameters; more are gathered in \
            a type of your own that implements `Extract`",
    note = "each parameter has its type written: `|Path(id): Path<u64>, State(db): State<Db>|`",
    note = "a handler may be called by several threads at once: it changes what it shares behind \
            a `Mutex` or in atomics, and clones what it gives away"
)]
pub trait Handler<P>: Send + Sync + 'static {
    /// What it returns.
    type Output;

    /// Calls it.
    fn call(&self, parameters: P, context: &Context<'_>) -> Self::Output;
}

/// The parameters of a handler, as a tuple of [extractors](Extract).
///
/// It is apart from [`Handler`] so that the compiler can say which of the parameters is no
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
    /// Makes them from a request.
    ///
    /// # Errors
    ///
    /// What is answered instead, if an extractor refuses.
    fn extract(request: Request, context: &Context<'_>) -> Result<Self, Result<Response>>;

    /// Says what a route needs that has these. Called once a route when the app starts.
    fn configure(options: &mut RouteOptions);

    /// Fails to compile if two of them take the same. Evaluated where a route is added.
    #[doc(hidden)]
    const CHECKED: () = ();
}

/// A closure or function that all threads may call.
///
/// It stands for `Send + Sync` in the bounds of [`Handler`], so that the compiler's message is
/// about handlers. The message of `Sync` recommends an `RwLock`, which does not help with a
/// connection: an `RwLock<T>` can only be shared if `T` can.
///
/// It is a trait of the closure itself, by its parameter: otherwise the compiler notices that what
/// the closure returns has the trait, and recommends to call it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be called by several threads at once",
    label = "it holds something that threads cannot share",
    note = "handlers and middleware are `Send + Sync`: look at what this closure captures",
    note = "a connection that is not `Sync`, such as `rusqlite::Connection`, belongs in a pool: \
            give the pool to `.state(..)` and take it as `State(pool): State<Pool>`; a single \
            connection goes into a `Mutex`",
    note = "`Rc` becomes `Arc`, `Cell` an atomic, and `RefCell` a `Mutex`"
)]
pub trait Shareable<Of = Self>: Send + Sync {}

#[diagnostic::do_not_recommend]
impl<T: Send + Sync> Shareable<T> for T {}

/// Fails to compile if a handler cannot answer as it is written. For a `const` block where a route
/// is added: the compiler names the place from which that function is called, which is the user's
/// line.
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

        impl<$($parameter: Extract + 'static),*> Parameters for ($($parameter,)*) {
            #[allow(unused_mut, unused_variables, reason = "a macro for any number of parameters")]
            #[inline]
            fn extract(mut request: Request, context: &Context<'_>) -> Result<Self, Result<Response>> {
                Ok(($(
                    match $parameter::extract(&mut request, context) {
                        Ok(value) => value,
                        Err(rejection) => return Err(rejection.into_response()),
                    },
                )*))
            }

            fn configure(options: &mut RouteOptions) {
                options.take(const { most(&[$($parameter::TAKES),*]) });
                $($parameter::configure(options);)*
            }

            const CHECKED: () = check_takes(&[$($parameter::TAKES),*]);
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
            P::extract(request, context).map(|parameters| self.handler.call(parameters, context))
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

/// An endpoint of several routes.
pub(crate) struct SharedEndpoint(pub(crate) Arc<dyn Endpoint>);

impl Endpoint for SharedEndpoint {
    fn call(&self, request: Request, context: &Context<'_>) -> Result<Response> {
        self.0.call(request, context)
    }

    fn configure(&self, options: &mut RouteOptions) {
        self.0.configure(options);
    }
}
