//! A simulated netmap kernel, for tests and benchmarks without the netmap device.
//!
//! It keeps rings and buffers in ordinary memory, in the layout that the real kernel uses, and
//! follows the same protocol. Only the network behind the rings differs: sent packets are kept until
//! [`SimulatedKernel::take_sent`] returns them, and received ones come from
//! [`SimulatedKernel::deliver`].
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::rc::Rc;

use netmap_sys::{Buffers, NS_BUF_CHANGED, NS_MOREFRAG, netmap_if, netmap_ring, netmap_slot};

use super::kernel::Kernel;
use super::region::{Located, Region, Rings};
use super::{NetmapConfig, NetmapPort, Registered};
use crate::device::{DeviceError, MemoryPlan, NetmapTarget, Offload};
use crate::port::Wait;
use crate::steering::Classifier;

/// Alignment of rings and buffers in the region, in bytes.
const ALIGN: usize = 128;

/// Sizes of a simulated netmap port.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedConfig {
    /// Number of slots in each ring.
    pub slots: u32,
    /// Number of buffers in addition to those in the slots.
    pub spares: u32,
    /// Maximum number of resident packets, whose buffers are among the spare ones.
    pub resident_frames: u32,
    /// Size of a buffer, in bytes.
    pub buffer: u32,
}

/// The kernel's side of a simulated netmap port. All clones are the same kernel.
#[derive(Clone)]
pub struct SimulatedKernel(Rc<State>);

struct State {
    tx: Side,
    rx: Side,
    buffers: Buffers,
    /// The slots of packets that were sent. The last packet may be incomplete.
    sent: RefCell<VecDeque<Sent>>,
    /// Arriving packets, and whether the packet continues in the next slot.
    arriving: RefCell<VecDeque<(Vec<u8>, bool)>>,
    /// Whether sent packets are kept.
    keeps: Cell<bool>,
    /// Length in bytes, and number per call, of packets that arrive without being delivered. `None`:
    /// there are none.
    replayed: Cell<Option<(u16, u32)>>,
    /// Maximum number of packets that each call takes from the TX ring.
    takes: Cell<u32>,
    /// Number of packets that the device still reads after each call.
    holds: Cell<u32>,
    /// The error number with which each call fails. `None`: calls succeed.
    failure: Cell<Option<i32>>,
    /// The descriptor to poll.
    descriptor: OnceCell<OwnedFd>,
    /// Keeps the memory of the rings.
    region: Rc<Region>,
}

/// A slot of a packet that was sent: its bytes and flags.
type Sent = (Vec<u8>, u16);

/// One ring as the kernel sees it.
struct Side {
    at: Located,
    /// First slot that the kernel has not processed.
    hwcur: Cell<u32>,
    /// In a TX ring, the slot before the first that is being sent. In an RX ring, the first slot
    /// that is not filled.
    hwtail: Cell<u32>,
    /// The buffer that the device uses for each slot. As in the kernel, it changes only if the program
    /// says so with `NS_BUF_CHANGED`.
    mapped: RefCell<Vec<u32>>,
}

impl Side {
    fn new(at: Located, hwtail: u32) -> Self {
        let side = Self {
            at,
            hwcur: Cell::new(0),
            hwtail: Cell::new(hwtail),
            mapped: RefCell::default(),
        };
        side.map_all();
        side.publish();
        side
    }

    /// Lets the device use the buffers that the slots name.
    fn map_all(&self) {
        let buffers = (0..self.at.num_slots).map(|slot| self.read(slot).buf_idx);
        *self.mapped.borrow_mut() = buffers.collect();
    }

    /// Takes a slot over from the program.
    fn accept(&self, slot: u32) {
        let content = self.read(slot);
        if content.flags & NS_BUF_CHANGED != 0 {
            self.mapped.borrow_mut()[slot as usize] = content.buf_idx;
            let flags = content.flags & !NS_BUF_CHANGED;
            self.write(slot, netmap_slot { flags, ..content });
        }
    }

    /// Returns the buffer that the device uses for a slot.
    fn mapped(&self, slot: u32) -> u32 {
        self.mapped.borrow()[slot as usize]
    }

    fn next(&self, slot: u32) -> u32 {
        (slot + 1) % self.at.num_slots
    }

    fn distance(&self, from: u32, to: u32) -> u32 {
        (to + self.at.num_slots - from) % self.at.num_slots
    }

    /// Returns the program's position.
    fn head(&self) -> u32 {
        // SAFETY: the ring is in the region.
        unsafe { (&raw const (*self.at.ring.as_ptr()).head).read_volatile() }
    }

