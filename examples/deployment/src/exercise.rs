//! Problems on purpose, for the exercise in docs/guide/operating.md. Without the variable `PLANT`
//! there are none. It is for machines on which nobody depends.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use std::{env, thread};

use diesel::{RunQueryDsl, sql_query};
use filoplume::Result;
use filoplume::prelude::*;
use socket2::{Domain, Socket, Type};

use crate::database::{Database, Transaction, Transactions};

/// The problem that is planted. Each has routes of the app and traffic from [`start_traffic`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// A route is slow, and others suffer from it.
    Slow,
    /// Handlers do not return.
    Leak,
    /// One client sends far more than others.
    Flood,
    /// Nothing is wrong. Calls of `/spread` take different times, with which metrics can be
    /// checked.
    Spread,
}

impl Plant {
    /// Returns what the variable `PLANT` names, if it is set.
    ///
    /// # Errors
    ///
    /// If there is no plant of this name.
    pub fn from_environment() -> Result<Option<Self>> {
        env::var("PLANT").ok().map(|name| name.parse()).transpose()
    }
}

impl FromStr for Plant {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "slow" => Ok(Self::Slow),
            "leak" => Ok(Self::Leak),
            "flood" => Ok(Self::Flood),
            "spread" => Ok(Self::Spread),
            _ => Err(Error::bad_request(format!(
                "PLANT is {name:?}, and must be slow, leak, flood or spread"
            ))),
        }
    }
}

/// The routes of all plants, whichever is chosen, so that a list of routes does not give it away.
pub(crate) fn router(database: &Database) -> Router {
    let search = Router::new()
        .get("/search", search)
        .with(database.permits().clone())
        .with(Transactions::new(database.clone()));
    Router::new().merge(search).get("/export", export).get("/spread", spread)
}

/// Holds a connection of the database, and a permit, for two seconds.
fn search(transaction: Transaction) -> Result<&'static str> {
    transaction.run(|connection| sql_query("SELECT pg_sleep(2)").execute(connection))?;
    Ok("found nothing\n")
}

/// A service that accepts connections and never answers.
static SILENT: LazyLock<io::Result<SocketAddr>> = LazyLock::new(|| {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    thread::spawn(move || listener.incoming().collect::<Vec<_>>());
    Ok(address)
});

/// Waits for an answer without a time-out. The thread is lost.
fn export() -> Result<String> {
    let address = SILENT.as_ref().map_err(|error| Error::internal(error.to_string()))?;
    let mut answer = String::new();
    TcpStream::connect(address)?.read_to_string(&mut answer)?;
    Ok(answer)
}

fn spread() -> &'static str {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    thread::sleep(nth_time(CALLS.fetch_add(1, Ordering::Relaxed)));
    "waited\n"
}

/// Five milliseconds, and a time that is distributed exponentially with a mean of 15 ms: the 99th
/// percentile is 74 ms. Each start has the same times.
#[expect(clippy::cast_precision_loss, reason = "53 random bits are a number from 0 to 1")]
fn nth_time(number: u64) -> Duration {
    // SplitMix64.
    let mut bits = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let share = ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64;
    Duration::from_millis(5) + Duration::from_secs_f64(-0.015 * (1.0 - share).max(1e-4).ln())
}

/// The address from which the flood comes, so that it can be told from other clients.
const FLOODER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);

/// Running clients. They stop when it is dropped.
#[derive(Debug)]
pub struct Traffic(Arc<AtomicBool>);

/// Starts clients on threads of their own: some usual ones, and those of the plant.
#[must_use = "the clients stop when it is dropped"]
pub fn start_traffic(plant: Plant, address: SocketAddr) -> Traffic {
    let traffic = Traffic(Arc::default());
    for target in ["/", "/api/notes", "/page.js", "/"] {
        traffic.spawn(Client { address, from: None, target, pause: Duration::from_millis(250) });
    }
    let (clients, target, pause) = match plant {
        Plant::Slow => (48, "/search", Duration::from_millis(20)),
        Plant::Leak => (10, "/export", Duration::from_millis(100)),
        Plant::Flood => (400, "/", Duration::ZERO),
        Plant::Spread => (10, "/spread", Duration::from_millis(20)),
    };
    let from = (plant == Plant::Flood).then_some(FLOODER);
    for _ in 0..clients {
        traffic.spawn(Client { address, from, target, pause });
    }
    traffic
}

impl Traffic {
    fn spawn(&self, client: Client) {
        let is_over = Arc::clone(&self.0);
        thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                // Failed requests are part of the exercise.
                let _ = client.ask();
                thread::sleep(client.pause);
            }
        });
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Client {
    address: SocketAddr,
    from: Option<Ipv4Addr>,
    target: &'static str,
    pause: Duration,
}

impl Client {
    /// Sends a request on a new connection, and gives up after five seconds.
    fn ask(&self) -> io::Result<()> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        if let Some(from) = self.from {
            socket.bind(&SocketAddr::from((from, 0)).into())?;
        }
        socket.connect(&self.address.into())?;
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let target = self.target;
        let request = format!("GET {target} HTTP/1.1\r\nHost: app\r\nConnection: close\r\n\r\n");
        // In one write, because a second one would wait until the first one is acknowledged.
        stream.write_all(request.as_bytes())?;
        io::copy(&mut stream, &mut io::sink()).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_spread_are_what_its_comment_says() {
        let mut times: Vec<Duration> = (0..100_000).map(nth_time).collect();
        times.sort_unstable();
        assert_eq!(times[0].as_millis(), 5);
        assert!((72..77).contains(&times[99_000].as_millis()), "{:?}", times[99_000]);
        assert!(times[99_999] < Duration::from_millis(150));
    }
}
