//! Any bytes as a query to a zone that holds one of each thing: a reply is
//! whole, to the same question, and not longer than it may be.
#![no_main]

use std::sync::Arc;

use fuzz::dns::{HEADER_LEN, Query, ZONE, answers, labels};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use namestorm::{Form, MAX_TCP_MESSAGE, MIN_UDP_MESSAGE, Responder, Transport, prepare_text};

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    by_fqdn: bool,
    tcp: bool,
    query: Option<Query>,
    /// Behind the query.
    bytes: &'a [u8],
    edits: Vec<(u8, u8)>,
}

thread_local! {
    static LABELS: Vec<&'static str> = labels();
    static RESPONDERS: [std::cell::RefCell<Responder>; 2] = [Form::Wire, Form::Fqdn].map(|form| {
        let answers = prepare_text(ZONE, form).expect("a valid zone");
        Responder::new(Arc::new(answers)).into()
    });
}

fuzz_target!(|input: Input| {
    let mut message = Vec::new();
    if let Some(query) = &input.query {
        LABELS.with(|labels| query.write(&mut message, labels));
    }
    message.extend_from_slice(input.bytes);
    for (at, byte) in &input.edits {
        if let Some(place) = message.get_mut(usize::from(*at)) {
            *place = *byte;
        }
    }
    message.truncate(MAX_TCP_MESSAGE);
    let query = message.clone();
    // What a link of 1,500 bytes takes over IPv4.
    let link = 1472;
    let (transport, limit) = if input.tcp {
        (Transport::Tcp, MAX_TCP_MESSAGE)
    } else {
        (Transport::Udp { link }, link)
    };
    RESPONDERS.with(|responders| {
        let mut responder = responders[usize::from(input.by_fqdn)].borrow_mut();
        let Some(reply) = responder.respond(&mut message, transport) else {
            assert!(
                query.len() < HEADER_LEN || query[2] & 0x80 != 0,
                "not answered"
            );
            return;
        };
        let head = reply
            .rewritten
            .map_or_else(|| message[..reply.head_len].to_vec(), <[u8]>::to_vec);
        let bytes = [&head, reply.tail.bytes, reply.trail].concat();
        assert_eq!((head.len(), bytes.len()), (reply.head_len, reply.len()));
        let limit = if reply.trail.is_empty() && !input.tcp {
            MIN_UDP_MESSAGE
        } else {
            limit
        };
        assert!(bytes.len() <= limit, "{} bytes", bytes.len());
        answers(&query, &bytes);
    });
});
