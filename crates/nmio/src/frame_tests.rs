//! Tests of the pool. One compares it with a model that tracks where each frame is and which bytes
//! it holds.
#![allow(unsafe_code)]

use proptest::prelude::*;

use super::*;

const LAYOUT: PoolLayout = PoolLayout {
    stride: 64,
    capacity: 40,
    io_frames: 4,
    resident_frames: 3,
};
const FRAMES: usize = 7;

impl Pool {
    /// Creates a pool of `frames` frames for received and scratch packets, of `capacity` bytes each.
    pub(crate) fn for_tests(frames: u32, capacity: usize) -> Self {
        Self::on_heap(PoolLayout {
            stride: capacity,
            capacity,
            io_frames: frames,
            resident_frames: 0,
        })
    }
}

#[derive(Clone, Debug)]
enum Step {
    Take,
    /// Overwrites an owned frame. The values are the frame's number (modulo the number of owned
    /// frames), its new length in bytes, and the byte to write.
    Write(usize, usize, u8),
    DropFrame(usize),
    OfferFrame(usize),
    SendFrame(usize),
    /// Claims a frame with an arbitrary index and length, as if a faulty kernel had returned them.
    Claim(u32, usize),
    Complete(u32),
    MakeResident(usize, u8),
    Patch(usize, u8),
    /// Sets the length of a resident packet.
    Resize(usize, usize),
    SendResident(usize),
    DropResident(usize),
    TakeOverdue,
}

fn step() -> impl Strategy<Value = Step> {
    let position = 0..FRAMES;
    let index = 0..FRAMES as u32 + 2;
    let len = 0..LAYOUT.capacity + 1;
    prop_oneof![
        4 => Just(Step::Take),
        2 => (position.clone(), len.clone(), any::<u8>()).prop_map(|(i, n, b)| Step::Write(i, n, b)),
        2 => position.clone().prop_map(Step::DropFrame),
        2 => position.clone().prop_map(Step::OfferFrame),
        3 => position.clone().prop_map(Step::SendFrame),
        2 => (index.clone(), 0..LAYOUT.capacity + 3).prop_map(|(i, n)| Step::Claim(i, n)),
        4 => index.prop_map(Step::Complete),
        3 => (0..LAYOUT.capacity + 3, any::<u8>()).prop_map(|(n, b)| Step::MakeResident(n, b)),
        2 => (position.clone(), any::<u8>()).prop_map(|(i, b)| Step::Patch(i, b)),
        1 => (position.clone(), len).prop_map(|(i, n)| Step::Resize(i, n)),
        3 => position.clone().prop_map(Step::SendResident),
        1 => position.prop_map(Step::DropResident),
        1 => Just(Step::TakeOverdue),
    ]
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Free,
    Held,
    /// The frame is in the fill ring.
    Fill,
    /// The frame is in the TX ring.
    Tx,
    Resident,
    /// The frame is a resident and is in the TX ring.
    ResidentTx,
}

/// The pool, the values that it has returned, and the model of its state.
struct World {
    pool: Pool,
    frames: Vec<Frame>,
    residents: Vec<Resident>,
    places: [Place; FRAMES],
    /// Whether the last search for overdue frames has already found the frame in the TX ring.
    seen_in_flight: [bool; FRAMES],
    /// Expected bytes of each frame that is not free.
    bytes: [[u8; LAYOUT.capacity]; FRAMES],
    free: u32,
    residents_left: u32,
}

impl World {
    fn new() -> Self {
        Self {
            pool: Pool::on_heap(LAYOUT),
            frames: Vec::new(),
            residents: Vec::new(),
            places: [Place::Free; FRAMES],
            seen_in_flight: [false; FRAMES],
            bytes: [[0; LAYOUT.capacity]; FRAMES],
            free: FRAMES as u32,
            residents_left: LAYOUT.resident_frames,
        }
    }

