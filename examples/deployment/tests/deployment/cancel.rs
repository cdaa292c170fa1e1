//! A query that nobody waits for any more ends in PostgreSQL too.

use std::time::{Duration, Instant};

use deployment::stack::LAME_DUCK;
use diesel::pg::PgConnection;
use diesel::sql_types::{BigInt, Integer};
use diesel::{Connection, QueryableByName, RunQueryDsl, sql_query};
use filoplume::Cancel;
use filoplume::prelude::*;
use harness::{Client, beside_others, eventually_within};

use super::start;

/// How soon a query ends after its client has gone. It would run for a minute otherwise.
const SOON: Duration = Duration::from_secs(5);

#[derive(QueryableByName)]
struct Pid {
    #[diesel(sql_type = Integer)]
    pid: i32,
}

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

/// How many connections run the report.
fn running(connection: &mut PgConnection) -> i64 {
    let counted = sql_query(
        "SELECT count(*) AS count FROM pg_stat_activity WHERE state = 'active' AND query LIKE \
         '%pg_sleep(60)%' AND pid <> pg_backend_pid()",
    );
    counted.get_result::<Count>(connection).unwrap().count
}

#[test]
fn a_query_ends_when_its_client_has_gone() {
    let _shared = beside_others();
    let Some((_folder, stack)) = start(LAME_DUCK) else { return };
    let url = stack.database();
    let mut watch = PgConnection::establish(&url).unwrap();
    let app = App::new().route(
        "/report",
        get(move |cancel: Cancel| -> Result<String> {
            let mut connection = PgConnection::establish(&url)?;
            let Pid { pid } =
                sql_query("SELECT pg_backend_pid() AS pid").get_result(&mut connection)?;
            // The connection is busy, so another one carries the request to cancel.
            let also = url.clone();
            let interrupt = move || {
                if let Ok(mut other) = PgConnection::establish(&also) {
                    let _ =
                        sql_query(format!("SELECT pg_cancel_backend({pid})")).execute(&mut other);
                }
            };
            let ended = cancel.interruptible(interrupt, || {
                sql_query("SELECT pg_sleep(60)").execute(&mut connection)
            });
            let ended = ended.expect("the client is there").unwrap_err().to_string();
            assert!(ended.contains("user request"), "{ended}");
            // The connection can still be used.
            sql_query("SELECT 1").execute(&mut connection)?;
            Ok("nobody reads this".to_owned())
        })
        .on_pool(),
    );
    let app = app.metrics("/metrics").start("127.0.0.1:0").unwrap();
    let clients: Vec<Client> = (0..3)
        .map(|_| {
            let mut client = Client::connect(app.local_addr());
            client.send("GET /report HTTP/1.1\r\nHost: a\r\n\r\n");
            client
        })
        .collect();
    eventually_within(SOON, "the queries run", || running(&mut watch) == 3);
    let gone = Instant::now();
    drop(clients);
    eventually_within(SOON, "the queries have ended", || running(&mut watch) == 0);
    println!("the queries ended after {:?}", gone.elapsed());
    let metrics = || Client::connect(app.local_addr()).get("/metrics").text().to_owned();
    let series = "http_server_requests_total{method=\"GET\",route=\"/report\",status=\"200\"} 3\n";
    eventually_within(SOON, "the handlers have returned", || metrics().contains(series));
}
