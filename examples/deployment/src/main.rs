//! The program: an instance of the app, or everything that it needs.
//!
//! ```sh
//! cargo run -- up              # everything, in a temporary folder, until Ctrl-C
//! cargo run -- up /tmp/data    # in a folder that stays
//! PLANT=slow cargo run -- up   # with a problem to find: docs/guide/operating.md
//! cargo run -- serve 127.0.0.1:5000   # one instance; README.md lists its environment
//! cargo run -- probe 127.0.0.1:5000   # whether that instance is alive
//! ```

use std::env;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use deployment::exercise::{Plant, start_traffic};
use deployment::stack::{Options, Stack};
use deployment::{Settings, serve};
use filoplume::{Error, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["up"] => up(tempfile::tempdir()?.path()),
        ["up", folder] => up(Path::new(folder)),
        ["serve", address] => serve(address, Settings::from_environment()?),
        ["probe", address] => probe(address),
        _ => Err(Error::bad_request(
            "usage: deployment up [FOLDER] | deployment serve ADDRESS | deployment probe ADDRESS",
        )),
    }
}

/// Fails unless the instance at this address is alive. For the health check of a container that has
/// no other program.
fn probe(address: &str) -> Result<()> {
    const PATIENCE: Duration = Duration::from_secs(2);
    let address: SocketAddr = address.parse()?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut start = [0; 12];
    stream.read_exact(&mut start)?;
    let is_alive = &start == b"HTTP/1.1 200";
    if is_alive { Ok(()) } else { Err(Error::unavailable("the instance is not alive")) }
}

fn up(folder: &Path) -> Result<()> {
    // Registered before the first child starts, so that a signal ends none of them early.
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let program: PathBuf = env::current_exe()?;
    // The instances read this variable as well.
    let plant = Plant::from_environment()?;
    let stack = Stack::start(&Options::new(folder, program).port(8080))?;
    print!("{}", stack.list());
    let traffic = plant.map(|plant| start_traffic(plant, stack.address()));
    println!("data and logs: {}\nCtrl-C ends everything", folder.display());
    signals.forever().next();
    println!("stopping");
    drop(traffic);
    drop(stack);
    Ok(())
}
