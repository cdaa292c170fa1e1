//! One request has one trace ID, from haproxy to PostgreSQL.

use std::net::SocketAddr;
use std::thread;

use diesel::connection::SimpleConnection;
use diesel::pg::PgConnection;
use diesel::sql_types::Text;
use diesel::{Connection, QueryableByName, RunQueryDsl, sql_query};
use harness::{Client, Response, beside_others, eventually};

use super::traffic::log_in;
use super::{LAME_DUCK, start};

#[derive(QueryableByName)]
struct Name {
    #[diesel(sql_type = Text)]
    application_name: String,
}

/// Returns the names of the requests whose transactions wait for a lock. An instance that has just
/// started may wait for one too, without a request.
fn names_of_waiting(connection: &mut PgConnection) -> Vec<String> {
    let query = "SELECT application_name FROM pg_stat_activity \
                 WHERE wait_event_type = 'Lock' AND application_name LIKE '%/%'";
    let names = sql_query(query).get_results::<Name>(connection).unwrap();
    names.into_iter().map(|name| name.application_name).collect()
}

fn add_note(address: SocketAddr, cookie: &str, text: &str, fields: &str) -> Response {
    let content = format!("{{\"text\":\"{text}\"}}");
    let mut client = Client::connect(address);
    let length = content.len();
    client.send(format!(
        "POST /api/notes?secret=17 HTTP/1.1\r\nHost: t\r\nCookie: {cookie}\r\nConnection: close\r\n\
         Content-Type: application/json\r\n{fields}Content-Length: {length}\r\n\r\n{content}"
    ));
    client.response()
}

/// Sends a request whose transaction has to wait for a lock. Returns the name of that transaction.
fn name_of_a_slow_transaction(
    connections: &mut [PgConnection; 2],
    address: SocketAddr,
    cookie: &str,
    fields: &str,
) -> String {
    let [locker, watcher] = connections;
    locker.batch_execute("BEGIN; LOCK TABLE notes IN EXCLUSIVE MODE").unwrap();
    let name = thread::scope(|scope| {
        let adding = scope.spawn(|| add_note(address, cookie, "a secret note", fields));
        let mut names = Vec::new();
        eventually("the transaction waits", || {
            names = names_of_waiting(watcher);
            !names.is_empty()
        });
        // PostgreSQL logs statements that take a tenth of a second.
        locker.batch_execute("SELECT pg_sleep(0.2); COMMIT").unwrap();
        assert_eq!(adding.join().unwrap().status, 201);
        names.remove(0)
    });
    eventually("no transaction waits", || names_of_waiting(watcher).is_empty());
    name
}

const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

#[test]
fn one_trace_id_leads_from_haproxy_to_the_database() {
    let _shared = beside_others();
    let Some((_folder, stack)) = start(LAME_DUCK) else { return };
    let address = stack.address();
    let cookie = log_in(address, "ada");
    let mut connections = [(); 2].map(|()| PgConnection::establish(&stack.database()).unwrap());
    let valid = format!("traceparent: 00-{TRACE_ID}-00f067aa0ba902b7-01\r\n");
    let rows = [
        ("no trace", String::new(), false),
        ("a valid one", valid.clone(), true),
        ("SQL", format!("traceparent: 00-{TRACE_ID}' ; DROP TABLE notes; --\r\n"), false),
        ("SQL after it", format!("traceparent: 00-{TRACE_ID}-00f067aa0ba902b7-01'; --\r\n"), false),
        ("zeros", format!("traceparent: 00-{TRACE_ID}-0000000000000000-01\r\n"), false),
        ("two", valid.repeat(2), false),
        ("a list", format!("traceparent: 00-{TRACE_ID}-00f067aa0ba902b7-01, x\r\n"), false),
    ];
    let mut seen = Vec::new();
    for (what, fields, is_kept) in rows {
        let name = name_of_a_slow_transaction(&mut connections, address, &cookie, &fields);
        let (instance, id) = name.split_once('/').unwrap_or_else(|| panic!("{what}: {name}"));
        assert_eq!(id == TRACE_ID, is_kept, "{what}: {id}");
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        assert!(id.len() == 32 && id.bytes().all(is_digit), "{what}: {id}");
        let has = |log: &str, parts: &[&str]| {
            eventually(&format!("{log} has {parts:?} of {what}"), || {
                let log = stack.log(log).unwrap();
                log.lines().any(|line| parts.iter().all(|part| line.contains(part)))
            });
        };
        let in_haproxy = format!(" trace_id={id} POST \"/api/notes\"");
        has("haproxy", &[&format!("server={instance} "), " status=201 ", &in_haproxy]);
        let in_instance = format!("\"trace_id\":\"{id}\"");
        has(instance, &["\"path\":\"/api/notes\"", "\"status\":201", &in_instance]);
        has("postgres", &[&format!(" {name} LOG:  duration: "), "INSERT INTO \"notes\""]);
        assert!(!seen.contains(&name), "{what}: {name} again");
        seen.push(name);
    }
    // A connection has no trace when its transaction is over.
    let [locker, _] = &mut connections;
    let query = "SELECT application_name FROM pg_stat_activity WHERE application_name LIKE '%/%'";
    eventually("no name is left", || {
        sql_query(query).get_results::<Name>(locker).unwrap().is_empty()
    });
    // No log contains texts, queries, passwords or cookies of clients.
    for log in ["haproxy", "first", "second", "postgres"] {
        let text = stack.log(log).unwrap();
        for secret in ["DROP TABLE", "a secret note", "secret=17", "correct horse", &cookie] {
            assert!(!text.contains(secret), "{log} has {secret:?}");
        }
    }
}
