//! The actix-web peer: two workers. `/sleep`, `/cpu` and `/miss` are marked with
//! `web::block`.

use std::io;
use std::thread;
use std::time::Duration;

use actix_web::http::header::ContentType;
use actix_web::web::{self, Bytes};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, Result, rt};
use common::{
    BACKLOG, BLOCKING_THREADS_MAX, HELLO, MESSAGE, Message, WORKERS, address_argument, look_up,
    spin, time,
};

/// Longer than any scenario keeps an idle connection: actix's default of 5 s would close them.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

fn text(body: impl Into<Bytes>) -> HttpResponse {
    HttpResponse::Ok().content_type(ContentType::plaintext()).body(body.into())
}

async fn plaintext() -> HttpResponse {
    text(Bytes::from_static(HELLO.as_bytes()))
}

async fn json() -> web::Json<Message> {
    web::Json(MESSAGE)
}

async fn sleep(request: HttpRequest) -> Result<HttpResponse> {
    let length = time(request.query_string());
    web::block(move || thread::sleep(length)).await?;
    Ok(text(HELLO))
}

async fn sleep_unmarked(request: HttpRequest) -> HttpResponse {
    thread::sleep(time(request.query_string()));
    text(HELLO)
}

async fn cpu(request: HttpRequest) -> Result<HttpResponse> {
    let length = time(request.query_string());
    web::block(move || spin(length)).await?;
    Ok(text(HELLO))
}

/// All calls are marked, because nobody knows before a call whether it will block.
async fn miss(request: HttpRequest) -> Result<HttpResponse> {
    let query = request.query_string().to_owned();
    Ok(text(web::block(move || look_up(&query)).await?))
}

async fn length(body: Bytes) -> HttpResponse {
    text(body.len().to_string())
}

fn main() -> io::Result<()> {
    let routes = || {
        App::new()
            .route("/plaintext", web::get().to(plaintext))
            .route("/json", web::get().to(json))
            .route("/sleep", web::get().to(sleep))
            .route("/sleep_unmarked", web::get().to(sleep_unmarked))
            .route("/cpu", web::get().to(cpu))
            .route("/miss", web::get().to(miss))
            .route("/length", web::post().to(length))
    };
    let server = HttpServer::new(routes)
        .workers(WORKERS)
        .worker_max_blocking_threads(BLOCKING_THREADS_MAX / WORKERS)
        .backlog(u32::from(BACKLOG))
        .keep_alive(KEEP_ALIVE)
        .bind(address_argument())?;
    rt::System::new().block_on(server.run())
}