    /// Tells the program the kernel's position.
    fn publish(&self) {
        // SAFETY: the ring is in the region.
        unsafe { (&raw mut (*self.at.ring.as_ptr()).tail).write_volatile(self.hwtail.get()) };
    }

    fn read(&self, slot: u32) -> netmap_slot {
        assert!(slot < self.at.num_slots);
        // SAFETY: the slot is in the region.
        unsafe { self.at.slots.add(slot as usize).read_volatile() }
    }

    /// Fills at most `most` slots with packets of `len` bytes, whose contents are in the buffers.
    fn expose(&self, len: u16, most: u32) {
        let room = self.at.num_slots - 1 - self.distance(self.hwcur.get(), self.hwtail.get());
        for _ in 0..room.min(most) {
            let slot = self.hwtail.get();
            let content = self.read(slot);
            self.write(
                slot,
                netmap_slot {
                    len,
                    flags: 0,
                    ..content
                },
            );
            self.hwtail.set(self.next(slot));
        }
        self.publish();
    }

    fn write(&self, slot: u32, content: netmap_slot) {
        assert!(slot < self.at.num_slots);
        // SAFETY: the slot is in the region.
        unsafe { self.at.slots.add(slot as usize).write_volatile(content) };
    }
}

// A profiler that leaves the kernel out of its count needs these calls as functions of their own.
impl Kernel for SimulatedKernel {
    #[inline(never)]
    fn sync_tx(&self) -> io::Result<()> {
        self.refuse_if_stopped()?;
        let State { tx, .. } = &*self.0;
        let head = tx.head();
        for _ in 0..self.0.takes.get() {
            let slot = tx.hwcur.get();
            if slot == head {
                break;
            }
            tx.accept(slot);
            tx.hwcur.set(tx.next(slot));
        }
        let held = tx.distance(tx.next(tx.hwtail.get()), tx.hwcur.get());
        for _ in self.0.holds.get()..held {
            let slot = tx.next(tx.hwtail.get());
            if self.0.keeps.get() {
                // A device may read the buffer until it releases the slot.
                let content = tx.read(slot);
                let bytes = self.bytes(tx.mapped(slot), content.len);
                let slot = (bytes, content.flags);
                self.0.sent.borrow_mut().push_back(slot);
            }
            tx.hwtail.set(slot);
        }
        tx.publish();
        Ok(())
    }

    #[inline(never)]
    fn sync_rx(&self) -> io::Result<()> {
        self.refuse_if_stopped()?;
        let State { rx, arriving, .. } = &*self.0;
        while rx.hwcur.get() != rx.head() {
            rx.accept(rx.hwcur.get());
            rx.hwcur.set(rx.next(rx.hwcur.get()));
        }
        if let Some((len, most)) = self.0.replayed.get() {
            rx.expose(len, most);
            return Ok(());
        }
        while rx.next(rx.hwtail.get()) != rx.hwcur.get() {
            let Some((packet, continues)) = arriving.borrow_mut().pop_front() else {
                break;
            };
            let slot = rx.hwtail.get();
            let content = rx.read(slot);
            self.fill(rx.mapped(slot), &packet);
            let (len, flags) = (packet.len() as u16, u16::from(continues) * NS_MOREFRAG);
            rx.write(
                slot,
                netmap_slot {
                    len,
                    flags,
                    ..content
                },
            );
            rx.hwtail.set(rx.next(slot));
        }
        rx.publish();
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.descriptor.get().map(OwnedFd::as_fd)
    }
}

impl SimulatedKernel {
    /// Creates a port with one ring pair, and returns it with its kernel.
    ///
    /// # Errors
    /// A [`DeviceError`] if the buffers are too small for an MTU of 1,500 bytes.
    pub fn open(config: SimulatedConfig) -> Result<(NetmapPort<Self>, Self), DeviceError> {
        let kernel = Self::of(&region_for(config, 1), Rings::Device(0));
        let port = kernel.port(config, interface(), None)?;
        Ok((port, kernel))
    }

    /// Creates a port of a switch with this MTU, and returns it with its kernel.
    ///
    /// The simulated kernel does not cut super-segments, nor adds or removes headers. With
    /// [`Offload::On`], a virtio-net header of 12 bytes precedes each packet.
    ///
    /// # Errors
    /// A [`DeviceError`] if the rings are too short for the MTU, or if there are resident packets
    /// with `Offload::On`.
    pub fn open_on_switch(
        config: SimulatedConfig,
        mtu: usize,
        offload: Offload,
    ) -> Result<(NetmapPort<Self>, Self), DeviceError> {
        let target = NetmapTarget::Switch("simulated".to_owned());
        Self::open_virtual(config, target, mtu, offload)
    }

