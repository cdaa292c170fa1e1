//! The options of `https://`.

use std::path::PathBuf;

use clap::Args;

use crate::target::Target;
use crate::tls::{Tls, TlsFiles, TlsSettings};

/// The options, as the help text shows them.
#[derive(Args, Debug)]
#[command(next_help_heading = "TLS")]
pub(super) struct TlsArguments {
    /// Accept any certificate of the server.
    #[arg(short = 'k', long, conflicts_with = "cacert")]
    insecure: bool,
    /// A PEM file with the authorities to trust. [default: those of the system]
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// A PEM file with the certificate of the client.
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// A PEM file with the key of the client. [default: the file of --cert]
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Make every handshake a full one. Without it, sessions are resumed if the server allows it.
    /// With --no-keepalive, this measures handshakes.
    #[arg(long)]
    no_resumption: bool,
}

impl TlsArguments {
    /// Returns TLS for a target that is encrypted.
    pub(super) fn tls(&self, target: &Target) -> Result<Option<Tls>, String> {
        if !target.scheme.is_secure() {
            return match self.given() {
                Some(option) => Err(format!("{option} is for https:// and wss://")),
                None => Ok(None),
            };
        }
        let files = TlsFiles {
            authorities: self.cacert.clone(),
            certificate: self.cert.clone(),
            key: self.key.clone(),
        };
        let settings =
            TlsSettings { files, is_insecure: self.insecure, is_always_full: self.no_resumption };
        Tls::new(target.host.name(), &settings).map(Some)
    }

    /// Returns the first option that was given.
    fn given(&self) -> Option<&'static str> {
        let options = [
            (self.insecure, "--insecure"),
            (self.cacert.is_some(), "--cacert"),
            (self.cert.is_some(), "--cert"),
            (self.no_resumption, "--no-resumption"),
        ];
        options.into_iter().find_map(|(is_given, name)| is_given.then_some(name))
    }
}
