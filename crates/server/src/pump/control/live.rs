//! Sessions that play a live input.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use pump::spec::{Command, EndReason, SessionId, SessionSpec};
use tokio::runtime::Handle;
use wire::{LinkId, Path};

use super::{Overloaded, PumpControl, PumpError, PumpPort, Session, pid_map, rate_of, transport};
use crate::pump::live::{Input, Inputs, check_change, check_open};
use crate::pump::request::{ChangeRequest, OpenRequest};

impl PumpControl {
    pub(in crate::pump) fn ports(&self) -> &[PumpPort] {
        &self.ports
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
        let transport = transport(request.destination.is_rtp)?;
        let rate = rate_of(request, &title, None)?;
        self.with_state(|state| {
            let place = state.sessions.place(rate).map_err(|Overloaded| PumpError::Overloaded)?;
            let session = Session::new(place, request, title.clone(), remote, rate, transport);
            let session = state.sessions.open(session).clone();
            state.sessions.renew(asked, session.id);
            let port = self.ports.get(session.worker).ok_or(PumpError::Busy);
            let live = match port.and_then(|port| self.live.begin(input, session.id, session.worker, port)) {
                Ok(live) => live,
                Err(error) => {
                    state.sessions.handle_ended(session.id, EndReason::Full, Box::default());
                    return Err(error);
                }
            };
            let link = self.link(session.worker, request.output.as_deref(), remote.ip());
            let path = Path { link: link.unwrap_or(LinkId(u32::MAX)), remote, local: None };
            let spec = SessionSpec {
                transport,
                fec: request.fec,
                pacing: request.pacing,
                burst: request.burst.unwrap_or(self.settings.burst),
                when_starved: request.when_starved,
                pids: pid_map(request, &title),
                is_paused: request.paused,
                is_monitored: request.monitor,
                not_before: (!request.delay.is_zero()).then(|| asked + request.delay),
                live: Some(live),
                ..SessionSpec::new(session.id, title.clone(), path)
            };
            state.post(session.worker, Command::Open(Box::new(spec)));
            Ok(session)
        })
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