    fn run(&mut self, step: &Step) {
        let frame = |i: usize| (!self.frames.is_empty()).then(|| i % self.frames.len());
        let resident = |i: usize| (!self.residents.is_empty()).then(|| i % self.residents.len());
        match *step {
            Step::Take => self.take(),
            Step::Write(i, len, byte) => {
                if let Some(i) = frame(i) {
                    let frame = &mut self.frames[i];
                    frame.set_len(len);
                    frame.fill(byte);
                    self.bytes[frame.index as usize][..len].fill(byte);
                }
            }
            Step::DropFrame(i) => {
                if let Some(i) = frame(i) {
                    let frame = self.frames.swap_remove(i);
                    self.places[frame.index as usize] = Place::Free;
                    self.free += 1;
                }
            }
            Step::OfferFrame(i) => {
                if let Some(i) = frame(i) {
                    let frame = self.frames.swap_remove(i);
                    let index = frame.index;
                    assert_eq!(frame.offer(&self.pool), index);
                    self.places[index as usize] = Place::Fill;
                }
            }
            Step::SendFrame(i) => {
                if let Some(i) = frame(i) {
                    let frame = self.frames.swap_remove(i);
                    let index = frame.index as usize;
                    let sending = frame.send(&self.pool);
                    assert_eq!(sending[..], self.bytes[index][..sending.len()]);
                    assert_eq!(sending.into_index() as usize, index);
                    self.places[index] = Place::Tx;
                }
            }
            Step::Claim(index, len) => self.claim(index, len),
            Step::Complete(index) => self.complete(index),
            Step::MakeResident(len, byte) => self.make_resident(len, byte),
            Step::Patch(i, byte) => {
                if let Some(i) = resident(i) {
                    let packet = &mut self.residents[i];
                    let index = packet.frame.index as usize;
                    let sending = self.places[index] == Place::ResidentTx;
                    assert_eq!(packet.idle().is_none(), sending);
                    if let Some(mut bytes) = packet.idle() {
                        bytes.fill(byte);
                        self.bytes[index][..bytes.len()].fill(byte);
                    }
                }
            }
            Step::Resize(i, len) => {
                if let Some(i) = resident(i)
                    && let Some(mut packet) = self.residents[i].idle()
                {
                    packet.set_len(len);
                }
            }
            Step::SendResident(i) => {
                if let Some(i) = resident(i) {
                    let packet = &mut self.residents[i];
                    let index = packet.frame.index as usize;
                    let len = packet.frame.len as usize;
                    let sending = packet.idle().map(|packet| packet.send(&self.pool));
                    let possible = self.places[index] == Place::Resident;
                    assert_eq!(sending.is_some(), possible);
                    if let Some(sending) = sending {
                        assert_eq!(sending[..], self.bytes[index][..len]);
                        assert_eq!(sending.into_index() as usize, index);
                    }
                    self.places[index] = Place::ResidentTx;
                }
            }
            Step::DropResident(i) => {
                if let Some(i) = resident(i) {
                    let packet = self.residents.swap_remove(i);
                    let place = &mut self.places[packet.frame.index as usize];
                    self.residents_left += 1;
                    if *place == Place::ResidentTx {
                        *place = Place::Tx;
                        self.seen_in_flight[packet.frame.index as usize] = false;
                    } else {
                        *place = Place::Free;
                        self.free += 1;
                    }
                }
            }
            Step::TakeOverdue => self.reclaim_overdue(),
        }
    }

    fn take(&mut self) {
        let frame = self.pool.take();
        assert_eq!(frame.is_some(), self.free > self.residents_left);
        if let Some(mut frame) = frame {
            assert_eq!(frame.len(), 0);
            self.leaves_the_free(frame.index, Place::Held);
            // The model does not track bytes left by the last user, so overwrite them.
            frame.set_len(LAYOUT.capacity);
            frame.fill(0);
            self.frames.push(frame);
        }
    }

