//! The peers' configurations: one worker each, logs off, every limit out of
//! the way.

use std::path::Path;

use super::content::ORIGIN;
use super::rig::{SERVER_ADDRESS, SERVER_LINK};

/// What a configuration points at.
pub(crate) struct Paths<'a> {
    /// Where the server may write.
    pub(crate) run: &'a Path,
    /// A zone's file, or a folder of files.
    pub(crate) served: &'a Path,
}

/// Connections beside those of the clients: listening sockets and files.
const SPARE: u32 = 512;

/// One worker, or as many as it takes for `connections` where a process may
/// not have that many files open.
pub(crate) fn nginx(paths: &Paths<'_>, connections: u32, open_files: u32) -> String {
    let (run, served) = (paths.run.display(), paths.served.display());
    let of_worker = open_files.saturating_sub(SPARE).max(1);
    let workers = connections.div_ceil(of_worker).max(1);
    // The kernel spreads them by chance, and no worker may be full before.
    let workers = if workers > 1 {
        workers + workers.div_ceil(8)
    } else {
        1
    };
    let connections = if workers > 1 { of_worker } else { connections } + SPARE;
    format!(
        "user root;
worker_processes {workers};
worker_rlimit_nofile {open_files};
pid {run}/nginx.pid;
error_log stderr crit;
events {{
    use epoll;
    worker_connections {connections};
    multi_accept on;
    accept_mutex off;
}}
http {{
    sendfile on;
    sendfile_max_chunk 0;
    tcp_nopush on;
    tcp_nodelay on;
    access_log off;
    server_tokens off;
    default_type application/octet-stream;
    open_file_cache max=4000 inactive=1h;
    open_file_cache_valid 1h;
    open_file_cache_min_uses 1;
    keepalive_timeout 1h;
    keepalive_requests 2000000000;
    client_header_timeout 1h;
    client_body_temp_path {run}/body;
    proxy_temp_path {run}/proxy;
    fastcgi_temp_path {run}/fastcgi;
    uwsgi_temp_path {run}/uwsgi;
    scgi_temp_path {run}/scgi;
    server {{
        listen {SERVER_ADDRESS}:80 reuseport backlog=65535;
        root {served};
    }}
}}
"
    )
}

