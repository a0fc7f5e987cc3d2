//! Reads and changes the offload features of a device, identified by their names in `ethtool -k`.

use std::io;

use super::control::Control;

const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
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

/// `struct ethtool_sfeatures`, with one block for every 32 features.
#[repr(C)]
struct Changes {
    cmd: u32,
    blocks: u32,
    states: [Change; MAX_FEATURES / 32],
}

/// The features to change, and the state that they get.
#[repr(C)]
#[derive(Clone, Copy)]
struct Change {
    valid: u32,
    requested: u32,
}

/// The features of one interface.
struct Known {
    names: Box<Names>,
    states: Features,
}

impl Known {
    /// Returns the number of the feature with this name.
    fn find(&self, feature: &str) -> Option<usize> {
        let has_name = |name: &[u8; 32]| {
            let end = name.iter().position(|byte| *byte == 0);
            &name[..end.unwrap_or(name.len())] == feature.as_bytes()
        };
        self.names.texts.iter().position(has_name)
    }

    fn is_active(&self, feature: &str) -> bool {
        let at = self.find(feature);
        at.is_some_and(|at| self.states.states[at / 32].active >> (at % 32) & 1 == 1)
    }
}

impl Control {
    /// Returns true if the device segments TCP over both IP versions (TSO). Such a device also
    /// computes checksums and supports scatter-gather.
    pub(crate) fn segments_tcp(&self, name: &str) -> bool {
        let kinds = ["tx-tcp-segmentation", "tx-tcp6-segmentation"];
        self.active_features(name, &kinds).len() == kinds.len()
    }

    /// Returns true if the device removes 802.1Q tags from received frames, so that XDP does not
    /// see them.
    ///
    /// Returns false if the features cannot be read, because most drivers without feature flags
    /// keep tags.
    pub(crate) fn strips_tags(&self, name: &str) -> bool {
        !self.active_features(name, &["rx-vlan-hw-parse"]).is_empty()
    }

    /// Returns those of the features that are active on the interface. The list is also empty if they
    /// cannot be read.
    pub(crate) fn active_features<'f>(&self, name: &str, features: &[&'f str]) -> Vec<&'f str> {
        let Ok(known) = self.features(name) else {
            return Vec::new();
        };
        let active = features.iter().filter(|feature| known.is_active(feature));
        active.copied().collect()
    }

    /// Turns a feature of the interface on or off. The kernel may refuse it silently.
    ///
    /// # Errors
    /// The kernel's error, or if there is no such feature.
    pub(crate) fn set_feature(&self, name: &str, feature: &str, on: bool) -> io::Result<()> {
        let known = self.features(name)?;
        let at = known.find(feature).ok_or(io::ErrorKind::Unsupported)?;
        let unchanged = Change {
            valid: 0,
            requested: 0,
        };
        let mut changes = Changes {
            cmd: ETHTOOL_SFEATURES,
            // The kernel wants the number of blocks that it has told.
            blocks: known.states.blocks,
            states: [unchanged; MAX_FEATURES / 32],
        };
        let bit = 1 << (at % 32);
        changes.states[at / 32] = Change {
            valid: bit,
            requested: if on { bit } else { 0 },
        };
        // SAFETY: the structure matches the command in its first word, and the kernel writes nothing.
        unsafe { self.ethtool(name, &mut changes) }
    }

    /// Reads the names and the states of the interface's features.
    fn features(&self, name: &str) -> io::Result<Known> {
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
        let mut states = Features {
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
        unsafe { self.ethtool(name, &mut states) }?;
        Ok(Known { names, states })
    }
}
