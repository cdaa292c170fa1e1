//! The TLS side of an address: gives each new connection the current certificates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Mutex, RwLock};
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::{
    ProducesTickets, ServerConfig, ServerSessionMemoryCache, StoresServerSessions,
    UnbufferedServerConnection, WebPkiClientVerifier,
};

use super::certificates::{Certificates, Unusable, expiry_warning, load_authorities};
use super::files::{Source, Stamp};
use super::{Clients, Tls};

/// Maximum number of TLS 1.2 sessions that are kept for clients that do not support tickets. All
/// other clients keep their sessions themselves, encrypted in tickets.
const SESSIONS_MAX: usize = 1024;

/// How often a certificate that was not renewed is warned of.
const WARNING_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// The TLS side of an address.
#[derive(Debug)]
pub(crate) struct Acceptor {
    tls: Tls,
    provider: Arc<CryptoProvider>,
    current: RwLock<Current>,
    loads_failed: AtomicU64,
    /// When the files were last checked, and their stamps at that time.
    checked: Mutex<Checked>,
}

/// What new connections get.
#[derive(Debug)]
struct Current {
    config: Arc<ServerConfig>,
    /// When the first of the certificates expires.
    expires: Option<SystemTime>,
}

/// The state of the certificates of a server, for its metrics.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CertificateState {
    /// When the first one expires.
    pub(crate) expires: Option<SystemTime>,
    /// How often certificates that were loaded again could not be used.
    pub(crate) loads_failed: u64,
}

#[derive(Debug)]
struct Checked {
    at: Instant,
    stamps: Vec<Option<Stamp>>,
    /// When the expiry of the certificates was last checked. Loading them checks it too.
    warned_at: Instant,
}

impl Checked {
    fn now(stamps: Vec<Option<Stamp>>) -> Self {
        let now = Instant::now();
        Self { at: now, stamps, warned_at: now }
    }
}

/// The parts of the configuration that resume sessions. A reload keeps them, unless clients are
/// asked for certificates.
struct Resumption {
    ticketer: Arc<dyn ProducesTickets>,
    sessions: Arc<dyn StoresServerSessions>,
}

impl Acceptor {
    /// Reads the files.
    pub(crate) fn new(tls: Tls) -> Result<Arc<Self>, Unusable> {
        let provider = Arc::new(ring::default_provider());
        let stamps = stamps(&tls);
        let current = configure(&tls, &provider, None)?;
        Ok(Arc::new(Self {
            tls,
            provider,
            current: RwLock::new(current),
            loads_failed: AtomicU64::new(0),
            checked: Mutex::new(Checked::now(stamps)),
        }))
    }

    /// Begins a connection. If the reload interval has passed, checks the files first and loads
    /// changed ones.
    pub(crate) fn begin(&self) -> Result<UnbufferedServerConnection, rustls::Error> {
        if let Some(interval) = self.tls.reload_interval {
            self.check_files(interval);
        }
        UnbufferedServerConnection::new(Arc::clone(&self.current.read().config))
    }

    /// Returns whether clients are asked for certificates. With TLS 1.3, a step after the first one
    /// is costly only if it verifies such a certificate.
    pub(crate) fn asks_clients(&self) -> bool {
        !matches!(self.tls.clients, Clients::Anonymous)
    }

    /// Loads the files again. If they are broken, the old certificates stay in use.
    pub(crate) fn reload(&self) -> Result<(), Unusable> {
        let mut checked = self.checked.lock();
        // The stamps are taken before the files are read, so that the next check notices a change
        // in between.
        *checked = Checked::now(stamps(&self.tls));
        self.load()
    }

    /// Loads the files if the interval has passed and they have changed. One thread does that at a
    /// time, and the others continue with the current certificates.
    fn check_files(&self, interval: Duration) {
        let Some(mut checked) = self.checked.try_lock() else { return };
        if checked.at.elapsed() < interval {
            return;
        }
        checked.at = Instant::now();
        let stamps = stamps(&self.tls);
        if stamps == checked.stamps {
            if let Some(warning) = self.overdue_warning(&mut checked, SystemTime::now()) {
                tracing::warn!(tls = ?self.tls.pairs, "{warning}");
            }
            return;
        }
        checked.stamps = stamps;
        match self.load() {
            Ok(()) => {
                checked.warned_at = checked.at;
                tracing::info!(tls = ?self.tls.pairs, "the changed certificates are loaded");
            }
            Err(error) => tracing::error!(
                %error,
                "the changed certificates cannot be used, so the old ones stay in use"
            ),
        }
    }

