//! Tests of the follower, whose helper process follows a script.

use std::fs::File;
use std::io::Read as _;

use nmio::Mailbox;
use nmio::device::XdpOptions;

use super::*;

/// Creates a follower of a server with address 192.0.2.1 and MAC address 02:02:02:02:02:02,
/// which has one worker.
fn follower() -> (Follower, Mailbox<NetworkChange>) {
    let (sender, mailbox) = nmio::mailbox(1).unwrap();
    let mut follower = Follower {
        monitor: None,
        outboxes: Vec::new(),
        state: Arc::default(),
        mac: [2; 6],
        served: addresses(&["192.0.2.1/24"]),
        is_removed: false,
        opened: interface([2; 6], &["192.0.2.1/24"], 1500),
        removals: None,
        refusal: None,
        is_stale: false,
        is_up: true,
        patience: None,
        retry: None,
    };
    follower.set_workers(vec![sender]);
    (follower, mailbox)
}

/// Creates an interface of `AF_XDP` with one queue, as the helper process describes it.
fn interface(mac: [u8; 6], list: &[&str], mtu: usize) -> QueueAccess {
    let kind = serde_json::json!({"Xdp": {
        "options": XdpOptions::new("srv0"),
        "has_namespace": false,
        "index": 7,
        "napis": [],
    }});
    device(&kind, mac, list, mtu)
}

/// Creates an interface on which the server has its own addresses.
fn own() -> QueueAccess {
    let shared = interface([2; 6], &["192.0.2.1/24"], 1500);
    let (facts, _) = shared.to_parts().unwrap();
    let facts = facts.replace("\"own\":false", "\"own\":true");
    QueueAccess::from_parts(&facts, vec![File::open("/dev/null").unwrap().into()]).unwrap()
}

fn tap() -> QueueAccess {
    let kind = serde_json::json!({"Tap": {"name": "srv0"}});
    device(&kind, [2; 6], &["192.0.2.1/24"], 1500)
}

fn netmap() -> QueueAccess {
    let kind = serde_json::json!({"Netmap": {
        "target": {"Interface": "srv0"},
        "offload": "Auto",
        "partial_checksums": false,
        "services": [],
    }});
    let facts = facts(&kind, [2; 6], &["192.0.2.1/24"], 1500);
    QueueAccess::from_parts(&facts, Vec::new()).unwrap()
}

/// Creates a device of this kind.
fn device(kind: &serde_json::Value, mac: [u8; 6], list: &[&str], mtu: usize) -> QueueAccess {
    let facts = facts(&serde_json::json!({ "System": kind }), mac, list, mtu);
    let socket = File::open("/dev/null").unwrap().into();
    QueueAccess::from_parts(&facts, vec![socket]).unwrap()
}

/// Describes a device of this kind as the helper process does.
fn facts(kind: &serde_json::Value, mac: [u8; 6], list: &[&str], mtu: usize) -> String {
    let facts = serde_json::json!({
        "kind": kind,
        "mac": mac,
        "mtu": mtu,
        "own": false,
        "addresses": addresses(list).addresses,
        "queues": 1,
        "vlans": [],
        "wait": "Block",
        "summary": [],
    });
    facts.to_string()
}

/// What the helper process would answer.
struct Script<F, R> {
    follow: F,
    reopen: R,
}

impl<F, R> Opener for Script<F, R>
where
    F: FnMut() -> Result<CurrentAddresses, Error>,
    R: FnMut() -> Result<QueueAccess, Error>,
{
    fn follow(&mut self) -> Result<CurrentAddresses, Error> {
        (self.follow)()
    }

    fn reopen(&mut self) -> Result<QueueAccess, Error> {
        (self.reopen)()
    }
}

fn no_interface() -> Result<QueueAccess, Error> {
    panic!("the interface was not removed")
}

fn addresses(list: &[&str]) -> CurrentAddresses {
    CurrentAddresses {
        mac: None,
        addresses: list.iter().map(|one| one.parse().unwrap()).collect(),
        refused: Vec::new(),
    }
}

