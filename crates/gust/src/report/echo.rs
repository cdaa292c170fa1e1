//! The report in the format of common clients for echo servers, so that figures can be compared
//! with published ones.

use std::fmt::Write;

use crate::report::float;
use crate::run::{Load, Run};

pub(crate) fn write(run: &Run) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = body(run, &mut out);
    out
}

fn body(run: &Run, out: &mut String) -> std::fmt::Result {
    let address = run.target.split_once("://").map_or(run.target.as_str(), |(_, rest)| rest);
    let seconds = run.seconds.max(1e-9);
    writeln!(out, "Benchmarking: {address}")?;
    let Load { connections, request_bytes, .. } = &run.load;
    writeln!(out, "{connections} clients, running {request_bytes} bytes, {seconds:.0} sec.\n")?;
    let per_second = |count: u64| float(count) / seconds;
    let (asked, answered) = (per_second(run.requests), per_second(run.responses));
    writeln!(out, "Speed: {asked:.0} request/sec, {answered:.0} response/sec")?;
    writeln!(out, "Requests: {}", run.requests)?;
    writeln!(out, "Responses: {}", run.responses)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::report::sample;

    #[test]
    fn the_output_is_like_that_of_echo_clients() {
        expect![[r"
            Benchmarking: 127.0.0.1:8080/plain?a=<b>&c
            64 clients, running 47 bytes, 4 sec.

            Speed: 20000 request/sec, 19975 response/sec
            Requests: 80000
            Responses: 79900
        "]]
        .assert_eq(&write(&sample::run()));
    }
}
