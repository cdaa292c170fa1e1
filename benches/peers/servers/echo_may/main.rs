//! The May echo peer: `echo_may ADDRESS [THREADS]`, a coroutine a connection on so many workers. It
//! is May's own example: a listener a worker, and 16 KiB for each connection.

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
    // All listeners share the port, and exist before the first is asked.
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
                    // A connection that breaks is over; nobody else is concerned.
                    go!(move || drop(echo(stream)));
                }
            });
        }
    });
}
