//! TLS addresses of a server.

use std::io;

use super::address::IntoAddress;
use super::{Server, ServerBuilder};
use crate::error::{Kind, Result};
use crate::tls::Tls;
use crate::tls::acceptor::Acceptor;

/// Why a certificate for development is not used for other addresses.
const NOT_LOCAL: &str = "`Tls::development` is only for addresses of this machine, such as \
                         127.0.0.1 and localhost: other machines cannot know whether to trust it. \
                         Use `Tls::from_pem_files` for other addresses";

impl ServerBuilder {
    /// Binds one more address, on which every connection begins with a TLS handshake. A request
    /// without TLS is answered with `400`.
    ///
    /// ```no_run
    /// use filoplume_runtime::{Server, Tls};
    ///
    /// let server = Server::builder()
    ///     .bind_tls("0.0.0.0:443", Tls::from_pem_files("cert.pem", "key.pem"))?
    ///     .build()?;
    /// # drop(server);
    /// # Ok::<(), filoplume_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`bind`](Self::bind), and an error that names the file if a certificate or a key cannot
    /// be used.
    pub fn bind_tls(mut self, address: impl IntoAddress, tls: Tls) -> Result<Self> {
        let is_for_any = tls.is_for_any_address();
        let acceptor = Acceptor::new(tls).map_err(|source| Kind::Tls { source: source.into() })?;
        self = self.bind(address)?;
        let bound = self.bound.last_mut().ok_or(Kind::NoListener)?;
        let address = bound.local_address().map(|address| address.ip());
        if !is_for_any && !address.is_some_and(|address| address.is_loopback()) {
            let source = io::Error::other(NOT_LOCAL);
            return Err(Kind::Tls { source }.into());
        }
        bound.entry.tls = Some(acceptor);
        Ok(self)
    }
}

impl Server {
    /// Loads the certificates and keys of all TLS addresses again, whether or not their files have
    /// changed. New connections get the new certificates. An address whose files are broken keeps
    /// its old ones.
    ///
    /// # Errors
    ///
    /// Returns the first error, which names the file.
    #[cfg(feature = "tls")]
    pub fn reload_tls(&self) -> Result<()> {
        let mut result = Ok(());
        for acceptor in &self.shared.acceptors {
            let reloaded = acceptor.reload();
            result = result.and(reloaded);
        }
        result.map_err(|source| Kind::Tls { source: source.into() }.into())
    }
}
