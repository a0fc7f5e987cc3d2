//! Counts of what a server did, by name.

use std::fmt;

/// Number of times that one thing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The program that counted it, in a server of [several](crate::Both).
    /// `None` in a server of one program, and for what all programs share.
    pub program: Option<&'static str>,
    /// The thing that happened, such as `requests`.
    pub name: &'static str,
    /// How often it happened since the start.
    pub count: u64,
}

/// `requests 5`, or `sandstorm: requests 5` with a program.
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

/// Events and drops that workers counted.
///
/// Counts of the same program and name add up. They stay in the order in which they first
/// came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    events: Vec<Count>,
    drops: Vec<Count>,
    /// The program that counts now.
    program: Option<&'static str>,
}

impl Tally {
    /// Events, such as `requests`, with those that never happened.
    pub fn events(&self) -> &[Count] {
        &self.events
    }

    /// Dropped packets by reason, with the reasons that never applied.
    pub fn drops(&self) -> &[Count] {
        &self.drops
    }

    /// Count of the event with this name, over all programs; `None` if no program has it.
    pub fn of(&self, event: &str) -> Option<u64> {
        let counts = self.events.iter().filter(|one| one.name == event);
        counts.map(|one| one.count).reduce(|sum, one| sum + one)
    }

    /// Count of one program's event in a server of several; `None` if there is none of
    /// that name.
    pub fn of_program(&self, program: &str, event: &str) -> Option<u64> {
        let is_it = |one: &&Count| one.program == Some(program) && one.name == event;
        self.events.iter().find(is_it).map(|one| one.count)
    }

    /// Adds to an event, such as `requests`. The summary shows it even if it is 0.
    pub fn event(&mut self, name: &'static str, count: u64) {
        add(&mut self.events, self.program, name, count);
    }

    /// Adds packets that were dropped for one reason. The summary leaves out a 0.
    pub fn drop(&mut self, reason: &'static str, count: u64) {
        add(&mut self.drops, self.program, reason, count);
    }

    /// Labels all that `count` adds with the program's name. [`Both`](crate::Both) does so
    /// for each of its programs. Of nested labels the innermost holds.
    pub fn for_program(&mut self, program: &'static str, count: impl FnOnce(&mut Self)) {
        let outer = self.program.replace(program);
        count(self);
        self.program = outer;
    }

    /// Removes all counts, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.events.clear();
        self.drops.clear();
    }

    /// Adds all counts of `other`.
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

    fn shown(counts: &[Count]) -> Vec<String> {
        counts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn counts_of_one_name_add_up() {
        let mut sum = Tally::default();
        for requests in [3, 4] {
            let mut one = Tally::default();
            one.event("requests", requests);
            one.drop("bad checksum", 1);
            sum.merge(&one);
        }
        assert_eq!(shown(sum.events()), ["requests 7"]);
        assert_eq!(shown(sum.drops()), ["bad checksum 2"]);
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
        assert_eq!(shown(sum.events()), events);
        let drops = ["outer: bad checksum 6", "bad checksum 10"];
        assert_eq!(shown(sum.drops()), drops);
        assert_eq!(sum.of("connections"), Some(14));
        assert_eq!(sum.of_program("web", "connections"), Some(2));
        assert_eq!(sum.of_program("web", "requests"), None);
        assert_eq!(sum.of("requests"), None);
    }
}
