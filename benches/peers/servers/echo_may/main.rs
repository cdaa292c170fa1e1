//! The May echo peer: `echo_may ADDRESS [THREADS]`, one coroutine per connection on this many
//! workers. It is May's own example, with one listener per worker and 16 KiB per connection.

use std::io::{self, Read, Write};

use common::{address_argument, threads_argument};
use may::go;
use may::net::{TcpListener, TcpStream};

/// As in May's example.
const INPUT_BYTES: usize = 16 * 1024;

fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = vec![0; INPUT_BYTES];
    loop {
        let read = stream.read(&mut input)?;
        if read == 0 {
            return Ok(());
        }
        stream.write_all(&input[..read])?;
    }
}

fn main() {
    let threads = threads_argument();
    may::config().set_workers(threads);
    // All listeners share the port, and exist before the first connection comes.
    let listeners: Vec<TcpListener> = (0..threads)
        .map(|_| {
            TcpListener::bind(address_argument())
                .expect("May shares the port between its listeners")
        })
        .collect();
    may::coroutine::scope(|scope| {
        for listener in listeners {
            go!(scope, move || {
                for stream in listener.incoming().flatten() {
                    // A broken connection ends, and concerns no other one.
                    go!(move || drop(echo(stream)));
                }
            });
        }
    });
}
