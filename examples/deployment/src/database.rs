//! PostgreSQL: a pool of connections, the migrations, and a transaction per request.

use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use diesel::connection::{AnsiTransactionManager, SimpleConnection, TransactionManager};
use diesel::pg::PgConnection;
use diesel::r2d2::event::AcquireEvent;
use diesel::r2d2::{ConnectionManager, HandleError, HandleEvent, Pool, PooledConnection};
use diesel::{Connection, QueryResult, RunQueryDsl, sql_query};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};
use filoplume::middleware::{TraceContext, TraceId};
use filoplume::prelude::*;
use filoplume::routing::RouteOptions;
use filoplume::{Context, FromRequest, Permits, Result};

const MIGRATIONS: EmbeddedMigrations = embed_migrations!();

/// The connections of one instance. All instances together must stay below `max_connections` of the
/// server, which is 100 by default.
const CONNECTIONS: u32 = 16;

/// How long a request waits for a connection. Requests of most routes have a permit and do not
/// wait here. The pool tries to connect at least twice in this time.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(2);

/// The same time while no connection can be made. It is shorter, because a request that will fail
/// should not keep its permit from others.
const CONNECTION_TIMEOUT_AWAY: Duration = Duration::from_millis(100);

/// The number of the lock under which migrations run. It can be any number that no other program
/// uses in this database.
const MIGRATION_LOCK: i64 = 7_305_441_170;

type Pooled = PooledConnection<ConnectionManager<PgConnection>>;

/// The database. Clones share one pool.
#[derive(Clone)]
pub(crate) struct Database {
    url: Arc<str>,
    /// The name of this instance, as [`name_of`] returns it.
    instance: Arc<str>,
    pool: Pool<ConnectionManager<PgConnection>>,
    permits: Permits,
    reach: Reach,
}

impl Database {
    /// Connects to the database. It shows transactions under the name of the instance.
    pub(crate) fn open(url: &str, instance: &str) -> Result<Self> {
        let reach = Reach::default();
        let pool = Pool::builder()
            .max_size(CONNECTIONS)
            .min_idle(Some(1))
            .connection_timeout(CONNECTION_TIMEOUT)
            .error_handler(Box::new(reach.clone()))
            .event_handler(Box::new(reach.clone()))
            .build(ConnectionManager::new(url))?;
        let permits = Permits::new("database", CONNECTIONS as usize);
        Ok(Self { url: url.into(), instance: name_of(instance).into(), pool, permits, reach })
    }

    /// Returns a permit for each connection, so that requests wait for one without a thread.
    pub(crate) fn permits(&self) -> &Permits {
        &self.permits
    }

    /// Takes a working connection out of the pool.
    fn connection(&self) -> Result<Pooled> {
        let timeout =
            if self.reach.is_away() { CONNECTION_TIMEOUT_AWAY } else { CONNECTION_TIMEOUT };
        let unavailable = |error| Error::unavailable("the database is away").with_source(error);
        self.pool.get_timeout(timeout).map_err(unavailable)
    }

    /// Runs the migrations that are missing. Only one instance does that at a time: the others wait
    /// and then find nothing to do.
    pub(crate) fn migrate(&self) -> Result<()> {
        // The lock belongs to this connection, and ends with it if this process dies.
        let mut connection = PgConnection::establish(&self.url)?;
        connection.batch_execute(&format!("SELECT pg_advisory_lock({MIGRATION_LOCK})"))?;
        connection.run_pending_migrations(MIGRATIONS).map_err(Error::internal)?;
        Ok(())
    }

    /// Checks that the server answers, on a connection of its own: those of the pool may all be in
    /// use.
    pub(crate) fn ping(&self) -> Result<()> {
        sql_query("SELECT 1").execute(&mut PgConnection::establish(&self.url)?)?;
        Ok(())
    }
}

/// Whether the database is away. The pool reports failed attempts to connect, and connections that
/// it hands out.
#[derive(Clone, Debug, Default)]
struct Reach(Arc<AtomicBool>);

