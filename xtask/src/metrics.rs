//! Reads the metrics of a server, from a Unix socket.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::shell;

/// Time after which the metrics of a server at rest have all that it has done.
const SETTLED: Duration = Duration::from_millis(300);

/// The metrics of a server, as Prometheus text.
pub(crate) struct Metrics(String);

impl Metrics {
    /// Returns the option with which a server offers its metrics.
    pub(crate) fn option(socket: &Path) -> String {
        format!("--metrics-listen=unix:{}", socket.display())
    }

    /// Reads the metrics of a server that is at rest.
    pub(crate) fn at_rest(socket: &Path) -> Result<Self> {
        std::thread::sleep(SETTLED);
        let mut curl = Command::new("curl");
        curl.args(["-sSf", "-m", "5", "--unix-socket"]).arg(socket);
        let text = shell::capture_text(curl.arg("http://localhost/metrics"))?;
        Ok(Self(text))
    }

    /// Adds up the values of a metric that have these labels, each with its value.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Result<u64> {
        let labels: Vec<_> = (labels.iter())
            .map(|(label, value)| format!("{label}=\"{value}\""))
            .collect();
        let samples = self.0.lines().filter_map(|line| line.strip_prefix(name));
        let samples = samples.filter_map(|rest| rest.strip_prefix('{')?.split_once("} "));
        let values = samples
            .filter(|(found, _)| labels.iter().all(|label| found.contains(label)))
            .map(|(_, value)| value.parse::<u64>());
        let values: Result<Vec<_>, _> = values.collect();
        Ok(values
            .with_context(|| format!("reading {name}"))?
            .iter()
            .sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_added_up_by_name_and_labels() {
        let metrics = Metrics(
            "# TYPE a_total counter\n\
             a_total{worker=\"0\",status=\"200\"} 3\n\
             a_total{worker=\"0\",status=\"404\"} 4\n\
             a_total{worker=\"1\",status=\"200\"} 5\n\
             a_total_bytes{worker=\"1\"} 1\n\
             b{worker=\"1\"} 0.5\n"
                .to_owned(),
        );
        assert_eq!(metrics.sum("a_total", &[]).unwrap(), 12);
        assert_eq!(metrics.sum("a_total", &[("status", "200")]).unwrap(), 8);
        let labels = [("worker", "0"), ("status", "404")];
        assert_eq!(metrics.sum("a_total", &labels).unwrap(), 4);
        assert_eq!(metrics.sum("c", &[]).unwrap(), 0);
        metrics.sum("b", &[]).unwrap_err();
    }
}
