//! A walk through one worker's connections, in slices.

use nmio::Instant;
use tcpip::{Application, CongestionControl, Overview, Stack};

use super::filter::ConnectionFilter;

/// Maximum number of places that a worker visits between two batches of packets. A place takes less
/// than a microsecond.
pub(crate) const SLICE: usize = 64;

/// A walk through all connections of one worker.
///
/// The control thread creates it with room for one slice, so that the worker allocates nothing. The
/// worker continues the walk in [`Program::walk`](crate::Program::walk), and sends it back. A
/// connection that exists during the whole walk is visited once. One that opens or ends meanwhile is
/// visited at most once.
#[derive(Debug)]
pub struct Walk {
    filter: ConnectionFilter,
    /// Where the next slice begins: the number of a table, and a place in it.
    table: usize,
    place: usize,
    /// Number of tables that the program has shown in this slice.
    shown: usize,
    /// Number of places that may still be visited in this slice.
    left: usize,
    /// The connections of this slice that match.
    found: Vec<Found>,
    /// Number of connections so far, including those that do not match.
    connections: u64,
}

/// A connection, and the program that it belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) program: &'static str,
    pub(crate) connection: Overview,
}

impl Walk {
    /// Creates a walk to the connections that match.
    pub(crate) fn new(filter: ConnectionFilter) -> Self {
        Self {
            filter,
            table: 0,
            place: 0,
            shown: 0,
            left: 0,
            found: Vec::with_capacity(SLICE),
            connections: 0,
        }
    }

    /// Visits the connections of `stack` that are next, if this walk has come to this stack. A program
    /// calls this once for each of its stacks, always in the same order.
    pub fn visit<A: Application, C: CongestionControl>(
        &mut self,
        program: &'static str,
        stack: &mut Stack<A, C>,
        now: Instant,
    ) {
        self.visit_table(program, stack.places(), |place| stack.overview(place, now));
    }

    fn visit_table(
        &mut self,
        program: &'static str,
        places: usize,
        mut look: impl FnMut(usize) -> Option<Overview>,
    ) {
        let number = self.shown;
        self.shown += 1;
        if number != self.table {
            return;
        }
        let end = places.min(self.place + self.left);
        for place in self.place..end {
            let Some(connection) = look(place) else {
                continue;
            };
            self.connections += 1;
            if self.filter.matches(&connection) {
                self.found.push(Found {
                    program,
                    connection,
                });
            }
        }
        self.left -= end - self.place;
        self.place = end;
        if end == places {
            (self.table, self.place) = (number + 1, 0);
        }
    }

    /// Begins a slice, in which the program shows its tables to [`visit`](Self::visit).
    pub(crate) fn begin_slice(&mut self) {
        (self.shown, self.left) = (0, SLICE);
        self.found.clear();
    }

    /// Returns true if all connections have been visited. Must be called after a slice.
    pub(crate) fn has_ended(&self) -> bool {
        self.table == self.shown
    }

    /// The connections of the last slice that match.
    pub(crate) fn found(&self) -> &[Found] {
        &self.found
    }

    /// Number of connections so far, including those that do not match.
    pub(crate) fn connections(&self) -> u64 {
        self.connections
    }
}

/// Returns the overview of a connection of this client to port 80, for tests.
#[cfg(test)]
pub(crate) fn example(peer: &str) -> Overview {
    Overview {
        peer: peer.parse().unwrap(),
        local: "192.0.2.1:80".parse().unwrap(),
        info: tcpip::Info::default(),
        rto: std::time::Duration::from_millis(200),
        age: std::time::Duration::from_secs(3),
        idle: std::time::Duration::ZERO,
        bytes_sent: 0,
        bytes_acked: 0,
        bytes_received: 0,
        retransmits: 0,
        sending: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two tables, in which each place has a port or is empty.
    type Tables = [Vec<Option<u16>>; 2];

    /// Takes the next slice, and returns the ports that it has found.
    fn slice(walk: &mut Walk, tables: &Tables) -> Vec<u16> {
        walk.begin_slice();
        let mut visited = 0;
        for (name, table) in ["web", "dns"].into_iter().zip(tables) {
            walk.visit_table(name, table.len(), |place| {
                visited += 1;
                let connection = |port| example(&format!("192.0.2.7:{port}"));
                table[place].map(connection)
            });
        }
        assert!(visited <= SLICE, "{visited}");
        let ports = walk.found().iter().map(|one| one.connection.peer.port());
        ports.collect()
    }

    fn full(ports: std::ops::Range<u16>) -> Vec<Option<u16>> {
        ports.map(Some).collect()
    }

    #[test]
    fn a_slice_visits_at_most_64_places_of_all_tables() {
        let tables = [full(1..101), full(101..161)];
        let mut walk = Walk::new(ConnectionFilter::default());
        let mut found = Vec::new();
        let mut sizes = Vec::new();
        loop {
            let ports = slice(&mut walk, &tables);
            sizes.push(ports.len());
            found.extend(ports);
            if walk.has_ended() {
                break;
            }
        }
        assert_eq!(sizes, [64, 64, 32]);
        assert!(found.into_iter().eq(1..161), "in order, each once");
        assert_eq!(walk.connections(), 160);
    }

    #[test]
    fn empty_tables_end_at_once() {
        let mut walk = Walk::new(ConnectionFilter::default());
        assert!(slice(&mut walk, &[vec![], vec![]]).is_empty() && walk.has_ended());
        let mut walk = Walk::new(ConnectionFilter::default());
        walk.begin_slice();
        assert!(walk.has_ended(), "a program without TCP shows no table");
    }

    /// Connections come and go between two slices, and a table grows.
    #[test]
    fn a_connection_that_stays_is_found_once() {
        let mut tables = [full(1..101), full(201..211)];
        let mut walk = Walk::new(ConnectionFilter::default());
        let mut found = slice(&mut walk, &tables);
        tables[0][3] = None;
        tables[0][5] = Some(999);
        tables[0][70] = None;
        tables[0].extend(full(101..151));
        while !walk.has_ended() {
            found.extend(slice(&mut walk, &tables));
        }
        let expected = (1..71).chain(72..151).chain(201..211);
        assert_eq!(found, expected.collect::<Vec<_>>());
        assert_eq!(walk.connections(), 159);
    }

    #[test]
    fn only_connections_that_match_are_found() {
        let mut filter = ConnectionFilter::default();
        filter.set("port", "42").unwrap();
        let mut walk = Walk::new(filter);
        let tables = [full(1..101), vec![]];
        let mut found = slice(&mut walk, &tables);
        while !walk.has_ended() {
            found.extend(slice(&mut walk, &tables));
        }
        assert_eq!((found, walk.connections()), (vec![42], 100));
    }
}
