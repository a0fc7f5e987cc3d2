//! The accounts of networks, in a table of fixed size.
//!
//! Each account is a time: when the network will have no charge left. A reply moves the time by one
//! interval, and time itself pays the charge back (the virtual scheduling of ITU-T I.371, also called
//! GCRA). An account whose time has passed equals a new one, so nothing is lost when it gives way.
//!
//! A network has its account in one of the few places of its set. When all of them are taken, the
//! account with the least charge gives way. So a network over its limit keeps its account, and a new one
//! begins without a charge. No network is charged for another one.
//!
//! Signatures (TSIG) have accounts of their own in a second table. There an account keeps its place while it
//! has a charge, or else a signature that was used before would look new.

use ahash::RandomState;

use crate::tsig::FUDGE;

/// Number of places in a set, which is one cache line.
const WAYS: usize = 4;
/// Number of sets. The table has 65,536 accounts, which take 1 MiB.
const SETS: usize = 16_384;
/// The greatest charge of a network, in nanoseconds: that of the replies of one second.
const MAX_CHARGE: u64 = 1_000_000_000;
/// The greatest charge of a signature, in nanoseconds: twice the usual fudge. A signature is valid for so long
/// if the client's clock is ahead.
const MAX_SIGNATURE_CHARGE: u64 = 2 * FUDGE as u64 * 1_000_000_000;

/// The account of a network or a signature.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    key: u64,
    /// When there is no charge left, in nanoseconds since the clock's origin.
    free_at: u64,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Set([Account; WAYS]);

/// The accounts of all networks.
#[derive(Debug)]
pub(super) struct Accounts {
    sets: Box<[Set; SETS]>,
    /// Number of queries over the limit of each account since its last short reply.
    excess: Box<[[u8; WAYS]; SETS]>,
    hash: RandomState,
    /// The charge for a reply, in nanoseconds.
    interval: u64,
    /// The greatest charge of an account, in nanoseconds.
    most: u64,
}

impl Accounts {
    /// Creates the accounts of networks for this number of replies per second.
    pub(super) fn new(rate: u32, [a, b, c, d]: [u64; 4]) -> Self {
        Self {
            sets: boxed(Set::default()),
            excess: boxed([0; WAYS]),
            hash: RandomState::with_seeds(a, b, c, d),
            interval: MAX_CHARGE / u64::from(rate.max(1)),
            most: MAX_CHARGE,
        }
    }

    /// Creates the accounts of signatures, each for this number of replies.
    pub(super) fn of_signatures(&self, replies: u64) -> Self {
        Self {
            sets: boxed(Set::default()),
            excess: boxed([0; WAYS]),
            hash: self.hash.clone(),
            interval: MAX_SIGNATURE_CHARGE / replies,
            most: MAX_SIGNATURE_CHARGE,
        }
    }

    /// Like [`charge`](Self::charge), but also returns false if other accounts would have to give way.
    #[cold]
    #[inline(never)]
    pub(super) fn charge_in_free_place(&mut self, key: u64, now: u64) -> bool {
        let Set(accounts) = &self.sets[self.set_of(key)];
        let has_place = |account: &Account| account.key == key || account.free_at <= now;
        accounts.iter().any(has_place) && self.charge(key, now)
    }

    /// Charges a reply to a network. Returns false, and charges nothing, if that exceeds the limit.
    #[inline(always)]
    pub(super) fn charge(&mut self, key: u64, now: u64) -> bool {
        let number = self.set_of(key);
        let Set(accounts) = &mut self.sets[number];
        let found = accounts.iter_mut().find(|account| account.key == key);
        let account = match found {
            Some(account) => account,
            None => replace(&mut self.sets[number], &mut self.excess[number], key),
        };
        let free_at = account.free_at.max(now) + self.interval;
        let is_within = free_at <= now + self.most;
        if is_within {
            account.free_at = free_at;
        }
        is_within
    }

    /// Takes back one charge of a network.
    pub(super) fn give_back(&mut self, key: u64) {
        let number = self.set_of(key);
        let Set(accounts) = &mut self.sets[number];
        if let Some(account) = accounts.iter_mut().find(|account| account.key == key) {
            account.free_at = account.free_at.saturating_sub(self.interval);
        }
    }

    /// Counts a query over the limit. Returns true for each `every`th one of a network, and never if
    /// `every` is 0.
    pub(super) fn slips(&mut self, key: u64, every: u8) -> bool {
        let number = self.set_of(key);
        let Set(accounts) = &self.sets[number];
        let Some(way) = accounts.iter().position(|account| account.key == key) else {
            return false;
        };
        let excess = &mut self.excess[number][way];
        *excess = excess.saturating_add(1);
        let slips = every > 0 && *excess >= every;
        if slips {
            *excess = 0;
        }
        slips
    }

    #[inline(always)]
    fn set_of(&self, key: u64) -> usize {
        self.hash.hash_one(key) as usize % SETS
    }
}

/// Gives the place of the account with the least charge to a new account.
#[cold]
#[inline(never)]
fn replace<'s>(set: &'s mut Set, excess: &mut [u8; WAYS], key: u64) -> &'s mut Account {
    let Set(accounts) = set;
    let mut least = 0;
    for way in 1..WAYS {
        if accounts[way].free_at < accounts[least].free_at {
            least = way;
        }
    }
    excess[least] = 0;
    accounts[least] = Account { key, free_at: 0 };
    &mut accounts[least]
}

/// Returns `N` copies of a value in a box, which is too large for the stack.
fn boxed<T: Copy, const N: usize>(value: T) -> Box<[T; N]> {
    let all = vec![value; N].into_boxed_slice();
    all.try_into()
        .unwrap_or_else(|_| unreachable!("the vector has N values"))
}

#[cfg(test)]
impl Accounts {
    /// Returns keys that have the same set as `key`.
    pub(super) fn beside(&self, key: u64) -> impl Iterator<Item = u64> + '_ {
        let set = self.set_of(key);
        (1..).filter(move |other| *other != key && self.set_of(*other) == set)
    }
}

const _: () = assert!(size_of::<Set>() == 64 && SETS.is_power_of_two());
