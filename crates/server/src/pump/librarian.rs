//! The thread that hears what workers need, and the tasks that fetch it.
//!
//! In: events from workers. Out: a task for each chunk, on the control threads; everything else goes to `PumpControl`.
//! Between a worker and this thread is a mailbox without a lock, so no worker waits for a control thread.

use std::sync::Arc;

use engine::Receiver;
use tokio::runtime::Handle;

use super::control::PumpControl;
use super::part::Event;

/// Below the workers, like the negotiators.
const NICE: i32 = 5;

/// Runs until every worker is gone. Meant to be a thread's body.
pub fn run(control: &Arc<PumpControl>, events: &Receiver<Event>, runtime: &Handle) {
    if let Err(error) = engine::sys::set_nice(NICE) {
        tracing::debug!(%error, "cannot lower the librarian's priority");
    }
    while let Ok(event) = events.recv_timeout(None) {
        control.handle_event(event, runtime);
    }
}
