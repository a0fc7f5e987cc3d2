//! The options of an interface that is served through `AF_XDP`.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::interface_name::interface_name;
use super::limits::{MAX_VLAN_ID, MAX_VLANS};
use super::queues::QueueWords;
use super::{Offload, ParseDeviceError, Queues};
use crate::WrongWords;

/// The options of an interface that is served through `AF_XDP`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct XdpOptions {
    /// The interface's name.
    pub interface: String,
    /// Which queues to serve.
    pub queues: Queues,
    /// VLANs to serve in addition to untagged frames: at most [`MAX_VLANS`], without
    /// duplicates. VLAN 0 stands for priority-tagged frames.
    pub vlans: Vec<u16>,
    /// Whether to use the kernel's generic XDP instead of the driver's native XDP.
    pub generic: bool,
    /// Whether to accept packets whose TCP or UDP checksum covers only the pseudo-header. A
    /// veth peer with TX checksum offload sends such packets.
    pub partial_checksums: bool,
    /// Whether the device may read and write frames directly.
    pub zero_copy: ZeroCopy,
    /// Whether to send super-segments.
    pub offload: Offload,
    /// Whether to add a packet queue (the queueing discipline `pfifo`) to an interface without
    /// one, and to remove it at the end.
    pub pfifo: bool,
}

impl XdpOptions {
    /// Returns the default options for `interface`.
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            queues: Queues::All,
            vlans: Vec::new(),
            generic: false,
            partial_checksums: false,
            zero_copy: ZeroCopy::Auto,
            offload: Offload::Auto,
            pfifo: false,
        }
    }

    /// Parses the text after `xdp:`.
    ///
    /// # Errors
    /// A [`ParseDeviceError`] for each wrong word.
    pub(super) fn parse(text: &str) -> Result<Self, WrongWords<ParseDeviceError>> {
        let mut wrong = WrongWords::default();
        let mut words = text.split(',');
        let interface = words.next().unwrap_or_default();
        let interface = wrong.take(text, interface, interface_name(interface));
        let mut options = Self::new(interface.unwrap_or_default());
        let mut queues = QueueWords::default();
        let mut seen = Vec::new();
        for word in words {
            // Numbers that directly follow vlan=ID are additional VLANs. No option is a number.
            let is_number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
            if is_number && seen.last() == Some(&"vlan") {
                wrong.take(text, word, add_vlan(&mut options.vlans, word));
                continue;
            }
            let name = word.split('=').next().unwrap_or_default();
            let read = if seen.contains(&name) {
                Err(ParseDeviceError::Duplicate(name.to_owned()))
            } else {
                options.read(word, &mut queues)
            };
            wrong.take(text, word, read);
            seen.push(name);
        }
        if options.generic && options.zero_copy == ZeroCopy::Required {
            let both = |name: &&&str| matches!(**name, "generic" | "zerocopy");
            let later = seen.iter().rfind(both).copied().unwrap_or_default();
            wrong.add(text, later, ParseDeviceError::GenericZeroCopy);
        }
        options.queues = queues.finish(text, &mut wrong);
        wrong.finish(Some(options))
    }

    /// Reads an option other than a further VLAN.
    fn read<'t>(
        &mut self,
        word: &'t str,
        queues: &mut QueueWords<'t>,
    ) -> Result<(), ParseDeviceError> {
        let wrong = || ParseDeviceError::Option(word.to_owned());
        match word.split_once('=') {
            Some(("queues", number)) => queues.read_number(number)?,
            Some(("vlan", id)) => add_vlan(&mut self.vlans, id)?,
            Some(("zerocopy", "auto")) => self.zero_copy = ZeroCopy::Auto,
            Some(("zerocopy", "required")) => self.zero_copy = ZeroCopy::Required,
            Some(("zerocopy", "off")) => self.zero_copy = ZeroCopy::Off,
            Some(("offload", value)) => {
                self.offload = Offload::parse(value).ok_or_else(wrong)?;
            }
            Some(("qdisc", "pfifo")) => self.pfifo = true,
            None if word == "partial" => queues.partial = Some(word),
            None if word == "generic" => self.generic = true,
            None if word == "partial-checksums" => self.partial_checksums = true,
            _ => return Err(wrong()),
        }
        Ok(())
    }
}

/// The text that follows `xdp:`.
impl fmt::Display for XdpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.interface, self.queues)?;
        for (nth, vlan) in self.vlans.iter().enumerate() {
            let name = if nth == 0 { "vlan=" } else { "" };
            write!(f, ",{name}{vlan}")?;
        }
        if self.generic {
            f.write_str(",generic")?;
        }
        if self.partial_checksums {
            f.write_str(",partial-checksums")?;
        }
        match self.zero_copy {
            ZeroCopy::Auto => {}
            ZeroCopy::Required => f.write_str(",zerocopy=required")?,
            ZeroCopy::Off => f.write_str(",zerocopy=off")?,
        }
        self.offload.fmt(f)?;
        if self.pfifo {
            f.write_str(",qdisc=pfifo")?;
        }
        Ok(())
    }
}

fn add_vlan(vlans: &mut Vec<u16>, id: &str) -> Result<(), ParseDeviceError> {
    // Refuse a leading plus sign, which the standard library accepts.
    let number = id.parse().ok().filter(|_| !id.starts_with('+'));
    match number {
        Some(number) if vlans.contains(&number) => {
            return Err(ParseDeviceError::Duplicate(format!("VLAN {number}")));
        }
        Some(number @ 0..=MAX_VLAN_ID) => vlans.push(number),
        _ => return Err(ParseDeviceError::Vlan(id.to_owned())),
    }
    // Only the first one that is too many is an error.
    if vlans.len() == MAX_VLANS + 1 {
        return Err(ParseDeviceError::Vlans);
    }
    Ok(())
}

/// Whether the device reads and writes frames directly (zero-copy), or the kernel copies them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ZeroCopy {
    /// Uses zero-copy if the driver accepts it, and otherwise copies.
    #[default]
    Auto,
    /// Uses zero-copy. If the driver refuses it, opening the queue fails.
    Required,
    /// Copies, even if the driver supports zero-copy.
    Off,
}
