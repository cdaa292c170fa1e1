//! What an attempt to log in or to register costs, and whom it tells what.

use std::net::SocketAddr;
use std::{fs, thread};

use deployment::stack::LAME_DUCK;
use diesel::Connection;
use diesel::pg::PgConnection;
use harness::{Response, beside_others};

use super::traffic::{log_in, request};
use super::{count, start};

/// How many attempts a client may make at once.
const ATTEMPTS: usize = 30;

fn attempt(address: SocketAddr, target: &str, name: &str, password: &str) -> Response {
    let content = format!("{{\"name\":\"{name}\",\"password\":\"{password}\"}}");
    request(address, "POST", target, "", &content)
}

/// The processor time that a process has used, in ticks of 10 ms.
fn processor_ticks(process: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // The name of the program may contain spaces.
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let fields: Vec<&str> = fields.split(' ').collect();
    // `utime` and `stime` are fields 14 and 15, and the first one here is field 3.
    fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// Checks that this route has a limit of its own, and not only the one of the API.
fn attempts_are_limited(target: &str, status: u16) {
    let _shared = beside_others();
    let Some((_folder, stack)) = start(LAME_DUCK) else { return };
    let address = stack.instance(0);
    // Meanwhile the client regains an attempt every two seconds.
    let statuses: Vec<u16> =
        (0..ATTEMPTS + 10).map(|_| attempt(address, target, "eve", "short").status).collect();
    assert_eq!(statuses[..ATTEMPTS], [status; ATTEMPTS]);
    assert!(statuses.contains(&429), "{statuses:?}");
    assert_eq!(request(address, "GET", "/api/notes", "", "").status, 200);
}

#[test]
fn attempts_to_log_in_are_limited() {
    attempts_are_limited("/api/login", 403);
}

#[test]
fn attempts_to_register_are_limited() {
    attempts_are_limited("/api/accounts", 422);
}

/// The processor time stands for the time of the response, which depends on the other tests.
#[test]
fn an_unknown_name_costs_as_much_as_a_wrong_password() {
    const EACH: usize = 12;
    let _shared = beside_others();
    let Some((_folder, stack)) = start(LAME_DUCK) else { return };
    let address = stack.instance(0);
    let process = stack.instance_process(0).unwrap();
    log_in(address, "ada");
    let [wrong, unknown] = ["ada", "eve"].map(|name| {
        let before = processor_ticks(process);
        let answers = [(); EACH].map(|()| attempt(address, "/api/login", name, "wrong horse"));
        let ticks = processor_ticks(process) - before;
        (ticks, answers.map(|answer| (answer.status, answer.text().to_owned())))
    });
    println!("ticks for wrong passwords and for unknown names: {} and {}", wrong.0, unknown.0);
    assert_eq!(wrong.1, unknown.1);
    assert_eq!(unknown.1[0].0, 403);
    assert!(unknown.0 >= wrong.0 / 2, "an unknown name takes less: {} of {}", unknown.0, wrong.0);
    let right = attempt(address, "/api/login", "ada", "correct horse");
    assert_eq!(right.status, 204, "{right:?}");
}

/// A transaction is open for a moment between its statements. If it were open while the password is
/// checked, one would be open nearly all the time.
#[test]
fn no_transaction_is_open_while_a_password_is_checked() {
    const OPEN: &str = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'";
    let _shared = beside_others();
    let Some((_folder, stack)) = start(LAME_DUCK) else { return };
    let address = stack.instance(0);
    log_in(address, "ada");
    let mut watcher = PgConnection::establish(&stack.database()).unwrap();
    let mut samples = Vec::new();
    thread::scope(|scope| {
        let clients = [(); 3].map(|()| {
            scope.spawn(|| [(); 8].map(|()| attempt(address, "/api/login", "ada", "wrong horse")))
        });
        while clients.iter().any(|client| !client.is_finished()) {
            samples.push(count(&mut watcher, OPEN));
        }
        for answer in clients.into_iter().flat_map(|client| client.join().unwrap()) {
            assert_eq!(answer.status, 403, "{answer:?}");
        }
    });
    let open = samples.iter().filter(|open| **open > 0).count();
    println!("a transaction was open in {open} of {} samples", samples.len());
    assert!(open < samples.len() / 2, "{open} of {}", samples.len());
}
