//! Sessions that play a live input.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use pump::spec::{Command, SessionId};
use tokio::runtime::Handle;

use super::open::{Newcomer, rate_of};
use super::{PumpControl, PumpError, Session};
use crate::plane::workers::Workers;
use crate::pump::live::{Input, Inputs, check_change, check_open};
use crate::pump::request::{ChangeRequest, OpenRequest};

impl PumpControl {
    pub(in crate::pump) fn workers(&self) -> &Workers {
        self.plane.workers()
    }

    pub(in crate::pump) fn live(&self) -> &Inputs {
        &self.live
    }

    /// Opens a session that begins at the newest picture that stands alone.
    pub(super) fn open_live(
        &self,
        asked: Instant,
        request: &OpenRequest,
        remote: SocketAddr,
        input: &Arc<Input>,
    ) -> Result<Session, PumpError> {
        check_open(request)?;
        let title = input.title()?;
        let rate = rate_of(request, &title, None)?;
        let (zero, start, end, end_packet) = (None, 0, None, u64::MAX);
        let input = Some(input);
        self.admit(&Newcomer { asked, request, remote, title, rate, zero, start, end, end_packet, input })
    }

    /// Pauses and resumes. A session that was paused goes on with what is new.
    pub(super) fn change_live(&self, id: SessionId, change: &ChangeRequest) -> Result<Session, PumpError> {
        check_change(change)?;
        let newest = self.live.newest(id);
        self.with_state(|state| {
            state.sessions.renew(Instant::now(), id);
            let session = state.sessions.running(id).ok_or(PumpError::Ended)?;
            let was_paused = session.is_paused;
            session.is_paused = change.paused.unwrap_or(was_paused);
            let session = session.clone();
            match change.paused {
                Some(true) => state.post(session.worker, Command::Pause(id)),
                Some(false) => {
                    if let Some(to) = newest.filter(|_| was_paused) {
                        state.post(session.worker, Command::Jump { session: id, to });
                    }
                    state.post(session.worker, Command::Resume(id));
                }
                None => {}
            }
            Ok(session)
        })
    }

    /// A session needs a chunk that is gone.
    pub(super) fn handle_gone(self: &Arc<Self>, id: SessionId, runtime: &Handle) {
        if !self.live.note_gone(id) {
            return;
        }
        let control = self.clone();
        runtime.spawn(async move {
            let (Some(command), Ok(session)) = (control.live.jump(id).await, control.running(id)) else { return };
            control.with_state(|state| state.post(session.worker, command));
        });
    }
}