    /// Returns a warning of a certificate that nobody has renewed, once a day. Clients that refuse
    /// the certificate send no request that could be logged.
    fn overdue_warning(&self, checked: &mut Checked, now: SystemTime) -> Option<&'static str> {
        if checked.at.saturating_duration_since(checked.warned_at) < WARNING_INTERVAL {
            return None;
        }
        checked.warned_at = checked.at;
        expiry_warning(self.current.read().expires?, now)
    }

    fn load(&self) -> Result<(), Unusable> {
        let earlier = Arc::clone(&self.current.read().config);
        let current = configure(&self.tls, &self.provider, Some(&earlier)).inspect_err(|_| {
            self.loads_failed.fetch_add(1, Ordering::Relaxed);
        })?;
        *self.current.write() = current;
        Ok(())
    }

    /// Returns the state of the certificates of several addresses.
    pub(crate) fn state(acceptors: &[Arc<Self>]) -> CertificateState {
        CertificateState {
            expires: acceptors.iter().filter_map(|of| of.current.read().expires).min(),
            loads_failed: acceptors.iter().map(|of| of.loads_failed.load(Ordering::Relaxed)).sum(),
        }
    }
}

/// Returns the configuration for rustls, with the current content of the files.
fn configure(
    tls: &Tls,
    provider: &Arc<CryptoProvider>,
    earlier: Option<&ServerConfig>,
) -> Result<Current, Unusable> {
    let certificates = Certificates::load(&tls.pairs, provider)?;
    let expires = certificates.expires();
    let failed = |error: rustls::Error| Unusable::of("TLS cannot be set up", &error);
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(failed)?;
    let verifier = |source: &Source| {
        let authorities = Arc::new(load_authorities(source)?);
        Ok(WebPkiClientVerifier::builder_with_provider(authorities, Arc::clone(provider)))
    };
    let verifier = match &tls.clients {
        Clients::Anonymous => None,
        Clients::Optional(source) => Some(verifier(source)?.allow_unauthenticated().build()),
        Clients::Required(source) => Some(verifier(source)?.build()),
    };
    let builder = match verifier {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder
            .with_client_cert_verifier(verifier.map_err(|error| {
                Unusable::of("client certificates cannot be asked for", &error)
            })?),
    };
    let mut config = builder.with_cert_resolver(Arc::new(certificates));
    let Resumption { ticketer, sessions } = resumption(tls, earlier).map_err(failed)?;
    config.ticketer = ticketer;
    config.session_storage = sessions;
    config.alpn_protocols.clone_from(&tls.protocols);
    Ok(Current { config: Arc::new(config), expires })
}

/// Returns the parts that resume sessions. A session with a client's certificate is not resumed
/// after a reload, because the authority that issued the certificate may have been removed.
fn resumption(tls: &Tls, earlier: Option<&ServerConfig>) -> Result<Resumption, rustls::Error> {
    match (earlier, &tls.clients) {
        (Some(earlier), Clients::Anonymous) => Ok(Resumption {
            ticketer: Arc::clone(&earlier.ticketer),
            sessions: Arc::clone(&earlier.session_storage),
        }),
        _ => Ok(Resumption {
            ticketer: ring::Ticketer::new()?,
            sessions: ServerSessionMemoryCache::new(SESSIONS_MAX),
        }),
    }
}

fn stamps(tls: &Tls) -> Vec<Option<Stamp>> {
    let authorities = match &tls.clients {
        Clients::Anonymous => None,
        Clients::Optional(source) | Clients::Required(source) => source.stamp(),
    };
    let pairs = tls.pairs.iter().flat_map(|pair| pair.stamps());
    pairs.chain([authorities]).collect()
}

#[cfg(all(test, feature = "tls-dev"))]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_nobody_renews_is_warned_of_once_a_day() {
        let acceptor = Acceptor::new(Tls::development().unwrap()).unwrap();
        let now = SystemTime::now();
        let mut checked = acceptor.checked.lock();
        let mut after = |days: u32| {
            checked.at += WARNING_INTERVAL * days;
            acceptor.overdue_warning(&mut checked, now)
        };
        assert_eq!(after(1), None, "it is valid for long");
        acceptor.current.write().expires = Some(now + WARNING_INTERVAL * 3);
        assert_eq!(after(0), None);
        assert_eq!(after(1), Some("the certificate expires within 14 days"));
        assert_eq!(after(0), None, "it was warned of");
        acceptor.current.write().expires = Some(now - WARNING_INTERVAL);
        assert_eq!(after(1), Some("the certificate has expired"));
    }

    #[test]
    fn the_files_are_looked_at_again_only_after_the_interval() {
        let acceptor = Acceptor::new(Tls::development().unwrap()).unwrap();
        let current = || Arc::clone(&acceptor.current.read().config);
        assert!(Acceptor::state(&[Arc::clone(&acceptor)]).expires > Some(SystemTime::now()));
        let stamps = stamps(&acceptor.tls);
        let change = || acceptor.checked.lock().stamps = vec![None; stamps.len() + 1];
        let first = current();
        change();
        acceptor.check_files(Duration::MAX);
        assert!(Arc::ptr_eq(&first, &current()), "it was checked a moment ago");
        acceptor.check_files(Duration::ZERO);
        let second = current();
        assert!(!Arc::ptr_eq(&first, &second));
        change();
        acceptor.reload().unwrap();
        assert!(!Arc::ptr_eq(&second, &current()));
        assert_eq!(acceptor.checked.lock().stamps, stamps, "the next check finds no change");
    }
}
