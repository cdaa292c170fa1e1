//! A query of a real SQLite ends when nobody waits for its result any more.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use filoplume::Cancel;
use filoplume::prelude::*;
use rusqlite::{Connection, ErrorCode};

/// How long a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// A query without end.
const COUNTS: &str =
    "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c";

fn ask(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("the app listens");
    stream.write_all(b"GET /count HTTP/1.1\r\nHost: t\r\n\r\n").expect("it has just connected");
    stream
}

#[test]
fn a_query_is_interrupted_when_its_client_has_gone_and_the_next_one_is_not() {
    let database = Arc::new(Mutex::new(Connection::open_in_memory().unwrap()));
    let (told, tells) = mpsc::channel();
    let handler = move |cancel: Cancel| {
        let database = database.lock().unwrap();
        let interrupt = database.get_interrupt_handle();
        let counted = cancel.interruptible(
            move || interrupt.interrupt(),
            || {
                // The client may leave before the query begins. Then the query is interrupted as
                // well.
                told.send(Ok(0)).unwrap();
                database.query_row(COUNTS, [], |row| row.get::<_, i64>(0))
            },
        );
        let counted = counted.expect("the client is there");
        // The next query on this connection. The callback can no longer interrupt it.
        let next = database.query_row(
            "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT 300000) SELECT \
             count(*) FROM c",
            [],
            |row| row.get::<_, i64>(0),
        );
        told.send(counted.and(Ok(1)).or_else(|error| match error.sqlite_error_code() {
            Some(ErrorCode::OperationInterrupted) => next,
            _ => Err(error),
        }))
        .unwrap();
    };
    let app = App::new().get("/count", handler).start("127.0.0.1:0").unwrap();
    for _ in 0..5 {
        let client = ask(app.local_addr());
        assert_eq!(tells.recv_timeout(PATIENCE).unwrap(), Ok(0), "the query begins");
        drop(client);
        let ended = tells.recv_timeout(PATIENCE).expect("the query ends");
        assert_eq!(ended, Ok(300_000), "interrupted, and the next query was not");
    }
    app.shutdown();
}
