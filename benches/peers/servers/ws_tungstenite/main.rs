//! The tokio-tungstenite peer: sends each WebSocket message back, with one task per connection on
//! two workers. It has no compression.

use std::io;

use common::{BACKLOG, WORKERS, address_argument};
use futures_util::{SinkExt, StreamExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime;
use tokio_tungstenite::accept_async;
use tokio_tungstenite::tungstenite::Error;

async fn echo(stream: TcpStream) -> Result<(), Error> {
    stream.set_nodelay(true)?;
    let mut socket = accept_async(stream).await?;
    while let Some(message) = socket.next().await {
        let message = message?;
        if message.is_text() || message.is_binary() {
            socket.send(message).await?;
        }
    }
    Ok(())
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
    let runtime = runtime.worker_threads(WORKERS).enable_io().build()?;
    // Accepts on a worker, because the thread of `main` would be one more.
    runtime.block_on(async { tokio::spawn(serve()).await.expect("accepting does not panic") })
}
