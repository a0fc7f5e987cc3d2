//! Reads and changes the settings of interfaces with `ioctl`.

use std::io;
use std::mem;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::ptr;

use super::super::check;

/// A handle for reading and changing the interfaces of the network namespace in which a thread
/// created it.
pub(crate) struct Control(UnixDatagram);

#[repr(C)]
struct EthtoolValue {
    cmd: u32,
    data: u32,
}

/// `struct ethtool_drvinfo`: the driver information that `ethtool -i` shows.
#[repr(C)]
struct EthtoolDriver {
    cmd: u32,
    /// Name of the driver, as a C string.
    driver: [u8; 32],
    _versions: [u8; 64],
    /// Bus information, as a C string; `tap` for tap devices.
    bus: [u8; 32],
    _rest: [u8; 64],
}

const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_STXCSUM: u32 = 0x17;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;
/// Flag: the device adds VLAN tags to sent frames.
const ETH_FLAG_TXVLAN: u32 = 1 << 7;
/// Flag: the device strips VLAN tags from received frames.
const ETH_FLAG_RXVLAN: u32 = 1 << 8;
const SIOCETHTOOL: libc::c_ulong = 0x8946;

impl Control {
    pub(crate) fn new() -> io::Result<Self> {
        UnixDatagram::unbound().map(Self)
    }

