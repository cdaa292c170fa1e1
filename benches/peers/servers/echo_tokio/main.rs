//! The tokio echo peer: `echo_tokio ADDRESS [THREADS]`, one task per connection on this many
//! workers.

use std::io;

use common::{BACKLOG, address_argument, threads_argument};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime;

/// The length that all echo servers with buffers of their own read at once.
const INPUT_BYTES: usize = 16 * 1024;

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = vec![0; INPUT_BYTES];
    loop {
        let read = stream.read(&mut input).await?;
        if read == 0 {
            return Ok(());
        }
        stream.write_all(&input[..read]).await?;
    }
}

async fn serve() -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address_argument())?;
    let listener = socket.listen(u32::from(BACKLOG))?;
    loop {
        let (stream, _) = listener.accept().await?;
        // A broken connection ends, and concerns no other one.
        tokio::spawn(async { drop(echo(stream).await) });
    }
}

fn main() -> io::Result<()> {
    let mut runtime = runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(threads_argument()).enable_io().build()?;
    // Accepts on a worker, because the thread of `main` would be one more.
    runtime.block_on(async { tokio::spawn(serve()).await.expect("accepting does not panic") })
}
