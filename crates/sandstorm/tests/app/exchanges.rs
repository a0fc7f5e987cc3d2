//! Random sequences of requests, split into segments at random.

use proptest::prelude::*;

use crate::streams;
use crate::visit::{chunked, file, get, page, post, talk_cut, text, without_tags};

/// Generates a request with its expected response.
fn any_exchange() -> impl Strategy<Value = (String, String)> {
    let body = || "[ -~\r\n]{0,40}";
    let some = || "[ -~\r\n]{1,40}";
    let chunks = prop::collection::vec("[ -~\r\n]{1,20}", 0..4);
    prop_oneof![
        body().prop_map(|body| (post("/echo", &body), text(&format!("POST /echo {body}")))),
        chunks.prop_map(|chunks| {
            let each = chunks.iter().map(|c| format!("{:x}\r\n{c}\r\n", c.len()));
            let sent = each.collect::<Vec<_>>().concat();
            let echo = text(&format!("POST /echo {}", chunks.concat()));
            (chunked("/echo", &format!("{sent}0\r\n\r\n")), echo)
        }),
        body().prop_map(|body| (
            post("/pieces", &body),
            text(&format!("{} bytes", body.len()))
        )),
        Just((get("/a.txt"), file(""))),
        Just((get("/stream?3x40"), streams::stream(3, 40))),
        Just((get("/a.txt?extra"), file("X-Extra: yes\r\n"))),
        Just((get("/later?1"), text("later 1"))),
        Just((get("/refused"), page("403 Forbidden", true, ""))),
        some().prop_map(|body| (post("/unread", &body), page("403 Forbidden", true, ""))),
        some().prop_map(|body| (post("/unread-later", &body), text("later "))),
        Just(("\r\n".to_owned() + &get("/later?2"), text("later 2"))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Checks that the answers do not depend on how the byte stream is split into segments.
    #[test]
    fn the_split_into_segments_does_not_change_the_answers(
        exchanges in prop::collection::vec(any_exchange(), 1..8),
        cuts in prop::collection::vec(0..2_000usize, 0..12),
        single in 0..400usize,
    ) {
        let sent: String = exchanges.iter().map(|exchange| &*exchange.0).collect();
        let expected: String = exchanges.iter().map(|exchange| &*exchange.1).collect();
        // Send 60 consecutive bytes in segments of one byte, and split the stream at some other
        // positions.
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % sent.len()).collect();
        cuts.extend(single..single + 60);
        let received = talk_cut(sent.as_bytes(), cuts);
        prop_assert_eq!(without_tags(&received), expected);
    }
}