    pub(super) fn request(name: &str) -> io::Result<libc::ifreq> {
        // SAFETY: an ifreq is plain data, for which all zeroes are valid.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        // The last byte stays zero to terminate the name.
        if name.len() >= request.ifr_name.len() || name.contains('\0') {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        Ok(request)
    }

    /// Sends a request about an interface to the kernel.
    ///
    /// # Safety
    /// The request `code` reads and writes one `ifreq`, and follows no pointer in it.
    unsafe fn query(&self, name: &str, code: libc::c_ulong) -> io::Result<libc::ifreq> {
        let mut request = Self::request(name)?;
        // SAFETY: the caller guarantees a suitable code, and the ifreq lives through the call.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), code, &raw mut request) })?;
        Ok(request)
    }

    /// Returns the interface flags (`IFF_UP` and so on).
    pub(crate) fn flags(&self, name: &str) -> io::Result<i32> {
        // SAFETY: this request accesses one ifreq and follows no pointer in it.
        let response = unsafe { self.query(name, libc::SIOCGIFFLAGS) }?;
        // SAFETY: this request fills in the flags.
        Ok(unsafe { response.ifr_ifru.ifru_flags }.into())
    }

    /// Returns true if the interface is up and has a carrier, or if its state cannot be read.
    pub(crate) fn is_running(&self, name: &str) -> bool {
        self.flags(name)
            .map_or(true, |flags| flags & libc::IFF_RUNNING != 0)
    }

    /// Brings the interface up.
    pub(crate) fn set_up(&self, name: &str) -> io::Result<()> {
        let flags = self.flags(name)? | libc::IFF_UP;
        let mut request = Self::request(name)?;
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        // SAFETY: this request reads one live ifreq.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request) })
            .map(drop)
    }

    /// Returns the MTU: the length of the largest IP packet, in bytes.
    pub(crate) fn mtu(&self, name: &str) -> io::Result<usize> {
        // SAFETY: this request accesses one ifreq and follows no pointer in it.
        let response = unsafe { self.query(name, libc::SIOCGIFMTU) }?;
        // SAFETY: this request fills in the MTU.
        Ok(unsafe { response.ifr_ifru.ifru_mtu }
            .try_into()
            .unwrap_or(0))
    }

    /// Returns the Ethernet address, or `None` if the interface is not Ethernet.
    pub(crate) fn mac(&self, name: &str) -> io::Result<Option<[u8; 6]>> {
        // SAFETY: this request accesses one ifreq and follows no pointer in it.
        let response = unsafe { self.query(name, libc::SIOCGIFHWADDR) }?;
        // SAFETY: this request fills in the hardware address.
        let address = unsafe { response.ifr_ifru.ifru_hwaddr };
        if address.sa_family != libc::ARPHRD_ETHER {
            return Ok(None);
        }
        let mut mac = [0; 6];
        for (to, from) in mac.iter_mut().zip(address.sa_data) {
            *to = from as u8;
        }
        Ok(Some(mac))
    }

    /// Returns the interface's index in this network namespace.
    pub(crate) fn index(&self, name: &str) -> io::Result<u32> {
        // SAFETY: this request accesses one ifreq and follows no pointer in it.
        let response = unsafe { self.query(name, libc::SIOCGIFINDEX) }?;
        // SAFETY: this request fills in the index.
        Ok(unsafe { response.ifr_ifru.ifru_ifindex } as u32)
    }

    /// Executes an ethtool command.
    ///
    /// # Safety
    /// The first word of `T` is the command. `T` is the structure that this command requires, and
    /// has room for everything that the kernel writes.
    pub(super) unsafe fn ethtool<T>(&self, name: &str, command: &mut T) -> io::Result<()> {
        let mut request = Self::request(name)?;
        request.ifr_ifru.ifru_data = ptr::from_mut(command).cast();
        // SAFETY: the caller guarantees a suitable structure, which lives through the call.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) })
            .map(drop)
    }

    /// Returns true if the interface is one end of a veth pair.
    pub(crate) fn is_veth(&self, name: &str) -> bool {
        self.driver(name)
            .is_ok_and(|info| info.driver.starts_with(b"veth\0"))
    }

    /// Returns true if the interface is a tap device. The same driver also creates tun devices,
    /// which carry no Ethernet frames.
    pub(crate) fn is_tap(&self, name: &str) -> bool {
        self.driver(name)
            .is_ok_and(|info| info.driver.starts_with(b"tun\0") && info.bus.starts_with(b"tap\0"))
    }

    /// Returns the name of the interface's driver, as `ethtool -i` shows it.
    pub(crate) fn driver_name(&self, name: &str) -> io::Result<String> {
        let info = self.driver(name)?;
        let name = info.driver.split(|byte| *byte == 0).next();
        Ok(String::from_utf8_lossy(name.unwrap_or_default()).into_owned())
    }

    fn driver(&self, name: &str) -> io::Result<EthtoolDriver> {
        let mut info = EthtoolDriver {
            cmd: ETHTOOL_GDRVINFO,
            driver: [0; 32],
            _versions: [0; 64],
            bus: [0; 32],
            _rest: [0; 64],
        };
        // SAFETY: the structure matches the command in its first word.
        unsafe { self.ethtool(name, &mut info) }?;
        Ok(info)
    }

    /// Turns off hardware VLAN tagging, so that 802.1Q tags stay in the frames, where XDP programs
    /// see them.
    pub(crate) fn keep_tags(&self, name: &str) -> io::Result<()> {
        let mut flags = EthtoolValue {
            cmd: ETHTOOL_GFLAGS,
            data: 0,
        };
        // SAFETY: the structure matches the command in its first word.
        unsafe { self.ethtool(name, &mut flags) }?;
        flags.cmd = ETHTOOL_SFLAGS;
        flags.data &= !(ETH_FLAG_TXVLAN | ETH_FLAG_RXVLAN);
        // SAFETY: the structure matches the command in its first word.
        unsafe { self.ethtool(name, &mut flags) }
    }

    /// Turns off TX checksum offload, so that sent packets have complete checksums.
    pub(crate) fn disable_tx_checksums(&self, name: &str) -> io::Result<()> {
        let mut value = EthtoolValue {
            cmd: ETHTOOL_STXCSUM,
            data: 0,
        };
        // SAFETY: the structure matches the command in its first word.
        unsafe { self.ethtool(name, &mut value) }
    }
}
