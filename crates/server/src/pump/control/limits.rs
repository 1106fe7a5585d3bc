//! What an operator may change while sessions are sent.

use std::sync::Arc;

use pump::spec::{Command, SessionId};

use super::{Allowed, End, Limits, PumpControl};

impl PumpControl {
    /// So much may be sent from now on, and only there. Sessions to where nothing may be sent any more end, but the server's own; others
    /// go on, however many there are.
    pub fn set_limits(&self, limits: Limits, destinations: Allowed) {
        let denied: Vec<(SessionId, _)> = {
            let mut state = self.lock();
            let is_other = state.sessions.limits().sessions_max != limits.sessions_max;
            state.sessions.set_limits(limits);
            if is_other {
                for worker in self.plane.workers().ids() {
                    self.post(worker, Command::Limit(limits.sessions_max));
                }
            }
            let open = state.sessions.iter().filter(|session| session.end.is_none() && !session.is_own);
            let is_denied = |ip| destinations.check(ip).is_err();
            let denied = open.filter(|session| is_denied(session.remote.ip()));
            let denied = denied.map(|session| (session.id, session.remote)).collect();
            state.destinations = Some(Arc::new(destinations));
            denied
        };
        for (id, remote) in denied {
            tracing::info!(session = id.0, %remote, "nothing may be sent there any more; the session ends");
            self.close_because(id, End::NotAllowed);
        }
    }
}
