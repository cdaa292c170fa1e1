//! **Not a web server.** It sends HTTP responses without reading a single request, as fast as the
//! peer takes them: `flood [-t THREADS] [-p PORT]`, on port 8001 if nothing is said.
//!
//! Some figures of millions of requests a second were made this way: load generators that count
//! responses take these for answers. What an honest server reaches is in
//! `docs/benchmarks/claims.md`, beside this one. A good load generator notices (`gust` calls such
//! responses unsolicited).

use std::error::Error;

use filoplume_runtime::Peer;
use filoplume_runtime::tcp::{Io, Protocol};
use tcp_options::TcpOptions;

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nHello, World!";

/// Responses in one write.
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
