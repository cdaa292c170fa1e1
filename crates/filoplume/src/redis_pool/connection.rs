//! A connection to a Redis server, with bounds for the length of its answers and for their time.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use redis::{
    Cmd, ConnectionAddr, ConnectionInfo, ConnectionLike, ErrorKind, Pipeline, RedisResult, Value,
    cmd,
};

use super::answer::{self, Event};

/// How much memory an answer takes at most. The longest one has the record of a session, which has
/// a quarter of this.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// The time of a command and its answer grows by this per byte that has been sent or has arrived:
/// long ones take their time on a slow line, which has 250 kB per second at least.
const TIME_PER_BYTE: Duration = Duration::from_micros(4);

/// A connection, used by one thread at a time.
pub(crate) struct Connection {
    input: BufReader<TimedStream>,
    timeout: Duration,
    database: i64,
}

impl Connection {
    /// Connects, logs in and selects the database, within the time-out.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached or refuses it.
    pub(super) fn open(info: &ConnectionInfo, timeout: Duration) -> RedisResult<Self> {
        let begun = Instant::now();
        let stream = Stream::connect(info.addr(), timeout)?;
        let database = info.redis_settings().db();
        let input = BufReader::new(TimedStream::new(stream, timeout));
        let mut connection = Self { input, timeout, database };
        connection.timeout = timeout.saturating_sub(begun.elapsed());
        connection.log_in(info)?;
        if database != 0 {
            cmd("SELECT").arg(database).exec(&mut connection)?;
        }
        connection.timeout = timeout;
        Ok(connection)
    }

    fn log_in(&mut self, info: &ConnectionInfo) -> RedisResult<()> {
        let settings = info.redis_settings();
        let Some(password) = settings.password() else { return Ok(()) };
        let Some(user) = settings.username() else {
            return cmd("AUTH").arg(password).exec(self);
        };
        match cmd("AUTH").arg(user).arg(password).exec(self) {
            // Redis before version 6 has no users.
            Err(error) if error.detail().is_some_and(|text| text.contains("wrong number")) => {
                cmd("AUTH").arg(password).exec(self)
            }
            result => result,
        }
    }

    /// Sets the time-out of each command with its answer.
    pub(super) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Sends a command whose answer is an [`Event`].
    ///
    /// # Errors
    ///
    /// If it cannot be sent in time.
    pub(crate) fn send(&mut self, command: &Cmd) -> RedisResult<()> {
        self.write(&command.get_packed_command())
    }

    /// Waits until something arrives. Returns `false` if nothing does for this time.
    ///
    /// # Errors
    ///
    /// If the connection is broken.
    pub(crate) fn wait(&mut self, time: Duration) -> RedisResult<bool> {
        self.input.get_mut().begin(time);
        match self.input.fill_buf() {
            Ok([]) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(_) => Ok(true),
            Err(error) if is_timeout(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads an event. A message that is longer than this is skipped.
    ///
    /// # Errors
    ///
    /// If the event does not arrive in time or is none. The connection must not be used again.
    pub(crate) fn next_event(&mut self, bytes_max: usize) -> RedisResult<Event> {
        self.input.get_mut().begin(self.timeout);
        answer::read_event(&mut self.input, bytes_max)
    }

    /// Sends commands and reads the answers, all within one time-out.
    pub(super) fn query_all(&mut self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        self.write(&commands.get_packed_pipeline())?;
        (0..commands.len()).map(|_| self.answer()?.extract_error()).collect()
    }

    fn write(&mut self, bytes: &[u8]) -> RedisResult<()> {
        let stream = self.input.get_mut();
        stream.begin(self.timeout);
        Ok(stream.write_all(bytes)?)
    }

    fn answer(&mut self) -> RedisResult<Value> {
        answer::read_answer(&mut self.input, ANSWER_BYTES_MAX)
    }
}

impl ConnectionLike for Connection {
    fn req_packed_command(&mut self, command: &[u8]) -> RedisResult<Value> {
        self.write(command)?;
        self.answer()
    }

    fn req_packed_commands(
        &mut self,
        commands: &[u8],
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        self.write(commands)?;
        for _ in 0..offset {
            self.answer()?;
        }
        (0..count).map(|_| self.answer()).collect()
    }

    fn get_db(&self) -> i64 {
        self.database
    }

    fn check_connection(&mut self) -> bool {
        cmd("PING").exec(self).is_ok()
    }

    fn is_open(&self) -> bool {
        true
    }
}

enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Stream {
    fn connect(address: &ConnectionAddr, timeout: Duration) -> RedisResult<Self> {
        match address {
            ConnectionAddr::Tcp(host, port) => {
                let stream = connect_tcp(host, *port, timeout)?;
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => Ok(Self::Unix(UnixStream::connect(path)?)),
            _ => Err((ErrorKind::InvalidClientConfig, "this kind of address is not supported"))?,
        }
    }
}

/// Tries all addresses of a host, within one time-out.
fn connect_tcp(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let begun = Instant::now();
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        let Some(left) = timeout.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) else {
            return Err(io::ErrorKind::TimedOut.into());
        };
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// A socket whose reads and writes end at a point in time. A time-out of each read would let a
/// server that sends a byte now and then hold a thread for ever.
struct TimedStream {
    stream: Stream,
    begun: Instant,
    time: Duration,
}

impl TimedStream {
    fn new(stream: Stream, time: Duration) -> Self {
        Self { stream, begun: Instant::now(), time }
    }

    /// Begins a command, or the wait for one.
    fn begin(&mut self, time: Duration) {
        self.begun = Instant::now();
        self.time = time;
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        match self.time.checked_sub(self.begun.elapsed()) {
            Some(left) if !left.is_zero() => Ok(Some(left)),
            _ => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    fn moved(&mut self, bytes: io::Result<usize>) -> io::Result<usize> {
        let bytes = bytes?;
        let more = TIME_PER_BYTE.saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX));
        self.time = self.time.saturating_add(more);
        Ok(bytes)
    }
}

impl Read for TimedStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.left()?;
        let result = match &mut self.stream {
            Stream::Tcp(stream) => stream.set_read_timeout(left).and_then(|()| stream.read(into)),
            #[cfg(unix)]
            Stream::Unix(stream) => stream.set_read_timeout(left).and_then(|()| stream.read(into)),
        };
        self.moved(result)
    }
}

impl Write for TimedStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.left()?;
        let result = match &mut self.stream {
            Stream::Tcp(stream) => {
                stream.set_write_timeout(left).and_then(|()| stream.write(bytes))
            }
            #[cfg(unix)]
            Stream::Unix(stream) => {
                stream.set_write_timeout(left).and_then(|()| stream.write(bytes))
            }
        };
        self.moved(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::redis_pool::RedisPool;

    /// Regression: each byte began the time-out anew.
    #[test]
    fn an_answer_that_comes_byte_by_byte_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}/", listener.local_addr().unwrap());
        let timeout = Duration::from_millis(200);
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.write_all(b"$1000000\r\n");
            // Until the client closes.
            while stream.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let pool = RedisPool::new(&url, timeout).unwrap();
        let error = pool.ask(|connection| cmd("PING").exec(connection)).unwrap_err();
        assert!(error.is_timeout(), "{error}");
        server.join().unwrap();
    }
}
