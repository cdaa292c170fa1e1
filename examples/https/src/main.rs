//! HTTPS: a certificate made on the spot or from files, an address that redirects, and clients that
//! are known by their certificates.
//!
//! ```sh
//! cargo run -p https
//! curl --insecure https://localhost:5443/
//! curl --insecure --location http://localhost:5080/
//!
//! cargo run -p https -- 127.0.0.1:5443 127.0.0.1:5080 cert.pem key.pem clients-ca.pem
//! curl --cacert ca.pem --cert alice.pem --key alice.key https://localhost:5443/whoami
//! ```

use std::env;
use std::time::Duration;

use filoplume::prelude::*;
use filoplume::{ClientCertificate, Listen, Tls};

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let https = arguments.next().unwrap_or_else(|| "127.0.0.1:5443".to_owned());
    let http = arguments.next().unwrap_or_else(|| "127.0.0.1:5080".to_owned());
    let mut tls = match (arguments.next(), arguments.next()) {
        // Changed files are loaded without a restart.
        (Some(certificates), Some(key)) => Tls::from_pem_files(certificates, key),
        _ => Tls::development()?,
    };
    if let Some(authorities) = arguments.next() {
        tls = tls.optional_client_certificates(authorities);
    }
    app().listen_on(Listen::new().https(https, tls).redirect_to_https(http))
}

fn app() -> App {
    App::new()
        .get("/", |client: ClientAddr| format!("Hello over {}!", client.scheme()))
        .get("/session", |request: Request| match request.tls() {
            Some(tls) => format!("{} for {:?}", tls.version(), tls.server_name()),
            None => "no TLS".to_owned(),
        })
        // Clients without a certificate get a 403.
        .get("/whoami", |client: ClientCertificate| client.subject())
        .with(middleware::Logger::new())
        // Browsers that were here once use https from then on.
        .with(middleware::SecurityHeaders::new().hsts(Duration::from_secs(365 * 24 * 3600)))
}
