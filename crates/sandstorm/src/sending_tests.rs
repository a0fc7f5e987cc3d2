//! Tests of the choice of a mode.

use control::Secret;

use super::*;

const FRAME: u64 = 2_048 + TABLES_PER_RESIDENT;

fn context(workers: u32, resident_len: Result<usize, &'static str>) -> WorkerContext {
    WorkerContext {
        index: 0,
        workers,
        mac: [2, 0, 0, 0, 0, 1],
        addresses: Vec::new(),
        vlans: Vec::new(),
        own: true,
        mtu: 1500,
        resident_len,
        port: 80,
        secret: Secret::random().unwrap(),
        bell: nmio::Bell::new().unwrap(),
    }
}

/// A site whose budget has room for the responses and `room` resident packets.
fn content(packets: u64, room: u64) -> SiteDemand {
    let used = 1_000_000;
    SiteDemand {
        packets,
        used,
        memory: Some(MemoryBudget::new(2 * (used + FRAME * room)).with_pinned(1 << 50)),
    }
}

#[test]
fn packets_are_resident_if_those_of_all_workers_fit() {
    for (workers, room, mode) in [
        (1, SPARE_RESIDENTS + 100, SendMode::PreCopy),
        (1, SPARE_RESIDENTS + 99, SendMode::MemCopy),
        (2, 2 * SPARE_RESIDENTS + 200, SendMode::PreCopy),
        (2, 2 * SPARE_RESIDENTS + 199, SendMode::MemCopy),
    ] {
        let context = context(workers, Ok(2_048));
        let sending = Sending::chosen(&[content(100, room)], 120, &context);
        assert_eq!(sending.mode, mode, "{workers} workers, room for {room}");
        let (residents, taken) = match mode {
            SendMode::PreCopy => (SPARE_RESIDENTS + 120, FRAME * room),
            SendMode::MemCopy => (0, 0),
        };
        assert_eq!(u64::from(sending.residents), residents);
        assert_eq!((sending.taken(), sending.taken_from(0)), (taken, taken));
    }
}

#[test]
fn each_of_several_sites_must_have_room() {
    let context = context(1, Ok(2_048));
    let half = SPARE_RESIDENTS / 2;
    let fitting = [content(10, half + 10), content(20, half + 20)];
    let sending = Sending::chosen(&fitting, 30, &context);
    assert_eq!(sending.mode, SendMode::PreCopy);
    assert_eq!(sending.taken_from(1), FRAME * (half + 20));
    assert_eq!(sending.taken_from(2), 0);
    let short = [content(10, half + 30), content(20, half + 19)];
    let sending = Sending::chosen(&short, 30, &context);
    assert_eq!(sending.mode, SendMode::MemCopy);
}

#[test]
fn the_operator_hears_why_the_mode_was_chosen() {
    let choose = |packets, room, resident_len| {
        let sites = [content(packets, room)];
        Sending::chosen(&sites, packets, &context(1, resident_len)).describe()
    };
    let memcopy = describe(SendMode::MemCopy);
    let content_pinned = SiteDemand {
        memory: Some(MemoryBudget::new(1 << 40).with_pinned(11_000_000)),
        ..content(904, 5_000)
    };
    assert_eq!(
        choose(904, 5_000, Ok(2_048)),
        format!(
            "{}; they fit into the memory, of which they take 11.5 MB",
            describe(SendMode::PreCopy)
        )
    );
    assert_eq!(
        choose(904, 4_999, Ok(2_048)),
        format!(
            "{memcopy}; none is kept in place, because that would take too much of the memory: 11.5 MB"
        )
    );
    assert_eq!(
        Sending::chosen(&[content_pinned], 904, &context(1, Ok(2_048))).describe(),
        format!(
            "{memcopy}; none is kept in place, because they would take 11.5 MB, and --pinned allows \
             11.0 MB"
        )
    );
    assert_eq!(
        choose(1, 5_000, Err("of a test")),
        format!("{memcopy}; none is kept in place, because of a test")
    );
    assert_eq!(
        choose(600_000, u64::from(u32::MAX), Ok(2_048)),
        format!(
            "{memcopy}; none is kept in place, because a worker has 600,000 packets, and room for \
             520,192"
        )
    );
}

#[test]
fn a_forced_mode_takes_nothing_from_the_budget() {
    let sending = Sending::forced(SendMode::PreCopy, 10);
    assert_eq!(u64::from(sending.residents), SPARE_RESIDENTS + 10);
    assert_eq!((sending.taken(), sending.taken_from(0)), (0, 0));
    assert_eq!(sending.describe(), describe(SendMode::PreCopy));
    let many = Sending::forced(SendMode::PreCopy, u64::from(u32::MAX));
    assert_eq!(u64::from(many.residents), MAX_RESIDENTS);
    assert_eq!(Sending::forced(SendMode::MemCopy, 10).residents, 0);
}
