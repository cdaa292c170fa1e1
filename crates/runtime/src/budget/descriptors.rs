//! The descriptors that the process may have, and the part of them that is for connections.
//!
//! A connection may need a second descriptor: for the file that is sent on it, the file in which
//! its content waits, or the handle by which a handler reads. Such second descriptors are counted
//! here, and connections by a counter of their own. The sum of both leaves a reserve to the
//! program. At the maximum, new connections wait, the longest idle ones are closed, and what would
//! need another descriptor is refused.
//!
//! Two counters decide, and each thread changes one and then reads the other. Threads that do so
//! at the same moment may go beyond the maximum by one descriptor each, which the reserve has room
//! for. No wake-up can be lost: a loop that may not accept looks again when one of its connections
//! ends, and ten times a second, and a thread that waits for the answer of a loop has a deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::budget::clients::{ClientConnection, ClientDescriptor};

/// One descriptor in this many is not used for connections. The program needs them for files,
/// databases and clients.
const RESERVED_SHARE: usize = 8;

/// The minimum of reserved descriptors: the standard streams, pollers and listeners of the engine,
/// and some files.
const RESERVED_MIN: usize = 32;

/// The maximum of reserved descriptors. Database pools and open files are counted in hundreds.
const RESERVED_MAX: usize = 1024;

/// One in this many of the reserved descriptors is lent while idle connections are being closed.
/// Their loops close them, and a response does not wait for that.
const LENT_SHARE: usize = 4;

/// One client may hold one descriptor in this many in addition to those of its connections, if
/// clients are counted.
const CLIENT_SHARE: usize = 8;

/// The soft limit is not raised beyond this number, which is Linux's default maximum for one
/// process (`fs.nr_open`). Some containers have a hard limit of 1,000,000,000, and programs that a
/// handler starts may loop over all descriptors.
#[cfg(unix)]
const RAISED_MAX: u64 = 1024 * 1024;

/// The descriptors that are held in addition to those of connections, and their maximum.
#[derive(Debug)]
pub(crate) struct Descriptors {
    /// The maximum of connections and held descriptors together.
    max: usize,
    /// How many may be held beyond the maximum for a moment.
    lent_max: usize,
    held: AtomicUsize,
}

/// What becomes of a descriptor that is going to be held.
#[derive(Debug)]
pub(crate) enum Holding {
    Within(HeldDescriptor),
    /// It is beyond the maximum: an idle connection must be closed for it.
    Lent(HeldDescriptor),
    /// As `Lent`, and too many are lent already.
    Full,
    /// The client holds its share.
    ClientFull,
}

/// A descriptor in addition to that of a connection. Dropping it removes it from the counts, so it
/// is dropped after the file or socket that it stands for.
#[derive(Debug)]
pub(crate) struct HeldDescriptor {
    descriptors: Arc<Descriptors>,
    count: usize,
    /// The count of the client, if clients are counted.
    _of_client: Option<ClientDescriptor>,
}

impl Descriptors {
    /// Returns the budget of a process that may have `descriptors_max`. `None` means no limit.
    pub(crate) fn new(descriptors_max: Option<usize>) -> Arc<Self> {
        let (max, lent_max) = descriptors_max.map_or((usize::MAX, 0), |descriptors_max| {
            let reserved = reserved(descriptors_max);
            ((descriptors_max - reserved).max(1), reserved / LENT_SHARE)
        });
        Arc::new(Self { max, lent_max, held: AtomicUsize::new(0) })
    }

    /// Returns the maximum of connections: the configured number, or less if there are too few
    /// descriptors.
    pub(crate) fn connections_max(&self, configured: usize) -> usize {
        configured.min(self.max)
    }

    /// Returns the maximum of connections and held descriptors together.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// Returns how many are held now.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns whether there may be one more connection in addition to these.
    pub(crate) fn have_room(&self, connections: u64) -> bool {
        connections.saturating_add(self.held() as u64) < self.max as u64
    }

    /// Counts one more descriptor, in addition to those of this many connections, for the client
    /// with this connection.
    pub(crate) fn hold(
        self: &Arc<Self>,
        connections: u64,
        client: Option<&Arc<ClientConnection>>,
    ) -> Holding {
        let of_client = match client {
            Some(client) => {
                let Some(held) = client.hold_descriptor((self.max / CLIENT_SHARE).max(1)) else {
                    return Holding::ClientFull;
                };
                Some(held)
            }
            None => None,
        };
        let held = self.count(of_client);
        let used = connections.saturating_add(self.held() as u64);
        if used <= self.max as u64 {
            Holding::Within(held)
        } else if used <= self.max.saturating_add(self.lent_max) as u64 {
            Holding::Lent(held)
        } else {
            Holding::Full
        }
    }

    /// Counts one more descriptor that exists already, or is bounded elsewhere.
    pub(crate) fn force(self: &Arc<Self>) -> HeldDescriptor {
        self.count(None)
    }

    fn count(self: &Arc<Self>, of_client: Option<ClientDescriptor>) -> HeldDescriptor {
        self.held.fetch_add(1, Ordering::Relaxed);
        HeldDescriptor { descriptors: Arc::clone(self), count: 1, _of_client: of_client }
    }
}

