//! Parts of an app with an address of their own: a second server, which ends after the app.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
#[cfg(unix)]
use std::path::PathBuf;
use std::time::Duration;

use filoplume_runtime::ServerConfig;

use super::{AppService, Bound, Listen, bind, log_address, start_up};
use crate::app::{App, Beside, Part};
use crate::core::error::{Error, Result};
use crate::routing::Router;

/// How long viewers of the console may take to get the end of its feed when the app has ended.
const DRAIN: Duration = Duration::from_secs(1);

/// The connections of the people who operate the app. A browser opens a few, and a viewer that is
/// refused has one.
const CONNECTIONS_MAX: usize = 64;

/// The threads that check access, and make the first snapshots and the metrics.
const THREADS_MAX: usize = 4;

/// The servers of all such addresses.
#[derive(Default)]
struct Servers(Vec<BesideServer>);

struct BesideServer {
    address: String,
    /// The parts at this address, each with its path.
    parts: Vec<(Part, String)>,
    stage: Stage,
}

enum Stage {
    /// The app for the address.
    Described(Box<App>),
    Bound(Bound, AppService),
    Serving(Bound),
    Ended,
}

impl App {
    /// Serves a part on an address of its own.
    pub(crate) fn add_beside(&mut self, address: String, part: Part, path: &str, routes: Router) {
        let beside = self.beside.get_or_insert_with(|| Box::new(Servers::default()));
        let added = beside.add(address, part, path, routes);
        self.router.mistakes.extend(added.err());
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().map(|server| (&server.address, &server.parts))).finish()
    }
}

impl Beside for Servers {
    fn add(
        &mut self,
        address: String,
        part: Part,
        path: &str,
        routes: Router,
    ) -> Result<(), String> {
        if let Some(first) = self.0.iter().find(|server| server.has(part)) {
            return Err(format!(
                "there are two addresses of the {}, {} and {address}: leave one out",
                part.name(),
                first.address
            ));
        }
        let parts = vec![(part, path.to_owned())];
        match self.0.iter_mut().find(|server| server.address == address) {
            Some(BesideServer { parts: known, stage: Stage::Described(app), .. }) => {
                known.extend(parts);
                let router = std::mem::take(&mut app.router);
                app.router = router.merge(routes);
            }
            _ => {
                let stage = Stage::Described(Box::new(App::new().merge(routes)));
                self.0.push(BesideServer { address, parts, stage });
            }
        }
        Ok(())
    }

    fn unbound(&self) -> String {
        let name_of = |server: &BesideServer| {
            let (part, _) = server.parts.first()?;
            Some(format!(
                "the address of the {}, {}, is one which `App::build` cannot bind: use \
                 `App::listen_on` or `App::start_on`, or {}",
                part.name(),
                server.address,
                part.instead()
            ))
        };
        self.0.iter().find_map(name_of).unwrap_or_default()
    }

    fn inherit(&mut self, of_app: &App) {
        for server in &mut self.0 {
            if let Stage::Described(app) = &mut server.stage {
                app.router.states = of_app.router.states.clone();
                app.settings.proxies = of_app.settings.proxies.clone();
            }
        }
    }

    fn bind(&mut self, restart: Option<&Path>) -> Result<()> {
        self.0.iter_mut().try_for_each(|server| server.bind(restart))
    }

    fn start(&mut self) -> Result<()> {
        self.0.iter_mut().try_for_each(BesideServer::start)
    }

    fn end(&mut self) {
        // All servers are shut down before one is waited for, so that they end at the same time.
        let ended: Vec<Bound> = self.0.iter_mut().filter_map(BesideServer::shut_down).collect();
        ended.iter().for_each(|bound| bound.server.wait());
    }

    fn addr_of(&self, part: Part) -> Option<SocketAddr> {
        match &self.0.iter().find(|server| server.has(part))?.stage {
            Stage::Bound(bound, _) | Stage::Serving(bound) => bound.server.local_addr(),
            Stage::Described(_) | Stage::Ended => None,
        }
    }
}

impl BesideServer {
    fn has(&self, part: Part) -> bool {
        self.parts.iter().any(|(known, _)| *known == part)
    }

