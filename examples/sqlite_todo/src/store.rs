//! The database: users and their todos, in SQLite. Every call blocks its thread while the database
//! works.

use std::time::Duration;

use filoplume::{Error, Result};
use r2d2::{Pool, PooledConnection};
use r2d2_sqlite::SqliteConnectionManager;
use r2d2_sqlite::rusqlite::{self, OptionalExtension, params};
use serde::Serialize;

use crate::passwords;

/// How long a handler waits for a connection before it responds with a 503.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(2);

const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    CREATE TABLE IF NOT EXISTS users (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        password TEXT NOT NULL
    );
    CREATE TABLE IF NOT EXISTS todos (
        id INTEGER PRIMARY KEY,
        user INTEGER NOT NULL REFERENCES users (id),
        text TEXT NOT NULL,
        is_done INTEGER NOT NULL DEFAULT 0
    );
    CREATE INDEX IF NOT EXISTS todos_of_users ON todos (user, id);
";

/// Clones share one pool of connections.
#[derive(Clone)]
pub(crate) struct Store {
    pool: Pool<SqliteConnectionManager>,
}

#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Todo {
    pub(crate) id: i64,
    pub(crate) text: String,
    pub(crate) is_done: bool,
}

impl Store {
    /// Opens the database. Creates it if it does not exist.
    pub(crate) fn open(path: &str) -> Result<Self> {
        let manager = SqliteConnectionManager::file(path)
            .with_init(|connection| connection.busy_timeout(Duration::from_secs(2)));
        let pool =
            Pool::builder().max_size(8).connection_timeout(CONNECTION_TIMEOUT).build(manager)?;
        let store = Self { pool };
        store.connection()?.execute_batch(SCHEMA)?;
        Ok(store)
    }

    /// Adds a user and returns its ID. Returns `None` if the name is taken.
    pub(crate) fn register(&self, name: &str, password: &str) -> Result<Option<i64>> {
        // Before the connection is taken: a hash takes longer than the query.
        let hash = passwords::hash(password)?;
        let connection = self.connection()?;
        let added = connection.execute(
            "INSERT INTO users (name, password) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
            params![name, hash],
        )?;
        Ok((added > 0).then(|| connection.last_insert_rowid()))
    }

    /// Returns the ID of the user with this name and password.
    pub(crate) fn login(&self, name: &str, password: &str) -> Result<Option<i64>> {
        let found = self.connection()?.query_row(
            "SELECT id, password FROM users WHERE name = ?1",
            [name],
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)),
        );
        let found = found.optional()?;
        let stored = found.as_ref().map(|(_, hash)| hash.as_str());
        let is_right = passwords::is_right(password, stored)?;
        Ok(found.filter(|_| is_right).map(|(id, _)| id))
    }

    pub(crate) fn todos(&self, user: i64) -> Result<Vec<Todo>> {
        let connection = self.connection()?;
        let mut query = connection
            .prepare_cached("SELECT id, text, is_done FROM todos WHERE user = ?1 ORDER BY id")?;
        let todos = query.query_map([user], |row| {
            Ok(Todo { id: row.get(0)?, text: row.get(1)?, is_done: row.get(2)? })
        })?;
        Ok(todos.collect::<rusqlite::Result<_>>()?)
    }

    pub(crate) fn add(&self, user: i64, text: &str) -> Result<Todo> {
        let connection = self.connection()?;
        connection
            .execute("INSERT INTO todos (user, text) VALUES (?1, ?2)", params![user, text])?;
        Ok(Todo { id: connection.last_insert_rowid(), text: text.to_owned(), is_done: false })
    }

    /// Returns whether the user has this todo.
    pub(crate) fn set_done(&self, user: i64, id: i64, is_done: bool) -> Result<bool> {
        let changed = self.connection()?.execute(
            "UPDATE todos SET is_done = ?3 WHERE user = ?1 AND id = ?2",
            params![user, id, is_done],
        )?;
        Ok(changed > 0)
    }

    /// Returns whether the user had this todo.
    pub(crate) fn remove(&self, user: i64, id: i64) -> Result<bool> {
        let removed = self
            .connection()?
            .execute("DELETE FROM todos WHERE user = ?1 AND id = ?2", [user, id])?;
        Ok(removed > 0)
    }

    fn connection(&self) -> Result<PooledConnection<SqliteConnectionManager>> {
        self.pool
            .get()
            .map_err(|error| Error::unavailable("the database is busy").with_source(error))
    }
}
