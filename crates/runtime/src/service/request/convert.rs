//! Requests of the crate `http`.

use filoplume_http1::{Headers, RequestHead, Version};

use super::{Rare, Request};
use crate::service::body::Body;
use crate::transport::Peer;

impl TryFrom<Request> for http::Request<Body> {
    type Error = http::Error;

    fn try_from(request: Request) -> Result<Self, Self::Error> {
        let mut converted = http::Request::builder()
            .method(request.head.method().clone())
            .uri(request.head.target())
            .version(request.head.version().into())
            .body(request.body)?;
        *converted.headers_mut() = http::HeaderMap::from(request.head.headers());
        *converted.extensions_mut() = request.rare.unwrap_or_default().extensions;
        Ok(converted)
    }
}

impl<B: Into<Body>> TryFrom<http::Request<B>> for Request {
    type Error = filoplume_http1::ParseError;

    /// Fails if HTTP/1.1 cannot express the target or the version.
    fn try_from(request: http::Request<B>) -> Result<Self, Self::Error> {
        let (parts, body) = request.into_parts();
        let version = Version::try_from(parts.version)?;
        let mut head = RequestHead::new(parts.method, &parts.uri.to_string(), version)?;
        *head.headers_mut() = Headers::from(&parts.headers);
        Ok(Self {
            head,
            body: body.into(),
            peer: Peer::Unix,
            #[cfg(feature = "tls")]
            tls: None,
            route: None,
            rare: Some(Box::new(Rare { extensions: parts.extensions, ..Rare::default() })),
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use super::*;

    #[test]
    fn a_request_of_the_crate_http_keeps_its_version() {
        for version in [http::Version::HTTP_10, http::Version::HTTP_11] {
            let request = http::Request::get("/a").version(version).body(Body::default()).unwrap();
            let request = Request::try_from(request).unwrap();
            assert_eq!(http::Request::try_from(request).unwrap().version(), version);
        }
        let request = http::Request::get("/a").version(http::Version::HTTP_2);
        assert!(Request::try_from(request.body(Body::default()).unwrap()).is_err());
    }
}
