//! Tests signed zones with random names. A signature is the text of the owner and type that it covers,
//! so that it can be checked without cryptography. A validator in this file checks the signatures and
//! proofs of each reply.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::harness::records::{APEX, Records, data, path};
use crate::harness::{FORMS, Query, name, prepare, rtype};
use domain::base::{Message, ParsedName};
use domain::rdata::AllRecordData;
use namestorm::{Answers, Responder, Transport};
use proptest::prelude::*;
use testkit::dnssec::{Denial, covered, labels, sign};

const TYPES: [&str; 9] = ["A", "TXT", "CNAME", "DNAME", "NS", "DS", "SOA", "MX", "ANY"];
const DS: &str = "1 13 2 00112233445566778899AABBCCDDEEFF00112233445566778899AABBCCDDEEFF";

/// Returns true if `name` is `above` or below it.
fn is_within(name: &str, above: &str) -> bool {
    labels(name).starts_with(&labels(above))
}

fn is_cut(zone: &Records, name: &str) -> bool {
    name != APEX && zone.has(name, "NS")
}

/// A record of a reply: its owner in lower case, its type, and its data as text.
type Row = (String, String, String);

#[derive(Clone, Debug, Default)]
struct Reply {
    rcode: u8,
    sections: [Vec<Row>; 3],
}

fn ask(answers: &Arc<Answers>, qname: &str, qtype: &str, dnssec: bool) -> Reply {
    let mut query = Query::new(&name(qname), rtype(qtype));
    query.edns = Some((1232, 0, if dnssec { 0x8000 } else { 0 }));
    let mut message = query.bytes();
    let mut responder = Responder::new(Arc::clone(answers));
    let reply = responder.respond(&mut message, Transport::Tcp).unwrap();
    let (head_len, tail, trail) = (reply.head_len, reply.tail.bytes, reply.trail.bytes);
    let bytes = [&message[..head_len], tail, trail].concat();
    let message = Message::from_octets(&bytes[..]).unwrap();
    let mut reply = Reply {
        rcode: message.header().rcode().to_int(),
        ..Reply::default()
    };
    let sections = [message.answer(), message.authority(), message.additional()];
    for (rows, section) in reply.sections.iter_mut().zip(sections) {
        for record in section.unwrap() {
            let record = record.unwrap();
            let owner = record.owner().to_string().to_lowercase() + ".";
            let rtype = record.rtype().to_string();
            let record = record.to_any_record::<AllRecordData<_, ParsedName<_>>>();
            if rtype != "OPT" {
                rows.push((
                    owner.replace("..", "."),
                    rtype,
                    record.unwrap().data().to_string(),
                ));
            }
        }
    }
    reply
}

fn is_proof(rtype: &str) -> bool {
    ["RRSIG", "NSEC", "NSEC3"].contains(&rtype)
}

/// An NSEC or NSEC3 record of a reply: its owner, the next one, and its types.
struct Link<'r> {
    owner: &'r str,
    next: &'r str,
    opt_out: bool,
    types: Vec<&'r str>,
}

impl Link<'_> {
    /// Returns true if the record proves that `item` is not in the chain. `order` is the order of the
    /// chain.
    fn covers<K: Ord>(&self, item: &str, order: impl Fn(&str) -> K) -> bool {
        let (from, item, to) = (order(self.owner), order(item), order(self.next));
        if from < to {
            from < item && item < to
        } else {
            from < item || item < to
        }
    }

    fn lacks(&self, qtype: &str) -> bool {
        !self.types.contains(&qtype) && !self.types.contains(&"CNAME")
    }
}

/// What the proofs of a reply say. An error says what is not proven.
struct Proofs<'r> {
    denial: Denial,
    links: Vec<Link<'r>>,
}

fn canonical(name: &str) -> String {
    labels(name).join("\0")
}

impl<'r> Proofs<'r> {
    fn of(reply: &'r Reply, denial: Denial) -> Self {
        let rows = reply.sections[1].iter();
        let links = rows.filter_map(|(owner, rtype, data)| {
            let words: Vec<_> = data.split_whitespace().collect();
            match rtype.as_str() {
                "NSEC" => Some(Link {
                    owner,
                    next: words[0],
                    opt_out: false,
                    types: words[1..].to_vec(),
                }),
                "NSEC3" => Some(Link {
                    owner: owner.split('.').next().unwrap(),
                    next: words[4],
                    opt_out: words[1] == "1",
                    types: words[5..].to_vec(),
                }),
                _ => None,
            }
        });
        Self {
            denial,
            links: links.collect(),
        }
    }

