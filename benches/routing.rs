//! Does finding a route cost more in an app with more routes?
//!
//! `cargo bench -p filoplume-benches --bench routing`. It measures the plan of a request: matching
//! the path, choosing by method, deciding.

use std::hint::black_box;

use filoplume::prelude::*;
use filoplume_benches::report;
use filoplume_runtime::Service;

fn main() {
    for routes in [10, 100, 1000] {
        let app = app(routes).build().expect("an app without mistakes");
        let section = routes / 4;
        for (what, path) in [
            ("literal", format!("/shop/section{section}/items")),
            ("two captures", format!("/shop/section{section}/items/17/reviews/42")),
            ("nothing there", format!("/shop/section{section}/nothing")),
        ] {
            let asked = http::Request::get(path).body(Vec::new()).expect("a valid request");
            let mut request = Request::try_from(asked).expect("HTTP/1.1 can express it");
            report(&format!("{what} among {routes} routes"), 100_000, || {
                let _ = black_box(app.plan(black_box(&mut request)));
            });
        }
    }
}

fn app(routes: usize) -> App {
    (0..routes / 2).fold(App::new(), |app, number| {
        app.get(&format!("/shop/section{number}/items"), || "a list").get(
            &format!("/shop/section{number}/items/{{id}}/reviews/{{review}}"),
            |Path((id, review)): Path<(u64, u64)>| format!("{review} of {id}"),
        )
    })
}
