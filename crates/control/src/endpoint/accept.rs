//! The choice of a format for metrics, by the field `Accept` of a request (RFC 9110, section 12.5.1).

use hyper::HeaderMap;
use hyper::header::ACCEPT;

use crate::metrics::MetricsFormat;

/// Returns `OpenMetrics` if the client accepts it and does not prefer plain text, and otherwise
/// Prometheus' own format.
pub(super) fn metrics_format(headers: &HeaderMap) -> MetricsFormat {
    let plain = ["text/plain", "text/*", "*/*"];
    let plain = plain.iter().find_map(|range| quality(headers, range));
    match quality(headers, "application/openmetrics-text") {
        Some(open) if open > 0.0 && open >= plain.unwrap_or_default() => MetricsFormat::OpenMetrics,
        _ => MetricsFormat::Prometheus,
    }
}

/// Returns the highest weight of a media range, from 0 to 1. Other parameters of the range do not
/// count.
fn quality(headers: &HeaderMap, wanted: &str) -> Option<f32> {
    let values = headers.get_all(ACCEPT).iter();
    let ranges = values.filter_map(|value| value.to_str().ok());
    let qualities = ranges
        .flat_map(|value| value.split(','))
        .filter_map(|range| {
            let (name, parameters) = range.split_once(';').unwrap_or((range, ""));
            if !name.trim().eq_ignore_ascii_case(wanted) {
                return None;
            }
            let mut parameters = parameters.split(';').filter_map(|one| one.split_once('='));
            match parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("q")) {
                None => Some(1.0),
                Some((_, weight)) => weight.trim().parse::<f32>().ok(),
            }
        });
    qualities
        .filter(|weight| (0.0..=1.0).contains(weight))
        .reduce(f32::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_chooses_the_format_by_its_weights() {
        // The last two are the fields of Prometheus 2 and 3.
        for (accept, is_open) in [
            ("", false),
            ("*/*", false),
            ("application/openmetrics-text", true),
            ("Application/OpenMetrics-Text;Q=0.5", true),
            ("application/openmetrics-text;q=0", false),
            (
                "application/openmetrics-text;q=0.4, text/plain;q=0.5",
                false,
            ),
            ("application/openmetrics-text;q=0.5, text/plain;q=0.5", true),
            ("application/openmetrics-text;q=0.4, text/*;q=0.5", false),
            ("application/openmetrics-text;q=0.4, */*;q=0.5", false),
            ("application/openmetrics-text;q=nan", false),
            ("application/openmetrics-text;q=2", false),
            ("text/plain, application/openmetrics-text-not", false),
            (
                "application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                true,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                 text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                true,
            ),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            let format = metrics_format(&headers);
            assert_eq!(format == MetricsFormat::OpenMetrics, is_open, "{accept}");
        }
        let mut headers = HeaderMap::new();
        headers.append(ACCEPT, "text/plain;q=0.3".parse().unwrap());
        headers.append(
            ACCEPT,
            "application/openmetrics-text;q=0.4".parse().unwrap(),
        );
        assert_eq!(metrics_format(&headers), MetricsFormat::OpenMetrics);
    }
}
