//! Configurations of the other servers. They log no requests, and have no limit that a run could
//! reach. Each server has one worker. Only nginx has more, if one worker may not open enough files.
//! [`fill`] replaces the placeholders in braces. The end-to-end tests run the DNS servers, too.

use std::path::Path;

/// Replaces each `{word}` of a template by its value.
pub(crate) fn fill(template: &str, words: &[(&str, String)]) -> String {
    let put =
        |text: String, (word, value): &(&str, String)| text.replace(&format!("{{{word}}}"), value);
    words.iter().fold(template.to_owned(), put)
}

/// Separates a configuration of a DNS server from the part that stands once for each zone.
const EACH_ZONE: &str = "{each zone}\n";

/// Like [`fill`], but the end of a DNS server's template is repeated for each of these zones, which
/// are names and files.
pub(crate) fn fill_zones(
    template: &str,
    words: &[(&str, String)],
    zones: impl Iterator<Item = [String; 2]>,
) -> String {
    let (head, zone) = template.split_once(EACH_ZONE).unwrap_or((template, ""));
    let each = |[origin, file]: [String; 2]| fill(zone, &[("origin", origin), ("file", file)]);
    fill(head, words) + &zones.map(each).collect::<String>()
}

pub(crate) const NGINX: &str = "\
{modules}user root;
daemon off;
worker_processes {workers};
worker_rlimit_nofile {files};
pid {run}/nginx.pid;
error_log stderr crit;
events {
    use epoll;
    worker_connections {worker_connections};
    multi_accept on;
    accept_mutex off;
}
http {
    sendfile on;
    sendfile_max_chunk 0;
    tcp_nopush {nopush};
    tcp_nodelay on;
    access_log off;
    server_tokens off;
    default_type application/octet-stream;
    open_file_cache max={cached} inactive=1h;
    open_file_cache_valid 1h;
    open_file_cache_min_uses 1;
    gzip_static on;
{more}    keepalive_timeout 1h;
    keepalive_requests 2000000000;
    client_header_timeout 1h;
    client_body_temp_path {run}/body;
    proxy_temp_path {run}/proxy;
    fastcgi_temp_path {run}/fastcgi;
    uwsgi_temp_path {run}/uwsgi;
    scgi_temp_path {run}/scgi;
    server {
        listen {address}:80 reuseport backlog=65535;
        root {served};
    }
}
";

/// Debian's module that sends files with Brotli forms beside them. A module that does not exist must
/// not be in the configuration.
const NGINX_BROTLI: &str = "/usr/lib/nginx/modules/ngx_http_brotli_static_module.so";

pub(super) fn has_nginx_brotli() -> bool {
    Path::new(NGINX_BROTLI).exists()
}

/// Returns the lines of nginx's configuration that load modules.
pub(super) fn nginx_modules() -> String {
    if has_nginx_brotli() {
        format!("load_module {NGINX_BROTLI};\n")
    } else {
        String::new()
    }
}

/// Returns the lines of nginx's configuration that depend on the machine and the mode.
pub(super) fn nginx_directives(uses_threads: bool) -> String {
    let brotli = has_nginx_brotli().then_some("    brotli_static on;\n");
    let threads = uses_threads.then_some("    aio threads;\n");
    [brotli, threads].into_iter().flatten().collect()
}

pub(super) const LIGHTTPD: &str = "\
server.modules = ()
server.document-root = \"{served}\"
server.bind = \"{address}\"
server.port = 80
server.pid-file = \"{run}/lighttpd.pid\"
server.event-handler = \"linux-sysepoll\"
server.network-backend = \"sendfile\"
server.max-worker = 0
server.max-fds = {files}
server.max-connections = {connections}
server.listen-backlog = 65535
server.max-keep-alive-requests = 0
server.max-keep-alive-idle = 3600
server.max-read-idle = 3600
server.max-write-idle = 3600
server.stat-cache-engine = \"simple\"
mimetype.assign = (\"\" => \"application/octet-stream\")
";

pub(super) const H2O: &str = "\
user: root
num-threads: 1
max-connections: {connections}
pid-file: {run}/h2o.pid
http1-request-timeout: 3600
listen:
  host: {address}
  port: 80
hosts:
  default:
    paths:
      /:
        file.dir: {served}
        file.send-compressed: ON
";

pub(super) const CADDY: &str = "\
{
    admin off
    auto_https off
    storage file_system {run}
    log {
        level ERROR
    }
}
http://:80 {
    bind {address}
    root * {served}
    file_server {
        precompressed br gzip
    }
}
";

pub(crate) const NSD: &str = "\
server:
    server-count: 1
    ip-address: {address}
    port: 53
    do-ip6: no
    username: root
    zonesdir: \"\"
    database: \"\"
    zonelistfile: {run}/zone.list
    xfrdfile: {run}/xfrd.state
    xfrdir: {run}
    pidfile: {run}/nsd.pid
    verbosity: 0
    hide-version: yes
    minimal-responses: yes
    rrl-ratelimit: {limit}
    rrl-whitelist-ratelimit: 0
    send-buffer-size: 4194304
    receive-buffer-size: 4194304
remote-control:
    control-enable: no
{each zone}
zone:
    name: {origin}
    zonefile: {file}
    provide-xfr: 127.0.0.1 NOKEY
";

/// Configuration of Knot DNS. It listens either on kernel sockets or on `AF_XDP`, so that a run
/// measures only one of them.
macro_rules! knot {
    ($listen:literal) => {
        concat!(
            "\
server:
    rundir: {run}
    user: root:root
    udp-workers: 1
    tcp-workers: 1
    background-workers: 1
",
            $listen,
            "\
log:
  - target: stderr
    any: warning
database:
    storage: {run}
acl:
  - id: local
    address: 127.0.0.1
    action: transfer
{rrl}template:
  - id: default
    acl: local
{uses_rrl}    semantic-checks: off
    zonefile-sync: -1
    zonefile-load: whole
    journal-content: none
zone:
{each zone}
  - domain: {origin}
    file: {file}
"
        )
    };
}
pub(crate) const KNOT: &str = knot!("    listen: {address}@53\n");
pub(super) const KNOT_XDP: &str = knot!("xdp:\n    listen: {link}\n    udp: on\n    tcp: off\n");

/// Module of Knot DNS that limits the rate of responses, and the line that uses it in all zones.
pub(super) const KNOT_RRL: [&str; 2] = [
    "mod-rrl:\n  - id: default\n    rate-limit: {limit}\n    slip: 2\n",
    "    global-module: mod-rrl/default\n",
];

/// Option of BIND that limits the rate of responses. BIND's limit is for each name, and its maximum may be
/// less than a run reaches. Therefore BIND counts responses, but drops none.
pub(super) const BIND_RATE_LIMIT: &str =
    "    rate-limit { responses-per-second 1000; slip 2; log-only yes; };\n";

pub(crate) const BIND: &str = "\
options {
    directory \"{run}\";
    pid-file \"{run}/named.pid\";
    session-keyfile \"{run}/session.key\";
    lock-file none;
    listen-on { {address}; };
    listen-on-v6 { none; };
    recursion no;
    minimal-responses yes;
    querylog no;
    empty-zones-enable no;
    dnssec-validation no;
    notify no;
    zone-statistics none;
    check-names primary ignore;
    allow-query { any; };
{rate_limit}};
logging {
    channel errors { stderr; severity error; };
    category default { errors; };
    category queries { null; };
    category query-errors { null; };
    category rate-limit { null; };
};
controls { };
{each zone}
zone \"{origin}\" {
    type primary;
    file \"{file}\";
};
";