    fn matching(&self, name: &str) -> Option<&Link<'r>> {
        let is_it = |link: &&Link<'_>| match self.denial {
            Denial::Nsec => link.owner == name,
            _ => link.owner.eq_ignore_ascii_case(&self.denial.hashed(name)),
        };
        self.links.iter().find(is_it)
    }

    fn covering(&self, name: &str) -> Option<&Link<'r>> {
        self.links.iter().find(|link| match self.denial {
            Denial::Nsec => link.covers(name, canonical),
            _ => link.covers(&self.denial.hashed(name), str::to_lowercase),
        })
    }

    /// Returns the closest encloser that the proofs show for a name that does not exist, and the
    /// record that covers the next closer name.
    fn encloser(&self, name: &str) -> Option<(String, &Link<'r>)> {
        let path = path(name);
        if self.denial == Denial::Nsec {
            let link = self.covering(name)?;
            let known = [link.owner, link.next];
            let is_above = |above: &&String| known.iter().any(|known| is_within(known, above));
            return Some((path.iter().rfind(is_above)?.clone(), link));
        }
        let pairs = path.windows(2).rev();
        pairs.into_iter().find_map(|pair| {
            self.matching(&pair[0])?;
            Some((pair[0].clone(), self.covering(&pair[1])?))
        })
    }

    fn check_absent(&self, name: &str) -> Result<(), String> {
        let (encloser, link) = self.encloser(name).ok_or("no closest encloser")?;
        // The signer may have left out a name that exists only above delegations without signers. A
        // record with the opt-out flag proves nothing about the names that it covers.
        if link.opt_out {
            return Ok(());
        }
        let wildcard = format!("*.{encloser}");
        self.covering(&wildcard)
            .ok_or(format!("{wildcard} may exist"))?;
        Ok(())
    }

    /// Checks that there is no RRset of type `qtype` at `name`, which exists or matches a wildcard.
    fn check_type_absent(&self, name: &str, qtype: &str) -> Result<(), String> {
        if let Some(link) = self.matching(name) {
            let is_right_side = qtype == "DS" || !is_delegation(link);
            return (link.lacks(qtype) && is_right_side)
                .then_some(())
                .ok_or("the type may exist".into());
        }
        if self.is_empty(name) {
            return Ok(());
        }
        let (encloser, link) = self.encloser(name).ok_or("no closest encloser")?;
        if link.opt_out {
            return Ok(());
        }
        let wildcard = format!("*.{encloser}");
        let is_absent = match self.matching(&wildcard) {
            Some(link) => link.lacks(qtype),
            None => self.is_empty(&wildcard),
        };
        let unproven = || "the wildcard may have the type".into();
        is_absent.then_some(()).ok_or_else(unproven)
    }

    /// Returns true if a name is shown to be an empty non-terminal. It has no NSEC record, but the next
    /// owner is below it.
    fn is_empty(&self, name: &str) -> bool {
        let covering = self.covering(name);
        self.denial == Denial::Nsec && covering.is_some_and(|link| is_within(link.next, name))
    }

    /// Checks that a delegation has no DS records.
    fn check_unsigned(&self, cut: &str) -> Result<(), String> {
        if let Some(link) = self.matching(cut) {
            let is_cut = is_delegation(link) && !link.types.contains(&"DS");
            return is_cut
                .then_some(())
                .ok_or("the record is of no unsigned delegation".into());
        }
        match self.encloser(cut) {
            Some((_, link)) if link.opt_out => Ok(()),
            _ => Err("the delegation may be signed".into()),
        }
    }
}

fn is_delegation(link: &Link<'_>) -> bool {
    link.types.contains(&"NS") && !link.types.contains(&"SOA")
}

