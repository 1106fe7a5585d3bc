//! The loop around a negotiator.

use std::time::Instant;

use counters::Published;
use engine::{Receiver, RecvError};

use super::{Counters, Input, Negotiator, Notice};
use crate::plane::workers::Posted;
use crate::worker::Message;

/// Below the workers, which must not wait for handshakes on a busy machine (nice(2)).
const NICE: i32 = 10;

/// Inputs between two looks at the timers.
const BATCH: usize = 64;

/// Runs until every sender of `inputs` is gone, and publishes what the negotiator counts. Meant to be a thread's body.
pub fn run<C, N>(mut negotiator: Negotiator<C, N>, inputs: &Receiver<Input>, counters: &Published<Counters>)
where
    C: FnMut(Message) -> Posted,
    N: FnMut(Notice) -> bool,
{
    if let Err(error) = engine::sys::set_nice(NICE) {
        tracing::debug!(%error, "cannot lower the negotiator's priority");
    }
    loop {
        counters.store(negotiator.counters());
        let timeout = negotiator.poll_timeout().map(|at| at.saturating_duration_since(Instant::now()));
        match inputs.recv_timeout(timeout) {
            Ok(input) => {
                negotiator.handle(Instant::now(), input);
                for input in std::iter::from_fn(|| inputs.try_recv()).take(BATCH) {
                    negotiator.handle(Instant::now(), input);
                }
            }
            Err(RecvError::Timeout) => {}
            Err(RecvError::Closed) => return,
        }
        negotiator.handle_timeout(Instant::now());
    }
}
