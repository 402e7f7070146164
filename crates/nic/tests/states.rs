//! State changes of a queue pair: which transitions there are, what they need and take, which values are possible.

#![allow(clippy::unwrap_used, reason = "a test")]

use userdma_sim::{ConnectOptions, Pair, PairOptions, QpEnd};
use userdma_verbs::{
    AccessFlags, Gid, ModifyQpError, Mtu, QpAttr, QpAttrMask as M, QpState, QpState::*, Qpn, Transition,
};

const STATES: [QpState; 7] = [Reset, Init, Rtr, Rts, Sqd, Sqe, Err];

struct Bench {
    pair: Pair,
    end: QpEnd,
    options: ConnectOptions,
}

impl Bench {
    fn new() -> Self {
        Self::with(&PairOptions::default())
    }

    fn with(options: &PairOptions) -> Self {
        let mut pair = Pair::new(options);
        let options = ConnectOptions::default();
        let end = pair.create(0, &options);
        Self { pair, end, options }
    }

    fn attr(&self, state: QpState) -> QpAttr {
        self.pair.attr(0, Qpn::new(0x8002), &self.options, state)
    }

    fn modify(&mut self, attr: &QpAttr, mask: M) -> Result<(), ModifyQpError> {
        let now = self.pair.now();
        self.pair.hosts[0].shard.modify_qp(now, self.end.qp.qpn(), attr, mask)
    }

    /// Takes the queue pair to a state, from RESET.
    fn walk(&mut self, to: QpState) {
        let path: &[QpState] = match to {
            Reset | Sqe => &[],
            Init => &[Init],
            Rtr => &[Init, Rtr],
            Rts => &[Init, Rtr, Rts],
            Sqd => &[Init, Rtr, Rts, Sqd],
            Err => &[Init, Err],
        };
        self.modify(&self.attr(Reset), M::STATE).unwrap();
        for &state in path {
            let from = self.state();
            let mask = M::STATE | Transition::rc(from, state).unwrap().required;
            self.modify(&self.attr(state), mask).unwrap();
        }
        assert_eq!(self.state(), to);
    }

    fn state(&self) -> QpState {
        let state = self.pair.hosts[0].shard.query_qp(self.end.qp.qpn()).unwrap().qp_state;
        assert_eq!(state, self.end.qp.state(), "callers see the same state");
        state
    }

    /// Modifies from the state `from`, must be refused, and nothing may have changed.
    fn refused(&mut self, from: QpState, attr: &QpAttr, mask: M) -> ModifyQpError {
        self.walk(from);
        let before = self.pair.hosts[0].shard.query_qp(self.end.qp.qpn()).unwrap();
        let error = self.modify(attr, mask).unwrap_err();
        assert_eq!(self.pair.hosts[0].shard.query_qp(self.end.qp.qpn()).unwrap(), before);
        error
    }
}

#[test]
fn every_pair_of_states_does_what_the_table_says() {
    let mut bench = Bench::new();
    // SQE cannot be reached on a reliable connection.
    for from in STATES.into_iter().filter(|&s| s != Sqe) {
        for to in STATES {
            bench.walk(from);
            let transition = Transition::rc(from, to);
            let mask = M::STATE | transition.map_or(M::empty(), |t| t.required);
            let result = bench.modify(&bench.attr(to), mask);
            match transition {
                Some(_) => assert_eq!((result, bench.state()), (Ok(()), to), "{from:?} to {to:?}"),
                None => {
                    assert_eq!(result, Result::Err(ModifyQpError::Transition { from, to }));
                    assert_eq!(bench.state(), from);
                }
            }
        }
    }
}

#[test]
fn each_missing_and_each_extra_attribute_is_named() {
    let mut bench = Bench::new();
    for (from, to) in
        [(Reset, Init), (Init, Init), (Init, Rtr), (Rtr, Rts), (Rts, Rts), (Rts, Sqd), (Sqd, Sqd)]
    {
        let Transition { required, optional } = Transition::rc(from, to).unwrap();
        for flag in M::all() - M::STATE {
            let attr = bench.attr(to);
            if required.contains(flag) {
                let error = bench.refused(from, &attr, M::STATE | (required - flag));
                assert_eq!(error, ModifyQpError::Missing { from, to, missing: flag });
            } else if !optional.contains(flag) {
                let attr = QpAttr { cur_qp_state: from, ..attr };
                let error = bench.refused(from, &attr, M::STATE | required | flag);
                assert_eq!(error, ModifyQpError::Extra { from, to, extra: flag });
            }
        }
    }
}

#[test]
fn without_a_state_in_the_mask_attributes_change_in_place() {
    let mut bench = Bench::new();
    bench.walk(Rts);
    let attr = QpAttr { qp_access_flags: AccessFlags::REMOTE_READ, ..bench.attr(Reset) };
    bench.modify(&attr, M::ACCESS_FLAGS).unwrap();
    let after = bench.pair.hosts[0].shard.query_qp(bench.end.qp.qpn()).unwrap();
    assert_eq!((after.qp_access_flags, after.qp_state), (AccessFlags::REMOTE_READ, Rts));
    bench.walk(Rtr);
    assert_eq!(
        bench.modify(&attr, M::ACCESS_FLAGS),
        Result::Err(ModifyQpError::Transition { from: Rtr, to: Rtr })
    );
}

