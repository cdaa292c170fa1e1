//! HTTP/1.1 as bytes in, bytes out.
