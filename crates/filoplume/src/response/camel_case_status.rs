//! The names that statuses have in some other frameworks, such as `StatusCode::NotFound`.
//!
//! Without them the compiler says only that it does not find the name.

use filoplume_runtime::StatusCode;

macro_rules! statuses {
    ($($other:ident $name:ident),+ $(,)?) => {
        /// Explains names such as `StatusCode::NotFound`: each is a deprecated constant, and the
        /// warning says how the right one is written.
        #[doc(hidden)]
        #[allow(non_upper_case_globals, reason = "these are the names that others have")]
        pub trait CamelCaseStatus {
            $(
                #[deprecated(
                    note = "the statuses of `StatusCode` are written in capitals, such as \
                            `StatusCode::NOT_FOUND` and `StatusCode::OK`"
                )]
                const $other: StatusCode = StatusCode::$name;
            )+
        }
    };
}

statuses! {
    Ok OK, Created CREATED, Accepted ACCEPTED, NoContent NO_CONTENT,
    MovedPermanently MOVED_PERMANENTLY, Found FOUND, SeeOther SEE_OTHER, NotModified NOT_MODIFIED,
    TemporaryRedirect TEMPORARY_REDIRECT, PermanentRedirect PERMANENT_REDIRECT,
    BadRequest BAD_REQUEST, Unauthorized UNAUTHORIZED, Forbidden FORBIDDEN, NotFound NOT_FOUND,
    MethodNotAllowed METHOD_NOT_ALLOWED, Conflict CONFLICT, Gone GONE,
    PreconditionFailed PRECONDITION_FAILED, PayloadTooLarge PAYLOAD_TOO_LARGE,
    UnsupportedMediaType UNSUPPORTED_MEDIA_TYPE, ImATeapot IM_A_TEAPOT,
    UnprocessableEntity UNPROCESSABLE_ENTITY, TooManyRequests TOO_MANY_REQUESTS,
    InternalServerError INTERNAL_SERVER_ERROR, NotImplemented NOT_IMPLEMENTED,
    BadGateway BAD_GATEWAY, ServiceUnavailable SERVICE_UNAVAILABLE,
    GatewayTimeout GATEWAY_TIMEOUT,
}

impl CamelCaseStatus for StatusCode {}