pub(crate) fn lighttpd(paths: &Paths<'_>, connections: u32, open_files: u32) -> String {
    let (run, served) = (paths.run.display(), paths.served.display());
    let connections = connections + SPARE;
    format!(
        "server.modules = ()
server.document-root = \"{served}\"
server.bind = \"{SERVER_ADDRESS}\"
server.port = 80
server.pid-file = \"{run}/lighttpd.pid\"
server.event-handler = \"linux-sysepoll\"
server.network-backend = \"sendfile\"
server.max-worker = 0
server.max-fds = {open_files}
server.max-connections = {connections}
server.listen-backlog = 65535
server.max-keep-alive-requests = 0
server.max-keep-alive-idle = 3600
server.max-read-idle = 3600
server.max-write-idle = 3600
server.stat-cache-engine = \"simple\"
mimetype.assign = (\"\" => \"application/octet-stream\")
"
    )
}

pub(crate) fn h2o(paths: &Paths<'_>, connections: u32) -> String {
    let (run, served) = (paths.run.display(), paths.served.display());
    let connections = connections + SPARE;
    format!(
        "user: root
num-threads: 1
max-connections: {connections}
pid-file: {run}/h2o.pid
http1-request-timeout: 3600
listen:
  host: {SERVER_ADDRESS}
  port: 80
hosts:
  default:
    paths:
      /:
        file.dir: {served}
"
    )
}

pub(crate) fn nsd(paths: &Paths<'_>) -> String {
    nsd_with(paths, "")
}

/// For a newer NSD in a tree of its own, whose paths these are.
pub(crate) fn nsd_xdp(paths: &Paths<'_>) -> String {
    let more = format!(
        "    xdp-interface: {SERVER_LINK}
    xdp-program-load: yes
    xdp-bpffs-path: /sys/fs/bpf
    xdp-force-copy: yes
"
    );
    nsd_with(paths, &more)
}

fn nsd_with(paths: &Paths<'_>, more: &str) -> String {
    let (run, served) = (paths.run.display(), paths.served.display());
    // An XDP mode is newer than the database, which it has no option for.
    let database = if more.is_empty() {
        "    database: \"\"\n"
    } else {
        ""
    };
    format!(
        "server:
    server-count: 1
    ip-address: {SERVER_ADDRESS}
    port: 53
    do-ip6: no
    username: root
    zonesdir: \"\"
{database}    zonelistfile: {run}/zone.list
    xfrdfile: {run}/xfrd.state
    xfrdir: {run}
    pidfile: {run}/nsd.pid
    verbosity: 0
    hide-version: yes
    minimal-responses: yes
    rrl-ratelimit: 0
    rrl-whitelist-ratelimit: 0
    send-buffer-size: 4194304
    receive-buffer-size: 4194304
{more}remote-control:
    control-enable: no
zone:
    name: {ORIGIN}
    zonefile: {served}
"
    )
}

pub(crate) fn knot(paths: &Paths<'_>, xdp: bool) -> String {
    let (run, served) = (paths.run.display(), paths.served.display());
    let listen = if xdp {
        format!("xdp:\n    listen: {SERVER_LINK}\n    udp: on\n    tcp: off\n")
    } else {
        String::new()
    };
    // Its own sockets only where they are what is measured.
    let sockets = if xdp {
        String::new()
    } else {
        format!("    listen: {SERVER_ADDRESS}@53\n")
    };
    format!(
        "server:
    rundir: {run}
    user: root:root
    udp-workers: 1
    tcp-workers: 1
    background-workers: 1
{sockets}{listen}log:
  - target: stderr
    any: warning
database:
    storage: {run}
template:
  - id: default
    semantic-checks: off
    zonefile-sync: -1
    zonefile-load: whole
    journal-content: none
zone:
  - domain: {ORIGIN}
    file: {served}
"
    )
}

pub(crate) fn bind(paths: &Paths<'_>) -> String {
    let (run, served) = (paths.run.display(), paths.served.display());
    format!(
        "options {{
    directory \"{run}\";
    pid-file \"{run}/named.pid\";
    session-keyfile \"{run}/session.key\";
    lock-file none;
    listen-on {{ {SERVER_ADDRESS}; }};
    listen-on-v6 {{ none; }};
    recursion no;
    minimal-responses yes;
    querylog no;
    empty-zones-enable no;
    dnssec-validation no;
    notify no;
    zone-statistics none;
    allow-query {{ any; }};
}};
logging {{
    channel errors {{ stderr; severity error; }};
    category default {{ errors; }};
    category queries {{ null; }};
    category query-errors {{ null; }};
}};
controls {{ }};
zone \"{ORIGIN}\" {{
    type primary;
    file \"{served}\";
}};
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knots_modes_listen_in_one_place_each() {
        let paths = Paths {
            run: Path::new("/r"),
            served: Path::new("/z"),
        };
        let (kernel, xdp) = (knot(&paths, false), knot(&paths, true));
        assert!(kernel.contains("listen: 10.99.0.2@53") && !kernel.contains("xdp:"));
        assert!(xdp.contains("listen: srv0") && !xdp.contains("@53"));
    }

    #[test]
    fn more_connections_than_files_take_more_workers() {
        let paths = Paths {
            run: Path::new("/r"),
            served: Path::new("/s"),
        };
        assert!(nginx(&paths, 16_384, 20_000).contains("worker_processes 1;"));
        assert!(nginx(&paths, 16_384, 1_048_576).contains("worker_processes 1;"));
        let many = nginx(&paths, 1_000_000, 20_000);
        assert!(many.contains("worker_processes 59;"), "{many}");
        assert!(many.contains("worker_connections 20000;"), "{many}");
    }

    #[test]
    fn room_is_left_for_more_than_the_clients() {
        let paths = Paths {
            run: Path::new("/r"),
            served: Path::new("/s"),
        };
        assert!(nginx(&paths, 1_000, 20_000).contains("worker_connections 1512;"));
        assert!(lighttpd(&paths, 1_000, 20_000).contains("max-connections = 1512"));
        assert!(h2o(&paths, 1_000).contains("max-connections: 1512"));
    }
}
