//! The program: an instance of the app, or everything that it needs.
//!
//! ```sh
//! cargo run -- up              # everything, in a temporary folder, until Ctrl-C
//! cargo run -- up /tmp/data    # in a folder that stays
//! PLANT=slow cargo run -- up   # with a problem to find: docs/guide/operating.md
//! cargo run -- serve 127.0.0.1:5000   # one instance; README.md lists its environment
//! ```

use std::env;
use std::path::{Path, PathBuf};

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
        _ => Err(Error::bad_request("usage: deployment up [FOLDER] | deployment serve ADDRESS")),
    }
}

fn up(folder: &Path) -> Result<()> {
    // Before the first child starts, so that a signal ends none of them early.
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let program: PathBuf = env::current_exe()?;
    // The instances read it as well.
    let plant = Plant::from_environment()?;
    let stack = Stack::start(&Options::new(folder, program).port(8080))?;
    println!("the app: http://{}", stack.address());
    for (name, address) in stack.others() {
        println!("{name}: {address}");
    }
    if let Some(plant) = plant {
        start_traffic(plant, stack.address());
    }
    println!("data and logs: {}\nCtrl-C ends everything", folder.display());
    signals.forever().next();
    println!("stopping");
    drop(stack);
    Ok(())
}
