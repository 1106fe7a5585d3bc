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

    /// A session needs a chunk of its input that is gone: in a while it goes on where it would begin, as soon as there is
    /// such a place. It may ask more often.
    pub(super) async fn jump(&self, id: SessionId, input: &Input) {
        let is_first = |session: &mut Session| !std::mem::replace(&mut session.jumps, true);
        if !self.lock().sessions.running(id).is_some_and(is_first) {
            return;
        }
        loop {
            tokio::time::sleep(JUMP_WAIT).await;
            if self.jump_now(id, input) {
                return;
            }
        }
    }

    /// False while there is no place to go on.
    fn jump_now(&self, id: SessionId, input: &Input) -> bool {
        let mut state = self.lock();
        let Some(session) = state.sessions.running(id) else { return true };
        let Some(to) = input.start() else { return false };
        session.jumps = false;
        self.post(session.worker, Command::Jump { session: id, to });
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use engine::mailbox;
    use pump::sample::Sample;
    use pump::spec::Transport;
    use pump::title::{CHUNK_PACKETS, Title};
    use titles::Library;
    use wire::Bitrate;

    use super::*;
    use crate::plane::workers::Workers;
    use crate::plane::{Plane, placement};
    use crate::pump::control::Settings;
    use crate::pump::outputs::Outputs;
    use crate::pump::request::OpenRequest;
    use crate::pump::sessions::{Content, Limits};
    use crate::worker::Message;

    #[test]
    fn a_session_goes_on_when_its_input_has_a_start_again() {
        let (mailbox, worker) = mailbox(1_000).expect("a mailbox");
        let plane = Plane::new(Workers::pretended(vec![mailbox]), placement::Settings::default());
        let library = Library::new(titles::Settings::default()).expect("a library");
        let limits = Limits { bandwidth_max: Bitrate::from_kbps(9_000), sessions_max: 1, refused_timeout: None };
        let outputs = Outputs::default();
        let settings = Settings { limits, outputs, destinations: None, read_timeout: Duration::ZERO };
        let control = PumpControl::new(library, plane.clone(), Vec::new(), settings);

        let sample = Sample { rate: Bitrate::from_kbps(2_000), pictures: 100, ..Sample::default() };
        let bytes = sample.make();
        let title = Arc::new(Title::probe(&bytes, bytes.len() as u64, CHUNK_PACKETS).expect("a title"));
        let start = Instant::now();
        let input = Arc::new(Input::pretended(start));
        let content =
            Content { title, input: Some(input.clone()), zero: None, start: 0, end: u64::MAX, rate: sample.rate };
        let request = OpenRequest::new("live/a".into(), "udp://127.0.0.1:1".parse().expect("a destination"));
        let remote = ([127, 0, 0, 1], 1).into();
        let mut state = control.lock();
        let vacancy = state.sessions.place(&plane.placement(), sample.rate, None).expect("a place");
        let session = Session::new(vacancy, &request, content, remote, Transport::Udp);
        let id = state.sessions.open(&mut plane.placement(), session).id;
        drop(state);

        let is_chunk = |message: &Message| matches!(message, Message::Pump(Command::LiveChunk { .. }));
        let told = || std::iter::from_fn(|| worker.try_recv()).filter(|message| !is_chunk(message)).collect::<Vec<_>>();
        assert!(!control.jump_now(id, &input) && told().is_empty(), "nothing has come");
        input.take(start, (sample.rate, &bytes), plane.workers(), |_| {});
        assert!(control.jump_now(id, &input));
        let jumps =
            |message: &Message| matches!(message, Message::Pump(Command::Jump { session, .. }) if *session == id);
        assert!(told().iter().map(jumps).eq([true]));
    }
}
