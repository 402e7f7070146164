//! How a service that starts goes on where the one before has ended: what the keeper has becomes its books.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use userdma_link::clock;
use userdma_link::descriptors::Peer;

use super::keeper::{self, hear};
use super::note::Note;
use crate::desk::Desk;
use crate::group::Group;
use crate::locks::Line;
use crate::names::{self, Name};
use crate::wait;

/// Becomes the service of the keeper, which is started if there is none, and writes what it has into `desk`.
pub(super) fn take_over(
    start_keeper: &mut impl FnMut() -> io::Result<()>,
    desk: &mut Desk,
) -> io::Result<OwnedFd> {
    let end = clock::now().plus_nanos(PATIENCE_NS);
    loop {
        let keeper = find(start_keeper)?;
        if let Some(notes) = all_notes(&keeper) {
            for (note, descriptors) in notes {
                restore(desk, note, descriptors)?;
            }
            return Ok(keeper);
        }
        // It was just about to leave.
        if clock::now() >= end {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it is there and does not answer"));
        }
    }
}

/// A keeper that has nothing yet, in place of one that was lost.
pub(super) fn find_keeper(start_keeper: &mut impl FnMut() -> io::Result<()>) -> io::Result<OwnedFd> {
    let keeper = find(start_keeper)?;
    all_notes(&keeper).map(|_| keeper).ok_or_else(|| io::ErrorKind::ConnectionReset.into())
}

/// A connection to the keeper.
fn find(start_keeper: &mut impl FnMut() -> io::Result<()>) -> io::Result<OwnedFd> {
    let end = clock::now().plus_nanos(PATIENCE_NS);
    let mut is_started = false;
    loop {
        if let Some(keeper) = names::connect_to(Name::Keeper)? {
            let Peer { pid, uid } = Peer::of(&keeper)?;
            if uid == names::our_uid() {
                return Ok(keeper);
            }
            let why = format!("process {pid} of user {uid} has its name");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        if !is_started {
            start_keeper()?;
            is_started = true;
        }
        if clock::now() >= end {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it was started and does not listen"));
        }
        std::thread::sleep(MOMENT);
    }
}

/// Takes over: all that the keeper has. `None` if it has gone meanwhile.
fn all_notes(keeper: &OwnedFd) -> Option<Vec<(Note, Vec<OwnedFd>)>> {
    keeper::tell(keeper, &Note::TakeOver, &[]).ok()?;
    let mut notes = Vec::new();
    loop {
        if !wait::until_readable(keeper, PATIENCE_NS) {
            return None;
        }
        match hear(keeper)? {
            (Note::End, _) => return Some(notes),
            note => notes.push(note),
        }
    }
}

fn restore(desk: &mut Desk, note: Note, mut descriptors: Vec<OwnedFd>) -> io::Result<()> {
    match note {
        Note::Parks { ip, port } => desk.restore_group((ip, port), Group::from_ends(ip, port, descriptors)?),
        Note::Slot { ip, port, slot, kept } => {
            let line = descriptors.pop().map(|end| Line { end, far_inode: kept.far_inode });
            desk.restore_slot((ip, port, slot), kept, line, clock::now());
        }
        Note::TakeOver | Note::End => {}
    }
    Ok(())
}

/// How long a keeper may take to answer, or to start.
const PATIENCE_NS: u64 = 5_000_000_000;
const MOMENT: Duration = Duration::from_millis(1);