    /// Creates one end of a pipe with this MTU, and returns it with its kernel, which is the other end.
    /// Otherwise like [`open_on_switch`](Self::open_on_switch).
    ///
    /// # Errors
    /// As for [`open_on_switch`](Self::open_on_switch).
    pub fn open_on_pipe(
        config: SimulatedConfig,
        mtu: usize,
        offload: Offload,
    ) -> Result<(NetmapPort<Self>, Self), DeviceError> {
        let target = NetmapTarget::Pipe("simulated{1".to_owned());
        Self::open_virtual(config, target, mtu, offload)
    }

    fn open_virtual(
        config: SimulatedConfig,
        target: NetmapTarget,
        mtu: usize,
        offload: Offload,
    ) -> Result<(NetmapPort<Self>, Self), DeviceError> {
        let kernel = Self::of(&region_for(config, 1), Rings::Device(0));
        let port = kernel.port(config, (target, mtu, offload), None)?;
        Ok((port, kernel))
    }

    /// Creates the kernel's side of one ring pair in the region.
    fn of(region: &Rc<Region>, rings: Rings) -> Self {
        let found = region
            .interface(0)
            .and_then(|interface| region.rings(interface, rings))
            .and_then(|(tx, rx)| Ok((tx, rx, region.buffers(tx)?)));
        let (tx, rx, buffers) = found.expect("the region was laid out correctly");
        Self(Rc::new(State {
            tx: Side::new(tx, tx.num_slots - 1),
            rx: Side::new(rx, 0),
            buffers,
            sent: RefCell::default(),
            arriving: RefCell::default(),
            keeps: Cell::new(true),
            replayed: Cell::new(None),
            takes: Cell::new(u32::MAX),
            holds: Cell::new(0),
            failure: Cell::new(None),
            descriptor: OnceCell::new(),
            region: Rc::clone(region),
        }))
    }

    /// Opens a port. `host` is the kernel's side of the host's rings, with the rules for what goes
    /// there.
    fn port(
        &self,
        config: SimulatedConfig,
        (target, mtu, offload): (NetmapTarget, usize, Offload),
        host: Option<(Self, Classifier)>,
    ) -> Result<NetmapPort<Self>, DeviceError> {
        let (host, classifier) = host.unzip();
        let port = NetmapConfig {
            target,
            offload,
            partial_checksums: false,
            ring: 0,
            host_rings: u32::from(host.is_some()),
            mtu,
            classifier,
            wait: Wait::default(),
            memory: MemoryPlan {
                resident_frames: config.resident_frames,
                scratch_frames: 0,
            },
        };
        let failed = |source| DeviceError::netmap("simulated", source);
        let region = &self.0.region;
        self.0.tx.map_all();
        self.0.rx.map_all();
        let device = Registered::find(self.clone(), region, 0, Rings::Device(0)).map_err(failed)?;
        let host = host.map(|host| Registered::find(host, region, 0, Rings::Host(0)));
        let runs = port.runs()?;
        NetmapPort::over(
            port,
            runs,
            region,
            device,
            host.transpose().map_err(failed)?,
        )
    }

    /// Lets a packet arrive with the next call that synchronizes the RX ring. It takes as many slots
    /// as it needs.
    pub fn deliver(&self, packet: &[u8]) {
        let size = self.0.buffers.size() as usize;
        self.deliver_parts(&packet.chunks(size).collect::<Vec<_>>());
    }

    /// Lets a packet arrive that takes a slot for each of its parts.
    pub fn deliver_parts(&self, parts: &[&[u8]]) {
        for (nth, part) in parts.iter().enumerate() {
            let continues = nth + 1 < parts.len();
            let mut arriving = self.0.arriving.borrow_mut();
            arriving.push_back((part.to_vec(), continues));
        }
    }

    /// Returns the oldest packet that was sent and not returned yet.
    pub fn take_sent(&self) -> Option<Vec<u8>> {
        let slots = self.take_slots()?;
        Some(slots.into_iter().flat_map(|(bytes, _)| bytes).collect())
    }

    /// Returns the bytes and flags of the slots of the oldest packet that was sent and not returned
    /// yet.
    pub fn take_slots(&self) -> Option<Vec<(Vec<u8>, u16)>> {
        let mut sent = self.0.sent.borrow_mut();
        let last = sent
            .iter()
            .position(|(_, flags)| flags & NS_MOREFRAG == 0)?;
        Some(sent.drain(..=last).collect())
    }