    fn make_resident(&mut self, len: usize, byte: u8) {
        let packet = self.pool.make_resident(&vec![byte; len]);
        let possible = self.residents_left > 0 && self.free > 0 && len <= LAYOUT.capacity;
        assert_eq!(packet.is_some(), possible);
        if let Some(mut packet) = packet {
            self.leaves_the_free(packet.frame.index, Place::Resident);
            self.residents_left -= 1;
            let mut bytes = packet.idle().unwrap();
            assert_eq!(*bytes, vec![byte; len]);
            bytes.set_len(LAYOUT.capacity);
            bytes[len..].fill(0);
            self.bytes[packet.frame.index as usize][..len].fill(byte);
            self.residents.push(packet);
        }
    }

    fn leaves_the_free(&mut self, index: u32, to: Place) {
        let index = index as usize;
        assert_eq!(
            self.places[index],
            Place::Free,
            "the pool returned a frame that is in use"
        );
        self.places[index] = to;
        self.bytes[index] = [0; LAYOUT.capacity];
        self.free -= 1;
    }

    fn claim(&mut self, index: u32, len: usize) {
        // SAFETY: no kernel shares the frames.
        let frame = unsafe { self.pool.claim(index, len) };
        let offered = self.places.get(index as usize) == Some(&Place::Fill);
        assert_eq!(frame.is_some(), offered && len <= LAYOUT.capacity);
        if let Some(frame) = frame {
            assert_eq!((frame.index, frame.len()), (index, len));
            self.places[index as usize] = Place::Held;
            self.frames.push(frame);
        }
    }

    fn complete(&mut self, index: u32) {
        // SAFETY: no kernel shares the frames, and no `Sending` outlives its step.
        let completed = unsafe { self.pool.complete(index) };
        assert_eq!(completed, self.completes(index as usize));
    }

    /// Applies a completion to the model. Returns false if the frame was not being sent.
    fn completes(&mut self, index: usize) -> bool {
        match self.places.get_mut(index) {
            Some(place @ Place::Tx) => {
                *place = Place::Free;
                self.free += 1;
            }
            Some(place @ Place::ResidentTx) => *place = Place::Resident,
            _ => return false,
        }
        self.seen_in_flight[index] = false;
        true
    }

    fn reclaim_overdue(&mut self) {
        let mut overdue = 0;
        for index in 0..FRAMES {
            if self.seen_in_flight[index] {
                assert!(self.completes(index));
                overdue += 1;
            } else {
                self.seen_in_flight[index] =
                    matches!(self.places[index], Place::Tx | Place::ResidentTx);
            }
        }
        // SAFETY: no kernel shares the frames, and no `Sending` outlives its step.
        assert_eq!(unsafe { self.pool.reclaim_overdue() }, overdue);
    }

    /// Checks that the pool and the model agree, and that every frame has exactly one owner.
    fn check(&mut self) {
        assert_eq!(self.pool.residents_left(), self.residents_left);
        let available = self.free.saturating_sub(self.residents_left);
        assert_eq!(self.pool.available(), available);

        let mut owners = [0; FRAMES];
        for frame in &self.frames {
            let index = frame.index as usize;
            owners[index] += 1;
            assert_eq!(self.places[index], Place::Held);
            assert_eq!(frame[..], self.bytes[index][..frame.len()]);
            // SAFETY: the index is that of an existing frame.
            let data = unsafe { self.pool.0.data(frame.index) };
            assert_eq!(frame.as_ptr(), data.as_ptr());
        }
        for packet in &mut self.residents {
            let index = packet.frame.index as usize;
            owners[index] += 1;
            let sending = self.places[index] == Place::ResidentTx;
            assert!(sending || self.places[index] == Place::Resident);
            assert_eq!(packet.in_flight(), sending);
            if let Some(bytes) = packet.idle() {
                assert_eq!(*bytes, self.bytes[index][..bytes.len()]);
            }
        }
        for (index, place) in self.places.iter().enumerate() {
            let owned = !matches!(place, Place::Free | Place::Fill | Place::Tx);
            assert_eq!(owners[index], u32::from(owned), "owners of frame {index}");
        }
        let free = self.places.iter().filter(|&&p| p == Place::Free).count();
        assert_eq!(free, self.free as usize);
    }

