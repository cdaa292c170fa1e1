//! A value in Redis, by its key.

use std::sync::LazyLock;

use redis::{Client, Commands};

use crate::pool::{self, CONNECTIONS, LazyPool};
use crate::{Error, ROWS, place, value_of, written};

static POOL: LazyPool<Client> = LazyLock::new(|| pool::kept(open()));

pub fn get(key: u32) -> Result<String, Error> {
    let value: Option<String> = pool::take(&POOL)?.get(name(key))?;
    value.ok_or_else(|| format!("Redis has no key {key}").into())
}

pub fn set(key: u32) -> Result<String, Error> {
    let () = pool::take(&POOL)?.set(name(key), value_of(key))?;
    Ok(written(key))
}

fn open() -> Result<r2d2::Pool<Client>, Error> {
    let client = Client::open(format!("redis://{}/", place("REDIS_ADDRESS")?))?;
    let values: Vec<(String, String)> = (0..ROWS).map(|key| (name(key), value_of(key))).collect();
    let () = client.get_connection()?.mset(&values)?;
    pool::open(client, CONNECTIONS)
}

fn name(key: u32) -> String {
    format!("key:{key}")
}
