//! The device's queue pairs, by index.

use std::collections::VecDeque;
use std::sync::Arc;

use userdma_objects::{Cq, QpShared};

use crate::config::{MAX_QPS, table_index};
use crate::transport::Transport;
use crate::windows::WindowId;

/// A queue pair of the device.
#[derive(Debug)]
pub(crate) struct Qp {
    /// The machine.
    pub(crate) transport: Transport,
    /// The half that callers post to.
    pub(crate) shared: Arc<QpShared>,
    /// Where sends complete.
    pub(crate) send_cq: Arc<Cq>,
    /// Where receives complete.
    pub(crate) recv_cq: Arc<Cq>,
    /// The window towards the destination, from RTR on.
    pub(crate) window: Option<WindowId>,
    /// It is in the list of those that may have something to send.
    pub(crate) is_ready: bool,
    /// It is in the list of those that wait for their window.
    pub(crate) is_waiting: bool,
    /// Its owed acknowledgements may leave at its next turn.
    pub(crate) may_ack: bool,
    /// It is in the list of those that wait for their packets to leave.
    pub(crate) is_sending: bool,
    /// It is in the list of those that were too fast.
    pub(crate) is_paced: bool,
}

impl Qp {
    /// In RESET, in no list.
    pub(crate) fn new(
        transport: Transport,
        shared: Arc<QpShared>,
        send_cq: Arc<Cq>,
        recv_cq: Arc<Cq>,
    ) -> Self {
        Self {
            transport,
            shared,
            send_cq,
            recv_cq,
            window: None,
            is_ready: false,
            is_waiting: false,
            may_ack: false,
            is_sending: false,
            is_paced: false,
        }
    }
}

/// Queue pairs by index. An index is given again as late as possible, so that packets to a queue pair that is gone
/// meet nobody.
#[derive(Debug)]
pub(crate) struct QpTable {
    entries: Vec<Option<Box<Qp>>>,
    free: VecDeque<u32>,
}

impl QpTable {
    /// An empty table whose first queue pair gets index `first`: 2 ..= 16383. Those before it come last.
    pub(crate) fn new(first: u16) -> Self {
        let first = usize::from(first).clamp(FIRST_INDEX, MAX_QPS - 1);
        Self {
            entries: std::iter::repeat_with(|| None).take(first).collect(),
            free: (FIRST_INDEX..first).map(table_index).collect(),
        }
    }

    /// The index that the next queue pair would get.
    pub(crate) fn next_index(&self) -> u16 {
        let next = if self.entries.len() < MAX_QPS {
            Some(table_index(self.entries.len()))
        } else {
            self.free.front().copied()
        };
        // Without any free one, where a table begins.
        next.and_then(|index| u16::try_from(index).ok()).unwrap_or(2)
    }

    /// An index that is free, longest unused first; `None` if there is none.
    pub(crate) fn reserve(&mut self) -> Option<u32> {
        if self.entries.len() < MAX_QPS {
            self.entries.push(None);
            return Some(table_index(self.entries.len() - 1));
        }
        self.free.pop_front()
    }

    /// Number of queue pairs, reserved ones counted.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - FIRST_INDEX - self.free.len()
    }

    /// One past the highest index.
    pub(crate) fn indices_end(&self) -> usize {
        self.entries.len()
    }

    /// Puts a queue pair at an index that was reserved.
    pub(crate) fn insert(&mut self, index: u32, qp: Qp) {
        self.entries[index as usize] = Some(Box::new(qp));
    }

    pub(crate) fn get(&self, index: u32) -> Option<&Qp> {
        self.entries.get(index as usize)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Qp> {
        self.entries.get_mut(index as usize)?.as_deref_mut()
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<Qp> {
        let qp = self.entries.get_mut(index as usize)?.take()?;
        self.free.push_back(index);
        Some(*qp)
    }

    /// Indices at which there are queue pairs.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> {
        self.entries.iter().enumerate().filter(|(_, qp)| qp.is_some()).map(|(index, _)| table_index(index))
    }
}

/// Indices 0 and 1 are left out: in slot 0 they are the QPNs of SMI and GSI.
const FIRST_INDEX: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_go_on_from_the_first_and_come_round() {
        let mut table = QpTable::new(16_381);
        assert_eq!((table.len(), table.next_index()), (0, 16_381));
        let given: Vec<_> = (0..5).map(|_| table.reserve().unwrap()).collect();
        assert_eq!(given, [16_381, 16_382, 16_383, 2, 3]);
        assert_eq!((table.len(), table.next_index()), (5, 4));
    }

    #[test]
    fn a_table_has_as_many_indices_wherever_it_begins() {
        for first in [2, 9000, 16_383] {
            let mut table = QpTable::new(first);
            assert_eq!(std::iter::from_fn(|| table.reserve()).count(), MAX_QPS - FIRST_INDEX);
            assert_eq!(table.len(), MAX_QPS - FIRST_INDEX);
        }
    }
}