/// Returns what the worker hears: the addresses, or nothing for a reset.
fn heard(mailbox: &mut Mailbox<NetworkChange>) -> Vec<Option<String>> {
    let mut heard = Vec::new();
    mailbox.take_all(|message| {
        heard.push(match message {
            NetworkChange::Station(renewal) => Some(told(&renewal)),
            NetworkChange::ResetStrangers => None,
            NetworkChange::Attach(attachment) => {
                let station = attachment.renewal.station;
                let (mac, addresses) = (station.mac(), station.addresses());
                Some(format!("a queue for {mac} and {addresses:?}"))
            }
        });
    });
    heard
}

#[test]
fn workers_hear_of_addresses_at_once_and_end_connections_later() {
    let (mut follower, mut mailbox) = follower();
    let start = Instant::now();
    let mut step = |seconds: u64, list: Option<&[&str]>, is_up| {
        follower.is_stale = list.is_some();
        follower.is_up = is_up;
        let follow = || Ok(addresses(list.expect("the addresses are not stale")));
        let reopen = no_interface;
        let mut script = Script { follow, reopen };
        follower.step(start + Duration::from_secs(seconds), &mut script);
        heard(&mut mailbox)
    };
    assert!(step(0, Some(&["192.0.2.1/24"]), true).is_empty());
    let both = Some("[192.0.2.1, 192.0.2.2]".to_owned());
    assert_eq!(
        step(1, Some(&["192.0.2.1/24", "192.0.2.2/24"]), true),
        [both]
    );
    let second = Some("[192.0.2.2]".to_owned());
    assert_eq!(step(2, Some(&["192.0.2.2/24"]), true), [second]);
    assert!(step(4, None, true).is_empty(), "too early");
    assert!(step(9, None, false).is_empty(), "the link is down");
    assert_eq!(step(10, None, true), [None]);
    assert!(step(99, None, true).is_empty(), "once is enough");
    let status = follower.state.read();
    assert_eq!(status.addresses, ["192.0.2.2"]);
}

#[test]
fn a_full_mailbox_delays_messages_and_keeps_the_last_addresses() {
    let (mut follower, mut mailbox) = follower();
    let now = Instant::now();
    for list in [&["10.0.0.1/8"], &["10.0.0.2/8"], &["10.0.0.3/8"]] {
        follower.serve(addresses(list), now);
    }
    follower.send(&NetworkChange::ResetStrangers);
    assert_eq!(heard(&mut mailbox), [Some("[10.0.0.1]".to_owned())]);
    let mut later = Vec::new();
    for _ in 0..3 {
        follower.outboxes[0].flush();
        later.extend(heard(&mut mailbox));
    }
    assert_eq!(later, [Some("[10.0.0.3]".to_owned()), None]);
}

#[test]
fn a_refused_address_is_tried_again() {
    let (mut follower, mut mailbox) = follower();
    let start = Instant::now();
    follower.is_stale = true;
    let mut step = |seconds: u64, list: Option<&[&str]>| {
        let follow = || {
            let mut current = addresses(list.expect("it is too early"));
            if current.addresses.len() == 1 {
                let refused = "192.0.2.2".parse().unwrap();
                current
                    .refused
                    .push((refused, "its port is taken".to_owned()));
            }
            Ok(current)
        };
        let reopen = no_interface;
        let mut script = Script { follow, reopen };
        follower.step(start + Duration::from_secs(seconds), &mut script);
        (heard(&mut mailbox), follower.state.read().refused.len())
    };
    let (one, two) = (&["192.0.2.1/24"][..], &["192.0.2.1/24", "192.0.2.2/24"][..]);
    assert_eq!(step(1, Some(one)), (vec![], 1));
    assert_eq!(step(5, None), (vec![], 1));
    assert_eq!(step(6, Some(one)), (vec![], 1));
    assert_eq!(step(10, None), (vec![], 1));
    let both = Some("[192.0.2.1, 192.0.2.2]".to_owned());
    assert_eq!(step(11, Some(two)), (vec![both], 0));
    assert_eq!(step(99, None), (vec![], 0));
}

