//! What became of a viewer: of one who is here his worker tells.

use std::sync::Arc;
use std::time::Instant;

use reflect::course::Course;
use reflect::spec::{Command, EndedViewer, ViewerId};

use super::{At, Control, Viewer};
use crate::reflect::stories::Told;
use crate::worker::Message;

impl Control {
    /// What became of a viewer, who may be gone. `None`: nobody knows of him.
    ///
    /// # Errors
    /// When his worker is too busy to answer.
    pub async fn story(&self, id: ViewerId) -> Result<Option<Arc<Told>>, Busy> {
        let found = self.lock().viewers.get(&id).map(|viewer| viewer.told(id, Instant::now()));
        let Some(mut told) = found else { return Ok(self.lock().stories.get(id)) };
        if let Some(worker) = told.worker {
            let question = |token| Message::Reflect(Command::Story { token, viewer: id });
            let ask = |token| self.plane.workers().offer(worker, question(token));
            // A worker that does not know him any more has said before that he is gone; or he is not there yet.
            let Some(now) = self.told.ask(ask).await.ok_or(Busy)? else {
                return Ok(Some(self.lock().stories.get(id).unwrap_or_else(|| Arc::new(told))));
            };
            (told.sent_bytes, told.behind, told.course) = (Some(now.sent_bytes), Some(now.behind), now.course);
        }
        Ok(Some(Arc::new(told)))
    }

    /// Those who are gone and still known, of one stream or of all, so many at most, the last first.
    pub fn ended(&self, stream: Option<&str>, count: usize) -> Vec<Arc<Told>> {
        self.lock().stories.latest(stream, count)
    }
}

/// A worker does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server is too busy to answer")]
pub struct Busy;

impl Viewer {
    /// As far as it is known here.
    fn told(&self, id: ViewerId, now: Instant) -> Told {
        Told {
            id,
            stream: self.admission.stream().name().clone(),
            rate: self.admission.stream().rate(),
            client: self.admission.client(),
            worker: match self.at {
                At::Worker(worker) => Some(worker),
                At::Task(_) | At::Player(_) => None,
            },
            is_hls: matches!(self.at, At::Player(_)),
            age: now.saturating_duration_since(self.since),
            ended: None,
            sent_bytes: match &self.at {
                At::Player(session) => Some(session.sent_bytes()),
                At::Worker(_) | At::Task(_) => None,
            },
            behind: None,
            course: Course::default(),
        }
    }

    /// The same of one who is gone.
    pub(super) fn ended(&self, now: Instant, ended: &EndedViewer) -> Told {
        Told {
            age: ended.age,
            ended: Some((now, ended.reason)),
            sent_bytes: Some(ended.sent_bytes),
            course: ended.course,
            ..self.told(ended.id, now)
        }
    }
}