    /// Returns all frames to the pool, and checks that the pool is then in its initial state.
    fn end(mut self) {
        self.frames.clear();
        self.residents.clear();
        for index in 0..FRAMES as u32 {
            // SAFETY: no kernel shares the frames, and no `Sending` outlives its step.
            unsafe {
                self.pool.complete(index);
                drop(self.pool.claim(index, 0));
            }
        }
        assert_eq!(self.pool.available(), LAYOUT.io_frames);
        assert_eq!(self.pool.residents_left(), LAYOUT.resident_frames);
        let residents: Vec<_> = std::iter::from_fn(|| self.pool.make_resident(b"")).collect();
        let frames: Vec<_> = std::iter::from_fn(|| self.pool.take()).collect();
        let mut indices: Vec<_> = residents.iter().map(|r| r.frame.index).collect();
        indices.extend(frames.iter().map(|f| f.index));
        indices.sort_unstable();
        assert!(
            indices.into_iter().eq(0..FRAMES as u32),
            "the pool returns each frame once"
        );
    }
}

proptest! {
    // Under Miri the test runs a thousand times slower. Miri checks memory accesses rather than
    // states, so a few runs suffice.
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 3 } else { 1000 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_frame_is_never_in_two_places(steps in proptest::collection::vec(step(), 1..150)) {
        let mut world = World::new();
        for step in &steps {
            world.run(step);
            world.check();
        }
        world.end();
    }
}

fn pool(io: u32, resident: u32) -> Pool {
    Pool::on_heap(PoolLayout {
        stride: 64,
        capacity: 60,
        io_frames: io,
        resident_frames: resident,
    })
}

#[test]
fn dropping_a_frame_returns_it_to_the_pool() {
    let pool = pool(1, 0);
    let frame = pool.take().unwrap();
    assert!(pool.take().is_none());
    drop(frame);
    assert!(pool.take().is_some());
}

#[test]
fn residents_have_their_own_share_of_the_pool() {
    let pool = pool(1, 2);
    let a = pool.make_resident(b"a").unwrap();
    let _b = pool.make_resident(b"b").unwrap();
    assert!(pool.make_resident(b"c").is_none());
    assert_eq!(pool.available(), 1);
    drop(a);
    assert!(pool.take().is_some(), "the I/O share is untouched");
    assert!(pool.make_resident(b"c").is_some());
}

/// Completes a frame, as if the kernel had returned it.
fn complete(pool: &Pool, index: u32) -> bool {
    // SAFETY: these tests share no frames with the kernel, and each `Sending` was turned into
    // an index.
    unsafe { pool.complete(index) }
}

/// Claims an offered frame, as a port does when the kernel returns it.
fn claim(pool: &Pool, index: u32, len: usize) -> Option<Frame> {
    // SAFETY: these tests share no frames with the kernel.
    unsafe { pool.claim(index, len) }
}

#[test]
fn a_resident_is_in_the_ring_at_most_once() {
    let pool = pool(1, 1);
    let mut r = pool.make_resident(b"packet").unwrap();
    let sending = r.idle().unwrap().send(&pool);
    assert_eq!(&*sending, b"packet");
    assert!(r.idle().is_none());
    let index = sending.into_index();
    assert!(complete(&pool, index));
    assert!(!complete(&pool, index), "a second completion is refused");
    assert_eq!(*r.idle().unwrap(), *b"packet");
}

