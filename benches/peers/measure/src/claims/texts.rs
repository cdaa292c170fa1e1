//! The claims that were published, and what their figures do not say.

/// A comparison that others published.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    pub title: &'static str,
    /// The claim and its figures.
    pub then: &'static str,
    /// Facts that the figures leave out.
    pub hides: &'static str,
}

/// The text above all claims.
pub const PREFACE: &str = "Client and server were those of years ago, and on other machines: the \
     old figures say how servers compared, not how fast they are. Only the ratios within one table \
     of today mean anything. Here the client shares two cores with the server, so that a cheaper \
     client makes a faster server; the server's CPU time per request moves less than requests/s, \
     and says more.";

pub const MAY_ECHO: Claim = Claim {
    title: "May's echo server against tokio's",
    then: "256,155 echoes/s for May and 153,496 for tokio, asked by May's echo client with `-c \
           100 -l 100 -t 8` for 10 s.",
    hides: "Both runtimes are years further, so the old ratio says nothing of today. May answers \
            with three system calls, as it reads again until nothing is left. An echo server does \
            nothing but system calls, and the kernel's TCP is nearly all of them: two servers \
            that make the same calls tie, and the rest is which of client and server gets the \
            cores. The original client counts answers and measures no latencies. The client here \
            is gust, which prints the lines of May's with `--format echo`.",
};

pub const GURL: Claim = Claim {
    title: "gurl's benchmark mode against ab",
    then: "129,741 requests/s for gurl's `-bench` and 30,030 for ab, with `-ac 21 -an 1000000` \
           and `-c 21 -n 1000000`.",
    hides: "ab was run without `-k`: it speaks HTTP/1.0 and opens a connection for each request, \
            while gurl keeps its connections. The figures compare a connection with a request, \
            and not two programs; the rows `ab -k` are the fair ones. `gust --no-keepalive` is \
            what ab does without `-k`. ab counts milliseconds, so that its percentiles on a \
            loopback are 0 or 1.",
};

pub const FEATHER: Claim = Claim {
    title: "Feather's runtime against Express",
    then: "45,325 requests/s for the Feather Runtime and 2,559 for Express with `wrk -t10 -c400 \
           -d5s`; about 40,000 with the framework on top.",
    hides: "wrk counts answers, and not who got them: the engine behind that figure served 5 to 7 \
            of the 400 connections, and the others never had an answer. The second table asks how \
            many were served, and how evenly. Express ran as one process, and so on one core; \
            `express` is a cluster of two. `feather_server` is Feather of today, which runs on \
            May.",
};

pub const MIOCO_HTTP: Claim = Claim {
    title: "mioco's HTTP servers",
    then: "9.7 million requests/s for a server that is called cheating, and 368,543 for one with \
           httparse, by `wrk -t8 -c100 -d10s`.",
    hides: "The first never reads a request. It writes responses as fast as the socket takes \
            them, and wrk takes each for the answer to a request that it may not even have sent. \
            Our example `flood` does the same. Its figure is what wrk says; it reads as long as \
            there is more, without a look at its clock, so that the server has to be stopped for \
            it to end. gust, which knows what it has asked, calls its bytes unsolicited and hangs \
            up. Honest figures of that size need pipelining: 16 requests share their system calls \
            below. A client that sends one request and waits for its answer pays for two system \
            calls on either side, and no server changes that.",
};

pub const MIOCO_ECHO: Claim = Claim {
    title: "mioco's echo table",
    then: "64 blocking client threads with ten connections each and 10,000 echoes of 2,954 bytes \
           on each; and 128 connections with 26 bytes.",
    hides: "64 threads that block on two cores are a scheduler's benchmark: which thread runs \
            next decides as much as the server. With 2,954 bytes copying is a larger part of an \
            echo, and with 26 a smaller one; neither asks how servers behave with idle or slow \
            connections, of which most servers have many.",
};

pub const MAGIO: Claim = Claim {
    title: "magio's comparison of echo servers on one thread",
    then: "By `ab -n 1000000 -c 1000 -k`: asio 42,390, libuv 43,398, magio 43,069, tokio 46,215 \
           and Node 39,293 echoes/s.",
    hides: "ab has one thread, as the servers do, and needs about as much CPU time: all five are \
            within 18 % of each other, which is what one sees when the client is the limit. Their \
            CPU time per echo shows what requests/s hide. ab takes its own request for an HTTP \
            answer, and counts it as kept alive as it finds `Keep-Alive` in it. On one thread \
            nobody sees what a server costs that shares work between threads.",
};
