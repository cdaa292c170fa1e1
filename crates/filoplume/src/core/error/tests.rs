//! How errors are printed.

use super::*;

#[test]
fn an_error_of_another_crate_is_a_plain_500() {
    let error = Error::from(std::io::Error::other("disk on fire"));
    assert_eq!(error.status(), 500);
    assert_eq!(error.detail(), None, "its text is not for the peer");
    assert_eq!(format!("{error:?}"), "disk on fire");
    assert!(error.downcast_ref::<std::io::Error>().is_some());
}

#[test]
fn a_cause_in_the_text_is_not_repeated() {
    #[derive(Debug)]
    struct Outer(std::io::Error);
    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "cannot read the list: {}", self.0)
        }
    }
    impl StdError for Outer {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            Some(&self.0)
        }
    }
    let error = Error::from(Outer(std::io::Error::other("disk on fire")));
    assert_eq!(format!("{error:?}"), "cannot read the list: disk on fire");
}

#[test]
fn an_error_prints_its_status_fields_and_causes() {
    let error = Error::unprocessable("the order is wrong")
        .with_field("items[0].count", "must be positive")
        .with_source(Message("count is 0".to_owned()));
    assert_eq!(
        format!("{error:?}"),
        "422 Unprocessable Entity: the order is wrong\n  items[0].count: must be positive\n  \
         caused by: count is 0"
    );
}

/// `?` in `fn main() -> Result<(), Box<dyn Error>>` and the like.
#[test]
fn an_error_becomes_a_boxed_error() {
    fn boxed(error: Error) -> Result<(), Box<dyn StdError>> {
        Err(error)?
    }
    fn shareable(error: Error) -> Result<(), Box<dyn StdError + Send + Sync>> {
        Err(error)?
    }
    let error = || Error::unavailable("closed").with_source(std::io::Error::other("no stock"));
    let printed = boxed(error()).unwrap_err();
    assert_eq!(printed.to_string(), "closed");
    assert_eq!(format!("{printed:?}"), format!("{:?}", error()), "as `main` prints it");
    assert_eq!(printed.source().unwrap().to_string(), "no stock");
    let shared = shareable(error()).unwrap_err();
    assert_eq!(shared.source().unwrap().to_string(), "no stock");
    // The text of this error is that of its source, so the source is not repeated.
    let plain = shareable(std::io::Error::other("disk on fire").into()).unwrap_err();
    assert_eq!(plain.to_string(), "disk on fire");
    assert!(plain.source().is_none());
    assert!(boxed(Error::not_found("nothing")).unwrap_err().source().is_none());
}

/// Regression: the client got a `200` with the text of an error.
#[test]
fn an_error_with_the_status_of_a_success_is_a_500_that_names_its_line() {
    for status in [100, 200, 204, 299] {
        let line = line!() + 1;
        let both = [Error::new(status, "all is well"), Error::from_status(status)];
        for error in both {
            let error = error.with_source(std::io::Error::other("disk on fire"));
            assert_eq!(error.status(), 500, "{status}");
            assert_eq!(error.detail(), None, "the text may not be for a failure");
            let printed = error.to_string();
            assert!(printed.contains(&format!("the status {status}")), "{printed}");
            assert!(printed.contains(&format!("tests.rs:{line}:")), "{printed}");
        }
    }
    for status in [300, 303, 304, 400, 599] {
        assert_eq!(Error::new(status, "no").status(), status);
        assert_eq!(Error::from_status(status).status(), status);
    }
}

#[test]
fn a_known_header_is_added_to_others_of_its_name() {
    let error = Error::not_found("").with_known_header("vary", "accept");
    let error = error.with_known_header("vary", "origin");
    let response = error.into_pending_response();
    let values: Vec<_> = response.headers().get_all("vary").collect();
    assert_eq!(values, [b"accept", b"origin"].map(|value| &value[..]));
}