    /// Sets whether packets that the port sends are kept for [`take_sent`](Self::take_sent). They
    /// are at first.
    pub fn keep_sent(&self, keeps: bool) {
        self.0.keeps.set(keeps);
    }

    /// Writes `packet` into all buffers, and lets `most` copies of it arrive with each call that
    /// synchronizes the RX ring. Packets that the port sends are not kept.
    ///
    /// This costs only a few instructions for each packet, so a benchmark measures the port. The
    /// program must not keep frames from before this call.
    pub fn replay(&self, packet: &[u8], most: u32) {
        for index in 0..self.0.buffers.count() {
            self.fill(index, packet);
        }
        self.keep_sent(false);
        self.0.replayed.set(Some((packet.len() as u16, most)));
    }

    /// Limits how many packets each call takes from the TX ring, and how many the device still
    /// reads afterwards.
    pub fn limit(&self, takes: u32, holds: u32) {
        self.0.takes.set(takes);
        self.0.holds.set(holds);
    }

    /// Lets all calls fail with this error number from now on, and changes nothing. `None`: they
    /// succeed again.
    pub fn stop(&self, errno: Option<i32>) {
        self.0.failure.set(errno);
    }

    fn refuse_if_stopped(&self) -> io::Result<()> {
        let errno = self.0.failure.get();
        errno.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
    }

    fn buffer(&self, index: u32, len: usize) -> NonNull<u8> {
        let buffers = &self.0.buffers;
        assert!(len <= buffers.size() as usize);
        buffers.get(index).expect("a buffer of the region")
    }

    fn bytes(&self, index: u32, len: u16) -> Vec<u8> {
        let len = usize::from(len);
        let buffer = self.buffer(index, len);
        // SAFETY: the buffer holds `len` bytes, and the program does not write a buffer that it has
        // handed over.
        unsafe { std::slice::from_raw_parts(buffer.as_ptr(), len) }.to_vec()
    }

    fn fill(&self, index: u32, packet: &[u8]) {
        let buffer = self.buffer(index, packet.len());
        // SAFETY: the buffer has room for the packet, and the program does not use a buffer that it
        // has handed over.
        unsafe { buffer.copy_from_nonoverlapping(NonNull::from(packet).cast(), packet.len()) };
    }
}

#[cfg(test)]
impl SimulatedKernel {
    /// Creates a port with a ring pair of the device and one of the host. Returns it with the
    /// kernel's sides of both pairs.
    pub(super) fn open_with_host(
        config: SimulatedConfig,
        classifier: Classifier,
    ) -> (NetmapPort<Self>, Self, Self) {
        let region = region_for(config, 2);
        let device = Self::of(&region, Rings::Device(0));
        let host = Self::of(&region, Rings::Host(0));
        let port = device.port(config, interface(), Some((host.clone(), classifier)));
        (port.unwrap(), device, host)
    }

    /// Returns the buffers in the slots of the TX ring and of the RX ring, and the list of spares.
    pub(super) fn all_buffers(&self) -> Vec<u32> {
        let mut all = self.slot_buffers();
        let interface = self.0.region.interface(0).unwrap();
        let most = self.0.buffers.count();
        all.extend(Region::take_extra(&self.0.buffers, interface, most).unwrap());
        all
    }

    /// Returns the buffers in the slots of the TX ring and of the RX ring.
    pub(super) fn slot_buffers(&self) -> Vec<u32> {
        let sides = [&self.0.tx, &self.0.rx];
        let slots = sides.into_iter();
        slots
            .flat_map(|side| (0..side.at.num_slots).map(|slot| side.read(slot).buf_idx))
            .collect()
    }

    /// Returns the address of the buffer in the slot of the TX ring that the kernel takes next.
    pub(super) fn next_address(&self) -> *const u8 {
        let tx = &self.0.tx;
        self.buffer(tx.read(tx.hwcur.get()).buf_idx, 0).as_ptr()
    }

    /// Fills slots of the RX ring as in a call of the program, and then makes the last filled slot
    /// name another buffer and length.
    pub(super) fn corrupt_next(&self, buf_idx: u32, len: u16) {
        let rx = &self.0.rx;
        self.sync_rx().unwrap();
        let last = (rx.hwtail.get() + rx.at.num_slots - 1) % rx.at.num_slots;
        let content = rx.read(last);
        rx.write(
            last,
            netmap_slot {
                buf_idx,
                len,
                ..content
            },
        );
    }

