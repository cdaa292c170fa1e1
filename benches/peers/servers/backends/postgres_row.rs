//! A row in PostgreSQL, by its primary key.

use std::sync::LazyLock;

use postgres::{Client, NoTls, Statement};
use r2d2::ManageConnection;

use crate::pool::{self, CONNECTIONS, LazyPool};
use crate::{Error, ROWS, place};

/// Adds the rows that are missing. Every server but the first one finds all of them.
const ROWS_THERE: &str = "
    CREATE TABLE IF NOT EXISTS items (id integer PRIMARY KEY, value text NOT NULL);
    INSERT INTO items SELECT id, 'value ' || id FROM generate_series(0, $LAST) AS id ON CONFLICT \
                          DO NOTHING;
    ANALYZE items;";

const BY_KEY: &str = "SELECT value FROM items WHERE id = $1";

static POOL: LazyPool<Manager> = LazyLock::new(|| pool::kept(open()));

pub fn read(key: u32) -> Result<String, Error> {
    let mut connection = pool::take(&POOL)?;
    let Connection { client, by_key } = &mut *connection;
    let row = client.query_one(by_key, &[&key.cast_signed()])?;
    Ok(row.try_get(0)?)
}

fn open() -> Result<r2d2::Pool<Manager>, Error> {
    let manager =
        Manager { url: format!("postgres://postgres@{}/postgres", place("POSTGRES_ADDRESS")?) };
    let last = (ROWS - 1).to_string();
    manager.client()?.batch_execute(&ROWS_THERE.replace("$LAST", &last))?;
    pool::open(manager, CONNECTIONS)
}

/// Opens connections with their statement prepared. `r2d2_postgres` would prepare it for each call.
struct Manager {
    url: String,
}

struct Connection {
    client: Client,
    by_key: Statement,
}

impl Manager {
    fn client(&self) -> Result<Client, postgres::Error> {
        Client::connect(&self.url, NoTls)
    }
}

impl ManageConnection for Manager {
    type Connection = Connection;
    type Error = postgres::Error;

    fn connect(&self) -> Result<Connection, postgres::Error> {
        let mut client = self.client()?;
        let by_key = client.prepare(BY_KEY)?;
        Ok(Connection { client, by_key })
    }

    fn is_valid(&self, connection: &mut Connection) -> Result<(), postgres::Error> {
        connection.client.batch_execute("")
    }

    fn has_broken(&self, connection: &mut Connection) -> bool {
        connection.client.is_closed()
    }
}
