//! Who is behind with reliable data, and who waits for that.
//!
//! In: which sessions are behind (`Event::Behind`), and by which session somebody sends to them. Out: of which sessions nothing is read
//! (`Request::Hold`). A session waits until all of those that it has sent to have caught up, or were waited for long enough
//! (`BEHIND_FOR_MAX`); what there is no room for then, the packet path drops and counts.
//! Cost: nothing while nobody is behind, else a look for each receiver of a packet.

use std::collections::{BTreeMap, BTreeSet};

use crate::limits::BEHIND_FOR_MAX;
use crate::media::{Request, SessionId};
use crate::room::{Room, Timer};
use crate::turn::Turn;

/// Sessions that are behind, and which wait for them; `None`: no longer.
#[derive(Debug, Default)]
pub(crate) struct Behind(BTreeMap<SessionId, Option<BTreeSet<SessionId>>>);

impl Behind {
    fn is_held(&self, session: SessionId) -> bool {
        self.0.values().flatten().any(|waiting| waiting.contains(&session))
    }
}

/// A session falls behind.
pub(crate) fn begin(room: &mut Room, session: SessionId, turn: &mut Turn<'_>) {
    room.behind.0.entry(session).or_insert_with(|| Some(BTreeSet::new()));
    room.timers.set(Timer::Behind(session), turn.now.at + BEHIND_FOR_MAX);
}

/// A reliable packet has come by a session, and goes to others.
pub(crate) fn hold(room: &mut Room, session: SessionId, to: &[SessionId], turn: &mut Turn<'_>) {
    let behind = &mut room.behind;
    if behind.0.is_empty() {
        return;
    }
    let was_held = behind.is_held(session);
    for receiver in to {
        if let Some(Some(waiting)) = behind.0.get_mut(receiver) {
            waiting.insert(session);
        }
    }
    if !was_held && behind.is_held(session) {
        turn.out.media(Request::Hold { session, on: true });
    }
}

/// Nobody waits for a session any more, although it is still behind.
pub(crate) fn give_up(room: &mut Room, session: SessionId, turn: &mut Turn<'_>) {
    let waiting = room.behind.0.get_mut(&session).and_then(Option::take);
    release(room, waiting, turn);
}

/// A session has caught up.
pub(crate) fn end(room: &mut Room, session: SessionId, turn: &mut Turn<'_>) {
    room.timers.clear(&Timer::Behind(session));
    let waiting = room.behind.0.remove(&session).flatten();
    release(room, waiting, turn);
}

/// Sessions are not this room's any more: nobody in it waits for them, nor they for anybody.
pub(crate) fn forget(room: &mut Room, sessions: &[SessionId], turn: &mut Turn<'_>) {
    for session in sessions {
        end(room, *session, turn);
        if room.behind.is_held(*session) {
            room.behind.0.values_mut().flatten().for_each(|waiting| _ = waiting.remove(session));
            turn.out.media(Request::Hold { session: *session, on: false });
        }
    }
}

/// Those that have waited go on, unless they wait for somebody else, too.
fn release(room: &mut Room, waited: Option<BTreeSet<SessionId>>, turn: &mut Turn<'_>) {
    for session in waited.into_iter().flatten() {
        if !room.behind.is_held(session) {
            turn.out.media(Request::Hold { session, on: false });
        }
    }
}
