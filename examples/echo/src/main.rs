//! A TCP echo server: `echo [-t THREADS] [-p PORT]`, on port 8000 by default.
//!
//! Try it with `cargo run --release -p gust -- tcp://:8000 -c 100 -l 100`, or with `nc 127.0.0.1
//! 8000`.

use std::error::Error;

use filoplume_runtime::tcp;
use tcp_options::TcpOptions;

fn main() -> Result<(), Box<dyn Error>> {
    let server = TcpOptions::of_arguments(8000)?.server()?;
    server.serve_tcp(tcp::bytes(|bytes| bytes.into()))?;
    Ok(())
}
