//! What a device does itself, by the names that `ethtool -k` has for it.

use std::io;

use super::control::Control;

const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
/// The set of strings that are names of features.
const FEATURES: u32 = 4;
/// More features than any kernel has.
const MOST: usize = 256;

/// `struct ethtool_sset_info`, for one set.
#[repr(C)]
struct SetInfo {
    cmd: u32,
    _reserved: u32,
    mask: u64,
    count: u32,
}

/// `struct ethtool_gstrings`.
#[repr(C)]
struct Names {
    cmd: u32,
    set: u32,
    count: u32,
    /// C strings.
    texts: [[u8; 32]; MOST],
}

/// `struct ethtool_gfeatures`, with a block for each 32 features.
#[repr(C)]
struct Features {
    cmd: u32,
    blocks: u32,
    states: [Block; MOST / 32],
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
    /// Whether the device cuts TCP segments of both IP versions itself (TSO),
    /// and so sums and gathers them too.
    pub(crate) fn cuts_segments(&self, name: &str) -> bool {
        let kinds = ["tx-tcp-segmentation", "tx-tcp6-segmentation"];
        self.has_features(name, &kinds).unwrap_or(false)
    }

    /// Whether the device takes 802.1Q tags out of received frames, so that XDP
    /// does not see them. Not known counts as no: most drivers that tell no
    /// features have none.
    pub(crate) fn strips_tags(&self, name: &str) -> bool {
        self.has_features(name, &["rx-vlan-hw-parse"])
            .unwrap_or(false)
    }

    /// Whether the interface has all of the features `wanted`, and they are on.
    fn has_features(&self, name: &str, wanted: &[&str]) -> io::Result<bool> {
        let mut info = SetInfo {
            cmd: ETHTOOL_GSSET_INFO,
            _reserved: 0,
            mask: 1 << FEATURES,
            count: 0,
        };
        // SAFETY: the structure belongs to the command in its first word, and holds
        // all that the kernel writes.
        unsafe { self.ethtool(name, &mut info) }?;
        // The kernel writes as many names as there are.
        if info.mask == 0 || info.count as usize > MOST {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut names = Box::new(Names {
            cmd: ETHTOOL_GSTRINGS,
            set: FEATURES,
            count: info.count,
            texts: [[0; 32]; MOST],
        });
        // SAFETY: the structure belongs to the command in its first word, and holds
        // all that the kernel writes.
        unsafe { self.ethtool(name, &mut *names) }?;
        let mut features = Features {
            cmd: ETHTOOL_GFEATURES,
            blocks: (MOST / 32) as u32,
            states: [Block {
                _available: 0,
                _requested: 0,
                active: 0,
                _never_changed: 0,
            }; MOST / 32],
        };
        // SAFETY: the structure belongs to the command in its first word, and holds
        // all that the kernel writes.
        unsafe { self.ethtool(name, &mut features) }?;
        let is_on = |wanted: &&str| {
            let is_it = |name: &[u8; 32]| {
                let end = name.iter().position(|byte| *byte == 0);
                &name[..end.unwrap_or(name.len())] == wanted.as_bytes()
            };
            let at = names.texts.iter().position(is_it);
            at.is_some_and(|at| features.states[at / 32].active >> (at % 32) & 1 == 1)
        };
        Ok(wanted.iter().all(is_on))
    }
}
