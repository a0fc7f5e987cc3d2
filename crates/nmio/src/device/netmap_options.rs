//! The options of a netmap port.

use std::fmt;

use super::limits::{MAX_VIRTUAL_MTU, MIN_VIRTUAL_MTU};
use super::queues::QueueWords;
use super::{NetmapTarget, Offload, ParseDeviceError, Queues};
use crate::WrongWords;

/// The options of a netmap port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetmapOptions {
    /// What the port is connected to.
    pub target: NetmapTarget,
    /// Which ring pairs of an interface to serve. A switch and a pipe have one.
    pub queues: Queues,
    /// MTU of a port of a switch or of a pipe, in bytes: 1,280 to 65,535. `None`: 1,500, or the MTU
    /// of the interface.
    pub mtu: Option<u16>,
    /// Whether a port of a switch, or one end of a pipe, sends super-segments.
    pub offload: Offload,
    /// Whether to accept packets whose TCP or UDP checksum covers only the pseudo-header. In emulated
    /// mode, an interface of a virtual machine may receive such packets.
    pub partial_checksums: bool,
}

impl NetmapOptions {
    /// Returns the default options for `target`.
    pub fn new(target: NetmapTarget) -> Self {
        Self {
            target,
            queues: Queues::All,
            mtu: None,
            offload: Offload::Auto,
            partial_checksums: false,
        }
    }

    /// Parses the text after `netmap:`.
    ///
    /// # Errors
    /// A [`ParseDeviceError`] for each wrong word.
    pub(super) fn parse(text: &str) -> Result<Self, WrongWords<ParseDeviceError>> {
        let mut wrong = WrongWords::default();
        let mut words = text.split(',');
        let name = words.next().unwrap_or_default();
        let target = wrong.take(text, name, NetmapTarget::parse(name));
        // A wrong name does not say which options the port has.
        let is_interface = target
            .as_ref()
            .map(|target| matches!(target, NetmapTarget::Interface(_)));
        let unknown = || NetmapTarget::Interface(String::new());
        let mut options = Self::new(target.unwrap_or_else(unknown));
        let mut queues = QueueWords::default();
        let mut seen = Vec::new();
        for word in words {
            let name = word.split('=').next().unwrap_or_default();
            let read = if seen.contains(&name) {
                Err(ParseDeviceError::Duplicate(name.to_owned()))
            } else {
                options.read(word, is_interface, &mut queues)
            };
            wrong.take(text, word, read);
            seen.push(name);
        }
        options.queues = queues.finish(text, &mut wrong);
        wrong.finish(Some(options))
    }

    /// Reads an option. `is_interface` is `None` if the kind of the port is not known.
    fn read<'t>(
        &mut self,
        word: &'t str,
        is_interface: Option<bool>,
        queues: &mut QueueWords<'t>,
    ) -> Result<(), ParseDeviceError> {
        let wrong = || ParseDeviceError::NetmapOption(word.to_owned());
        let of_interface = is_interface != Some(false);
        let of_virtual = is_interface != Some(true);
        match word.split_once('=') {
            Some(("queues", number)) if of_interface => queues.read_number(number)?,
            Some(("mtu", number)) if of_virtual => self.mtu = Some(parse_mtu(number)?),
            Some(("offload", value)) if of_virtual => {
                self.offload = Offload::parse(value).ok_or_else(wrong)?;
            }
            None if word == "partial" && of_interface => queues.partial = Some(word),
            None if word == "partial-checksums" && of_interface => self.partial_checksums = true,
            _ => return Err(wrong()),
        }
        Ok(())
    }
}

fn parse_mtu(number: &str) -> Result<u16, ParseDeviceError> {
    // Refuse a leading plus sign, which the standard library accepts.
    let parsed = number.parse().ok().filter(|_| !number.starts_with('+'));
    parsed
        .filter(|mtu| (MIN_VIRTUAL_MTU..=MAX_VIRTUAL_MTU).contains(mtu))
        .ok_or_else(|| ParseDeviceError::Mtu(number.to_owned()))
}

