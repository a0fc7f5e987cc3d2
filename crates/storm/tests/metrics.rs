//! Compares the metrics of `storm serve` with what its clients have counted. Needs root.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::rig::Server;

const ZONE: &str = "\
$ORIGIN storm.test.
@   3600 IN SOA ns hostmaster 1 7200 3600 1209600 300
@   3600 IN NS  ns
ns  3600 IN A   192.0.2.53
";

/// Maximum time until the workers have published their last counts.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which a worker has surely published its counts again.
const REST: Duration = Duration::from_millis(500);

/// Runs a program and returns its output. The program must succeed.
fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the sum of the samples whose name and labels contain all of `words`.
fn sum(metrics: &str, words: &[&str]) -> u64 {
    let samples = metrics.lines().filter_map(|line| line.rsplit_once(' '));
    let wanted = samples.filter(|(name, _)| words.iter().all(|word| name.contains(word)));
    wanted
        .map(|(_, value)| value.parse::<u64>().unwrap_or_default())
        .sum()
}

/// The clients are curl with 600 requests over few connections and 40 over one connection each, and
/// dig with 300 queries over each transport.
#[test]
fn at_rest_the_metrics_equal_what_the_clients_counted() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let paths = ["www", "a.zone", "socket", "questions"].map(|name| folder.path().join(name));
    let [www, zone, socket, questions] = &paths;
    fs::create_dir(www).unwrap();
    fs::write(www.join("index.html"), "hello").unwrap();
    fs::write(zone, ZONE).unwrap();
    let asked = [
        "ns.storm.test A\n",
        "none.storm.test A\n",
        "ns.storm.test A\n",
    ]
    .concat();
    fs::write(questions, asked.repeat(100)).unwrap();
    let [www, zone, socket, questions] =
        [www, zone, socket, questions].map(|path| path.to_str().unwrap());
    let arguments = ["serve", "--web", www, "--zone", zone, "--workers", "2"];
    let arguments = [&arguments[..], &["--control-socket", socket]].concat();
    let storm = Server::start(env!("CARGO_BIN_EXE_storm"), &arguments);
    let address = storm.addresses[0];
    storm.beside(|| {
        let statuses = |path: &str, more: &[&str]| {
            let url = format!("http://{address}/{path}");
            let told = ["-s", "-o", "/dev/null", "-w", "%{http_code}\n"];
            output("curl", &[&told[..], more, &[&url]].concat())
        };
        let found = statuses(
            "index.html?[1-500]",
            &["--parallel", "--parallel-max", "20"],
        );
        assert_eq!(found.matches("200").count(), 500);
        assert_eq!(statuses("none?[1-100]", &[]).matches("404").count(), 100);
        let closed = statuses("?[1-40]", &["-H", "Connection: close"]);
        assert_eq!(closed.matches("200").count(), 40);
        let server = format!("@{address}");
        for over in ["+notcp", "+tcp"] {
            let answers = output("dig", &["+nocookie", over, &server, "-f", questions]);
            assert_eq!(answers.matches("status: NOERROR").count(), 200);
            assert_eq!(answers.matches("status: NXDOMAIN").count(), 100);
        }
    });
    let metrics = || {
        output(
            "curl",
            &["-s", "--unix-socket", socket, "http://localhost/metrics"],
        )
    };
    let all_metrics = metrics();
    let helps = all_metrics
        .lines()
        .filter(|line| line.starts_with("# HELP "));
    for help in helps {
        let is_made = ["Number of ", "Current ", "Distribution of "];
        assert!(!is_made.iter().any(|start| help.contains(start)), "{help}");
    }
    let expected = [
        (&["sandstorm_requests_total{"][..], 640),
        (&["sandstorm_answers_total{", "status=\"200\""], 540),
        (&["sandstorm_answers_total{", "status=\"404\""], 100),
        (&["sandstorm_answers_total{"], 640),
        (&["namestorm_queries_total{", "transport=\"udp\""], 300),
        (&["namestorm_queries_total{", "transport=\"tcp\""], 300),
        (&["namestorm_replies_total{", "rcode=\"NOERROR\""], 400),
        (&["namestorm_replies_total{", "rcode=\"NXDOMAIN\""], 200),
        (&["namestorm_connections_total{"], 300),
        (&["namestorm_connections_open{"], 0),
    ];
    let counted = |metrics: &str| expected.map(|(words, _)| sum(metrics, words));
    let all = expected.map(|(_, count)| count);
    let start = Instant::now();
    while counted(&metrics()) != all && start.elapsed() < TIMEOUT {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(REST);
    let metrics = metrics();
    assert_eq!(counted(&metrics), all, "{metrics}");
    storm.stop();
}
