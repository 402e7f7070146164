//! Verbs calls that make and end objects.

use std::sync::Arc;

use userdma_mem::Region;
use userdma_objects::{AccessFault, Ah, CompChannel, Cq, MrKeys, PdId, QpShared, Srq};
use userdma_verbs::dice::{Dice, Stream};
use userdma_verbs::{
    AccessFlags, AhAttr, BindMwError, CreateCqError, CreateQpError, DeviceAttr, Gid, LKey, Mtu, MwType,
    ObjectError, PKey, PortAttr, PortState, QpAttr, QpAttrMask, QpCap, QpInitAttr, QpState, Qpn, RKey,
    RegMrError, Sge, Srqn, Time,
};

use crate::Shard;
use crate::config::{INDEX_BITS, table_index};
use crate::modify::BadValue;
use crate::qp::Qp;
use crate::transport::Transport;

/// A resolved address vector of a device.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct AhId(pub u32);

/// Why an address vector was not made.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CreateAhError {
    /// A field has a value that is not possible.
    #[error("{field} is {value}, {allowed} is possible")]
    Value {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// What would be right.
        allowed: &'static str,
    },
    /// The peer's GID leads nowhere.
    #[error("grh.dgid is {dgid}, {allowed} is possible")]
    Dgid {
        /// The GID.
        dgid: Gid,
        /// What would be right.
        allowed: &'static str,
    },
    /// The protection domain does not exist.
    #[error("no such protection domain")]
    NoPd,
}

impl From<BadValue> for CreateAhError {
    fn from(bad: BadValue) -> Self {
        match bad {
            BadValue::Field { field, value, allowed } => Self::Value { field, value, allowed },
            BadValue::Dgid { dgid, allowed } => Self::Dgid { dgid, allowed },
        }
    }
}

/// A completion queue of the device.
#[derive(Debug)]
pub(crate) struct CqEntry {
    cq: Arc<Cq>,
    /// Queues of queue pairs that complete here.
    users: u32,
}

/// A resolved address vector.
#[derive(Debug)]
pub(crate) struct Resolved {
    pd: PdId,
}

impl Shard {
    /// A new protection domain; `None` if there are too many.
    pub fn alloc_pd(&mut self) -> Option<PdId> {
        self.pds.alloc()
    }

    /// Ends a protection domain that nothing uses.
    ///
    /// # Errors
    /// `Busy` while regions, windows, address vectors or queue pairs are in it.
    pub fn dealloc_pd(&mut self, pd: PdId) -> Result<(), ObjectError> {
        self.pds.dealloc(pd)
    }

    /// Registers memory; addresses in work requests count from `iova`.
    ///
    /// # Errors
    /// As [`MrTable::register`](userdma_objects::MrTable::register); `NoPd`.
    pub fn reg_mr(
        &mut self,
        pd: PdId,
        region: Region,
        iova: u64,
        access: AccessFlags,
    ) -> Result<MrKeys, RegMrError> {
        self.pds.acquire(pd).map_err(|_| RegMrError::NoPd)?;
        self.mrs.register(pd, region, iova, access).inspect_err(|_| self.pds.release(pd))
    }

    /// Gives the keys of a region to other memory, with other rights or in another domain.
    ///
    /// # Errors
    /// As [`MrTable::reregister`](userdma_objects::MrTable::reregister); `NoPd`.
    pub fn rereg_mr(
        &mut self,
        lkey: LKey,
        pd: PdId,
        region: Region,
        iova: u64,
        access: AccessFlags,
    ) -> Result<Result<(), RegMrError>, ObjectError> {
        if self.pds.acquire(pd).is_err() {
            return Ok(Err(RegMrError::NoPd));
        }
        let result = self.mrs.reregister(lkey, pd, region, iova, access);
        // Either the old domain has a user less, or the new one has none more.
        match result {
            Ok(Ok(before)) => self.pds.release(before),
            Ok(Err(_)) | Err(_) => self.pds.release(pd),
        }
        result.map(|result| result.map(drop))
    }

