//! **Not a web server.** It sends HTTP responses without reading a single request, as fast as the
//! peer takes them: `flood [-t THREADS] [-p PORT]`, on port 8001 by default.
//!
//! Some published figures of millions of requests per second were made this way: load generators
//! that count responses accept these. `docs/benchmarks/claims.md` compares this program with honest
//! servers. A good load generator notices it: `gust` reports such responses as unsolicited.

use std::error::Error;

use filoplume_runtime::Peer;
use filoplume_runtime::tcp::{Io, Protocol};
use tcp_options::TcpOptions;

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nHello, World!";

/// The number of responses per write.
const BATCH: usize = 1000;

struct Flood;

impl Protocol for Flood {
    fn open(&mut self, io: &mut Io<'_>) {
        io.notify_drained();
    }

    fn data(&mut self, bytes: &[u8], _io: &mut Io<'_>) -> usize {
        bytes.len()
    }

    fn drained(&mut self, io: &mut Io<'_>) {
        for _ in 0..BATCH {
            io.send(RESPONSE);
        }
        io.notify_drained();
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let server = TcpOptions::of_arguments(8001)?.server()?;
    server.serve_tcp(|_: Peer| Flood)?;
    Ok(())
}
