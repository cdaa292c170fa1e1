//! The API for programs: JSON, with the name and password in each request (basic authentication).

use filoplume::extract::Basic;
use filoplume::prelude::*;
use serde::Deserialize;

use crate::User;
use crate::store::{Store, Todo};

pub(crate) fn router(store: Store) -> Router {
    // Adds the user to the request, for handlers to take as an `Extension`.
    let authenticate = move |basic: &Basic| -> Result<Option<User>> {
        let id = store.login(&basic.user, &basic.password)?;
        Ok(id.map(|id| User { id, name: basic.user.clone() }))
    };
    Router::new()
        .route("/todos", get(list).post(add))
        .route("/todos/{id}", patch(change).delete(remove))
        .with(middleware::BasicAuth::new(authenticate).realm("todos"))
}

#[derive(Deserialize)]
struct NewTodo {
    text: String,
}

#[derive(Deserialize)]
struct Change {
    is_done: bool,
}

fn list(Extension(user): Extension<User>, State(store): State<Store>) -> Result<Json<Vec<Todo>>> {
    Ok(Json(store.todos(user.id)?))
}

fn add(
    Extension(user): Extension<User>,
    State(store): State<Store>,
    Json(todo): Json<NewTodo>,
) -> Result<(StatusCode, Json<Todo>)> {
    if todo.text.trim().is_empty() {
        return Err(Error::unprocessable("a todo has a text").with_field("text", "is empty"));
    }
    Ok((StatusCode::CREATED, Json(store.add(user.id, todo.text.trim())?)))
}

fn change(
    Extension(user): Extension<User>,
    State(store): State<Store>,
    Path(id): Path<i64>,
    Json(change): Json<Change>,
) -> Result<StatusCode> {
    let is_there = store.set_done(user.id, id, change.is_done)?;
    Ok(if is_there { StatusCode::NO_CONTENT } else { StatusCode::NOT_FOUND })
}

fn remove(
    Extension(user): Extension<User>,
    State(store): State<Store>,
    Path(id): Path<i64>,
) -> Result<StatusCode> {
    let is_there = store.remove(user.id, id)?;
    Ok(if is_there { StatusCode::NO_CONTENT } else { StatusCode::NOT_FOUND })
}
