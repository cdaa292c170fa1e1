use filoplume::prelude::*;

type M = Method;

fn main() {
    let many = |_: M, _: M, _: M, _: M, _: M, _: M, _: M, _: M, _: M, _: M, _: M, _: M, _: M| "hello";
    let _ = App::new().get("/", many);
}
