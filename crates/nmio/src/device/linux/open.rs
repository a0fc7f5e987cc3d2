//! Opens the devices that only Linux has.

use super::ready::{XdpReady, XdpRequest};
use super::{auto, opened};
use crate::device::{Device, DeviceError, Interface, InterfaceConfig, NetworkRequest, Queues};

/// The summary's advice for a veth interface that drops packets with partial checksums.
const VETH_CHECKSUMS: &str = "packets with partial TCP or UDP checksums are dropped; if the peer \
    offloads checksums (see: ethtool -k PEER), turn that off with: ethtool -K PEER tx off, or add \
    partial-checksums to --device";

/// Opens the configured interface.
pub(in crate::device) fn open(config: &InterfaceConfig) -> Result<Interface, DeviceError> {
    match &config.device {
        Device::Auto => auto::open(config),
        Device::Tap { name } => auto::open_named_tap(config, name),
        Device::Netmap { .. } => unreachable!("opened by the caller"),
        Device::Xdp {
            interface,
            queues,
            vlans,
            generic,
            partial_checksums,
            zero_copy,
            offload,
            pfifo,
        } => {
            let request = XdpRequest {
                network: NetworkRequest {
                    interface,
                    own: &config.own_addresses,
                    services: &config.services,
                },
                queues: requested_queues(*queues, config.workers)?,
                vlans,
                generic: *generic,
                partial_checksums: *partial_checksums,
                zero_copy: *zero_copy,
                offload: *offload,
                pfifo: *pfifo,
                wait: config.wait,
            };
            let ready = XdpReady::open(&request)?;
            let is_veth = ready.is_veth;
            let mut interface = opened::xdp(ready, &request, None);
            interface.set_device_line(config.device.to_string());
            if is_veth && !partial_checksums {
                interface.add_line("checksums", VETH_CHECKSUMS.to_owned());
            }
            Ok(interface)
        }
    }
}

/// Combines `queues=` and `--workers`. If both are given, they must specify the same number,
/// because each worker serves one queue.
fn requested_queues(queues: Queues, workers: Option<u32>) -> Result<Queues, DeviceError> {
    match (queues, queues.number(), workers) {
        (Queues::All, _, Some(workers)) => Ok(Queues::Exactly(workers)),
        (_, Some(queues), Some(workers)) if queues != workers => {
            Err(DeviceError::WorkersAndQueues { workers, queues })
        }
        _ => Ok(queues),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_and_queues_must_agree() {
        use Queues::{All, Exactly, Partial};
        for (queues, workers, expected) in [
            (All, None, All),
            (All, Some(2), Exactly(2)),
            (Exactly(2), None, Exactly(2)),
            (Exactly(2), Some(2), Exactly(2)),
            (Partial(2), Some(2), Partial(2)),
        ] {
            assert_eq!(requested_queues(queues, workers).unwrap(), expected);
        }
        for queues in [Exactly(2), Partial(2)] {
            let error = requested_queues(queues, Some(3)).unwrap_err().to_string();
            assert!(error.contains("--workers 3 and queues=2 differ"), "{error}");
        }
    }
}
