//! Captures in the format pcapng (draft-ietf-opsawg-pcapng).

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::interface_statistics::{
    InterfaceStatisticsBlock, InterfaceStatisticsOption,
};
use pcap_file::{DataLink, Endianness, PcapError};

use super::capture::{Captured, Direction};

/// The value of `if_tsresol` for nanoseconds: ten to the power of minus 9.
const NANOSECONDS: u8 = 9;
/// The lowest bits of `epb_flags`, which tell the direction.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// Writes a capture into a buffer, block by block.
pub(crate) struct Pcapng {
    writer: PcapNgWriter<Vec<u8>>,
    packets: u64,
}

impl Pcapng {
    /// Begins a capture with an interface for each worker of a program. `snap` is the maximum number
    /// of bytes of a packet.
    ///
    /// # Errors
    /// None in practice, because writing to memory does not fail.
    pub(crate) fn new(program: &str, workers: u32, snap: u32) -> Result<Self, PcapError> {
        let mut writer = PcapNgWriter::with_endianness(Vec::new(), Endianness::Little)?;
        for worker in 0..workers {
            let name = format!("{program}, worker {worker}");
            writer.write_pcapng_block(InterfaceDescriptionBlock {
                linktype: DataLink::ETHERNET,
                snaplen: snap,
                options: vec![
                    InterfaceDescriptionOption::IfName(name.into()),
                    InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
                ],
            })?;
        }
        Ok(Self { writer, packets: 0 })
    }

    /// Appends a packet of a worker.
    ///
    /// # Errors
    /// If there is no such worker.
    pub(crate) fn packet(&mut self, worker: u32, packet: &Captured<'_>) -> Result<(), PcapError> {
        let flags = match packet.direction {
            Direction::Received => INBOUND,
            Direction::Sent => OUTBOUND,
        };
        self.writer.write_pcapng_block(EnhancedPacketBlock {
            interface_id: worker,
            timestamp: packet.time,
            original_len: packet.original_len,
            data: Cow::Borrowed(packet.bytes),
            options: vec![EnhancedPacketOption::Flags(flags)],
        })?;
        self.packets += 1;
        Ok(())
    }

    /// Appends the number of packets of a worker that are missing.
    ///
    /// # Errors
    /// If there is no such worker.
    pub(crate) fn dropped(&mut self, worker: u32, dropped: u64) -> Result<(), PcapError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanos = now.unwrap_or(Duration::ZERO).as_nanos() as u64;
        self.writer.write_pcapng_block(InterfaceStatisticsBlock {
            interface_id: worker,
            // The upper half of the time comes first in the file, also in little-endian files. The
            // library writes all 64 bits in the order of the file.
            timestamp: nanos.rotate_left(32),
            options: vec![InterfaceStatisticsOption::IsbIfDrop(dropped)],
        })?;
        Ok(())
    }

    /// Number of packets so far.
    pub(crate) fn packets(&self) -> u64 {
        self.packets
    }

    /// Number of bytes that have not been taken.
    pub(crate) fn len(&self) -> usize {
        self.writer.get_ref().len()
    }

    /// Takes the bytes that were written since the last call.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(self.writer.get_mut())
    }
}

#[cfg(test)]
mod tests {
    use pcap_file::pcapng::{Block, PcapNgReader};

    use super::*;

    #[test]
    fn a_capture_has_packets_with_nanoseconds_and_the_number_of_missing_ones() {
        let mut capture = Pcapng::new("web", 2, 96).unwrap();
        let captured = |direction, bytes| Captured {
            time: Duration::new(1_700_000_000, 123_456_789),
            direction,
            original_len: 1_514,
            bytes,
        };
        capture
            .packet(1, &captured(Direction::Received, b"first"))
            .unwrap();
        let mut bytes = capture.take();
        assert_eq!(capture.len(), 0);
        capture
            .packet(0, &captured(Direction::Sent, b"second"))
            .unwrap();
        capture.dropped(1, 7).unwrap();
        assert_eq!(capture.packets(), 2);
        bytes.extend(capture.take());
        let mut reader = PcapNgReader::new(&bytes[..]).unwrap();
        let mut blocks = Vec::new();
        while let Some(block) = reader.next_block() {
            blocks.push(block.unwrap().into_owned());
        }
        let [
            Block::InterfaceDescription(first),
            Block::InterfaceDescription(second),
            packets @ ..,
            Block::InterfaceStatistics(end),
        ] = &blocks[..]
        else {
            panic!("{blocks:?}");
        };
        assert_eq!((first.linktype, first.snaplen), (DataLink::ETHERNET, 96));
        let resolution = InterfaceDescriptionOption::IfTsResol(9);
        for (interface, name) in [(first, "web, worker 0"), (second, "web, worker 1")] {
            let name = InterfaceDescriptionOption::IfName(name.into());
            assert_eq!(interface.options, [name, resolution.clone()]);
        }
        let [Block::EnhancedPacket(received), Block::EnhancedPacket(sent)] = packets else {
            panic!("{packets:?}");
        };
        for (packet, interface, data, flags) in
            [(received, 1, &b"first"[..], 1), (sent, 0, b"second", 2)]
        {
            assert_eq!(packet.interface_id, interface);
            assert_eq!(packet.timestamp, Duration::new(1_700_000_000, 123_456_789));
            assert_eq!((packet.original_len, &*packet.data), (1_514, data));
            assert_eq!(packet.options, [EnhancedPacketOption::Flags(flags)]);
        }
        assert_eq!(end.interface_id, 1);
        assert_eq!(end.options, [InterfaceStatisticsOption::IsbIfDrop(7)]);
        // The block has the upper half of the time first: about 0x17 to 0x20 for many years.
        let at = bytes.len() - 40 + 12;
        let upper = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!(u64::from(upper), end.timestamp.rotate_right(32) >> 32);
        assert!(upper > 0x1500_0000, "{upper:x}");
    }
}
