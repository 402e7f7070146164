//! What comes before the first message: memory, queue pairs, and what the two sides must tell each other.

use super::{Demo, Screen};
use crate::failure::Failure;
use crate::pair::protocol::{Opened, Request};
use crate::pair::side;

pub(super) fn run(demo: &mut Demo, screen: &mut Screen) -> Result<(), Failure> {
    screen.part("protection domain and memory region (MR) on each side");
    show_region("A", &demo.a.opened(), screen);
    show_region("B", &demo.b_opened, screen);
    screen.part("queue pair (QP) on each side, endpoints exchanged over TCP, RESET → INIT → RTR → RTS");
    demo.connect(Some(screen))?;
    let state: String = demo.b.ask(&Request::QpState)?;
    let ours = side::state_name(demo.a.qp()?.state());
    if (ours, state.as_str()) == ("RTS", "RTS") {
        screen.verified("both queue pairs are ready to send (RTS)");
    } else {
        screen.wrong(&format!("A's queue pair is in {ours}, B's in {state}"));
    }
    Ok(())
}

fn show_region(who: &str, opened: &Opened, screen: &mut Screen) {
    let Opened { addr, len, lkey, rkey, access, .. } = opened;
    screen.line(&format!("{who}  MR   addr {addr:#x}  {len} bytes  lkey {lkey:#010x}  rkey {rkey:#010x}"));
    screen.line(&format!("        rights: {access}"));
}

impl Demo {
    /// New queue pairs on both sides, connected.
    pub(super) fn connect(&mut self, mut screen: Option<&mut Screen>) -> Result<(), Failure> {
        let ours = self.a.create_qp()?;
        let (qpn, psn): (u32, u32) = self.b.ask(&Request::CreateQp)?;
        self.b.tell(&Request::Connect)?;
        let connected = self.a.connect(&mut self.b.control.stream)?;
        let b_states: Vec<String> = self.b.answer()?;
        if connected.peer.qpn.get() != qpn || connected.peer.psn.get() != psn {
            return Err(Failure::new("what B told over TCP is not what B has"));
        }
        if let Some(screen) = screen.as_mut() {
            let states = |list: &[String]| format!("RESET → {}", list.join(" → "));
            let peer = connected.peer;
            screen.line(&format!(
                "A  QP   qpn {}  first psn {}  {}",
                ours.qpn,
                ours.psn,
                states(&connected.states)
            ));
            screen.line(&format!("B  QP   qpn {}  first psn {}  {}", peer.qpn, peer.psn, states(&b_states)));
            screen.line(&format!(
                "TCP {}: GID, QPN and first PSN; address, length and rkey of the MR",
                self.b.address
            ));
            let path_mtu = self.a.qp()?.query()?.path_mtu.bytes();
            screen.line(&format!("path MTU {path_mtu} bytes, ACK timeout 67 ms, 7 retries"));
        }
        Ok(())
    }

    /// B's memory as A knows it.
    pub(super) fn remote(&self) -> userdma::RemoteMr {
        userdma::RemoteMr {
            addr: self.b_opened.addr,
            rkey: userdma::RKey::new(self.b_opened.rkey),
            len: self.b_opened.len as u64,
        }
    }
}
