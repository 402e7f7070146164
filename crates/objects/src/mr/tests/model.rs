//! Random programs against a table and against a naive model of it.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const BUFFERS: usize = 3;
/// Bytes of each.
const BUFFER_LEN: u64 = 64;

/// A region or window as the model knows it.
#[derive(Clone, Debug)]
enum Object {
    Mr { pd: PdId, addr: u64, iova: u64, access: AccessFlags },
    Mw { pd: PdId, bound: Option<Bound> },
}

#[derive(Clone, Debug)]
struct Bound {
    qpn: Qpn,
    mr: u32,
    /// Where in the process's memory it starts.
    addr: u64,
    base: u64,
    length: u64,
    access: AccessFlags,
}

/// Objects by their current keys.
#[derive(Debug, Default)]
struct Model(BTreeMap<u32, Object>);

#[derive(Clone, Debug)]
enum Op {
    Register { pd: PdId, buffer: usize, iova: u64, access: AccessFlags },
    Deregister(Key),
    AllocMw(PdId),
    DeallocMw(Key),
    Bind { pd: PdId, qpn: Qpn, mw: Key, low: u8, mr: Key, addr: u64, length: u64, access: AccessFlags },
    Invalidate { pd: PdId, qpn: Qpn, key: Key },
    UnbindAll(Qpn),
    OpenRemote { pd: PdId, qpn: Qpn, key: Key, addr: u64, len: u64, rights: AccessFlags },
    OpenLocal { pd: PdId, key: Key, addr: u64, length: u32, write: bool },
}

/// Which key to use: one that was given out at some time, perhaps with a bit changed.
#[derive(Clone, Debug)]
struct Key {
    which: prop::sample::Index,
    flip: Option<u32>,
}

impl Key {
    fn pick(&self, given: &[u32]) -> u32 {
        let key = if given.is_empty() { 0 } else { given[self.which.index(given.len())] };
        self.flip.map_or(key, |bit| key ^ 1 << bit)
    }
}

impl Model {
    fn windows_of(&self, key: u32) -> u32 {
        let is_bound = |object: &&Object| matches!(object, Object::Mw { bound: Some(b), .. } if b.mr == key);
        u32::try_from(self.0.values().filter(is_bound).count()).expect("few")
    }

    fn bind(&mut self, pd: PdId, qpn: Qpn, bind: &BindMw) -> Result<(), AccessFault> {
        let (mw, mr) = (self.0.get(&bind.mw.get()), self.0.get(&bind.mr.get()));
        let Some(Object::Mw { pd: mw_pd, bound }) = mw else { return Err(AccessFault::Key) };
        let Some(Object::Mr { pd: mr_pd, addr, iova, access }) = mr else { return Err(AccessFault::Key) };
        if bind.mw.get() >> 8 != bind.rkey.get() >> 8 {
            return Err(AccessFault::Key);
        }
        if *mw_pd != pd || *mr_pd != pd {
            return Err(AccessFault::Domain);
        }
        let needed =
            if bind.access.intersects(RW | RA) { AccessFlags::MW_BIND | LW } else { AccessFlags::MW_BIND };
        let zero = AccessFlags::ZERO_BASED;
        if bound.is_some() || !access.contains(needed) || access.contains(zero) || bind.access.contains(LW) {
            return Err(AccessFault::Rights);
        }
        if bind.length == 0 || !is_inside(bind.addr, bind.length, *iova, BUFFER_LEN) {
            return Err(AccessFault::Bounds);
        }
        let bound = Bound {
            qpn,
            mr: bind.mr.get(),
            addr: addr + (bind.addr - iova),
            base: if bind.access.contains(zero) { 0 } else { bind.addr },
            length: bind.length,
            access: bind.access,
        };
        self.0.remove(&bind.mw.get());
        self.0.insert(bind.rkey.get(), Object::Mw { pd, bound: Some(bound) });
        Ok(())
    }

    fn invalidate(&mut self, pd: PdId, qpn: Qpn, key: u32) -> Result<(), AccessFault> {
        let Some(Object::Mw { pd: mw_pd, bound }) = self.0.get_mut(&key) else {
            return Err(AccessFault::Key);
        };
        match bound {
            None => Err(AccessFault::Key),
            Some(b) if b.qpn != qpn || *mw_pd != pd => Err(AccessFault::Domain),
            Some(_) => {
                *bound = None;
                Ok(())
            }
        }
    }

    /// Where in the process's memory an access lands.
    fn open(
        &self,
        pd: PdId,
        qpn: Option<Qpn>,
        key: u32,
        addr: u64,
        len: u64,
        rights: AccessFlags,
    ) -> Result<u64, AccessFault> {
        let (owner, start, base, length, access) = match self.0.get(&key) {
            Some(Object::Mr { pd, addr, iova, access }) => ((*pd, qpn), *addr, *iova, BUFFER_LEN, *access),
            Some(Object::Mw { pd, bound: Some(b) }) if qpn.is_some() => {
                ((*pd, Some(b.qpn)), b.addr, b.base, b.length, b.access)
            }
            Some(Object::Mw { .. }) | None => return Err(AccessFault::Key),
        };
        if owner != (pd, qpn) {
            return Err(AccessFault::Domain);
        }
        if !access.contains(rights) {
            return Err(AccessFault::Rights);
        }
        if !is_inside(addr, len, base, length) {
            return Err(AccessFault::Bounds);
        }
        Ok(start + (addr - base))
    }
}

