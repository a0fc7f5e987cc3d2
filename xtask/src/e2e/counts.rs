//! Compares what a server counts with what a load generator has counted. After the last reply, both must
//! be equal.

use anyhow::{Context as _, Result, ensure};

use super::Env;
use super::checks::Checks;
use super::matrix::Scenario;
use super::peers::servers::is_installed;
use super::rig::{Place, Rig};
use crate::metrics::Metrics;
use crate::shell;

/// Number of requests of each generator.
const REQUESTS: u64 = 20_000;

/// A generator, and the counts that must be equal to its own.
struct Case {
    name: &'static str,
    scenario: Scenario,
    /// Option of the server. With its rate limit, it would leave most queries of one client unanswered.
    option: &'static str,
    /// The program, its Debian package, and its command line.
    program: [&'static str; 3],
    /// What the generator prints before and after the number of replies.
    printed: [&'static str; 2],
    /// Metrics of the server, each with a label.
    metrics: [(&'static str, Option<(&'static str, &'static str)>); 2],
}

const CASES: [Case; 3] = [
    Case {
        name: "requests",
        scenario: Scenario::WEB,
        option: "--drain=0",
        program: [
            "h2load",
            "nghttp2-client",
            "h2load --h1 -n {requests} -c 8 -m 1 http://{address}:{port}/size-1460.bin",
        ],
        printed: ["status codes: ", " 2xx"],
        metrics: [
            ("sandstorm_requests_total", None),
            ("sandstorm_answers_total", Some(("status", "200"))),
        ],
    },
    Case {
        name: "queries over UDP",
        scenario: Scenario::DNS,
        option: "--rate-limit=0",
        program: [
            "dnsperf",
            "dnsperf",
            "dnsperf -s {address} -p {port} -d {questions} -n 1 -c 8",
        ],
        printed: ["Queries completed:", " ("],
        metrics: [
            ("namestorm_queries_total", Some(("transport", "udp"))),
            ("namestorm_replies_total", Some(("transport", "udp"))),
        ],
    },
    Case {
        name: "queries over TCP",
        scenario: Scenario::DNS,
        option: "--rate-limit=0",
        program: [
            "dnsperf",
            "dnsperf",
            "dnsperf -m tcp -s {address} -p {port} -d {questions} -n 1 -c 8",
        ],
        printed: ["Queries completed:", " ("],
        metrics: [
            ("namestorm_queries_total", Some(("transport", "tcp"))),
            ("namestorm_replies_total", Some(("transport", "tcp"))),
        ],
    },
];

pub(crate) fn run(env: &Env, checks: &mut Checks) -> Result<()> {
    for case in CASES {
        let [program, package, _] = case.program;
        if is_installed(case.name, program, package) {
            case.run(env, checks)?;
        }
    }
    Ok(())
}

impl Case {
    fn run(&self, env: &Env, checks: &mut Checks) -> Result<()> {
        let scratch = shell::scratch_in(&env.folder, "counts")?;
        let socket = scratch.path().join("metrics");
        let rig = Rig::build(&self.scenario)?;
        let options = [self.option, &Metrics::option(&socket)];
        let (server, place) = rig.start(env, &self.scenario, &options)?;
        checks.check(format!("{} are counted to the last one", self.name), || {
            let counted = self.generate(env, &rig, &place)?;
            ensure!(
                counted == REQUESTS,
                "only {counted} of {REQUESTS} were answered"
            );
            let metrics = Metrics::at_rest(&socket)?;
            for (name, label) in self.metrics {
                let count = metrics.sum(name, label.as_slice())?;
                ensure!(
                    count == counted,
                    "{name} {label:?} is {count}, but the generator counted {counted}"
                );
            }
            Ok(())
        });
        checks.check("it stops normally", || server.stop_well().map(drop));
        Ok(())
    }

    /// Runs the generator, and returns how many right replies it has counted.
    fn generate(&self, env: &Env, rig: &Rig, place: &Place) -> Result<u64> {
        let questions = env.folder.join("counted.questions");
        let lines = env.table.iter().cycle().take(REQUESTS as usize);
        let lines = lines.map(|entry| entry.question.replace(" IN ", " ") + "\n");
        shell::write(&questions, lines.collect::<String>())?;
        let line = (self.program[2])
            .replace("{requests}", &REQUESTS.to_string())
            .replace("{address}", &place.v4.to_string())
            .replace("{port}", &place.port.to_string())
            .replace("{questions}", &questions.display().to_string());
        let output = rig.client().run(&line)?;
        let [before, after] = self.printed;
        let count = output
            .split_once(before)
            .and_then(|(_, rest)| rest.split_once(after));
        let (count, _) = count.with_context(|| output.clone())?;
        count.trim().parse().with_context(|| output.clone())
    }
}