/// Checks the signatures of a section, and the proofs that wildcards need.
fn check_signatures(rows: &[Row], proofs: &Proofs<'_>) -> Result<(), String> {
    let dnames: Vec<_> = rows.iter().filter(|row| row.1 == "DNAME").collect();
    for (owner, rtype, _) in rows.iter().filter(|row| row.1 != "RRSIG") {
        let is_synthesized = rtype == "CNAME"
            && dnames
                .iter()
                .any(|dname| *owner != dname.0 && is_within(owner, &dname.0));
        let signature = rows.iter().find(|row| {
            row.0 == *owner && row.1 == "RRSIG" && row.2.split(' ').next() == Some(rtype)
        });
        let Some((_, _, data)) = signature else {
            if is_synthesized {
                continue;
            }
            return Err(format!("{owner} {rtype} has no signature"));
        };
        let words: Vec<_> = data.split_whitespace().collect();
        let count: usize = words[2].parse().unwrap();
        let covered = covered(words[8]).unwrap();
        let path = path(owner);
        let signer = if labels(owner).len() - usize::from(owner.starts_with("*.")) > count {
            let encloser = &path[count - 1];
            if !owner.starts_with("*.") || labels(owner).len() > count + 1 {
                let next_closer = &path[count];
                let is_absent = match proofs.denial {
                    Denial::Nsec => proofs.covering(owner),
                    _ => proofs.covering(next_closer),
                };
                is_absent.ok_or(format!("{next_closer} may exist"))?;
            }
            format!("*.{encloser}")
        } else {
            owner.clone()
        };
        if covered != format!("{signer} {rtype}") {
            return Err(format!("{owner} {rtype} has the signature of {covered}"));
        }
    }
    Ok(())
}

/// Validates a reply as a resolver does.
fn validate(reply: &Reply, denial: Denial, qname: &str, qtype: &str) -> Result<(), String> {
    let [answer, authority, additional] = &reply.sections;
    let proofs = Proofs::of(reply, denial);
    let all: Vec<_> = answer.iter().chain(authority).chain(additional).collect();
    let distinct: BTreeSet<_> = all.iter().collect();
    if distinct.len() != all.len() {
        return Err("a record is there twice".into());
    }
    check_signatures(answer, &proofs)?;
    let signed = authority.iter().filter(|row| row.1 != "NS").cloned();
    check_signatures(&signed.collect::<Vec<_>>(), &proofs)?;
    let mut last = qname.to_owned();
    let mut steps = 0;
    while let Some(alias) = answer.iter().find(|row| row.0 == last && row.1 == "CNAME")
        && !["CNAME", "ANY"].contains(&qtype)
    {
        last.clone_from(&alias.2);
        last = last.replace("..", ".");
        steps += 1;
        if steps > 20 {
            return Ok(());
        }
    }
    let has = |rtype: &str| authority.iter().find(|row| row.1 == rtype);
    let is_answered = answer
        .iter()
        .any(|row| row.0 == last && row.1 != "CNAME" && row.1 != "RRSIG");
    match (reply.rcode, has("SOA"), has("NS")) {
        (3, Some(_), _) => proofs.check_absent(&last),
        (0, Some(_), _) if !is_answered => proofs.check_type_absent(&last, qtype),
        (0, None, Some((cut, ..))) => match has("DS") {
            Some((owner, ..)) if owner == cut => Ok(()),
            _ => proofs.check_unsigned(cut),
        },
        _ => Ok(()),
    }
}

fn names(labels: &'static [&'static str]) -> impl Strategy<Value = String> {
    let label = prop::sample::select(labels);
    prop::collection::vec(label, 0..4).prop_map(|labels| {
        let labels = labels.iter().map(|label| format!("{label}."));
        labels.collect::<String>() + APEX
    })
}

