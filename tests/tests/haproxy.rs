//! Restarts of one of two instances behind a load balancer: no request fails.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use filoplume::{App, Health, RunningApp, ServerConfig};
use filoplume_tests::{Client, Load, eventually, free_address, installed};

/// How often the balancer asks an instance whether it is ready, and after how many refusals it
/// sends no more requests to it.
const CHECK_MILLISECONDS: u64 = 100;
const FALL: u64 = 2;

/// Several times longer than the balancer needs, because the machine may be busy.
const LAME_DUCK: Duration = Duration::from_millis(CHECK_MILLISECONDS * FALL * 8);

/// A running haproxy. It ends with its test.
struct Balancer(Child);

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn balance(folder: &Path, address: SocketAddr, instances: [SocketAddr; 2]) -> Balancer {
    let [first, second] = instances;
    let file = folder.join("haproxy.cfg");
    // The rest is as haproxy has it by default: connections to the instances are kept and reused.
    let configuration = format!(
        "defaults\n  mode http\n  timeout connect 5s\n  timeout client 30s\n  timeout server 30s\n\
         frontend all\n  bind {address}\n  default_backend instances\n\
         backend instances\n  option httpchk GET /ready\n\
         \x20 default-server check inter {CHECK_MILLISECONDS}ms fall {FALL} rise 1\n\
         \x20 server first {first}\n  server second {second}\n"
    );
    std::fs::write(&file, configuration).unwrap();
    let child = Command::new("haproxy")
        .args(["-db", "-q", "-f"])
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    Balancer(child)
}

fn start(name: &'static str, address: SocketAddr) -> RunningApp {
    App::new()
        .get("/", move || name)
        .health(Health::new())
        .config(ServerConfig::behind_proxy().lame_duck(LAME_DUCK))
        .start(address)
        .unwrap()
}

fn answers(address: SocketAddr, text: &str) -> bool {
    let Ok(mut client) = Client::try_connect(address) else { return false };
    client.try_send("GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").is_ok()
        && client.try_response().is_ok_and(|response| response.text() == text)
}

#[test]
fn restarts_of_instances_behind_haproxy_fail_no_request() {
    if !installed("haproxy") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let address = free_address();
    let mut instances = ["first", "second"].map(|name| Some(start(name, free_address())));
    let addresses = instances.each_ref().map(|app| app.as_ref().unwrap().local_addr());
    let _balancer = balance(folder.path(), address, addresses);
    for name in ["first", "second"] {
        eventually("both instances get requests", || answers(address, name));
    }
    // Each response must be a 200, on the connection on which the request was sent.
    let load = Load::start(address, 64, "/");
    load.each_reaches(10);
    for (round, name) in ["first again", "second again"].into_iter().enumerate() {
        // Waits for the lame-duck time and for the drain.
        instances[round].take().unwrap().shutdown();
        load.reaches(load.served() + 200);
        instances[round] = Some(start(name, addresses[round]));
        load.goes_on_until("the new instance gets requests", || answers(address, name));
    }
    load.stop();
}
