//! What may be special about the devices and queue pairs of a rig.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use userdma::{AccessFlags, Device, DeviceBuilder, Mtu, RtrAttr};

use crate::failure::Failure;
use crate::pair::side::Side;

/// The setup of both sides of a rig. The default one is what a program gets that asks for nothing.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Setup {
    /// Bytes of the path MTU, if not the largest that fits.
    pub path_mtu: Option<u32>,
    /// Bytes of the receive buffers in the kernel, of devices and of plain UDP sockets alike, if not as large as it gets.
    pub recv_buffer: Option<usize>,
    /// Probability with which each received packet is lost.
    pub loss: f64,
    /// The UDP port of the rig's own devices. Without it the rig is made on the devices that are open already.
    pub port: Option<u16>,
}

impl Setup {
    /// A device and memory of the rig's own, if it needs them.
    pub(super) fn open(&self, address: IpAddr) -> Result<Option<Side>, Failure> {
        let Some(port) = self.port else { return Ok(None) };
        let mut builder: DeviceBuilder = Device::builder().address(address).private_port(port);
        if let Some(bytes) = self.recv_buffer {
            builder = builder.recv_buffer(bytes);
        }
        if self.loss > 0.0 {
            builder = builder.faults(&format!("loss={},seed=7", self.loss));
        }
        Side::open_with(builder, AccessFlags::LOCAL_WRITE).map(Some)
    }

    /// How its queue pairs become ready to receive.
    pub(super) fn rtr(&self) -> Result<RtrAttr, Failure> {
        let path_mtu = self.path_mtu.map(|bytes| {
            Mtu::from_bytes(bytes).ok_or_else(|| Failure::new(format!("{bytes} is no path MTU")))
        });
        Ok(RtrAttr { path_mtu: path_mtu.transpose()?, ..RtrAttr::default() })
    }

    /// Bytes of payload in a packet of a long message.
    pub(super) fn payload(&self) -> usize {
        self.path_mtu.map_or(4096, |bytes| bytes as usize)
    }
}
