//! The options of the TCP examples: `-p PORT` and `-t THREADS`.

use std::env;
use std::net::SocketAddr;
use std::str::FromStr;

use filoplume_runtime::{Server, ServerConfig};

/// The port of a raw TCP example, and its number of event loops: `-p PORT`, `-t THREADS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpOptions {
    /// The port on which it listens.
    pub port: u16,
    /// The number of event loops. `None` means one per core.
    pub threads: Option<usize>,
}

impl TcpOptions {
    /// Parses the options of this program. Options that are not given have their defaults.
    ///
    /// # Errors
    ///
    /// Returns a message for the user if an argument is not valid.
    pub fn of_arguments(default_port: u16) -> Result<Self, String> {
        let mut options = Self { port: default_port, threads: None };
        let mut words = env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "-p" => options.port = number(&word, words.next())?,
                "-t" => options.threads = Some(number(&word, words.next())?),
                other => return Err(format!("{other} is neither -p PORT nor -t THREADS")),
            }
        }
        Ok(options)
    }

    /// Returns a server with these options. It shuts down on SIGTERM and SIGINT.
    ///
    /// # Errors
    ///
    /// Returns the error of the server.
    pub fn server(self) -> filoplume_runtime::Result<Server> {
        let mut config = ServerConfig::default();
        if let Some(threads) = self.threads {
            config = config.event_loops(threads);
        }
        let server = Server::builder()
            .bind(SocketAddr::from(([127, 0, 0, 1], self.port)))?
            .config(config)
            .build()?;
        #[cfg(unix)]
        server.shutdown_on_signals()?;
        Ok(server)
    }
}

fn number<T: FromStr>(option: &str, word: Option<String>) -> Result<T, String> {
    let word = word.ok_or_else(|| format!("{option} wants a number"))?;
    word.parse().map_err(|_| format!("{option} wants a number, and {word} is none that fits"))
}
