//! The windows towards destination sockets, shared by the queue pairs that send there.
//!
//! A peer's process has one socket for all queue pairs of a slot, and its buffer is what overflows. So the window
//! belongs to the peer's address, port and slot, which the upper bits of the destination QPN name.

use std::collections::{HashMap, VecDeque};

use slab::Slab;
use userdma_ibt::{Destination, Window};
use userdma_mem::Route;
use userdma_verbs::Qpn;

use crate::config::table_index;

/// A window of a device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct WindowId(u32);

/// The windows in use.
#[derive(Debug)]
pub(crate) struct Windows {
    max_bytes: u32,
    entries: Slab<Entry>,
    ids: HashMap<Destination, WindowId>,
    /// What queue pairs without a destination see.
    unbound: Window,
}

#[derive(Debug)]
struct Entry {
    window: Window,
    destination: Destination,
    users: u32,
    /// Queue pairs that found the window full, by index, in the order of their turns.
    waiting: VecDeque<u32>,
}

impl Windows {
    /// No windows; each may grow to `max_bytes`.
    pub(crate) fn new(max_bytes: u32) -> Self {
        Self { max_bytes, entries: Slab::new(), ids: HashMap::new(), unbound: Window::new(max_bytes) }
    }

    /// The window towards the socket that `route` and `qpn` lead to, with one user more.
    pub(crate) fn acquire(&mut self, route: &Route, qpn: Qpn) -> WindowId {
        let destination = Destination::of(route, qpn);
        let (entries, max_bytes) = (&mut self.entries, self.max_bytes);
        let id = *self.ids.entry(destination).or_insert_with(|| {
            let window = Window::new(max_bytes);
            let key = entries.insert(Entry { window, destination, users: 0, waiting: VecDeque::new() });
            WindowId(table_index(key))
        });
        if let Some(entry) = self.entries.get_mut(id.0 as usize) {
            entry.users += 1;
            entry.waiting.reserve((entry.users as usize).saturating_sub(entry.waiting.len()));
        }
        id
    }

    /// Takes a user off; the last one takes the window along.
    pub(crate) fn release(&mut self, id: WindowId) {
        let Some(entry) = self.entries.get_mut(id.0 as usize) else { return };
        entry.users -= 1;
        if entry.users == 0 {
            let entry = self.entries.remove(id.0 as usize);
            self.ids.remove(&entry.destination);
        }
    }

    /// The window, or one that nobody uses if there is none.
    pub(crate) fn window(&mut self, id: Option<WindowId>) -> &mut Window {
        match id.and_then(|id| self.entries.get_mut(id.0 as usize)) {
            Some(entry) => &mut entry.window,
            None => &mut self.unbound,
        }
    }

    /// A queue pair found the window full: its turn comes again when there is room.
    pub(crate) fn wait(&mut self, id: WindowId, index: u32) {
        if let Some(entry) = self.entries.get_mut(id.0 as usize) {
            entry.waiting.push_back(index);
        }
    }

    /// Whether queue pairs wait for it.
    pub(crate) fn is_awaited(&self, id: WindowId) -> bool {
        self.entries.get(id.0 as usize).is_some_and(|entry| !entry.waiting.is_empty())
    }

    /// Whose turn it is, if there is room for a packet of any size.
    pub(crate) fn pop_waiting(&mut self, id: WindowId) -> Option<u32> {
        let entry = self.entries.get_mut(id.0 as usize)?;
        if entry.waiting.is_empty() || !entry.window.has_room(ROOM) {
            return None;
        }
        entry.waiting.pop_front()
    }
}

/// Room for a packet of the largest MTU.
const ROOM: u32 = 4096 + 256;

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use userdma_mem::LinkId;

    use super::*;

    fn route(last: u8) -> Route {
        Route {
            link: LinkId(0),
            local: IpAddr::V4(Ipv4Addr::LOCALHOST),
            remote: IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)),
            scope_id: 0,
            socket: 0,
            local_port: 50_000,
            remote_port: 4791,
            traffic_class: 0,
            hop_limit: 64,
        }
    }

    #[test]
    fn queue_pairs_to_one_socket_share_a_window_until_the_last_is_gone() {
        let mut windows = Windows::new(Window::MAX);
        let a = windows.acquire(&route(2), Qpn::new(0x4011));
        let b = windows.acquire(&route(2), Qpn::new(0x4022));
        let other_slot = windows.acquire(&route(2), Qpn::new(0x8011));
        let other_host = windows.acquire(&route(3), Qpn::new(0x4011));
        assert_eq!(a, b);
        assert!(a != other_slot && a != other_host && other_slot != other_host);
        windows.window(Some(a)).on_sent(1000);
        windows.release(a);
        assert_eq!(windows.window(Some(b)).in_flight(), 1000);
        windows.release(b);
        let again = windows.acquire(&route(2), Qpn::new(0x4011));
        assert_eq!(windows.window(Some(again)).in_flight(), 0, "a new window");
    }

    #[test]
    fn those_who_wait_come_in_order_when_there_is_room() {
        let mut windows = Windows::new(Window::MAX);
        let id = windows.acquire(&route(2), Qpn::new(0x4011));
        let full = windows.window(Some(id)).limit();
        windows.window(Some(id)).on_sent(full);
        windows.wait(id, 7);
        windows.wait(id, 8);
        assert_eq!(windows.pop_waiting(id), None);
        windows.window(Some(id)).forget(8192);
        assert_eq!(
            (windows.pop_waiting(id), windows.pop_waiting(id), windows.pop_waiting(id)),
            (Some(7), Some(8), None)
        );
    }
}