fn is_inside(addr: u64, len: u64, base: u64, length: u64) -> bool {
    let (addr, len, base, length) = (u128::from(addr), u128::from(len), u128::from(base), u128::from(length));
    addr >= base && addr + len <= base + length
}

/// The table, the model and every key that was given out.
struct Pair {
    buffers: Vec<Region>,
    table: MrTable,
    model: Model,
    given: Vec<u32>,
}

impl Pair {
    fn step(&mut self, op: &Op) -> Result<(), TestCaseError> {
        match *op {
            Op::Register { pd, buffer, iova, access } => self.register(pd, buffer, iova, access)?,
            Op::Deregister(ref key) => self.deregister(key.pick(&self.given))?,
            Op::AllocMw(pd) => {
                let key = self.table.alloc_mw(pd).map(RKey::get);
                prop_assert!(key.is_ok());
                self.give(key.unwrap_or(0), Object::Mw { pd, bound: None })?;
            }
            Op::DeallocMw(ref key) => self.dealloc_mw(key.pick(&self.given))?,
            Op::Bind { pd, qpn, ref mw, low, ref mr, addr, length, access } => {
                let mw = RKey::new(mw.pick(&self.given));
                // Now and then not only the low byte differs.
                let rkey = if low == 0 { RKey::new(mw.get() ^ 0x100) } else { mw.with_variant(low) };
                let bind = BindMw { mw, rkey, mr: LKey::new(mr.pick(&self.given)), addr, length, access };
                self.bind(pd, qpn, &bind)?;
            }
            Op::Invalidate { pd, qpn, ref key } => {
                let key = key.pick(&self.given);
                let expected = self.model.invalidate(pd, qpn, key);
                prop_assert_eq!(self.table.invalidate(pd, qpn, RKey::new(key)), expected);
            }
            Op::UnbindAll(qpn) => self.unbind_all(qpn),
            Op::OpenRemote { pd, qpn, ref key, addr, len, rights } => {
                let key = key.pick(&self.given);
                let result = self.table.open_remote(pd, qpn, RKey::new(key), addr, len, rights);
                let expected = self.model.open(pd, Some(qpn), key, addr, len, rights);
                check_opened(result, len, expected)?;
            }
            Op::OpenLocal { pd, ref key, addr, length, write } => {
                let key = key.pick(&self.given);
                let result = self.table.open_local(pd, &sge(addr, length, LKey::new(key)), write);
                let rights = if write { LW } else { NONE };
                let expected = self.model.open(pd, None, key, addr, u64::from(length), rights);
                check_opened(result, u64::from(length), expected)?;
            }
        }
        self.check_counts()
    }

    fn register(
        &mut self,
        pd: PdId,
        buffer: usize,
        iova: u64,
        access: AccessFlags,
    ) -> Result<(), TestCaseError> {
        let region = self.buffers[buffer].clone();
        let addr = region.addr();
        let base = if access.contains(AccessFlags::ZERO_BASED) { 0 } else { iova };
        let result = self.table.register(pd, region, iova, access);
        let is_valid = access.contains(LW) || !access.intersects(RW | RA);
        prop_assert_eq!(result.is_ok(), is_valid);
        match result {
            Ok(keys) => self.give(keys.lkey.get(), Object::Mr { pd, addr, iova: base, access }),
            Err(_) => Ok(()),
        }
    }

    fn deregister(&mut self, key: u32) -> Result<(), TestCaseError> {
        let windows = self.model.windows_of(key);
        let expected = match self.model.0.get(&key) {
            Some(&Object::Mr { .. }) if windows > 0 => {
                Err(ObjectError::Busy { object: "memory region", users: windows })
            }
            Some(&Object::Mr { pd, addr, .. }) => Ok((pd, addr)),
            Some(Object::Mw { .. }) | None => Err(ObjectError::NoObject("memory region")),
        };
        let result = self.table.deregister(LKey::new(key)).map(|(pd, region)| (pd, region.addr()));
        prop_assert_eq!(&result, &expected);
        if result.is_ok() {
            self.model.0.remove(&key);
        }
        Ok(())
    }

    fn dealloc_mw(&mut self, key: u32) -> Result<(), TestCaseError> {
        let expected = match self.model.0.get(&key) {
            Some(&Object::Mw { pd, .. }) => Ok(pd),
            Some(Object::Mr { .. }) | None => Err(ObjectError::NoObject("memory window")),
        };
        let result = self.table.dealloc_mw(RKey::new(key));
        prop_assert_eq!(&result, &expected);
        if result.is_ok() {
            self.model.0.remove(&key);
        }
        Ok(())
    }

