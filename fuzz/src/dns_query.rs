//! Sends arbitrary and nearly valid queries to a zone. Each query must get a reply, which must be
//! complete and respect the size limits. A question in the reply must be that of the query.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use crate::dns::{HEADER_LEN, Message, UDP, ZONE, checked, labels};
use arbitrary::Arbitrary;
use namestorm::{Cookies, Form, Identity, MAX_TCP_MESSAGE, Responder, Transport, prepare_text};

/// What libFuzzer makes.
#[derive(Arbitrary, Debug)]
pub struct Input<'a> {
    by_fqdn: bool,
    tcp: bool,
    message: Message<'a>,
}

thread_local! {
    static LABELS: Vec<&'static str> = labels();
    static RESPONDERS: [RefCell<Responder>; 2] = [Form::Wire, Form::Fqdn].map(|form| {
        let answers = prepare_text(ZONE, form).expect("a valid zone");
        let mut responder = Responder::new(Arc::new(answers));
        let text = "ns1".parse().expect("a valid text");
        let nsid = "ns1".parse().expect("a valid NSID");
        responder.set_identity(Arc::new(Identity::new(Some(&nsid), Some(&text), None)));
        let clock = || UNIX_EPOCH + Duration::from_secs(1_559_731_985);
        responder.set_cookies(Arc::new(Cookies::new(&[[7; 16], [8; 16]], clock)));
        responder.into()
    });
}

/// Runs the target.
pub fn run(input: &Input<'_>) {
    let query = LABELS.with(|labels| input.message.bytes(labels, MAX_TCP_MESSAGE));
    let mut message = query.clone();
    let transport = if input.tcp { Transport::Tcp } else { UDP };
    RESPONDERS.with(|responders| {
        let mut responder = responders[usize::from(input.by_fqdn)].borrow_mut();
        if let Some(reply) = responder.respond(&mut message, transport) {
            checked(&query, &message, &reply, transport);
        } else {
            let is_query = query.len() >= HEADER_LEN && query[2] & 0x80 == 0;
            assert!(!is_query, "no reply");
        }
    });
}
