//! Sessions that play a live input.

use std::time::{Duration, Instant};

use pump::spec::{Command, SessionId};

use super::{PumpControl, PumpError, Session};
use crate::pump::live::{Input, check_change};
use crate::pump::request::ChangeRequest;

/// A session whose chunk is gone waits so long until it goes on elsewhere, so that a worker that is behind is not asked
/// for it all the time.
const JUMP_WAIT: Duration = Duration::from_millis(100);

impl PumpControl {
    /// Pauses and resumes. A session that was paused goes on with what is new.
    pub(super) fn change_live(
        &self,
        id: SessionId,
        input: &Input,
        change: &ChangeRequest,
    ) -> Result<Session, PumpError> {
        check_change(change)?;
        let mut state = self.lock();
        state.sessions.renew(Instant::now(), id);
        let session = state.sessions.running(id).ok_or(PumpError::Ended)?;
        if session.is_paused
            && change.paused == Some(false)
            && let Some(to) = input.start()
        {
            self.post(session.worker, Command::Jump { session: id, to });
        }
        self.set_paused(session, change.paused);
        Ok(session.clone())
    }

    /// A session needs a chunk of its input that is gone: in a while it goes on where it would begin. It may ask more often.
    pub(super) async fn jump(&self, id: SessionId, input: &Input) {
        let is_first = |session: &mut Session| !std::mem::replace(&mut session.jumps, true);
        if !self.lock().sessions.running(id).is_some_and(is_first) {
            return;
        }
        tokio::time::sleep(JUMP_WAIT).await;
        let Some(to) = input.start() else { return };
        if let Some(session) = self.lock().sessions.running(id) {
            session.jumps = false;
            self.post(session.worker, Command::Jump { session: id, to });
        }
    }
}