impl HeldDescriptor {
    /// Counts one more descriptor, which exists already.
    pub(crate) fn another(&self) -> Self {
        self.descriptors.force()
    }

    /// Counts more descriptors of the same owner. They are bounded by the number of threads.
    pub(crate) fn add(&mut self, count: usize) {
        self.descriptors.held.fetch_add(count, Ordering::Relaxed);
        self.count += count;
    }

    /// Removes descriptors that [`add`](Self::add) has counted.
    pub(crate) fn remove(&mut self, count: usize) {
        let count = count.min(self.count);
        self.descriptors.held.fetch_sub(count, Ordering::Relaxed);
        self.count -= count;
    }
}

impl Drop for HeldDescriptor {
    fn drop(&mut self) {
        self.descriptors.held.fetch_sub(self.count, Ordering::Relaxed);
    }
}

/// Returns how many descriptors are for the program.
fn reserved(descriptors_max: usize) -> usize {
    (descriptors_max / RESERVED_SHARE).clamp(RESERVED_MIN, RESERVED_MAX).min(descriptors_max / 2)
}

/// Raises the soft limit of open files to the hard limit.
#[cfg(unix)]
pub(crate) fn raise_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(current) = current else { return };
    let mut wanted = maximum.unwrap_or(RAISED_MAX).min(RAISED_MAX);
    // macOS refuses values above another limit of the kernel, which the hard limit does not
    // reflect.
    while wanted > current {
        if setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).is_ok() {
            return;
        }
        wanted /= 2;
    }
}

/// Returns the soft limit of open files; `None` if there is none.
#[cfg(unix)]
pub(crate) fn limit() -> Option<usize> {
    use rustix::process::{Resource, getrlimit};

    usize::try_from(getrlimit(Resource::Nofile).current?).ok()
}

/// Windows has no limit of handles except memory.
#[cfg(not(unix))]
pub(crate) fn raise_limit() {}

#[cfg(not(unix))]
pub(crate) fn limit() -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::clients::Clients;

    #[test]
    fn some_descriptors_are_reserved_for_the_program() {
        for (configured, descriptors_max, expected) in [
            (65_536, None, 65_536),
            (65_536, Some(1024), 896),
            (65_536, Some(65_536), 64_512),
            (65_536, Some(1_048_576), 65_536),
            (100, Some(1024), 100),
            (65_536, Some(256), 224),
            (65_536, Some(40), 20),
            (65_536, Some(0), 1),
        ] {
            let connections_max = Descriptors::new(descriptors_max).connections_max(configured);
            assert_eq!(connections_max, expected, "{descriptors_max:?}");
        }
    }

    #[test]
    fn connections_and_held_descriptors_stay_below_the_reserve() {
        // 224 are not reserved, and 8 of the others may be lent.
        let descriptors = Descriptors::new(Some(256));
        let mut held = Vec::new();
        for connections in [100, 200, 220] {
            while descriptors.have_room(connections) {
                let Holding::Within(one) = descriptors.hold(connections, None) else { panic!() };
                held.push(one);
            }
            assert_eq!(held.len() as u64, 224 - connections);
            let lent: Vec<_> = (0..8).map(|_| descriptors.hold(connections, None)).collect();
            assert!(lent.iter().all(|one| matches!(one, Holding::Lent(_))), "{lent:?}");
            assert!(matches!(descriptors.hold(connections, None), Holding::Full));
            assert_eq!(descriptors.held(), held.len() + 8);
            held.clear();
        }
        held.push(descriptors.force());
        held[0].add(2);
        assert_eq!(descriptors.held(), 3);
        held[0].remove(2);
        held.clear();
        assert_eq!(descriptors.held(), 0);
        let unlimited = Descriptors::new(None);
        assert!(matches!(unlimited.hold(u64::MAX - 1, None), Holding::Within(_)));
    }

    #[test]
    fn one_client_holds_an_eighth_of_them() {
        let clients = Arc::new(Clients::new(1000));
        let client = |address: &str| clients.admit(address.parse().unwrap()).unwrap();
        let (one, same, other) = (client("192.0.2.1"), client("192.0.2.1"), client("192.0.2.2"));
        let descriptors = Descriptors::new(Some(256));
        let hold = |client: &Option<_>| descriptors.hold(10, client.as_ref());
        let mut held: Vec<_> = (0..28).map(|_| hold(&one)).collect();
        assert!(held.iter().all(|one| matches!(one, Holding::Within(_))));
        assert!(matches!(hold(&same), Holding::ClientFull), "its connections count together");
        assert!(matches!(hold(&other), Holding::Within(_)));
        assert!(matches!(hold(&None), Holding::Within(_)), "it is not counted");
        held.pop();
        assert!(matches!(hold(&same), Holding::Within(_)));
        held.clear();
        assert_eq!(descriptors.held(), 0);
    }

    #[test]
    #[cfg(unix)]
    fn the_limit_is_raised_and_never_lowered() {
        let before = limit();
        raise_limit();
        assert!(before.is_none_or(|before| limit().is_none_or(|after| after >= before)));
    }
}
