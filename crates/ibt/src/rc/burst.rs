//! The packets in the middle of a long message: most of those that a busy device sends. What is the same for all of them is
//! looked up once.

use userdma_verbs::Sge;
use userdma_wire::{Position, packet_len};

use super::requester::Requester;
use crate::data::Data;
use crate::segment::packet_cost;
use crate::{Ctx, Out};

impl Requester {
    /// Sends packets of the element at the sending position that lie in the middle of its message and come from one element
    /// of its list, as long as nothing out of the ordinary is met. Whatever that is, the next packet meets it again.
    pub(super) fn send_middles(&mut self, ctx: &mut Ctx<'_>, out: &mut Out<'_>, data: Data, packets: u32) {
        let mtu = out.mtu();
        let Some(run) = self.run_of_middles(mtu, packets) else { return };
        let Ok(memory) = ctx.mrs.open_local(ctx.qp.pd(), &run, false) else { return };
        let opcode = data.rc_opcode(Position::Middle);
        let (size, cost) = (packet_len(opcode, mtu as usize), packet_cost(mtu));
        for at in (0..run.length).step_by(mtu as usize) {
            if !self.fits(ctx.window, cost) {
                return;
            }
            let asks = self.must_ask(ctx.window, cost);
            let mut bth = out.bth(opcode, self.next_psn);
            bth.set_ack_req(asks);
            let Some(place) = out.push(size) else { return };
            let copy = |payload: &mut [u8], crc: Option<&mut u32>| memory.read_crc(at.into(), payload, crc);
            if place.fill(&bth, mtu as usize, |writer| writer, copy).is_err() {
                return out.batch.pop(size);
            }
            self.cursor.offset += mtu;
            self.sent_data(ctx.now, ctx.window, out.attr, asks, cost, packets);
        }
    }

    /// The memory of the middle packets from the sending position on, as far as one element of the list holds it.
    fn run_of_middles(&self, mtu: u32, packets: u32) -> Option<Sge> {
        if self.next_packet == 0 {
            return None;
        }
        // Inline data has no list.
        let sge = self.ring.get(self.next)?.sgl.get(self.cursor.index)?;
        let in_element = sge.length.checked_sub(self.cursor.offset)? / mtu;
        let count = in_element.min((packets - 1).checked_sub(self.next_packet)?);
        let addr = sge.addr.checked_add(u64::from(self.cursor.offset))?;
        (count > 1).then_some(Sge { addr, length: count * mtu, lkey: sge.lkey })
    }
}
