//! Prints a configuration file with every key, as a start for the operator.

use std::fmt::Write as _;

use clap::Command;

use super::command::prepared;
use super::keys::{Key, SECTIONS, keys};
use super::value::toml_value;

/// Width of the file in characters.
const WIDTH: usize = 98;

/// Values of the keys that have no default, in TOML.
const EXAMPLES: [(&str, &str); 48] = [
    ("addresses", r#"["192.0.2.80/24", "2001:db8::80/64"]"#),
    ("port", "80"),
    ("dns-port", "53"),
    ("workers", "1"),
    ("user", r#""www-data:www-data""#),
    ("access_log", r#""/var/log/sandstorm/access.log""#),
    ("dnstap", r#""unix:/run/dnstap/dnstap.sock""#),
    ("query_log", r#""/var/log/namestorm/query.log""#),
    ("metrics_listen", r#""127.0.0.1:9153""#),
    ("control_socket", r#""/run/www/control.sock""#),
    ("pcap", r#""/var/tmp/server.pcap""#),
    ("fault", r#""drop=0.01,seed=1""#),
    ("max_connections", "100000"),
    ("when_full", r#""evict""#),
    ("max_per_address", "1000"),
    ("ipv6_prefix", "64"),
    ("max_half_open", "4096"),
    ("syn_cookies", r#""auto""#),
    ("idle_timeout", r#""90 s""#),
    ("request_timeout", r#""20 s""#),
    ("user_timeout", r#""2 min""#),
    ("min_rate", r#""16 kB""#),
    ("root", r#""/srv/www""#),
    ("memory", r#""2 GB""#),
    ("pinned", r#""256 MB""#),
    ("web_addresses", r#"["192.0.2.80"]"#),
    ("hosts", r#"["example.org", "*.example.org"]"#),
    (
        "redirect_hosts",
        r#"["www.example.org=https://example.org"]"#,
    ),
    (
        "redirects",
        r#"["/old/* /new/:splat", "/app/* /index.html 200"]"#,
    ),
    ("headers", r#"["/fonts/* Access-Control-Allow-Origin: *"]"#),
    ("media_types", r#"["wasm=application/wasm"]"#),
    ("error_pages", r#"["404=/errors/missing.html"]"#),
    ("basic_auth", r#"["/admin=/etc/sandstorm/admin.users"]"#),
    ("etag_key", r#""/etc/sandstorm/etag.key""#),
    ("basic_auth_realm", r#"["/admin=For our staff"]"#),
    ("compress_cache", r#""/var/cache/sandstorm""#),
    (
        "zones",
        r#"["example.org.zone", "example.com=/var/lib/zones/com"]"#,
    ),
    ("zones_from", r#"["/var/lib/zones/*.zone"]"#),
    ("cookie_secret", r#""/etc/namestorm/cookie.secrets""#),
    ("tsig_keys", r#""/etc/namestorm/tsig.keys""#),
    ("rate_limit", "1000"),
    (
        "allow_transfers",
        r#"["192.0.2.53", "2001:db8:53::/64 secondary-key"]"#,
    ),
    (
        "notify",
        r#"["192.0.2.53 secondary-key", "[2001:db8::53]:5353"]"#,
    ),
    ("rate_limit_allowed", r#"["192.0.2.0/24", "2001:db8::/32"]"#),
    ("edns_sizes", r#"["1232", "2001:db8::/32=4096"]"#),
    ("nsid", r#""ns1.example.org""#),
    ("chaos_version", r#""our name server""#),
    ("chaos_id", r#""ns1.example.org""#),
];

/// Returns a commented configuration file with every key of a command. Keys are commented out, and
/// have their defaults, or else an example.
pub fn example(command: &Command) -> String {
    let name = command.get_name();
    let command = prepared(command.clone());
    let mut command = command.find_subcommand("serve").unwrap_or(&command).clone();
    command.build();
    let mut text = format!(
        "# Configuration of {name}. Lines that begin with #KEY show the defaults, or examples.\n\
         # An option on the command line overrides its key. Sizes and times may have units,\n\
         # such as \"512 MB\" and \"30 s\".\n"
    );
    let keys = keys(&command);
    for section in SECTIONS {
        let keys: Vec<_> = keys.iter().filter(|key| key.section == section).collect();
        if keys.is_empty() {
            continue;
        }
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n{}", section.header());
        for key in keys {
            explain(key, &mut text);
            let _ = writeln!(text, "#{}", value(key));
        }
    }
    text
}

/// Writes the option's help as comments.
fn explain(key: &Key<'_>, text: &mut String) {
    let help = key.arg.get_long_help().or(key.arg.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    for (n, paragraph) in help.split("\n\n").enumerate() {
        text.push_str(if n == 0 { "\n" } else { "#\n" });
        sentence(paragraph, text);
    }
    let values = key.arg.get_possible_values();
    if !values.is_empty() && !key.is_flag() {
        for value in values.iter().filter(|value| !value.is_hide_set()) {
            let help = value
                .get_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            sentence(&format!("{}: {help}", toml_value(value.get_name())), text);
        }
    }
}

/// Writes a paragraph as comment lines of at most [`WIDTH`] characters. It ends with a full stop,
/// which help texts of one sentence lack.
fn sentence(paragraph: &str, text: &mut String) {
    let mut line = "#".to_owned();
    for word in paragraph.split_whitespace() {
        if line.len() > 1 && line.chars().count() + 1 + word.chars().count() > WIDTH {
            text.push_str(&line);
            text.push('\n');
            "#".clone_into(&mut line);
        }
        line.push(' ');
        line.push_str(word);
    }
    text.push_str(&line);
    text.push_str(if line.ends_with('.') { "\n" } else { ".\n" });
}

/// The key with its default, or else with an example.
fn value(key: &Key<'_>) -> String {
    let name = key.name();
    if key.is_flag() {
        return format!("{name} = false");
    }
    if let Some(default) = key.arg.get_default_values().first() {
        return format!("{name} = {}", toml_value(&default.to_string_lossy()));
    }
    format!("{name} = {}  # an example", example_of(key))
}

/// The value of a key that has no default, in TOML. It is empty if there is no example.
fn example_of(key: &Key<'_>) -> &'static str {
    let id = match (key.arg.get_id().as_str(), key.section.name) {
        ("port", "dns") => "dns-port",
        (id, _) => id,
    };
    let found = EXAMPLES.iter().find(|(of, _)| *of == id);
    found.map_or("", |(_, value)| value)
}

/// Returns true if the key takes only texts, so that a number is a mistake. The example tells this: it does not
/// begin with a digit. Nothing is known of the options of other programs.
pub(super) fn is_text(key: &Key<'_>) -> bool {
    let example = example_of(key).trim_start_matches(['[', '"']);
    let is_text = example.starts_with(|first: char| !first.is_ascii_digit());
    is_text && key.section.name != "program"
}
