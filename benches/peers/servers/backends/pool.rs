//! Pools of connections, all set up alike.

use std::sync::LazyLock;
use std::time::Duration;

use r2d2::{ManageConnection, Pool, PooledConnection};

use crate::Error;

/// As many as the load has connections, so that no handler waits for another.
pub const CONNECTIONS: u32 = 64;

/// Longer than any load is slow. It is r2d2's own default, and has a name because a queue of
/// writers may reach it.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// A pool that is opened on its first use, or why it could not be.
pub type LazyPool<M> = LazyLock<Result<Pool<M>, String>>;

/// Opens all connections. They are not tested before each use, because that would be a second call
/// to the backend.
pub fn open<M: ManageConnection>(manager: M, connections: u32) -> Result<Pool<M>, Error> {
    let pool =
        Pool::builder().max_size(connections).connection_timeout(WAIT_MAX).test_on_check_out(false);
    Ok(pool.build(manager)?)
}

/// Takes a connection, and waits until there is one.
pub fn take<M: ManageConnection>(pool: &LazyPool<M>) -> Result<PooledConnection<M>, Error> {
    let pool = pool.as_ref().map_err(String::as_str)?;
    Ok(pool.get()?)
}

/// The error as text, so that it can be kept.
pub fn kept<T>(opened: Result<T, Error>) -> Result<T, String> {
    opened.map_err(|error| error.to_string())
}
