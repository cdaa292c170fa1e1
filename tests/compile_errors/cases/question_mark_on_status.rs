//! A status, a pair with one or a redirect as the error of `?`.

use filoplume::prelude::*;

fn user(Path(id): Path<u64>) -> Result<&'static str> {
    let names = ["ada", "grace"];
    let name = names.get(id as usize).ok_or(StatusCode::NOT_FOUND)?;
    Ok(*name)
}

fn group(Path(id): Path<u64>) -> Result<&'static str> {
    let names = ["ada", "grace"];
    let name = names.get(id as usize).ok_or((StatusCode::NOT_FOUND, "no such group"))?;
    Ok(*name)
}

fn page(Path(id): Path<u64>) -> Result<&'static str> {
    let names = ["ada", "grace"];
    let name = names.get(id as usize).ok_or(Redirect::to("/login"))?;
    Ok(*name)
}

fn main() {
    App::new().get("/user/{id}", user).get("/group/{id}", group).get("/page/{id}", page).test();
}
