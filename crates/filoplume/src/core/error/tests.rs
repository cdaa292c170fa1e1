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
