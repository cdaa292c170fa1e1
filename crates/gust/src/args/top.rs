//! The options of `gust top`.

use clap::Args;
use http::Method;

use super::headers_of;
use super::tls::TlsArguments;
use crate::plan::{HttpRequest, Template};
use crate::target::{Scheme, Target};
use crate::tls::Tls;

/// The command line of `gust top`.
#[derive(Args, Debug)]
pub(crate) struct TopArguments {
    /// The address of the console, as a browser opens it: http://HOST[:PORT]/PATH, the same with
    /// https://, unix:/SOCKET:/PATH, or :PORT/PATH.
    url: String,
    /// A header, as 'Name: value'. May be repeated. The value of Authorization can be in the
    /// variable GUST_AUTHORIZATION instead, which other users cannot see.
    #[arg(short = 'H', long = "header")]
    headers: Vec<String>,
    /// Print the figures of two snapshots as plain text, and end. Without a terminal on standard
    /// output, this is the default.
    #[arg(long)]
    pub(crate) once: bool,
    #[command(flatten)]
    tls: TlsArguments,
}

/// The feed of a console.
#[derive(Debug)]
pub(crate) struct Feed {
    pub(crate) target: Target,
    pub(crate) tls: Option<Tls>,
    pub(crate) request: Vec<u8>,
    /// Whether the request has an `Authorization` or a cookie.
    pub(crate) is_authorised: bool,
}

impl TopArguments {
    /// Returns the feed, or what is wrong with the arguments.
    pub(crate) fn feed(&self) -> Result<Feed, String> {
        let target = Target::parse(&self.url)?;
        if !matches!(target.scheme, Scheme::Http | Scheme::Https) {
            return Err(format!(
                "{:?} is no address of a console; write http:// or https://",
                self.url
            ));
        }
        let tls = self.tls.tls(&target)?;
        let mut headers = headers_of(&self.headers)?;
        let is_authorised = headers.contains("authorization") || headers.contains("cookie");
        if !headers.contains("accept") {
            let added = headers.append("accept", "text/event-stream");
            added.map_err(|error| format!("cannot ask for an event stream: {error}"))?;
        }
        let request = HttpRequest {
            method: &Method::GET,
            path: &events(&target.path),
            authority: &target.authority,
            headers: &headers,
            content: &[],
            closes: false,
        };
        let request = Template::http(&request, 1)?.bytes;
        Ok(Feed { target, tls, request, is_authorised })
    }
}

/// Returns the path of the feed below that of the console.
fn events(console: &str) -> String {
    let (path, query) = match console.split_once('?') {
        Some((path, query)) => (path, format!("?{query}")),
        None => (console, String::new()),
    };
    format!("{}/events{query}", path.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Arguments, Command};

    fn feed(arguments: &[&str]) -> Result<Feed, String> {
        let words = ["gust", "top"].iter().chain(arguments);
        let parsed = Arguments::try_parse_from(words).map_err(|error| error.to_string())?;
        match parsed.command {
            Some(Command::Top(arguments)) => arguments.feed(),
            _ => Err("another command".to_owned()),
        }
    }

    #[test]
    fn the_feed_is_below_the_console() {
        for (console, expected) in [
            ("/console", "/console/events"),
            ("/console/", "/console/events"),
            ("/", "/events"),
            ("/a/b?key=1", "/a/b/events?key=1"),
        ] {
            assert_eq!(events(console), expected);
        }
        let feed = feed(&["http://h:1/console", "-H", "Authorization: Bearer x"]).unwrap();
        assert!(feed.is_authorised);
        let request = String::from_utf8(feed.request).unwrap();
        assert!(request.starts_with("GET /console/events HTTP/1.1\r\nhost: h:1\r\n"), "{request}");
        assert!(request.contains("accept: text/event-stream\r\n"), "{request}");
    }

    #[test]
    fn mistakes_are_named() {
        for (arguments, part) in [
            (&["ws://h/console"][..], "write http:// or https://"),
            (&["nonsense"], "is not a URL"),
            (&["http://h/", "-H", "nonsense"], "is not a header"),
            (&["http://h/", "-k"], "--insecure is for https://"),
            (&[], "required"),
        ] {
            let error = feed(arguments).unwrap_err();
            assert!(error.contains(part), "{arguments:?}: {error}");
        }
    }
}
