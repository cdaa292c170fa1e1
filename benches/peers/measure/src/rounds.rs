//! Rounds: each round measures every server, so that a slow machine slows all of them down. A run
//! is repeated if other processes used the machine.

use std::io;

use crate::args::Args;
use crate::build::Program;
use crate::generator::Tools;
use crate::report::{Figures, Row, is_disturbed, others};
use crate::scenario::{Entrant, Run, Scenario};
use crate::server::Server;

/// A server with the program that was built for it.
#[derive(Debug)]
pub struct Built<'a> {
    pub server: &'a Server,
    pub program: Program,
}

/// Measures every entrant once per round. The processes `beside` work for the servers.
pub fn measure(
    args: &Args,
    tools: &Tools,
    scenario: &Scenario,
    built: &[Built<'_>],
    beside: &[u32],
) -> Vec<Row> {
    let entrants: Vec<(&Built<'_>, Entrant)> = built
        .iter()
        .flat_map(|built| {
            scenario.entrants(built.server).into_iter().map(move |entrant| (built, entrant))
        })
        .collect();
    let rows = entrants
        .iter()
        .map(|(built, entrant)| Row::new(&entrant.label, Server::is_ours(&built.server.name)))
        .collect();
    let plan = Turns {
        name: scenario.name,
        rounds: if scenario.repeats { args.rounds } else { 1 },
        // A measurement beside a busy loop is meant to be disturbed.
        repeats_max: if args.beside_busy { 0 } else { args.repeats },
    };
    plan.measure(rows, |index| {
        let (built, entrant) = &entrants[index];
        (scenario.measure)(&Run {
            server: built.server,
            program: &built.program,
            slow: &entrant.slow,
            seconds: args.seconds(),
            requests: args.requests(),
            tools,
            beside,
            scenario,
        })
    })
}

/// How often the rows of a table are measured in turns.
#[derive(Clone, Copy, Debug)]
pub struct Turns<'a> {
    pub name: &'a str,
    pub rounds: usize,
    pub repeats_max: usize,
}

impl Turns<'_> {
    /// Measures each row once per round, and again if the run was disturbed.
    pub fn measure(
        self,
        mut rows: Vec<Row>,
        one: impl Fn(usize) -> io::Result<Figures>,
    ) -> Vec<Row> {
        for round in 1..=self.rounds {
            for (index, row) in rows.iter_mut().enumerate() {
                eprintln!("{} {round}/{}: {}", self.name, self.rounds, row.label);
                let (figures, repeats) = calmest(|| one(index), self.repeats_max);
                row.rounds.push(figures.map_err(|error| error.to_string()));
                row.repeats += repeats;
            }
        }
        rows
    }
}

/// Runs until a run is not disturbed, with at most `repeats_max` repeats. Returns the least
/// disturbed run and the number of repeats.
fn calmest(
    mut run: impl FnMut() -> io::Result<Figures>,
    repeats_max: usize,
) -> (io::Result<Figures>, usize) {
    let mut best = run();
    for repeats in 0..repeats_max {
        // A run that failed has failed for another reason.
        let Ok(calmest) = &best else { return (best, repeats) };
        if !is_disturbed(calmest) {
            return (best, repeats);
        }
        let others = others(calmest);
        eprintln!("  disturbed: others used {others:.2} cores; once more");
        match run() {
            Ok(again) if others < self::others(&again) => {}
            again => best = again,
        }
    }
    (best, repeats_max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::OTHERS_KEY;

    #[test]
    fn a_quiet_round_is_run_once() {
        check(&[0.1], 2, (Some(0.1), 0));
    }

    #[test]
    fn a_disturbed_round_is_repeated_until_it_is_quiet() {
        check(&[0.5, 0.2, 0.0], 2, (Some(0.2), 1));
    }

    #[test]
    fn repeats_are_bounded_and_the_calmest_is_kept() {
        check(&[0.5, 0.3, 0.9, 0.0], 2, (Some(0.3), 2));
        check(&[0.5], 0, (Some(0.5), 0));
    }

    #[test]
    fn what_fails_is_not_repeated() {
        let (figures, repeats) = calmest(|| Err(io::Error::other("it hangs")), 2);
        assert!(figures.is_err());
        assert_eq!(repeats, 0);
    }

    #[track_caller]
    fn check(runs: &[f64], repeats_max: usize, expected: (Option<f64>, usize)) {
        let mut runs = runs.iter();
        let run = || {
            Ok(Figures::default()
                .number(OTHERS_KEY, *runs.next().expect("one run more than allowed")))
        };
        let (figures, repeats) = calmest(run, repeats_max);
        assert_eq!((figures.unwrap().get(OTHERS_KEY), repeats), expected);
    }
}