/// Describes the addresses that a worker hears of. Names the MAC address if it is not that of the start.
fn told(renewal: &Renewal) -> String {
    let Renewal { station, announces } = renewal;
    let addresses = format!("{:?}", station.addresses());
    match (station.mac(), announces) {
        (Mac([2, 2, 2, 2, 2, 2]), false) => addresses,
        (mac, false) => format!("{mac} {addresses}"),
        (mac, true) => format!("announce {mac} {addresses}"),
    }
}

/// A new MAC address reaches the workers. A server with its own addresses announces them.
#[test]
fn a_new_mac_address_is_adopted() {
    for (is_own, announcement) in [(false, ""), (true, "announce ")] {
        let (mut follower, mut mailbox) = follower();
        if is_own {
            follower.opened = own();
        }
        let now = Instant::now();
        let mut step = |change, mac| {
            follower.handle_change(change, now);
            let follow = || {
                let addresses = addresses(&["192.0.2.1/24"]);
                Ok(CurrentAddresses { mac, ..addresses })
            };
            let reopen = no_interface;
            follower.step(now, &mut Script { follow, reopen });
            heard(&mut mailbox)
        };
        let moved = Some(format!("{announcement}04:04:04:04:04:04 [192.0.2.1]"));
        assert_eq!(step(Change::Mac([4; 6]), Some([4; 6])), [moved]);
        assert!(step(Change::Mac([4; 6]), Some([4; 6])).is_empty(), "known");
        assert!(step(Change::Missed, None).is_empty());
    }
}

#[test]
fn only_the_first_worker_announces_a_new_mac_address() {
    let (mut follower, first) = follower();
    let (sender, second) = nmio::mailbox(1).unwrap();
    let mailbox = follower.outboxes.remove(0).mailbox;
    follower.set_workers(vec![mailbox, sender]);
    follower.opened = own();
    let current = CurrentAddresses {
        mac: Some([4; 6]),
        ..addresses(&["192.0.2.1/24"])
    };
    follower.serve(current, Instant::now());
    let [first, second] = [first, second].map(|mut mailbox| heard(&mut mailbox));
    let renewal = "04:04:04:04:04:04 [192.0.2.1]";
    assert_eq!(first, [Some(format!("announce {renewal}"))]);
    assert_eq!(second, [Some(renewal.to_owned())]);
}

#[test]
fn an_announcement_is_not_lost_while_the_mailbox_is_full() {
    let (mut follower, mut mailbox) = follower();
    follower.opened = own();
    let current = |mac, list| CurrentAddresses {
        mac: Some(mac),
        ..addresses(list)
    };
    let now = Instant::now();
    follower.serve(current([2; 6], &["192.0.2.1/24"]), now);
    follower.serve(current([2; 6], &["192.0.2.2/24"]), now);
    follower.serve(current([4; 6], &["192.0.2.2/24"]), now);
    follower.serve(current([4; 6], &["192.0.2.3/24"]), now);
    let first = heard(&mut mailbox);
    follower.outboxes[0].flush();
    let announced = "announce 04:04:04:04:04:04 [192.0.2.3]".to_owned();
    assert_eq!(heard(&mut mailbox), [Some(announced)], "after {first:?}");
}