/// The text that follows `netmap:`.
impl fmt::Display for NetmapOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.target, self.queues)?;
        if let Some(mtu) = self.mtu {
            write!(f, ",mtu={mtu}")?;
        }
        if self.partial_checksums {
            f.write_str(",partial-checksums")?;
        }
        self.offload.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;

    fn parse(text: &str) -> Result<NetmapOptions, ParseDeviceError> {
        match text.parse() {
            Ok(Device::Netmap(options)) => Ok(options),
            Ok(other) => panic!("{other}"),
            Err(wrong) => Err(wrong.iter().next().unwrap().1.clone()),
        }
    }

    #[test]
    fn each_kind_of_port_has_its_options() {
        let interface = NetmapTarget::Interface("eth0".into());
        for (text, queues) in [
            ("netmap:eth0", Queues::All),
            ("netmap:eth0,queues=4", Queues::Exactly(4)),
            ("netmap:eth0,partial,queues=2", Queues::Partial(2)),
        ] {
            let expected = NetmapOptions {
                queues,
                ..NetmapOptions::new(interface.clone())
            };
            assert_eq!(parse(text), Ok(expected));
        }
        let switch = NetmapOptions::new(NetmapTarget::Switch("vale0:a".into()));
        for (text, mtu, offload) in [
            ("netmap:vale0:a,offload=auto", None, Offload::Auto),
            ("netmap:vale0:a,offload=off", None, Offload::Off),
            (
                "netmap:vale0:a,offload=on,mtu=9000",
                Some(9000),
                Offload::On,
            ),
        ] {
            let expected = NetmapOptions {
                mtu,
                offload,
                ..switch.clone()
            };
            assert_eq!(parse(text), Ok(expected));
        }
        assert_eq!(parse("netmap:x{1,mtu=1280").unwrap().mtu, Some(1280));
        let pipe = parse("netmap:x}1,mtu=65535,offload=on").unwrap();
        assert_eq!((pipe.mtu, pipe.offload), (Some(65_535), Offload::On));
    }

    #[test]
    fn other_options_are_refused() {
        use ParseDeviceError::{Duplicate, Mtu, NetmapOption, Partial, Queues};
        let option = |word: &str| NetmapOption(word.into());
        for (text, expected) in [
            ("netmap:vale0:1,queues=2", option("queues=2")),
            ("netmap:x{1,partial", option("partial")),
            ("netmap:x{1,partial-checksums", option("partial-checksums")),
            ("netmap:eth0,offload=on", option("offload=on")),
            ("netmap:eth0,mtu=9000", option("mtu=9000")),
            ("netmap:eth0,generic", option("generic")),
            ("netmap:vale0:1,offload=yes", option("offload=yes")),
            ("netmap:vale0:1,mtu", option("mtu")),
            ("netmap:eth0,queues=0", Queues("0".into())),
            ("netmap:x{1,mtu=1279", Mtu("1279".into())),
            ("netmap:x{1,mtu=65536", Mtu("65536".into())),
            ("netmap:x{1,mtu=+1500", Mtu("+1500".into())),
            ("netmap:x{1,mtu=", Mtu(String::new())),
            ("netmap:eth0,queues=1,queues=1", Duplicate("queues".into())),
            ("netmap:x{1,mtu=1500,mtu=1500", Duplicate("mtu".into())),
            (
                "netmap:eth0,queues=2,partial,partial",
                Duplicate("partial".into()),
            ),
            ("netmap:eth0,partial", Partial),
        ] {
            assert_eq!(parse(text), Err(expected), "{text}");
        }
    }

    #[test]
    fn a_written_port_can_be_parsed_again() {
        for text in [
            "netmap:vale0:a",
            "netmap:vale0:a,mtu=9000,offload=on",
            "netmap:vale0:a,offload=off",
            "netmap:x{1",
            "netmap:x}1,mtu=4000",
            "netmap:x{1,offload=on",
            "netmap:eth0,queues=2,partial",
            "netmap:eth0,queues=2,partial-checksums",
        ] {
            assert_eq!(text.parse::<Device>().unwrap().to_string(), text);
        }
    }
}