impl Reach {
    fn is_away(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl HandleError<diesel::r2d2::Error> for Reach {
    fn handle_error(&self, error: diesel::r2d2::Error) {
        // The pool tries about once per second. Only the first error is logged.
        if !self.0.swap(true, Ordering::Relaxed) {
            tracing::error!("no connection to the database: {error}");
        }
    }
}

impl HandleEvent for Reach {
    fn handle_acquire(&self, _: AcquireEvent) {
        if self.0.swap(false, Ordering::Relaxed) {
            tracing::info!("there are connections to the database again");
        }
    }
}

/// Middleware that gives each request a [`Transaction`]. It is committed if the handler succeeds,
/// before the response is sent, and rolled back otherwise.
pub(crate) struct Transactions(Database);

impl Transactions {
    pub(crate) fn new(database: Database) -> Self {
        Self(database)
    }
}

impl Middleware for Transactions {
    fn handle(&self, mut request: Request, next: Next<'_>) -> Result<Response> {
        let trace = request.extensions().get().map(TraceContext::trace_id);
        let transaction = Transaction(Arc::new(Mutex::new(Inner {
            database: self.0.clone(),
            trace,
            begun: None,
            after_commit: Vec::new(),
        })));
        request.extensions_mut().insert(transaction.clone());
        // A panic of the handler is a response with the status 500.
        let response = next.run(request);
        if response.status().as_u16() < 400 {
            transaction.commit()?;
        }
        // Otherwise it is rolled back when it is dropped.
        Ok(response)
    }

    fn configure(&self, options: &mut RouteOptions) {
        options.require::<TraceContext>("`Transactions` names them: add `.with(Tracing::new())`");
        options.provide::<Transaction>();
    }
}

/// The transaction of a request, as a parameter of its handler. It begins with the first query, so
/// that a slow content does not keep it open.
#[derive(Clone)]
pub(crate) struct Transaction(Arc<Mutex<Inner>>);

struct Inner {
    database: Database,
    trace: Option<TraceId>,
    begun: Option<Pooled>,
    after_commit: Vec<Box<dyn FnOnce() + Send>>,
}

impl Transaction {
    /// Runs queries in the transaction.
    pub(crate) fn run<T>(
        &self,
        queries: impl FnOnce(&mut PgConnection) -> QueryResult<T>,
    ) -> Result<T> {
        let mut inner = self.lock();
        let connection = match inner.begun.take() {
            Some(connection) => connection,
            None => {
                let mut connection = inner.database.connection()?;
                let begin = begin(&inner.database.instance, inner.trace);
                AnsiTransactionManager::begin_transaction_sql(&mut *connection, &begin)
                    .map_err(failed)?;
                connection
            }
        };
        queries(inner.begun.insert(connection)).map_err(failed)
    }

    /// Calls a closure when the transaction is committed, for news that others must not learn
    /// earlier.
    pub(crate) fn after_commit(&self, call: impl FnOnce() + Send + 'static) {
        self.lock().after_commit.push(Box::new(call));
    }

    /// Commits the queries so far and returns the connection to the pool. A handler needs this only
    /// if it works on for long without the database. Further queries begin another transaction.
    pub(crate) fn commit(&self) -> Result<()> {
        let mut inner = self.lock();
        if let Some(mut connection) = inner.begun.take() {
            // If the connection ends here, it is unknown whether the transaction was committed. The
            // response is a 500, because a 503 would invite clients to try again.
            AnsiTransactionManager::commit_transaction(&mut *connection)?;
        }
        let calls = mem::take(&mut inner.after_commit);
        drop(inner);
        calls.into_iter().for_each(|call| call());
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the last 30 plain characters of a name. `application_name` has room for 63 bytes, and a
/// trace needs the rest. The end of a name is what tells pods of Kubernetes apart.
fn name_of(instance: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let plain: Vec<char> = instance.chars().filter(is_plain).collect();
    plain[plain.len().saturating_sub(30)..].iter().collect()
}

/// Begins a transaction that has the instance and the trace in its name, which PostgreSQL shows in
/// `pg_stat_activity` and in its log (`%a`). That takes no further round trip, and statements keep
/// their texts, so that they stay prepared.
///
/// Neither part needs quoting: see [`name_of`], and a [`TraceId`] is a number that is displayed as
/// hexadecimal digits, whatever the client sent.
fn begin(instance: &str, trace: Option<TraceId>) -> String {
    let slash = if trace.is_some() { "/" } else { "" };
    let trace = trace.map(|trace| trace.to_string()).unwrap_or_default();
    format!("BEGIN; SET LOCAL application_name = '{instance}{slash}{trace}'")
}

/// A query on a connection that has ended fails with a 503, and others with a 500.
fn failed(error: diesel::result::Error) -> Error {
    use diesel::result::DatabaseErrorKind::{ClosedConnection, UnableToSendCommand};

    match error {
        diesel::result::Error::DatabaseError(ClosedConnection | UnableToSendCommand, _) => {
            Error::unavailable("the connection to the database has ended").with_source(error)
        }
        _ => error.into(),
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(mut connection) = self.begun.take() {
            // A connection that cannot roll back is broken, and the pool replaces it.
            let _ = AnsiTransactionManager::rollback_transaction(&mut *connection);
        }
    }
}

impl FromRequest for Transaction {
    type Rejection = Error;

    fn from_request(request: &mut Request, _: &Context<'_>) -> Result<Self> {
        request.extensions().get().cloned().ok_or_else(|| Error::internal("no transactions here"))
    }

    fn configure(options: &mut RouteOptions) {
        options.require::<Self>("it takes a `Transaction`: add `.with(Transactions::new(..))`");
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_instance_needs_no_quotes_and_leaves_room_for_a_trace() {
        /// The longest `application_name` of PostgreSQL.
        const NAME_MAX: usize = 63;
        const TRACE: usize = 32;

        assert_eq!(name_of("first"), "first");
        assert_eq!(name_of("x'; DROP TABLE notes; --"), "xDROPTABLEnotes--");
        let pod = "a-rather-long-deployment-name-7d9f8c6b54-x2x9p";
        let name = name_of(pod);
        assert!(name.len() + "/".len() + TRACE <= NAME_MAX && pod.ends_with(&name), "{name}");
        assert_eq!(begin(&name_of("a'b"), None), "BEGIN; SET LOCAL application_name = 'ab'");
    }
}
