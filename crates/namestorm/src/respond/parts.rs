//! The parts of a complete reply.

/// The lengths of the parts of a reply, in bytes: the head, the tail and the OPT record. A signature may
/// follow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Parts {
    pub(crate) head: usize,
    pub(crate) tail: usize,
    pub(crate) opt: usize,
}

impl Parts {
    /// Splits a message into these parts, and the signature.
    pub(crate) fn split(self, message: &[u8]) -> [&[u8]; 4] {
        let (head, rest) = message.split_at(self.head);
        let (tail, rest) = rest.split_at(self.tail);
        let (opt, signature) = rest.split_at(self.opt);
        [head, tail, opt, signature]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_the_opt_record_is_the_signature() {
        let parts = Parts {
            head: 2,
            tail: 1,
            opt: 0,
        };
        assert_eq!(parts.split(b"hetsig"), [&b"he"[..], b"t", b"", b"sig"]);
        assert_eq!(Parts::default().split(b""), [b""; 4]);
    }
}