    /// Makes all slots of the TX ring name the buffer `buf_idx`.
    pub(super) fn corrupt_tx(&self, buf_idx: u32) {
        let tx = &self.0.tx;
        for slot in 0..tx.at.num_slots {
            let content = tx.read(slot);
            tx.write(slot, netmap_slot { buf_idx, ..content });
        }
        tx.map_all();
    }

    /// Makes the kernel's position in both rings `tail`.
    pub(super) fn set_tails(&self, tail: u32) {
        for side in [&self.0.tx, &self.0.rx] {
            side.hwtail.set(tail);
            side.publish();
        }
    }

    /// Sets the descriptor that the port polls. There was none before.
    pub(super) fn poll_on(&self, descriptor: OwnedFd) {
        self.0.descriptor.set(descriptor).expect("there was none");
    }

    /// Opens a port of a switch on the rings of a port that was closed.
    pub(super) fn reopen_on_switch(
        &self,
        config: SimulatedConfig,
        offload: Offload,
    ) -> Result<NetmapPort<Self>, DeviceError> {
        let target = NetmapTarget::Switch("simulated".to_owned());
        self.port(config, (target, 1500, offload), None)
    }

    /// Opens a port on the rings of a port that was closed.
    pub(super) fn reopen(&self, config: SimulatedConfig) -> Result<NetmapPort<Self>, DeviceError> {
        self.port(config, interface(), None)
    }
}

/// Returns a simulated interface, its MTU, and how it sends runs of segments.
fn interface() -> (NetmapTarget, usize, Offload) {
    let target = NetmapTarget::Interface("simulated".to_owned());
    (target, 1500, Offload::Auto)
}

/// A block on the heap, which is freed when this value is dropped.
struct Block(NonNull<u8>, Layout);

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the block was allocated with this layout, and its owner, the region, is gone.
        unsafe { dealloc(self.0.as_ptr(), self.1) };
    }
}

/// Lays out a region as the kernel does: description, rings, buffers. There is one ring pair of the
/// device, or also one of the host if `pairs` is 2. Buffers 0 and 1 are not used, as in the kernel.
fn region_for(config: SimulatedConfig, pairs: u32) -> Rc<Region> {
    let ring_len = (size_of::<netmap_ring>() + config.slots as usize * size_of::<netmap_slot>())
        .next_multiple_of(ALIGN);
    let rings = 2 * pairs as usize;
    // The list of rings has an entry for each ring.
    let description = (size_of::<netmap_if>() + rings * size_of::<isize>()).next_multiple_of(ALIGN);
    let buffers_at = description + rings * ring_len;
    let buffers = 2 + rings as u32 * config.slots + config.spares;
    let len = buffers_at + buffers as usize * config.buffer as usize;
    let layout = Layout::from_size_align(len, ALIGN).expect("a small region");
    // SAFETY: the layout's size is not 0.
    let base = NonNull::new(unsafe { alloc_zeroed(layout) });
    let base = base.unwrap_or_else(|| handle_alloc_error(layout));
    // SAFETY: the block has `len` zeroed bytes and belongs to the region alone.
    let region = unsafe { Region::new(base, len, Box::new(Block(base, layout))) };
    let interface = region.interface(0).expect("it is at the start");
    let mut next_buffer = 2;
    // SAFETY: all places are in the block, as computed above, and correctly aligned.
    unsafe {
        let description_at = interface.as_ptr();
        (*description_at).ni_tx_rings = 1;
        (*description_at).ni_rx_rings = 1;
        (*description_at).ni_host_tx_rings = pairs - 1;
        (*description_at).ni_host_rx_rings = pairs - 1;
        let offsets = base.add(size_of::<netmap_if>()).cast::<isize>();
        for entry in 0..rings {
            let at = description + entry * ring_len;
            offsets.add(entry).write(at.cast_signed());
            let ring = base.add(at).cast::<netmap_ring>().as_ptr();
            (*ring).buf_ofs = (buffers_at - at).cast_signed() as i64;
            (*ring).num_slots = config.slots;
            (*ring).nr_buf_size = config.buffer;
            let slots = base
                .add(at + size_of::<netmap_ring>())
                .cast::<netmap_slot>();
            for slot in 0..config.slots {
                (*slots.add(slot as usize).as_ptr()).buf_idx = next_buffer;
                next_buffer += 1;
            }
        }
    }
    let (tx, _) = region.rings(interface, Rings::Device(0)).expect("laid out");
    let found = region.buffers(tx).expect("laid out");
    let spares: Vec<_> = (next_buffer..buffers).collect();
    // SAFETY: no other code uses the buffers yet.
    unsafe { found.give_extra(interface.as_ptr(), &spares) };
    Rc::new(region)
}
