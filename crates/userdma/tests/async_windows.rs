//! Memory windows with futures: bound, used by the peer, withdrawn, bound again; and how that fails.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod common;

use std::pin::pin;
use std::task::{Context, Waker};

use common::asynch::{AsyncOptions, AsyncSide, async_pair, async_pair_with};
use futures_executor::block_on;
use futures_util::join;
use userdma::{AccessFlags, Inline, Mr, QpState, SendFlags, WcStatus, WrError};

const WRITES: AccessFlags = AccessFlags::REMOTE_WRITE;

/// A region whose parts only windows open.
fn closed(side: &AsyncSide) -> Mr {
    side.pd.alloc(4096, AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND).unwrap()
}

#[test]
fn a_window_is_bound_withdrawn_and_bound_again() {
    let (a, b) = async_pair(214);
    let theirs = closed(&b);
    let mw = b.pd.alloc_mw().unwrap();
    let late = block_on(async {
        let first = b.qp.bind_mw(&mw, theirs.slice(64..128), WRITES).await?;
        assert_eq!((first.rkey, first.len), (mw.rkey(), 64));
        a.qp.write(Inline(b"first"), first).await?;
        b.qp.local_inv(first.rkey).await?;
        let second = b.qp.bind_mw(&mw, theirs.slice(128..), WRITES).with_flags(SendFlags::FENCE).await?;
        assert_ne!(first.rkey, second.rkey);
        a.qp.write(Inline(b"second"), second).await?;
        Ok::<_, WrError>(a.qp.write(Inline(b"late"), first).await)
    });
    assert_eq!(late.unwrap().unwrap_err().status(), Some(WcStatus::RemAccessErr));
    assert_eq!(theirs.to_vec(64..69).unwrap(), b"first");
    assert_eq!(theirs.to_vec(128..134).unwrap(), b"second");
}

#[test]
fn the_key_is_that_of_the_post_and_not_of_the_call() {
    let (a, b) = async_pair(215);
    let theirs = closed(&b);
    let mw = b.pd.alloc_mw().unwrap();
    let called_first = b.qp.bind_mw(&mw, theirs.slice(..8), WRITES);
    let called_second = b.qp.bind_mw(&mw, theirs.slice(8..16), WRITES);
    block_on(async {
        let posted_first = called_second.await?;
        b.qp.local_inv(posted_first.rkey).await?;
        let posted_second = called_first.await?;
        assert_ne!(posted_first.rkey, posted_second.rkey);
        a.qp.write(Inline(b"by key 2"), posted_second).await
    })
    .unwrap();
    assert_eq!(theirs.to_vec(..16).unwrap(), b"by key 2\0\0\0\0\0\0\0\0");
}

#[test]
fn a_bind_waits_for_a_place_and_ends_in_its_turn() {
    let options = AsyncOptions { qp: |qp| qp.max_send_wr(1), ..AsyncOptions::default() };
    let (a, b) = async_pair_with(216, &options);
    let (mine, theirs) = (a.mr(64, 1), closed(&b));
    let windows: Vec<_> = (0..4).map(|_| b.pd.alloc_mw().unwrap()).collect();
    let part = |i: usize| theirs.slice(8 * i..8 * i + 8);
    block_on(async {
        let (_, w0, w1, _, w2, w3) = join!(
            b.qp.write(Inline(b"before"), mine.remote()),
            b.qp.bind_mw(&windows[0], part(0), WRITES),
            b.qp.bind_mw(&windows[1], part(1), WRITES),
            b.qp.write(Inline(b"between"), mine.remote()),
            b.qp.bind_mw(&windows[2], part(2), WRITES),
            b.qp.bind_mw(&windows[3], part(3), WRITES),
        );
        for (i, remote) in [w0?, w1?, w2?, w3?].into_iter().enumerate() {
            assert_eq!(remote.rkey, windows[i].rkey());
            a.qp.write(Inline(&[b'0' + u8::try_from(i).unwrap(); 8]), remote).await?;
        }
        Ok::<_, WrError>(())
    })
    .unwrap();
    assert_eq!(theirs.to_vec(..32).unwrap(), b"00000000111111112222222233333333");
}

#[test]
fn a_bind_that_is_given_up_is_taken_back_or_done() {
    let (a, b) = async_pair(217);
    let theirs = closed(&b);
    let mw = b.pd.alloc_mw().unwrap();
    let unbound = mw.rkey();
    drop(b.qp.bind_mw(&mw, theirs.slice(..8), WRITES));
    assert_eq!(mw.rkey(), unbound, "it was never polled");
    {
        let mut bind = pin!(b.qp.bind_mw(&mw, theirs.slice(..8), WRITES));
        // Ready at once if the completion came that quickly.
        let _ = bind.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
    block_on(async {
        // What is posted behind it ends behind it.
        b.qp.write((), a.mr(8, 0).remote()).await?;
        let remote = userdma::RemoteMr { rkey: mw.rkey(), ..theirs.slice(..8).remote() };
        a.qp.write(Inline(b"it is so"), remote).await?;
        b.qp.local_inv(mw.rkey()).await
    })
    .unwrap();
    assert_eq!(theirs.to_vec(..8).unwrap(), b"it is so");
}

#[test]
fn a_bind_that_cannot_be_done_says_why() {
    let (a, b) = async_pair(218);
    let theirs = closed(&b);
    let foreign = a.pd.alloc_mw().unwrap();
    let error = block_on(b.qp.bind_mw(&foreign, theirs.slice(..), WRITES)).unwrap_err();
    let text = "bind of a memory window was not posted: the memory window belongs to another device";
    assert_eq!(error.to_string(), text);
    assert_eq!(b.qp.query().unwrap().qp_state, QpState::Rts, "nothing was posted");

    let without = b.mr(64, 0);
    let mw = b.pd.alloc_mw().unwrap();
    let error = block_on(b.qp.bind_mw(&mw, without.slice(..), WRITES)).unwrap_err();
    assert_eq!(error.status(), Some(WcStatus::MwBindErr));
    let qpn = b.qp.qpn().get();
    let text = format!("bind of a memory window on queue pair {qpn:#x} failed: memory window bind error");
    assert_eq!(error.to_string(), text);
    assert_eq!(b.qp.query().unwrap().qp_state, QpState::Err);
}
