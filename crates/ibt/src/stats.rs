//! Counters. Names follow the kernel's `hw_counters` where it has one.

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a device counted since it was made.
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Stats {
            /// Every counter with its name.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

stats! {
    /// Packets received and handed to a queue pair.
    rcvd_pkts,
    /// Packets made.
    sent_pkts,
    /// Requests that had been executed before.
    duplicate_request,
    /// Requests ahead of the expected PSN.
    out_of_seq_request,
    /// RNR NAKs sent.
    sent_rnr_err,
    /// RNR NAKs received.
    rcvd_rnr_err,
    /// Sequence NAKs received.
    rcvd_seq_err,
    /// Sequence NAKs sent.
    sent_seq_err,
    /// Acknowledgements sent, NAKs not counted.
    sent_acks,
    /// Timeouts of the requester.
    local_ack_timeout_err,
    /// Silences after which the requester sent packets again to learn what is missing.
    sent_probes,
    /// Timeouts that did not count, as they were noticed much too late.
    late_ack_timers,
    /// Requester gave up after `retry_cnt` resends.
    retry_exceeded_err,
    /// Requester gave up after `rnr_retry` RNR NAKs.
    rnr_nak_retry_err,
    /// Times that the requester went back and sent again.
    completer_retry_err,
    /// READ responses that came ahead of a lost one.
    implied_nak_seq_err,
    /// Remote access NAKs sent.
    resp_remote_access_errors,
    /// Invalid request NAKs sent.
    resp_remote_invalid_request,
    /// Remote operational NAKs sent.
    resp_remote_operational,
    /// Responses that answer nothing outstanding.
    unexpected_response,
    /// Packets dropped: malformed.
    drop_malformed,
    /// Packets dropped: wrong ICRC.
    drop_icrc,
    /// Packets dropped: no such queue pair, or not one that receives.
    drop_qpn,
    /// Packets dropped: not from the connection's peer.
    drop_address,
    /// Packets dropped: partition key.
    drop_pkey,
    /// Packets dropped: opcode of another service.
    drop_opcode,
    /// Packets dropped: the responder's queue of duplicates is full.
    drop_duplicate,
    /// Messages of an unreliable service dropped: no receive is posted for them.
    drop_no_receive,
    /// Messages of an unreliable connection dropped: too long, wrong, or not granted.
    drop_refused,
    /// Datagrams dropped: not with the queue pair's key.
    qkey_viol_cntr,
    /// Datagrams dropped: longer than the receive that they would have taken.
    drop_too_long,
    /// Management datagrams dropped: nobody listens on QPN 1 and there is no answer, or there was no room on the way to him.
    drop_management,
    /// Datagrams not sent: longer than the port's MTU.
    send_too_long,
    /// IPv4 packets accepted though their identification was not known in advance.
    icrc_unknown_id,
    /// Packets marked congestion experienced.
    rcvd_ecn_marked,
}
