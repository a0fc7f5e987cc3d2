//! Counts of a server's events and dropped packets, each with a name.

use std::fmt;

/// Number of times that one event happened, or number of things that exist now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The program that counted the event, in a server of [several programs](crate::Both).
    /// `None` in a server of one program, and for counts that all programs share.
    pub program: Option<&'static str>,
    /// Name of the event, such as `requests`, or of the things, such as `connections open`.
    pub name: &'static str,
    /// Number of events since the start, or of things now.
    pub count: u64,
}

/// Formats as `requests 5`, or as `sandstorm: requests 5` with a program.
impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            program,
            name,
            count,
        } = self;
        if let Some(program) = program {
            write!(f, "{program}: ")?;
        }
        write!(f, "{name} {count}")
    }
}

/// Numbers of events and of dropped packets that workers counted.
///
/// Counts with the same program and name are added up. Counts are listed in the order in which they
/// were first added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    events: Vec<Count>,
    drops: Vec<Count>,
    /// The program whose counts are currently being added, or `None` for unlabelled counts.
    program: Option<&'static str>,
}

impl Tally {
    /// Returns all events, such as `requests`, including those that never happened.
    pub fn events(&self) -> &[Count] {
        &self.events
    }

    /// Returns the dropped packets by reason, including reasons that never applied.
    pub fn drops(&self) -> &[Count] {
        &self.drops
    }

    /// Returns the count of the event with this name, summed over all programs. Returns `None` if
    /// no program has this event.
    pub fn of(&self, event: &str) -> Option<u64> {
        let counts = self.events.iter().filter(|one| one.name == event);
        counts.map(|one| one.count).reduce(|sum, one| sum + one)
    }

    /// Returns the count of one program's event, in a server of several programs. Returns `None` if
    /// the program has no event with this name.
    pub fn of_program(&self, program: &str, event: &str) -> Option<u64> {
        let is_it = |one: &&Count| one.program == Some(program) && one.name == event;
        self.events.iter().find(is_it).map(|one| one.count)
    }

    /// Adds `count` to an event, such as `requests`, or to things that exist now, such as
    /// `connections open`. The summary shows the count even if it is 0.
    pub fn event(&mut self, name: &'static str, count: u64) {
        add(&mut self.events, self.program, name, count);
    }

    /// Adds `count` packets that were dropped for one reason. The summary omits reasons whose count
    /// is 0.
    pub fn drop(&mut self, reason: &'static str, count: u64) {
        add(&mut self.drops, self.program, reason, count);
    }

    /// Calls `count`, and labels all counts that it adds with the name `program`.
    /// [`Both`](crate::Both) calls this method for each of its programs. In nested calls, the
    /// innermost label applies.
    pub fn for_program(&mut self, program: &'static str, count: impl FnOnce(&mut Self)) {
        let outer = self.program.replace(program);
        count(self);
        self.program = outer;
    }

    /// Removes all counts, but keeps the allocated memory for reuse.
    pub(crate) fn clear(&mut self) {
        self.events.clear();
        self.drops.clear();
    }

    /// Adds all counts of `other` to the counts with the same program and name.
    pub(crate) fn merge(&mut self, other: &Self) {
        for one in &other.events {
            add(&mut self.events, one.program, one.name, one.count);
        }
        for one in &other.drops {
            add(&mut self.drops, one.program, one.name, one.count);
        }
    }
}

fn add(counts: &mut Vec<Count>, program: Option<&'static str>, name: &'static str, count: u64) {
    let is_it = |one: &&mut Count| one.name == name && one.program == program;
    match counts.iter_mut().find(is_it) {
        Some(known) => known.count += count,
        None => counts.push(Count {
            program,
            name,
            count,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_strings(counts: &[Count]) -> Vec<String> {
        counts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn counts_with_the_same_name_are_added() {
        let mut sum = Tally::default();
        for requests in [3, 4] {
            let mut one = Tally::default();
            one.event("requests", requests);
            one.drop("bad checksum", 1);
            sum.merge(&one);
        }
        assert_eq!(to_strings(sum.events()), ["requests 7"]);
        assert_eq!(to_strings(sum.drops()), ["bad checksum 2"]);
    }

    #[test]
    fn counts_of_several_programs_stay_apart() {
        let mut sum = Tally::default();
        for _worker in 0..2 {
            let mut one = Tally::default();
            one.for_program("outer", |tally| {
                tally.for_program("web", |tally| tally.event("connections", 1));
                tally.event("connections", 2);
                tally.drop("bad checksum", 3);
            });
            one.event("connections", 4);
            one.drop("bad checksum", 5);
            sum.merge(&one);
        }
        let events = [
            "web: connections 2",
            "outer: connections 4",
            "connections 8",
        ];
        assert_eq!(to_strings(sum.events()), events);
        let drops = ["outer: bad checksum 6", "bad checksum 10"];
        assert_eq!(to_strings(sum.drops()), drops);
        assert_eq!(sum.of("connections"), Some(14));
        assert_eq!(sum.of_program("web", "connections"), Some(2));
        assert_eq!(sum.of_program("web", "requests"), None);
        assert_eq!(sum.of("requests"), None);
    }
}
