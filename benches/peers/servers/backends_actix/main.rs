//! actix-web with the calls of `backends`, each marked with `web::block`.

use std::io;

use actix_web::http::header::ContentType;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, Result, rt, web};
use backends::{Call, ROUTES};
use common::{BACKLOG, BLOCKING_THREADS_MAX, HELLO, WORKERS, address_argument};

async fn plaintext() -> HttpResponse {
    HttpResponse::Ok().content_type(ContentType::plaintext()).body(HELLO)
}

async fn answer(call: Call, request: HttpRequest) -> Result<HttpResponse> {
    let query = request.query_string().to_owned();
    Ok(match web::block(move || call(&query)).await? {
        Ok(content) => HttpResponse::Ok().content_type(ContentType::plaintext()).body(content),
        Err(error) => HttpResponse::InternalServerError().body(error.to_string()),
    })
}

fn main() -> io::Result<()> {
    let routes = || {
        let mut app = App::new().route("/plaintext", web::get().to(plaintext));
        for &(path, call) in ROUTES {
            app = app.route(path, web::get().to(move |request| answer(call, request)));
        }
        app
    };
    let server = HttpServer::new(routes)
        .workers(WORKERS)
        .worker_max_blocking_threads(BLOCKING_THREADS_MAX / WORKERS)
        .backlog(u32::from(BACKLOG))
        .bind(address_argument())?;
    rt::System::new().block_on(server.run())
}