#[test]
fn a_wrong_current_state_is_refused() {
    let mut bench = Bench::new();
    let attr = QpAttr { cur_qp_state: Sqd, ..bench.attr(Rts) };
    let error = bench.refused(Rts, &attr, M::STATE | M::CUR_STATE);
    assert_eq!(error, ModifyQpError::CurState { claimed: Sqd, actual: Rts });
}

#[test]
fn values_that_are_not_possible_are_named() {
    let mut bench = Bench::new();
    let rtr = M::STATE | Transition::rc(Init, Rtr).unwrap().required;
    let rts = M::STATE | Transition::rc(Rtr, Rts).unwrap().required;
    let init = M::STATE | Transition::rc(Reset, Init).unwrap().required;
    type Change = fn(&mut QpAttr);
    let cases: &[(QpState, QpState, M, &str, u64, Change)] = &[
        (Reset, Init, init, "port_num", 2, |a| a.port_num = 2),
        (Reset, Init, init, "pkey_index", 1, |a| a.pkey_index = 1),
        (Reset, Init, init, "qp_access_flags", 1 << 8, |a| a.qp_access_flags = AccessFlags::FLUSH_GLOBAL),
        (Init, Rtr, rtr, "dest_qp_num", 0xff_ffff, |a| a.dest_qp_num = Qpn::MULTICAST),
        (Init, Rtr, rtr, "max_dest_rd_atomic", 129, |a| a.max_dest_rd_atomic = 129),
        (Init, Rtr, rtr, "grh.sgid_index", 7, |a| a.ah_attr.grh.sgid_index = 7),
        (Init, Rtr, rtr, "grh.flow_label", 1 << 20, |a| a.ah_attr.grh.flow_label = 1 << 20),
        (Init, Rtr, rtr, "ah_attr.port_num", 0, |a| a.ah_attr.port_num = 0),
        (Init, Rtr, rtr, "ah_attr.sl", 16, |a| a.ah_attr.sl = 16),
        (Rtr, Rts, rts, "retry_cnt", 8, |a| a.retry_cnt = 8),
        (Rtr, Rts, rts, "rnr_retry", 8, |a| a.rnr_retry = 8),
        (Rtr, Rts, rts, "max_rd_atomic", 200, |a| a.max_rd_atomic = 200),
        (Rtr, Rts, rts | M::ALT_PATH, "alt_ah_attr", 1, |_| ()),
    ];
    for &(from, to, mask, field, value, change) in cases {
        let mut attr = bench.attr(to);
        change(&mut attr);
        let error = bench.refused(from, &attr, mask);
        let ModifyQpError::Value { field: f, value: v, .. } = error else { panic!("{field}: {error:?}") };
        assert_eq!((f, v), (field, value));
    }
}

#[test]
fn a_gid_that_leads_nowhere_is_named() {
    let mut bench = Bench::new();
    let rtr = M::STATE | Transition::rc(Init, Rtr).unwrap().required;
    let group = std::net::Ipv4Addr::new(224, 0, 0, 1);
    for (dgid, text) in [
        (Gid::default(), "grh.dgid is ::, the peer's GID (RoCE needs the global route) is possible"),
        (
            Gid::new(std::net::Ipv6Addr::LOCALHOST.octets()),
            "grh.dgid is ::1, a GID of the same address family as the GID at sgid_index is possible",
        ),
        (group.into(), "grh.dgid is ::ffff:224.0.0.1, a single peer's GID, not a group's is possible"),
    ] {
        let mut attr = bench.attr(Rtr);
        attr.ah_attr.grh.dgid = dgid;
        assert_eq!(bench.refused(Init, &attr, rtr).to_string(), text);
    }
}

#[test]
fn a_path_mtu_above_the_links_is_refused() {
    let link = userdma_mem::LinkCaps { mtu: 1500, ..PairOptions::default().link };
    let mut bench = Bench::with(&PairOptions { link, ..PairOptions::default() });
    assert_eq!(bench.pair.hosts[0].shard.port_attr().active_mtu, Mtu::Mtu1024);
    let rtr = M::STATE | Transition::rc(Init, Rtr).unwrap().required;
    let attr = QpAttr { path_mtu: Mtu::Mtu2048, ..bench.attr(Rtr) };
    let error = bench.refused(Init, &attr, rtr);
    assert_eq!(error.to_string(), "path_mtu is 2048, at most the port's active_mtu, 1024, is possible");
    let attr = QpAttr { path_mtu: Mtu::Mtu1024, ..bench.attr(Rtr) };
    bench.modify(&attr, rtr).unwrap();
}

#[test]
fn a_query_gives_back_what_was_set() {
    let mut bench = Bench::new();
    bench.walk(Rts);
    let query = bench.pair.hosts[0].shard.query_qp(bench.end.qp.qpn()).unwrap();
    let set = bench.attr(Rts);
    assert_eq!(query, QpAttr { cur_qp_state: Rts, cap: bench.end.qp.cap(), ..set });
}

#[test]
fn attributes_of_a_queue_pair_that_is_gone_are_nobodys() {
    let mut bench = Bench::new();
    let (now, qpn) = (bench.pair.now(), bench.end.qp.qpn());
    let attr = bench.attr(Init);
    bench.pair.hosts[0].shard.destroy_qp(now, qpn).unwrap();
    assert_eq!(bench.modify(&attr, M::STATE), Result::Err(ModifyQpError::NoQp));
    assert!(bench.pair.hosts[0].shard.query_qp(qpn).is_err());
    assert!(bench.pair.hosts[0].shard.destroy_qp(now, qpn).is_err());
}
