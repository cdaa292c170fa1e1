//! Routes: methods, captures, nested routers, fallbacks, and a list of all routes.
//!
//! ```sh
//! curl http://127.0.0.1:5000/users/17
//! curl http://127.0.0.1:5000/files/photos/cat.jpg
//! curl -X DELETE http://127.0.0.1:5000/api/v1/notes/3
//! ```

use filoplume::prelude::*;
use serde::Deserialize;

fn main() -> Result<()> {
    let app = app();
    println!("{}", app.routes());
    let address = std::env::args().nth(1);
    app.listen(address.as_deref().unwrap_or("127.0.0.1:5000"))
}

fn app() -> App {
    App::new()
        .get("/", || "Try /users/17, /files/photos/cat.jpg or /api/v1/notes")
        // One capture is a value of any type that can be parsed. `/users/me` takes precedence.
        .get("/users/{id}", |Path(id): Path<u64>| format!("user {id}"))
        .get("/users/me", || "you")
        // Several captures are a tuple, or a struct with their names.
        .get("/users/{user}/posts/{post}", post_of_user)
        // The rest of the path, including slashes.
        .get("/files/{*path}", |Path(path): Path<String>| format!("the file {path}"))
        .nest("/api/v1", api())
        .fallback(|method: Method, request: Request| {
            (StatusCode::NOT_FOUND, format!("nothing answers {method} {}", request.path()))
        })
}

#[derive(Deserialize)]
struct PostOfUser {
    user: String,
    post: u32,
}

fn post_of_user(Path(wanted): Path<PostOfUser>) -> String {
    format!("post {} of {}", wanted.post, wanted.user)
}

fn api() -> Router {
    Router::new()
        .route("/notes", get(|| "all notes").post(|text: String| (StatusCode::CREATED, text)))
        .route(
            "/notes/{id}",
            get(|Path(id): Path<u32>| format!("note {id}"))
                .put(|Path(id): Path<u32>, text: String| format!("note {id} says {text}"))
                .delete(|Path(_id): Path<u32>| StatusCode::NO_CONTENT),
        )
        .fallback(|| (StatusCode::NOT_FOUND, "no such thing in this API"))
}
