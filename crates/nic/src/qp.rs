//! The device's queue pairs, by index.

use std::collections::{BTreeSet, VecDeque};
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
/// meet nobody; and not at all, unless there is no other, while it is guarded.
#[derive(Debug)]
pub(crate) struct QpTable {
    entries: Vec<Option<Box<Qp>>>,
    free: VecDeque<u32>,
    /// Those of connections that are not over yet.
    guarded: BTreeSet<u32>,
    /// Of the guarded those whose queue pairs have gone, in that order.
    resting: VecDeque<u32>,
}

impl QpTable {
    /// An empty table whose first queue pair gets index `first`: 2 ..= 16383. Those before it come last.
    pub(crate) fn new(first: u16) -> Self {
        let first = usize::from(first).clamp(FIRST_INDEX, MAX_QPS - 1);
        Self {
            entries: std::iter::repeat_with(|| None).take(first).collect(),
            free: (FIRST_INDEX..first).map(table_index).collect(),
            guarded: BTreeSet::new(),
            resting: VecDeque::new(),
        }
    }

    /// From now on the index is not given again after its queue pair has gone, or is again.
    pub(crate) fn guard(&mut self, index: u32, is_guarded: bool) {
        if is_guarded {
            self.guarded.insert(index);
        } else if self.guarded.remove(&index)
            // They go about as they came: it is among the first.
            && let Some(at) = self.resting.iter().position(|&resting| resting == index)
        {
            self.resting.remove(at);
            self.free.push_back(index);
        }
    }

    /// Whether any index is guarded.
    pub(crate) fn guards(&self) -> bool {
        !self.guarded.is_empty()
    }

    /// The index that the next queue pair would get.
    pub(crate) fn next_index(&self) -> u16 {
        let next = if self.entries.len() < MAX_QPS {
            Some(table_index(self.entries.len()))
        } else {
            self.free.front().or_else(|| self.resting.front()).copied()
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
        // Rather one that rests than none.
        self.free.pop_front().or_else(|| self.resting.pop_front())
    }

    /// Number of queue pairs, reserved ones counted.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - FIRST_INDEX - self.free.len() - self.resting.len()
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
        self.give_back(index);
        Some(*qp)
    }

    fn give_back(&mut self, index: u32) {
        if self.guarded.contains(&index) {
            self.resting.push_back(index);
        } else {
            self.free.push_back(index);
        }
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
    fn a_guarded_index_is_given_again_when_it_is_free_or_nothing_else_is() {
        let mut table = QpTable::new(2);
        let all: Vec<_> = std::iter::from_fn(|| table.reserve()).collect();
        [6, 7, 8].into_iter().for_each(|index| table.guard(index, true));
        [7, 9, 8, 10, 6].into_iter().for_each(|index| table.give_back(index));
        assert_eq!(table.len(), all.len() - 5);
        assert_eq!([table.reserve(), table.reserve()], [Some(9), Some(10)]);
        table.guard(8, false);
        assert!(table.guards());
        assert_eq!(table.next_index(), 8);
        assert_eq!(table.reserve(), Some(8));
        assert_eq!(table.next_index(), 7);
        let rested = [table.reserve(), table.reserve(), table.reserve()];
        assert_eq!(rested, [Some(7), Some(6), None], "rather one that rests than none");
        table.guard(6, false);
        table.give_back(7);
        assert_eq!(table.len(), all.len() - 1, "it rests again");
        table.guard(7, false);
        assert!(!table.guards());
        assert_eq!(table.reserve(), Some(7));
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
