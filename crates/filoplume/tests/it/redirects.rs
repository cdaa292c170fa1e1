//! Redirects to targets that are not valid URLs as they are.

use filoplume::prelude::*;

#[test]
fn any_target_becomes_a_valid_url() {
    let app = App::new().get("/", |Query(parameters): Query<Vec<(String, String)>>| {
        let target = parameters.into_iter().map(|(_, value)| value).next();
        Redirect::to(target.unwrap_or_default())
    });
    let client = app.test();
    let rows = [
        ("/notes", "/notes"),
        ("/über uns", "/%C3%BCber%20uns"),
        ("/a%20b?c=\"d\"", "/a%20b?c=%22d%22"),
        ("/a\r\nset-cookie: b=c", "/a%0D%0Aset-cookie:%20b=c"),
        ("/\0", "/%00"),
    ];
    for (target, location) in rows {
        let response = client.get("/").query(&[("to", target)]).send();
        response
            .assert_status(303)
            .assert_header("location", location)
            .assert_no_header("set-cookie");
    }
}