    /// Ends a region and gives its memory back; its keys are refused from now on.
    ///
    /// # Errors
    /// `Busy` while windows are bound to it.
    pub fn dereg_mr(&mut self, lkey: LKey) -> Result<Region, ObjectError> {
        let (pd, region) = self.mrs.deregister(lkey)?;
        self.pds.release(pd);
        Ok(region)
    }

    /// A new type 2 memory window, unbound.
    ///
    /// # Errors
    /// `TooMany`, `NoPd`.
    pub fn alloc_mw(&mut self, pd: PdId) -> Result<RKey, BindMwError> {
        self.alloc_mw_of_type(pd, MwType::Type2)
    }

    /// A new memory window of either type, unbound.
    ///
    /// # Errors
    /// As [`Shard::alloc_mw`].
    pub fn alloc_mw_of_type(&mut self, pd: PdId, mw_type: MwType) -> Result<RKey, BindMwError> {
        self.pds.acquire(pd).map_err(|_| BindMwError::NoPd)?;
        self.mrs.alloc_mw_of_type(pd, mw_type).inspect_err(|_| self.pds.release(pd))
    }

    /// Ends a memory window, bound or not, named by its current key.
    ///
    /// # Errors
    /// `NoObject` if the key is not that of a window.
    pub fn dealloc_mw(&mut self, rkey: RKey) -> Result<(), ObjectError> {
        let pd = self.mrs.dealloc_mw(rkey)?;
        self.pds.release(pd);
        Ok(())
    }

    /// Makes a completion queue of at least `cqe` entries.
    ///
    /// # Errors
    /// `Size` if `cqe` is 0 or above the device's limit, `TooMany`.
    pub fn create_cq(
        &mut self,
        cqe: u32,
        channel: Option<Arc<CompChannel>>,
    ) -> Result<Arc<Cq>, CreateCqError> {
        let limits = DeviceAttr::LIMITS;
        if cqe == 0 || cqe > limits.max_cqe {
            return Err(CreateCqError::Size { cqe, max: limits.max_cqe });
        }
        if self.cqs.len() >= limits.max_cq as usize {
            return Err(CreateCqError::TooMany { max: limits.max_cq });
        }
        let slot = self.cqs.vacant_entry();
        let cq = Arc::new(Cq::new(table_index(slot.key()), cqe, channel));
        slot.insert(CqEntry { cq: Arc::clone(&cq), users: 0 });
        Ok(cq)
    }

    /// Ends a completion queue and forgets its events on its channel.
    ///
    /// # Errors
    /// `Busy` while queue pairs use it.
    pub fn destroy_cq(&mut self, cq: u32) -> Result<(), ObjectError> {
        let entry = self.cqs.get(cq as usize).ok_or(ObjectError::NoObject("completion queue"))?;
        if entry.users > 0 {
            return Err(ObjectError::Busy { object: "completion queue", users: entry.users });
        }
        let entry = self.cqs.remove(cq as usize);
        if let Some(channel) = entry.cq.channel() {
            channel.forget(cq);
        }
        self.forget_cq(cq);
        Ok(())
    }

    /// Checks and resolves an address vector: its handle, and what requests carry of it.
    ///
    /// # Errors
    /// Which field is wrong, with its value; `NoPd`.
    pub fn create_ah(&mut self, pd: PdId, attr: &AhAttr) -> Result<(AhId, Ah), CreateAhError> {
        let route = self.resolve(attr, attr.grh.flow_label)?;
        self.pds.acquire(pd).map_err(|_| CreateAhError::NoPd)?;
        let link = self.config.links.get(usize::from(route.link.0));
        let mtu = link.and_then(|link| Mtu::for_link(link.mtu)).unwrap_or(Mtu::Mtu256);
        let id = AhId(table_index(self.ahs.insert(Resolved { pd })));
        Ok((id, Ah { pd, route, mtu }))
    }

    /// Ends an address vector. Requests that were posted with it are sent all the same.
    ///
    /// # Errors
    /// `NoObject`.
    pub fn destroy_ah(&mut self, ah: AhId) -> Result<(), ObjectError> {
        let entry = self.ahs.try_remove(ah.0 as usize).ok_or(ObjectError::NoObject("address vector"))?;
        self.pds.release(entry.pd);
        Ok(())
    }