fn zones() -> impl Strategy<Value = Records> {
    let rtype = prop::sample::select(vec!["A", "A", "TXT", "CNAME", "NS", "NS", "DS", "DNAME"]);
    let record = (
        names(&["!", "a", "b", "*"]),
        rtype,
        names(&["!", "a", "b", "c"]),
        0..4u8,
    );
    prop::collection::vec(record, 0..14).prop_map(|list| {
        let mut zone = Records::new();
        for (owner, rtype, target, number) in list {
            let target = if rtype == "DS" { DS.to_owned() } else { target };
            // DS records belong to delegations, and delegations to names that have nothing else.
            let is_wrong = rtype == "DS" && !is_cut(&zone, &owner);
            let becomes_cut = rtype == "NS" && zone.at(&owner).next().is_some();
            if owner != APEX && !is_wrong && !becomes_cut {
                zone.add(&owner, rtype, data(rtype, number, target));
            }
        }
        zone
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]

    #[test]
    fn replies_of_signed_zones_are_proven(
        zone in zones(),
        denial in prop::sample::select(vec![Denial::Nsec, Denial::Nsec3, Denial::OptOut]),
        questions in prop::collection::vec(
            (names(&["!", "!!", "a", "b", "c", "*"]), prop::sample::select(&TYPES[..])),
            30,
        ),
    ) {
        let text = sign(APEX, 9, &zone.0, denial);
        let found = findings(&text);
        prop_assert!(!found.contains("sign the zone again"), "{}\n{}", found, text);
        let [answers, others] = FORMS.map(|form| prepare(&[(APEX, &text)], form));
        for (qname, qtype) in questions {
            let reply = ask(&answers, &qname, qtype, true);
            let other = ask(&others, &qname, qtype, true);
            prop_assert_eq!(format!("{reply:?}"), format!("{other:?}"));
            let checked = validate(&reply, denial, &qname, qtype);
            prop_assert_eq!(checked, Ok(()), "{} {} in\n{}\n{:#?}", qname, qtype, text, reply);
            let plain = ask(&answers, &qname, qtype, false);
            prop_assert_eq!(reply.rcode, plain.rcode);
            for (section, (signed, plain)) in reply.sections.iter().zip(&plain.sections).enumerate() {
                let is_data = |row: &&Row| {
                    let is_signer = section == 1 && row.1 == "DS";
                    !is_proof(&row.1) && !is_signer
                };
                let signed: Vec<_> = signed.iter().filter(is_data).collect();
                let plain: Vec<_> = plain.iter().filter(is_data).collect();
                prop_assert_eq!(signed, plain, "{} {} in\n{}", qname, qtype, text);
            }
        }
    }
}

/// Returns the text of a signed zone with a delegation, and an empty non-terminal.
fn small(denial: Denial) -> String {
    let records = [
        (APEX, "SOA", "ns.z. h.z. 1 2 3 4 9"),
        (APEX, "NS", "ns.y."),
        (APEX, "DNSKEY", "257 3 13 AAAA"),
        ("a.b.z.", "A", "192.0.2.1"),
        ("c.z.", "NS", "ns.y."),
        ("d.z.", "NS", "ns.y."),
        ("d.z.", "DS", DS),
    ];
    let records = records.map(|(owner, rtype, data)| (owner.to_owned(), rtype, data.to_owned()));
    sign(APEX, 9, &records, denial)
}

/// Returns the errors and warnings about a zone.
fn findings(text: &str) -> String {
    match namestorm::load_text("f", Some(APEX), text) {
        Ok(loaded) => loaded.report.to_string(),
        Err(report) => format!("refused: {report}"),
    }
}

#[test]
fn a_zone_whose_chain_has_a_gap_is_refused() {
    for denial in [Denial::Nsec, Denial::Nsec3, Denial::OptOut] {
        let text = small(denial);
        let found = findings(&text);
        if denial == Denial::OptOut {
            let expected = "warning: z. hashes its names with 1 iteration; ";
            assert!(
                found.contains(expected) && found.lines().count() == 1,
                "{found}"
            );
        } else {
            assert_eq!(found, "", "{text}");
        }
        let rtype = if denial == Denial::Nsec {
            "NSEC"
        } else {
            "NSEC3"
        };
        let is_link = |line: &&str| {
            let words: Vec<_> = line.split(' ').collect();
            words[3] == rtype || words[3] == "RRSIG" && words[4] == rtype
        };
        let links: Vec<_> = text.lines().filter(is_link).collect();
        assert_eq!(links.len() % 2, 0);
        for link in links {
            let found = findings(&text.replace(link, ""));
            assert!(found.starts_with("refused: f:"), "{link}: {found}");
            assert!(found.contains("sign the zone again"), "{link}: {found}");
        }
    }
}

#[test]
fn a_zone_with_signatures_but_without_a_chain_is_refused() {
    let text = small(Denial::Nsec);
    let lines = text.lines().filter(|line| !line.contains("NSEC"));
    let text = lines.map(|line| line.to_owned() + "\n").collect::<String>();
    let found = findings(&text);
    assert!(
        found.contains("z. is signed, but it has neither NSEC nor NSEC3PARAM records"),
        "{found}"
    );
}

#[test]
fn many_iterations_are_refused_and_few_are_warned_of() {
    let text = small(Denial::Nsec3);
    let found = findings(
        &text
            .replace(" 0 - ", " 101 - ")
            .replace("1 0 0 -", "1 0 101 -"),
    );
    assert!(found.starts_with("refused: f:"), "{found}");
    assert!(
        found.contains("with 101 iterations: use 0, and at most 100"),
        "{found}"
    );
    let found = findings(&small(Denial::OptOut).replace("NSEC3 1 1 1 ab", "NSEC3 1 1 2 ab"));
    assert!(found.starts_with("refused: "), "{found}");
}

#[test]
fn ds_records_without_a_delegation_are_warned_of() {
    let text = small(Denial::Nsec);
    for owner in ["a.b.z.", "z."] {
        let found = findings(&format!("{text}{owner} 9 IN DS {DS}\n"));
        let expected = format!("warning: {owner} has DS records, but it is no delegation");
        assert!(found.contains(&expected), "{found}");
    }
}

#[test]
fn expired_and_missing_signatures_are_warned_of() {
    let text = small(Denial::Nsec);
    let old = "20040101000000 20030101000000";
    let found = findings(&text.replace("20400101000000 20200101000000", old));
    let expected = "warning: the NS records of z. have no signature that is valid now; 6 others are wrong too; \
                    resolvers refuse such records: sign the zone again";
    assert!(found.contains(expected), "{found}");
    let early = findings(&text.replace(" 20200101000000 ", " 20390101000000 "));
    assert!(early.contains(expected), "{early}");
    let is_signature = |line: &&str| line.starts_with("a.b.z. 9 IN RRSIG A ");
    let line = text.lines().find(is_signature).unwrap();
    let found = findings(&text.replace(line, ""));
    let expected = "warning: the A records of a.b.z. have no signature; resolvers refuse such records: \
                    sign the zone again";
    assert!(found.contains(expected), "{found}");
}

/// Returns a zone without the lines that contain `what`.
fn without(text: &str, what: &str) -> String {
    let lines = text.lines().filter(|line| !line.contains(what));
    lines.map(|line| line.to_owned() + "\n").collect()
}

#[test]
fn a_zone_without_a_signature_of_its_soa_is_refused_if_it_has_others() {
    for (denial, what) in [
        (Denial::Nsec, "RRSIG SOA"),
        (Denial::Nsec, "IN RRSIG"),
        (Denial::Nsec3, "RRSIG SOA"),
        (Denial::Nsec3, "IN RRSIG"),
    ] {
        let found = findings(&without(&small(denial), what));
        let expected = " records, but its SOA has no signature, so its proofs cannot be served: \
                        sign the zone again, or remove its RRSIG, NSEC and NSEC3 records";
        assert!(
            found.starts_with("refused: f:") && found.ends_with(expected),
            "{found}"
        );
    }
    // Keys and parameters for the signer.
    let unsigned = without(&without(&small(Denial::Nsec3), "IN RRSIG"), "NSEC3 1");
    let found = findings(&(unsigned.clone() + "z. 9 DNSKEY 257 3 13 AQID\n"));
    let expected = "has NSEC3PARAM records, but its SOA has no signature, so it is served as an \
                    unsigned zone";
    assert!(
        !found.starts_with("refused") && found.ends_with(expected),
        "{found}"
    );
    let found = findings(&(without(&unsigned, "NSEC3PARAM") + "z. 9 DNSKEY 257 3 13 AQID\n"));
    assert_eq!(found, "");
}

/// Returns the line of the record with this owner whose words after it begin with `rest`.
fn line<'t>(text: &'t str, owner: &str, rest: &str) -> &'t str {
    let start = format!("{owner} 9 IN {rest}");
    let mut lines = text.lines();
    lines.find(|line| line.starts_with(&start)).unwrap()
}

