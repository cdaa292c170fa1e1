//! The ntex peer: two workers on tokio. `/sleep`, `/cpu` and `/miss` are marked with
//! `web::block`.

use std::convert::Infallible;
use std::io;
use std::thread;

use common::{
    BACKLOG, BLOCKING_THREADS_MAX, HELLO, MESSAGE, WORKERS, address_argument, look_up, spin, time,
};
use ntex::SharedCfg;
use ntex::http::HttpServiceConfig;
use ntex::rt::{DefaultRuntime, System};
use ntex::time::Seconds;
use ntex::util::Bytes;
use ntex::web::{self, App, HttpRequest, HttpResponse, HttpServer};

/// Longer than any scenario keeps an idle connection.
const KEEP_ALIVE: Seconds = Seconds(75);

fn text(content: impl Into<String>) -> HttpResponse {
    HttpResponse::Ok().content_type("text/plain").body(content.into())
}

fn hello() -> HttpResponse {
    HttpResponse::Ok().content_type("text/plain").body(HELLO)
}

async fn plaintext() -> HttpResponse {
    hello()
}

async fn json() -> HttpResponse {
    HttpResponse::Ok().json(&MESSAGE)
}

async fn sleep(request: HttpRequest) -> HttpResponse {
    let length = time(request.query_string());
    block(move || thread::sleep(length)).await;
    hello()
}

async fn sleep_unmarked(request: HttpRequest) -> HttpResponse {
    thread::sleep(time(request.query_string()));
    hello()
}

async fn cpu(request: HttpRequest) -> HttpResponse {
    let length = time(request.query_string());
    block(move || spin(length)).await;
    hello()
}

/// All calls are marked, because nobody knows before a call whether it will block.
async fn miss(request: HttpRequest) -> HttpResponse {
    let query = request.query_string().to_owned();
    text(block(move || look_up(&query)).await)
}

async fn length(body: Bytes) -> HttpResponse {
    text(body.len().to_string())
}

async fn block<T: Send + 'static>(work: impl FnOnce() -> T + Send + Sync + 'static) -> T {
    let done = web::block(move || Ok::<_, Infallible>(work()));
    done.await.expect("work does not panic")
}

async fn serve() -> io::Result<()> {
    let routes = async || {
        App::new()
            .route("/plaintext", web::get().to(plaintext))
            .route("/json", web::get().to(json))
            .route("/sleep", web::get().to(sleep))
            .route("/sleep_unmarked", web::get().to(sleep_unmarked))
            .route("/cpu", web::get().to(cpu))
            .route("/miss", web::get().to(miss))
            .route("/length", web::post().to(length))
    };
    let http = HttpServiceConfig::new().set_keepalive(KEEP_ALIVE);
    HttpServer::new(routes)
        .workers(WORKERS)
        .backlog(i32::from(BACKLOG))
        .config(SharedCfg::new("peer").add(http))
        .bind(address_argument())?
        .run()
        .await
}

fn main() -> io::Result<()> {
    System::build().thread_pool_limit(BLOCKING_THREADS_MAX).build(DefaultRuntime).block_on(serve())
}
