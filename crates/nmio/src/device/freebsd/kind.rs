//! The kinds of device that only FreeBSD has, and their queues.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::monitor::Monitor;
use crate::device::{AnyPort, DeviceError, MemoryPlan, NewQueue, PacketMemory};
use crate::port::Wait;

/// The kinds of device that only FreeBSD has.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(in crate::device) enum Kind {}

impl Kind {
    pub(in crate::device) fn fits(self, _descriptors: usize, _queues: u32) -> bool {
        match self {}
    }

    pub(in crate::device) fn can_change_addresses(&self) -> bool {
        match *self {}
    }

    pub(in crate::device) fn shares_mac(&self) -> bool {
        match *self {}
    }

    pub(in crate::device) fn may_return(&self) -> bool {
        match *self {}
    }

    pub(in crate::device) fn first_queue(&self) -> usize {
        match *self {}
    }

    pub(in crate::device) fn new_queue(
        &self,
        _queue: u32,
        _descriptors: &[Arc<OwnedFd>],
    ) -> Option<NewQueue> {
        match *self {}
    }

    pub(in crate::device) fn register_memory(
        &self,
        _queue: u32,
        _descriptors: &[Arc<OwnedFd>],
        _memory: &PacketMemory,
    ) -> io::Result<()> {
        match *self {}
    }

    pub(in crate::device) fn resident_len(&self, _mtu: usize) -> Result<usize, &'static str> {
        match *self {}
    }

    pub(in crate::device) fn name(&self) -> &str {
        match *self {}
    }

    pub(in crate::device) fn monitor(self, _descriptors: &[Arc<OwnedFd>]) -> io::Result<Monitor> {
        match self {}
    }

    pub(in crate::device) fn queue<T>(
        self,
        _index: u32,
        _descriptors: &[Arc<OwnedFd>],
        _wrap: impl FnOnce(Backend) -> T,
    ) -> T {
        match self {}
    }
}

/// What is needed to open a queue.
pub(in crate::device) enum Backend {}

impl Backend {
    pub(in crate::device) fn open(
        self,
        _mtu: usize,
        _wait: Wait,
        _memory: MemoryPlan,
        _waits_for_return: bool,
    ) -> Result<AnyPort, DeviceError> {
        match self {}
    }
}