#[test]
fn a_proof_that_lists_other_types_than_its_name_has_is_warned_of() {
    for denial in [Denial::Nsec, Denial::Nsec3, Denial::OptOut] {
        let text = small(denial);
        let kind = if denial == Denial::Nsec {
            "NSEC"
        } else {
            "NSEC3"
        };
        let proof = |name: &str| match denial {
            Denial::Nsec => line(&text, name, "NSEC ").to_owned(),
            _ => line(&text, &format!("{}.z.", denial.hashed(name)), "NSEC3 ").to_owned(),
        };
        let changed = |changes: &[(&str, &str, &str)]| {
            let mut text = text.clone();
            for (name, old, new) in changes {
                let proof = proof(name);
                let (start, types) = proof.split_at(proof.len() - old.len());
                assert_eq!(types, *old, "{proof}");
                text = text.replace(&proof, &format!("{start}{new}"));
            }
            findings(&text)
        };
        let end = if denial == Denial::Nsec {
            " RRSIG NSEC"
        } else {
            " RRSIG"
        };
        let [a, extra, other] = ["A", "A TXT", "AAAA"].map(|types| format!("{types}{end}"));
        let found = changed(&[("a.b.z.", &a, &extra)]);
        let expected = format!(
            "warning: the {kind} record of a.b.z. lists TXT, which the name does not have; resolvers \
             refuse answers or miss records: sign the zone again"
        );
        assert!(found.contains(&expected), "{found}");
        let ds = format!("DS NS{end}");
        let found = changed(&[("a.b.z.", &a, &other), ("d.z.", &ds, &format!("NS{end}"))]);
        let expected = format!(
            "the {kind} record of a.b.z. lists AAAA, which the name does not have, and lacks A, which \
             the name has; another one is wrong too; resolvers"
        );
        assert!(found.contains(&expected), "{found}");
        if denial == Denial::Nsec3 {
            let found = changed(&[("c.z.", "NS", "NS RRSIG")]);
            assert!(found.contains("of c.z. lists RRSIG, which"), "{found}");
            let found = changed(&[("b.z.", "", "A TYPE65280 TYPE256 SRV MX TXT")]);
            let expected = "of b.z. lists A, MX, TXT, SRV and 2 more, which the name does";
            assert!(found.contains(expected), "{found}");
        }
    }
}