#[test]
fn a_resident_dropped_in_flight_is_freed_on_completion() {
    let pool = pool(0, 1);
    let mut r = pool.make_resident(b"x").unwrap();
    let index = r.idle().unwrap().send(&pool).into_index();
    drop(r);
    assert!(
        pool.make_resident(b"y").is_none(),
        "the kernel still reads the frame"
    );
    assert!(complete(&pool, index));
    assert!(pool.make_resident(b"y").is_some());
}

#[test]
fn dropping_a_sending_packet_completes_it() {
    let pool = pool(1, 1);
    drop(pool.take().unwrap().send(&pool));
    assert_eq!(pool.available(), 1);
    let mut r = pool.make_resident(b"x").unwrap();
    drop(r.idle().unwrap().send(&pool));
    assert!(!r.in_flight());
}

#[test]
fn only_an_offered_frame_can_be_claimed() {
    let pool = pool(2, 0);
    let index = pool.take().unwrap().offer(&pool);
    assert!(claim(&pool, index, 61).is_none(), "longer than a frame");
    let frame = claim(&pool, index, 5).unwrap();
    assert_eq!(frame.len(), 5);
    assert!(claim(&pool, index, 5).is_none());
    assert!(claim(&pool, 99, 5).is_none());
}

#[test]
fn a_frame_is_exchanged_for_a_received_one() {
    let pool = pool(2, 1);
    let offered = pool.take().unwrap().offer(&pool);
    // SAFETY: no kernel has the frames.
    let exchange = |index, len| unsafe { pool.exchange(index, len) };
    assert!(exchange(offered, 61).is_none(), "longer than a frame");
    assert!(exchange(offered + 1, 1).is_none(), "not offered");
    assert!(exchange(99, 1).is_none(), "no such frame");
    assert_eq!(pool.available(), 1);
    let (other, frame) = exchange(offered, 3).unwrap();
    assert_eq!((frame.index, frame.len()), (offered, 3));
    assert_ne!(other, offered);
    assert!(exchange(other, 3).is_none(), "no frame is free");
    drop(frame);
    let (last, frame) = exchange(other, 3).unwrap();
    assert_eq!((last, frame.index), (offered, other));
}

#[test]
fn each_ring_returns_only_its_own_frames() {
    let pool = pool(2, 1);
    let offered = pool.take().unwrap().offer(&pool);
    assert!(!complete(&pool, offered), "the frame is in the fill ring");
    let sending = pool.take().unwrap().send(&pool).into_index();
    assert!(
        claim(&pool, sending, 5).is_none(),
        "the frame is in the TX ring"
    );
    let mut r = pool.make_resident(b"x").unwrap();
    let resident = r.idle().unwrap().send(&pool).into_index();
    assert!(
        claim(&pool, resident, 5).is_none(),
        "the packet is in the TX ring"
    );
    assert!(claim(&pool, offered, 5).is_some());
    assert!(complete(&pool, sending) && complete(&pool, resident));
}

#[test]
fn a_frame_that_never_completes_is_reclaimed() {
    let pool = pool(3, 1);
    // SAFETY: this test shares no frames with the kernel, and each `Sending` was turned into an
    // index.
    let reclaim_overdue = || unsafe { pool.reclaim_overdue() };
    let lost = pool.take().unwrap().send(&pool).into_index();
    let mut resident = pool.make_resident(b"x").unwrap();
    let resident_index = resident.idle().unwrap().send(&pool).into_index();
    let offered = pool.take().unwrap().offer(&pool);
    assert_eq!(reclaim_overdue(), 0, "the first search only marks them");
    assert!(resident.in_flight() && resident.idle().is_none());
    let young = pool.take().unwrap().send(&pool).into_index();
    assert_eq!(reclaim_overdue(), 2);
    assert!(!resident.in_flight());
    assert!(!complete(&pool, lost), "this completion comes too late");
    assert!(
        !complete(&pool, resident_index),
        "this completion comes too late, too"
    );
    assert!(complete(&pool, young), "this completion is in time");
    assert!(claim(&pool, offered, 1).is_some());
    assert_eq!(pool.available(), 3);
}
