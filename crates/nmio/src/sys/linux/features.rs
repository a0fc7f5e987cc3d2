//! Reads the offload features of a device, identified by their names in `ethtool -k`.

use std::io;

use super::control::Control;

const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
/// Identifies the string set of feature names (`ETH_SS_FEATURES`).
const FEATURES: u32 = 4;
/// Maximum number of features that this code can read. Current kernels have fewer than 100.
const MAX_FEATURES: usize = 256;

/// `struct ethtool_sset_info` for one string set.
#[repr(C)]
struct SetInfo {
    cmd: u32,
    _reserved: u32,
    mask: u64,
    count: u32,
}

/// `struct ethtool_gstrings`: the names in one string set.
#[repr(C)]
struct Names {
    cmd: u32,
    set: u32,
    count: u32,
    /// Feature names as C strings.
    texts: [[u8; 32]; MAX_FEATURES],
}

/// `struct ethtool_gfeatures`, with one block for every 32 features.
#[repr(C)]
struct Features {
    cmd: u32,
    blocks: u32,
    states: [Block; MAX_FEATURES / 32],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Block {
    _available: u32,
    _requested: u32,
    active: u32,
    _never_changed: u32,
}

impl Control {
    /// Returns true if the device segments TCP over both IP versions (TSO). Such a device also
    /// computes checksums and supports scatter-gather.
    pub(crate) fn segments_tcp(&self, name: &str) -> bool {
        let kinds = ["tx-tcp-segmentation", "tx-tcp6-segmentation"];
        self.has_features(name, &kinds).unwrap_or(false)
    }

    /// Returns true if the device removes 802.1Q tags from received frames, so that XDP does not
    /// see them.
    ///
    /// Returns false if the features cannot be read, because most drivers without feature flags
    /// keep tags.
    pub(crate) fn strips_tags(&self, name: &str) -> bool {
        self.has_features(name, &["rx-vlan-hw-parse"])
            .unwrap_or(false)
    }

    /// Returns true if all features in `required` are active on the interface.
    fn has_features(&self, name: &str, required: &[&str]) -> io::Result<bool> {
        let mut info = SetInfo {
            cmd: ETHTOOL_GSSET_INFO,
            _reserved: 0,
            mask: 1 << FEATURES,
            count: 0,
        };
        // SAFETY: the structure matches the command in its first word, and can hold everything that
        // the kernel writes.
        unsafe { self.ethtool(name, &mut info) }?;
        // The kernel writes one name per feature in the set, so `MAX_FEATURES` must suffice.
        if info.mask == 0 || info.count as usize > MAX_FEATURES {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut names = Box::new(Names {
            cmd: ETHTOOL_GSTRINGS,
            set: FEATURES,
            count: info.count,
            texts: [[0; 32]; MAX_FEATURES],
        });
        // SAFETY: the structure matches the command in its first word, and can hold everything that
        // the kernel writes.
        unsafe { self.ethtool(name, &mut *names) }?;
        let mut features = Features {
            cmd: ETHTOOL_GFEATURES,
            blocks: (MAX_FEATURES / 32) as u32,
            states: [Block {
                _available: 0,
                _requested: 0,
                active: 0,
                _never_changed: 0,
            }; MAX_FEATURES / 32],
        };
        // SAFETY: the structure matches the command in its first word, and can hold everything that
        // the kernel writes.
        unsafe { self.ethtool(name, &mut features) }?;
        let is_on = |required: &&str| {
            let has_name = |name: &[u8; 32]| {
                let end = name.iter().position(|byte| *byte == 0);
                &name[..end.unwrap_or(name.len())] == required.as_bytes()
            };
            let at = names.texts.iter().position(has_name);
            at.is_some_and(|at| features.states[at / 32].active >> (at % 32) & 1 == 1)
        };
        Ok(required.iter().all(is_on))
    }
}