#[test]
fn other_parameters_in_nsec3param_are_explained() {
    for (denial, [old, new], [params, records]) in [
        (
            Denial::Nsec3,
            ["1 0 0 -", "1 0 0 ab"],
            ["the salt AB and 0 iterations", "no salt and 0 iterations"],
        ),
        (
            Denial::Nsec3,
            ["1 0 0 -", "1 0 7 -"],
            ["no salt and 7 iterations", "no salt and 0 iterations"],
        ),
        (
            Denial::OptOut,
            ["1 0 1 ab", "1 0 1 -"],
            ["no salt and 1 iteration", "the salt AB and 1 iteration"],
        ),
    ] {
        let found = findings(&small(denial).replace(
            &format!("NSEC3PARAM {old}\n"),
            &format!("NSEC3PARAM {new}\n"),
        ));
        let expected = format!(
            "the NSEC3PARAM record of z. says that names are hashed with {params}, but the NSEC3 \
             records have {records}: sign the zone again"
        );
        assert!(found.starts_with("refused: f:8:1: "), "{found}");
        assert!(
            found.contains(&expected) && found.lines().count() == 1,
            "{found}"
        );
    }
}

#[test]
fn signatures_by_others_or_for_other_names_are_warned_of() {
    for denial in [Denial::Nsec, Denial::Nsec3] {
        let text = small(denial);
        let a = line(&text, "a.b.z.", "RRSIG A ");
        let by_other = text.replace(a, &a.replace(" 1 z. ", " 1 y. "));
        assert_eq!(
            findings(&by_other).split_once("warning: ").unwrap().1,
            "a signature of the A records of a.b.z. is by y., not by z.; resolvers refuse such \
             signatures: sign the zone again"
        );
        let by_others = text.replace(" 1 z. ", " 1 y. ");
        let others = match denial {
            Denial::Nsec => "is by y., not by z.; 8 others are wrong too; resolvers",
            _ => "is by y., not by z.; 10 others are wrong too; resolvers",
        };
        assert!(findings(&by_others).contains(others));
        let of_wildcard = text.replace(a, &a.replace(" A 13 3 ", " A 13 2 "));
        assert_eq!(
            findings(&of_wildcard).split_once("warning: ").unwrap().1,
            "a signature of the A records of a.b.z. is for a name of 2 labels, but the name has 3; \
             resolvers refuse such signatures: sign the zone again"
        );
        let in_capitals = text.replace(" 1 z. ", " 1 Z. ");
        assert_eq!(findings(&in_capitals), "");
    }
}
