//! Apps called in process, by subject. They share one binary, because each binary has to be linked.

mod client_address;
mod conditional;
mod cookies;
mod credentials;
mod csrf;
mod downloads;
mod extractors;
mod file_response;
mod guards;
mod instances;
mod middleware;
mod mistakes;
mod multipart;
mod own_errors;
mod presentation;
mod redirects;
mod redis_server;
mod revocation;
mod routing;
mod security;
mod serving;
mod sessions;
mod sse;
mod static_files;
mod templates;
mod test_client;