    /// Makes a queue pair in RESET.
    ///
    /// # Errors
    /// `Cap` names a size above the device's limit; `Type`, `NoObject`, `TooMany`. Nothing was made.
    pub fn create_qp(
        &mut self,
        pd: PdId,
        init: &QpInitAttr,
        send_cq: u32,
        recv_cq: u32,
    ) -> Result<Arc<QpShared>, CreateQpError> {
        self.create_qp_on(pd, init, send_cq, recv_cq, None)
    }

    /// Makes a queue pair in RESET, with receives from a shared receive queue if there is one: then what `init.cap` says
    /// about its own receives is not looked at.
    ///
    /// # Errors
    /// As [`Shard::create_qp`].
    pub fn create_qp_on(
        &mut self,
        pd: PdId,
        init: &QpInitAttr,
        send_cq: u32,
        recv_cq: u32,
        srq: Option<Srqn>,
    ) -> Result<Arc<QpShared>, CreateQpError> {
        check_cap(&init.cap, srq.is_some())?;
        let srq = srq.map(|srqn| self.srqs.get(srqn).cloned().ok_or(NO_SRQ)).transpose()?;
        let mut transport = machine(init, srq.as_deref()).ok_or(CreateQpError::Type(init.qp_type))?;
        let cq = |number: u32| {
            let entry = self.cqs.get(number as usize);
            entry.map(|entry| Arc::clone(&entry.cq)).ok_or(CreateQpError::NoObject("completion queue"))
        };
        let (send, recv) = (cq(send_cq)?, cq(recv_cq)?);
        self.pds.acquire(pd).map_err(|_| CreateQpError::NoObject("protection domain"))?;
        let Some(index) = self.qps.reserve() else {
            self.pds.release(pd);
            return Err(CreateQpError::TooMany { max: DeviceAttr::LIMITS.max_qp });
        };
        self.count_cq_users(send_cq, recv_cq, 1);
        let qpn = Qpn::new(u32::from(self.config.slot) << INDEX_BITS | index);
        let shared = Arc::new(match srq {
            Some(srq) => {
                self.srqs.add_user(srq.srqn());
                QpShared::with_srq(qpn, pd, init, srq)
            }
            None => QpShared::new(qpn, pd, init),
        });
        if self.config.recv_fault > 0.0 {
            // Where its indices begin depends on the processes before this one.
            let nth = index.wrapping_sub(u32::from(self.config.first_index));
            let stream = Stream::new(self.config.fault_seed, RECV_FAULTS | u64::from(nth));
            transport.set_recv_fault(Dice::new(self.config.recv_fault, stream));
        }
        let qp = Qp::new(transport, Arc::clone(&shared), send, recv);
        self.qps.insert(index, qp);
        self.make_room();
        Ok(shared)
    }

