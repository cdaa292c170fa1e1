//! Calling a service without a socket. The bytes go through the same HTTP code as those of a
//! connection.

use std::sync::Arc;
use std::thread::{self, Thread};

use filoplume_http1::RequestHead;

use crate::budget::account::Account;
#[cfg(feature = "spool")]
use crate::budget::descriptors::Descriptors;
use crate::budget::memory::Memory;
#[cfg(feature = "spool")]
use crate::budget::spool::SpoolSpace;
use crate::budget::streams::Streams;
use crate::buffers::{Buffers, Content as Unread};
use crate::clock::Pace;
use crate::config::ServerConfig;
use crate::execution::key::Route;
use crate::protocol::Step;
use crate::protocol::http::{ContentPlan, Http, Responded, Streaming};
use crate::service::body::{Body, ContentStream, StreamReturn};
use crate::service::incomplete::{GivenId, Incomplete};
use crate::service::mailbox::WakeConnection;
use crate::service::panics::take_caught;
use crate::service::refused::{RETRY_AFTER, Refused};
use crate::service::request::Request;
use crate::service::response::ResponseBody;
use crate::service::{Content, Plan, Service};
use crate::transport::Peer;

/// Returns the bytes that a server with this service would send to a peer that sends `input` and
/// nothing more: heads, contents and refusals as on the wire. It is for the test clients of
/// frameworks, such as Filoplume's, and for tests of services.
///
/// There are no deadlines, and a panic of the service is not caught. A pushed body is awaited to
/// its end; an [endless](crate::pushed::Pushed::endless) one ends as soon as nothing is queued.
///
/// ```
/// use filoplume_runtime::{Peer, Request, Response, ServerConfig, answer_in_process};
///
/// let service = |request: Request| Response::from(format!("{} it is", request.path()));
/// let answer = answer_in_process(
///     &service,
///     Peer::Unix,
///     b"GET /cats HTTP/1.1\r\nHost: a\r\n\r\n",
///     &ServerConfig::default(),
/// );
/// let answer = String::from_utf8(answer)?;
/// assert!(
///     answer.starts_with("HTTP/1.1 200 OK\r\n")
///         && answer.ends_with("\r\n\r\n/cats it is")
/// );
/// # Ok::<(), std::string::FromUtf8Error>(())
/// ```
pub fn answer_in_process(
    service: &dyn Service,
    peer: Peer,
    input: &[u8],
    config: &ServerConfig,
) -> Vec<u8> {
    let mut buffers = Buffers::take();
    buffers.input.load(Unread::of(input.to_vec()));
    let mut exchange = Exchange {
        service,
        peer,
        config,
        http: Http::new(None),
        sent: Vec::new(),
        route_number: None,
        thread: Arc::new(Caller(thread::current())),
    };
    while exchange.goes_on(&mut buffers) {}
    exchange.collect(&mut buffers);
    buffers.give_back();
    exchange.sent
}

struct Exchange<'a> {
    service: &'a dyn Service,
    peer: Peer,
    config: &'a ServerConfig,
    http: Http,
    sent: Vec<u8>,
    /// The route number of the current request.
    route_number: Option<u32>,
    /// The thread to wake when another one pushes a part of a response body.
    thread: Arc<Caller>,
}

struct Caller(Thread);

/// Why a content is refused. A server tells here what other requests hold. In a test client there
/// are none, so the content alone exceeds one of these limits.
const NO_ROOM: &str =
    "the content exceeds `ServerConfig::memory_max` or `ServerConfig::spooled_bytes_max`";

impl WakeConnection for Caller {
    fn wake_connection(&self, _token: usize) {
        self.0.unpark();
    }
}

