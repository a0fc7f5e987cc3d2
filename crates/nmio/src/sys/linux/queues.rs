//! Reads a device's queue counts, and its RSS indirection table, which this crate calls the flow
//! table.

use std::fs;
use std::path::PathBuf;

use super::control::Control;

const ETHTOOL_GRXFHINDIR: u32 = 0x38;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
/// Maximum number of entries of an RSS indirection table that this code can read. Known drivers use
/// at most 2,048.
const MAX_INDIRECTION_ENTRIES: usize = 4096;

/// Numbers of queues of a device, as `ethtool -l` shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Channels {
    /// Number of RX queues in use.
    pub(crate) rx: u32,
    /// Number of TX queues in use.
    pub(crate) tx: u32,
    /// Maximum number of queue pairs that the device supports.
    pub(crate) max: u32,
    /// Whether the device has combined RX/TX queues, whose number `ethtool -L IFACE combined N`
    /// changes.
    pub(crate) combined: bool,
}

/// `struct ethtool_channels`: the queue counts.
#[repr(C)]
#[derive(Default)]
struct EthtoolChannels {
    cmd: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// `struct ethtool_rxfh_indir`: the RSS indirection table.
#[repr(C)]
struct IndirectionTable {
    cmd: u32,
    size: u32,
    rings: [u32; MAX_INDIRECTION_ENTRIES],
}

/// Returns the folder of an interface in `/sys`. Returns `None` if `/sys` shows another network namespace.
/// Then it lists no interface with this name, or one with another index.
pub(crate) fn listed_interface(name: &str, index: u32) -> Option<PathBuf> {
    let folder = PathBuf::from("/sys/class/net").join(name);
    let listed = fs::read_to_string(folder.join("ifindex")).ok()?;
    (listed.trim().parse() == Ok(index)).then_some(folder)
}

impl Control {
    /// Returns the device's queue counts, or `None` if the driver does not report them.
    pub(crate) fn channels(&self, name: &str) -> Option<Channels> {
        let mut channels = EthtoolChannels {
            cmd: ETHTOOL_GCHANNELS,
            ..EthtoolChannels::default()
        };
        // SAFETY: the structure matches the command in its first word, and can hold everything that
        // the kernel writes.
        unsafe { self.ethtool(name, &mut channels) }.ok()?;
        let [rx, tx] = [channels.rx, channels.tx].map(|own| own.saturating_add(channels.combined));
        let combined = channels.max_combined > 0;
        let max = if combined {
            channels.max_combined
        } else {
            channels.max_rx.min(channels.max_tx)
        };
        // A tap device reports 0 queues while no program has it open. Treat this as unknown.
        (rx > 0).then_some(Channels {
            rx,
            tx,
            max,
            combined,
        })
    }

    /// Returns the numbers of RX and TX queues from sysfs, for drivers that do not report them to
    /// ethtool.
    ///
    /// Returns `None` if sysfs does not list the queues, or if `/sys` shows another network
    /// namespace.
    pub(crate) fn listed_queues(&self, name: &str) -> Option<(u32, u32)> {
        let folder = listed_interface(name, self.index(name).ok()?)?;
        let mut counts = (0, 0);
        for entry in fs::read_dir(folder.join("queues")).ok()? {
            let entry = entry.ok()?.file_name();
            match entry.to_str()?.split_once('-')?.0 {
                "rx" => counts.0 += 1,
                "tx" => counts.1 += 1,
                _ => {}
            }
        }
        (counts.0 > 0 && counts.1 > 0).then_some(counts)
    }

    /// Returns the device's RSS indirection table (`ethtool -x`): the RX queue for each hash value.
    ///
    /// Returns `None` if the driver reports no table, or a table that is too large.
    pub(crate) fn indirection_table(&self, name: &str) -> Option<Vec<u32>> {
        let mut table = Box::new(IndirectionTable {
            cmd: ETHTOOL_GRXFHINDIR,
            size: MAX_INDIRECTION_ENTRIES as u32,
            rings: [0; MAX_INDIRECTION_ENTRIES],
        });
        // SAFETY: the structure matches the command in its first word, and can hold everything that
        // the kernel writes.
        unsafe { self.ethtool(name, &mut *table) }.ok()?;
        table.rings.get(..table.size as usize).map(<[u32]>::to_vec)
    }
}