    fn bind(&mut self, pd: PdId, qpn: Qpn, bind: &BindMw) -> Result<(), TestCaseError> {
        let expected = self.model.bind(pd, qpn, bind);
        prop_assert_eq!(self.table.bind_mw(pd, qpn, bind), expected);
        if expected.is_ok() {
            self.given.push(bind.rkey.get());
        }
        Ok(())
    }

    fn unbind_all(&mut self, qpn: Qpn) {
        self.table.unbind_all(qpn);
        for object in self.model.0.values_mut() {
            if let Object::Mw { bound, .. } = object {
                bound.take_if(|b| b.qpn == qpn);
            }
        }
    }

    fn check_counts(&self) -> Result<(), TestCaseError> {
        let is_mr = |object: &&Object| matches!(object, Object::Mr { .. });
        let mrs = self.model.0.values().filter(is_mr).count();
        prop_assert_eq!(self.table.mr_count() as usize, mrs);
        prop_assert_eq!(self.table.mw_count() as usize, self.model.0.len() - mrs);
        Ok(())
    }

    /// Notes a key that the table gave out, which must be new.
    fn give(&mut self, key: u32, object: Object) -> Result<(), TestCaseError> {
        prop_assert!(self.model.0.insert(key, object).is_none(), "{:#x} is given out twice", key);
        self.given.push(key);
        Ok(())
    }
}

fn check_opened(
    result: Result<RemoteAccess<'_>, AccessFault>,
    len: u64,
    expected: Result<u64, AccessFault>,
) -> Result<(), TestCaseError> {
    if len == 0 {
        prop_assert!(result.is_ok_and(|access| access.is_empty()));
        return Ok(());
    }
    let landed = result.map(|access| {
        assert_eq!(access.len(), len);
        access.region.map_or(0, Region::addr) + access.offset
    });
    prop_assert_eq!(landed, expected);
    Ok(())
}

fn op() -> impl Strategy<Value = Op> {
    let pd = || (1..3u32).prop_map(PdId);
    let qpn = || (1..3u32).prop_map(Qpn::new);
    let key = || {
        let flip = prop_oneof![9 => Just(None), 1 => (0..32u32).prop_map(Some)];
        (any::<prop::sample::Index>(), flip).prop_map(|(which, flip)| Key { which, flip })
    };
    let iova = || prop_oneof![Just(0u64), Just(0x1000), Just(u64::MAX - BUFFER_LEN + 1)];
    let addr = || (iova(), 0..BUFFER_LEN + 2).prop_map(|(iova, at)| iova.wrapping_add(at).wrapping_sub(1));
    let len = || prop_oneof![4 => 0..BUFFER_LEN + 2, 1 => Just(u64::MAX)];
    let flags =
        |mask: AccessFlags| any::<u32>().prop_map(move |bits| AccessFlags::from_bits_truncate(bits) & mask);
    let remote = RW | RR | RA;
    let of_region = flags(remote | LW | AccessFlags::ZERO_BASED).prop_map(|f| f | AccessFlags::MW_BIND);
    let of_region = prop_oneof![3 => of_region.prop_map(|f| f | LW), 1 => flags(remote | LW)];
    let of_window = prop_oneof![9 => flags(remote | AccessFlags::ZERO_BASED), 1 => Just(RR | LW)];
    let rights = prop_oneof![Just(RR), Just(RW), Just(RA), Just(RR | RW)];
    prop_oneof![
        3 => (pd(), 0..BUFFERS, iova(), of_region)
            .prop_map(|(pd, buffer, iova, access)| Op::Register { pd, buffer, iova, access }),
        1 => key().prop_map(Op::Deregister),
        2 => pd().prop_map(Op::AllocMw),
        1 => key().prop_map(Op::DeallocMw),
        4 => (pd(), qpn(), key(), any::<u8>(), key(), addr(), len(), of_window).prop_map(
            |(pd, qpn, mw, low, mr, addr, length, access)| Op::Bind { pd, qpn, mw, low, mr, addr, length, access }
        ),
        2 => (pd(), qpn(), key()).prop_map(|(pd, qpn, key)| Op::Invalidate { pd, qpn, key }),
        1 => qpn().prop_map(Op::UnbindAll),
        8 => (pd(), qpn(), key(), addr(), len(), rights)
            .prop_map(|(pd, qpn, key, addr, len, rights)| Op::OpenRemote { pd, qpn, key, addr, len, rights }),
        4 => (pd(), key(), addr(), 0..70u32, any::<bool>())
            .prop_map(|(pd, key, addr, length, write)| Op::OpenLocal { pd, key, addr, length, write }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_table_does_what_the_naive_model_does(seed in any::<u64>(), ops in prop::collection::vec(op(), 1..120)) {
        let buffers = (0..BUFFERS).map(|_| region(64)).collect();
        let mut pair = Pair { buffers, table: MrTable::new(seed), model: Model::default(), given: Vec::new() };
        for op in &ops {
            pair.step(op)?;
        }
    }
}