impl Exchange<'_> {
    /// Takes one step. Returns `false` if there is none left.
    fn goes_on(&mut self, buffers: &mut Buffers) -> bool {
        if self.http.expects_head() {
            if let Some(head) = self.http.next_head(buffers, self.config) {
                self.begin(head, buffers);
                return true;
            }
        }
        match self.http.step(buffers) {
            Step::Again => {}
            Step::Call(request, route) => self.call(request, route, None, buffers),
            Step::RefuseContent(request, refusal) => {
                let refused = Refused::new(refusal, RETRY_AFTER, &NO_ROOM);
                let own = refused.ask(self.service, &request);
                self.http.refuse_for(RETRY_AFTER, own.as_ref(), buffers);
                self.collect(buffers);
            }
            #[cfg(feature = "spool")]
            Step::Spool => {
                let (folder, bytes_max) =
                    (self.config.spool_folder.clone(), self.config.spooled_bytes_max);
                let memory = Memory::new(self.config.memory_max);
                let space = SpoolSpace::new(folder, bytes_max, &memory);
                self.http.write_part(&space, None, Some(Descriptors::new(None).force()));
            }
            Step::Stream(streaming) => self.stream(*streaming, buffers),
            Step::Pump => {
                if let Some(error) = self.http.pump(usize::MAX, buffers, self.config) {
                    let name = self.route_number.and_then(|number| self.service.route_name(number));
                    self.service.body_failed(name.as_deref(), &error);
                }
                self.collect(buffers);
            }
            Step::Pushed { .. } => self.collect(buffers),
            Step::AwaitPush => {
                self.collect(buffers);
                // A body without an end of its own ends with what was pushed so far.
                if !self.http.stop_pushing() {
                    thread::park();
                }
            }
            Step::PushFailed(failed) => {
                let name = self.route_number.and_then(|number| self.service.route_name(number));
                self.service.body_failed(name.as_deref(), &failed.error);
            }
            Step::Linger => {
                self.tell_of_incomplete(buffers);
                return false;
            }
            // The input or the connection ends, or another protocol follows. The remaining steps
            // belong to other guests.
            Step::Read
            | Step::Close
            | Step::Leave
            | Step::Flush
            | Step::Wait
            | Step::ClientKnown(_)
            | Step::RefuseProxy(_)
            | Step::Ask(_)
            | Step::Notify(_) => return false,
            #[cfg(feature = "tls")]
            Step::Handshake | Step::Secure => return false,
        }
        true
    }

    fn begin(&mut self, head: RequestHead, buffers: &mut Buffers) {
        let mut request = Request::new(head, self.peer);
        let plan =
            if self.service.plans() { self.service.plan(&mut request) } else { Plan::default() };
        let route = plan.route_of(&request);
        request.set_route(plan.route);
        self.route_number = plan.route;
        if let Content::Refused(mut response) = plan.content {
            self.http.leave_unread(&request, buffers, self.config);
            self.http.respond(&mut response, route, None, buffers, self.config);
        } else if request.head().framing().has_content() {
            // The budget is unlimited, because no other connection shares it.
            let account = Account::new(&Memory::new(Some(usize::MAX)), None);
            let content_plan = ContentPlan::of(&plan, self.config, false, &account);
            self.http.begin_content(request, route, &content_plan, buffers, self.config);
        } else {
            self.call(request, route, None, buffers);
        }
    }

    /// Calls the handler with a content that is long or of unknown length, and that it reads as on
    /// a server. After what was sent, it reads that the peer has ended.
    fn stream(&mut self, streaming: Streaming, buffers: &mut Buffers) {
        let Streaming { mut request, route, content } = streaming;
        // Threads are not scarce, because no other connection needs one.
        let Some(open) = Streams::new(usize::MAX).open(None) else { return };
        let pace = Pace::new(
            buffers.clock.now(),
            self.config.content_timeout,
            self.config.bytes_per_second_min,
        );
        let unread = buffers.input.take_rest();
        let (stream, returns) = ContentStream::new(open, content, unread, pace);
        request.set_stream(Body::from_stream(stream), &returns);
        self.call(request, route, Some(returns), buffers);
    }

    fn call(
        &mut self,
        request: Request,
        route: Route,
        stream: Option<Arc<StreamReturn>>,
        buffers: &mut Buffers,
    ) {
        let mut response = self.service.call(request);
        // Discards the number of caught panics: there is no engine to count them.
        take_caught();
        if let ResponseBody::Pushed(body) = response.body_mut() {
            if let Some(run) = body.take_run() {
                thread::spawn(move || run(None));
            }
        }
        // After an upgrade, the other protocol does not begin.
        response.reserve_thread(|_| Some(Box::new(|_| false)));
        let responded = self.http.respond(&mut response, route, stream, buffers, self.config);
        self.collect(buffers);
        if let Responded::Large(content) = responded {
            self.sent.extend_from_slice(&content);
        }
        if self.http.is_pushing() {
            let pushed_to: Arc<dyn WakeConnection> = Arc::clone(&self.thread) as _;
            self.http.attach(Arc::downgrade(&pushed_to), 0);
        }
    }

    fn tell_of_incomplete(&mut self, buffers: &mut Buffers) {
        let (refusal, arrived) = (self.http.take_refusal(), self.http.take_arrived());
        if let (Some(refusal), Some(arrived)) = (refusal, arrived) {
            let given = GivenId::default();
            Incomplete::new(refusal, self.peer, &arrived, None, &given).tell(self.service);
            self.http.write_refusal(refusal, given.header(), buffers);
        }
    }

    fn collect(&mut self, buffers: &mut Buffers) {
        self.sent.append(&mut buffers.output);
    }
}
