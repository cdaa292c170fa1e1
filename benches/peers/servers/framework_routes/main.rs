//! What does the framework cost over the engine? `/plaintext` stands behind 200 routes and two
//! middlewares, and so does `/users/{user}/posts/{post}`, which reads both captures. With `BARE` in
//! the environment there is no middleware.

use filoplume::prelude::*;

fn main() -> Result<()> {
    let address = std::env::args().nth(1).expect("the first argument is the address");
    let mut app = App::new();
    for number in 0..100 {
        app = app
            .get(&format!("/shop/section{number}/items"), || "a list")
            .get(&format!("/shop/section{number}/items/{{id}}"), |Path(id): Path<u64>| {
                id.to_string()
            });
    }
    app = app.get("/plaintext", || "Hello, World!").get(
        "/users/{user}/posts/{post}",
        |Path((user, post)): Path<(u64, u64)>| {
            if user > post { "Hello, User!!" } else { "Hello, World!" }
        },
    );
    if std::env::var_os("BARE").is_none() {
        app = app.with(|request: Request, next: Next| next.run(request)).with(
            |request: Request, next: Next| {
                let mut response = next.run(request);
                response.headers_mut().insert_static(&NOSNIFF);
                response
            },
        );
    }
    app.listen(&*address)
}

static NOSNIFF: filoplume::StaticField =
    filoplume::StaticField::new("x-content-type-options: nosniff\r\n");