/// Returns what is logged about `change` if the server cannot follow it.
fn logged(change: Change, adapt: impl FnOnce(&mut Follower)) -> String {
    let (mut follower, _mailbox) = follower();
    follower.opened = netmap();
    adapt(&mut follower);
    let (mut written, writer) = io::pipe().unwrap();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(Arc::new(writer))
        .finish();
    tracing::subscriber::with_default(subscriber, || follower.log_change(change));
    let mut text = String::new();
    written.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn only_a_mac_address_that_cannot_be_followed_causes_advice_to_restart() {
    let new = logged(Change::Mac([4; 6]), |_| ());
    assert!(new.contains("srv0") && new.contains("restart"), "{new}");
    let former = logged(Change::Mac([2; 6]), |_| ());
    assert!(former.contains("is served again"), "{former}");
    assert!(!former.contains("restart"), "{former}");
    let followed = logged(Change::Mac([4; 6]), |one| {
        one.opened = interface([2; 6], &["192.0.2.1/24"], 1500);
    });
    assert_eq!(followed, "", "it is logged once the server answers to it");
    let tap = logged(Change::Mac([4; 6]), |one| one.opened = tap());
    assert!(tap.contains("keeps its own"), "{tap}");
}

#[test]
fn a_warning_says_that_a_server_on_netmap_hangs_while_its_interface_is_down() {
    let down = |opened: QueueAccess| logged(Change::Down, |one| one.opened = opened);
    let netmap = down(netmap());
    assert!(netmap.contains("calls hang until it is up"), "{netmap}");
    assert!(!down(tap()).contains("hang"));
}

/// Lets a follower see that its interface is removed and returns. `answers` are those of the helper
/// process to the attempts to open it. Returns what the worker hears, what happens to the server, and why
/// the interface is not served after each step.
fn remove(
    mut answers: Vec<Result<QueueAccess, Error>>,
    seconds: &[u64],
) -> (Vec<Option<String>>, Vec<String>, Vec<Option<String>>) {
    let (mut follower, mut mailbox) = follower();
    let (removals, mut told) = mpsc::channel(4);
    follower.wait_for_return(removals);
    let start = Instant::now();
    follower.handle_change(Change::Removed, start);
    let (mut messages, mut reasons) = (Vec::new(), Vec::new());
    for second in seconds {
        let mut script = Script {
            follow: || Ok(addresses(&["192.0.2.7/24"])),
            reopen: || answers.remove(0),
        };
        follower.step(start + Duration::from_secs(*second), &mut script);
        messages.extend(heard(&mut mailbox));
        reasons.push(follower.state.read().not_reopened);
    }
    assert!(answers.is_empty(), "not all answers were asked for");
    let mut happened = Vec::new();
    while let Ok(what) = told.try_recv() {
        happened.push(match what {
            Removal::Waits => "waits".to_owned(),
            Removal::GoesOn => "goes on".to_owned(),
            Removal::Ends(error) => error.to_string(),
        });
    }
    (messages, happened, reasons)
}

#[test]
fn workers_get_the_queues_of_an_interface_that_returns() {
    let refused = || Err(Error::Refused("it has no carrier".to_owned()));
    let returned = || Ok(interface([4; 6], &["192.0.2.7/24"], 1500));
    let queue = Some("a queue for 04:04:04:04:04:04 and [192.0.2.7]".to_owned());
    // A refusal is followed by another attempt after five seconds.
    let answers = vec![refused(), refused(), returned()];
    let (messages, happened, reasons) = remove(answers, &[0, 4, 5, 10, 11]);
    let known: Vec<_> = reasons.iter().map(Option::is_some).collect();
    assert_eq!(known, [true, true, true, false, false], "{reasons:?}");
    assert_eq!(messages.first(), Some(&queue), "the queue comes first");
    assert_eq!(happened, ["waits", "goes on"]);
    // The former address may return. Its connections end if it does not.
    assert_eq!(messages.last().map(Option::is_some), Some(true));
}

#[test]
fn an_interface_that_does_not_fit_ends_the_server() {
    let other = Ok(interface([2; 6], &["192.0.2.1/24"], 9000));
    let (messages, happened, _) = remove(vec![other], &[0, 1, 99]);
    assert!(messages.is_empty(), "{messages:?}");
    let [waits, ends] = &happened[..] else {
        panic!("{happened:?}");
    };
    assert_eq!(waits, "waits");
    assert!(ends.contains("MTU 9000 instead of 1500"), "{ends}");
    assert!(ends.contains("exit status 75"), "{ends}");
}