    /// Why an element of a scatter/gather list of this domain does not open, for whoever explains an error.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check_local(&self, pd: PdId, sge: &Sge, write: bool) -> Result<(), AccessFault> {
        self.mrs.open_local(pd, sge, write).map(drop)
    }

    /// The attributes of a queue pair.
    ///
    /// # Errors
    /// `NoObject`.
    pub fn query_qp(&self, qpn: Qpn) -> Result<QpAttr, ObjectError> {
        let qp = self.index_of(qpn).and_then(|index| self.qps.get(index)).ok_or(NO_QP)?;
        Ok(QpAttr { cap: qp.shared.cap(), ..qp.transport.attr() })
    }

    /// Ends a queue pair. What is posted is forgotten without completions, and what has completed and was not polled with it,
    /// as by the C provider's `mlx5/verbs.c mlx5_destroy_qp()`; windows bound through it are unbound. A receive that a message
    /// under way has taken from a shared receive queue is forgotten, too: in the error state, where a queue pair should go
    /// before, it completes.
    ///
    /// # Errors
    /// `NoObject`; `Busy` while it is attached to groups.
    pub fn destroy_qp(&mut self, now: Time, qpn: Qpn) -> Result<(), ObjectError> {
        let index = self.index_of(qpn).ok_or(NO_QP)?;
        self.check_detached(index)?;
        self.drive(now, index, |machine, ctx| {
            machine.modify(ctx, QpState::Reset, &QpAttr::default(), QpAttrMask::STATE, None);
        });
        self.forget(index, qpn);
        self.forget_completions(index);
        let Some(qp) = self.qps.remove(index) else { return Err(NO_QP) };
        if let Some(window) = qp.window {
            self.windows.release(window);
            self.wake_one(window);
        }
        self.count_cq_users(qp.send_cq.number(), qp.recv_cq.number(), -1);
        self.pds.release(qp.shared.pd());
        if let Some(srq) = qp.shared.srq() {
            self.srqs.remove_user(srq.srqn());
        }
        Ok(())
    }

    /// What the port is: its first address' link decides.
    pub fn port_attr(&self) -> PortAttr {
        let link = self.config.gids.first().and_then(|gid| self.config.links.get(usize::from(gid.link.0)));
        let active_mtu = link.and_then(|link| Mtu::for_link(link.mtu));
        PortAttr {
            state: if active_mtu.is_some() && !self.port_is_down {
                PortState::Active
            } else {
                PortState::Down
            },
            max_mtu: Mtu::Mtu4096,
            active_mtu: active_mtu.unwrap_or(Mtu::Mtu256),
            max_msg_sz: DeviceAttr::LIMITS.max_msg_sz,
            gid_tbl_len: PortAttr::GID_TBL_LEN,
            pkey: PKey::DEFAULT,
        }
    }

    /// The device's limits.
    pub fn device_attr(&self) -> DeviceAttr {
        DeviceAttr::LIMITS
    }

    /// Takes what nobody has polled of a queue pair out of its completion queues, but for what it has received from a shared
    /// receive queue.
    pub(crate) fn forget_completions(&self, index: u32) {
        let Some(qp) = self.qps.get(index) else { return };
        let forget = if qp.shared.srq().is_some() { Cq::forget_sends } else { Cq::forget };
        forget(&qp.send_cq, qp.shared.qpn());
        if !Arc::ptr_eq(&qp.send_cq, &qp.recv_cq) {
            forget(&qp.recv_cq, qp.shared.qpn());
        }
    }

    fn count_cq_users(&mut self, send_cq: u32, recv_cq: u32, change: i32) {
        for cq in [send_cq, recv_cq] {
            if let Some(entry) = self.cqs.get_mut(cq as usize) {
                entry.users = entry.users.saturating_add_signed(change);
            }
        }
    }
}

/// Streams of the fault that denies receives: above those of a link's faults, one for each queue pair.
const RECV_FAULTS: u64 = 1 << 32;
const NO_QP: ObjectError = ObjectError::NoObject("queue pair");
const NO_SRQ: CreateQpError = CreateQpError::NoObject("shared receive queue");

/// A machine with room for the lists of its receives, which may be those of a shared receive queue.
fn machine(init: &QpInitAttr, srq: Option<&Srq>) -> Option<Transport> {
    let max_recv_sge = srq.map_or(init.cap.max_recv_sge, Srq::max_sge);
    Transport::new(&QpInitAttr { cap: QpCap { max_recv_sge, ..init.cap }, ..*init })
}

/// Whether the sizes are possible. With a shared receive queue those of the queue pair's own are not looked at, as in
/// `rxe_qp.c rxe_qp_chk_cap()`.
fn check_cap(cap: &QpCap, has_srq: bool) -> Result<(), CreateQpError> {
    let limits = DeviceAttr::LIMITS;
    let cap = if has_srq { QpCap { max_recv_wr: 0, max_recv_sge: 0, ..*cap } } else { *cap };
    let fields = [
        ("max_send_wr", cap.max_send_wr, limits.max_qp_wr),
        ("max_recv_wr", cap.max_recv_wr, limits.max_qp_wr),
        ("max_send_sge", cap.max_send_sge, limits.max_sge),
        ("max_recv_sge", cap.max_recv_sge, limits.max_sge),
        ("max_inline_data", cap.max_inline_data, limits.max_inline_data),
    ];
    match fields.into_iter().find(|&(_, value, max)| value > max) {
        Some((field, value, max)) => Err(CreateQpError::Cap { field, value, max }),
        None => Ok(()),
    }
}