    /// Returns the name for the threads and the control socket of this server. It does not depend
    /// on the order of the parts.
    fn name(&self) -> &'static str {
        let names = self.parts.iter().map(|(part, _)| part.name());
        names.min().unwrap_or_default()
    }

    fn bind(&mut self, restart: Option<&Path>) -> Result<()> {
        let stage = std::mem::replace(&mut self.stage, Stage::Ended);
        let Stage::Described(app) = stage else { return Ok(()) };
        let name = self.name();
        // The server has a loop of its own, so that it answers while those of the app are busy.
        let config = ServerConfig::default()
            .event_loops(1)
            .threads_max(THREADS_MAX)
            .connections_max(CONNECTIONS_MAX)
            .raise_descriptor_limit(false)
            .drain_timeout(DRAIN)
            .thread_name(name);
        let service = app.config(config).build()?;
        let listen = listen_beside(restart, name).http(self.address.as_str());
        let bound = bind(listen).map_err(|error| self.with_parts(&error))?;
        self.stage = Stage::Bound(bound, service);
        Ok(())
    }

    /// Says whose address cannot be bound: it may be one on which the app itself listens.
    fn with_parts(&self, error: &Error) -> Error {
        let names: Vec<_> = self.parts.iter().map(|(part, _)| part.name()).collect();
        let instead: Vec<_> = self.parts.iter().map(|(part, _)| part.instead()).collect();
        Error::start_up(format!(
            "the address of the {}: {error}. Choose another one, or {}",
            names.join(" and the "),
            instead.join(" and ")
        ))
    }

    fn start(&mut self) -> Result<()> {
        let stage = std::mem::replace(&mut self.stage, Stage::Ended);
        let Stage::Bound(bound, service) = stage else { return Ok(()) };
        bound.server.spawn(service).map_err(start_up)?;
        for url in &bound.urls {
            for (part, path) in &self.parts {
                log_address(&format!("{url}{path}, with the {}", part.name()));
            }
        }
        self.stage = Stage::Serving(bound);
        Ok(())
    }

    /// Shuts the server down. Returns it if it was serving, so that the caller can wait for its
    /// end.
    fn shut_down(&mut self) -> Option<Bound> {
        let stage = std::mem::replace(&mut self.stage, Stage::Ended);
        let Stage::Serving(bound) = stage else { return None };
        bound.server.shutdown_handle().shutdown();
        Some(bound)
    }
}

impl Drop for BesideServer {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// Returns a list without addresses. `name` is that of a part. A new process takes over an address
/// only if the old one has the same name there: if it has metrics where the old one had a console,
/// it cannot bind the address before the old one has ended.
#[cfg(unix)]
fn listen_beside(restart: Option<&Path>, name: &str) -> Listen {
    let Some(path) = restart else { return Listen::new() };
    Listen::new().hot_restart(restart_path(path, name))
}

/// Returns the control socket of a part of an app.
#[cfg(unix)]
pub(super) fn restart_path(of_app: &Path, name: &str) -> PathBuf {
    let mut path = of_app.to_owned().into_os_string();
    path.push(".");
    path.push(name);
    path.into()
}

#[cfg(not(unix))]
fn listen_beside(_: Option<&Path>, _: &str) -> Listen {
    Listen::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_addresses_the_first_one_is_named() {
        let mut servers = Servers::default();
        for (address, part) in [("one:1", Part::Health), ("two:2", Part::Metrics)] {
            assert_eq!(servers.add(address.to_owned(), part, "/", Router::new()), Ok(()));
        }
        let mistake = servers.unbound();
        assert!(mistake.contains("probes, one:1,"), "{mistake}");
    }

    /// Otherwise a new process would take over the address of another part.
    #[cfg(unix)]
    #[test]
    fn each_part_hands_over_at_a_path_of_its_own() {
        let listen = listen_beside(Some(Path::new("/run/app")), "metrics");
        assert_eq!(listen.restart_path(), Some(Path::new("/run/app.metrics")));
        assert_eq!(listen_beside(None, "metrics").restart_path(), None);
    }
}
