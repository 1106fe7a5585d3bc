//! The thread that hears what workers tell control.
//!
//! In: events of all workers' products. Out: calls of each product's control, which starts tasks for what takes time.
//! Between a worker and this thread is a mailbox without a lock, so no worker waits for a control thread.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use engine::{Receiver, RecvError};
use tokio::runtime::Handle;

use crate::livekit::control::Control as LivekitControl;
use crate::pump::control::PumpControl;
use crate::reflect::control::Control as ReflectControl;
use crate::relay::control::RelayControl;
use crate::rooms::control::RoomsControl;
use crate::worker::Report;

/// Reports that wait for the thread at most; over that they wait in the workers.
pub const MAILBOX: usize = 16_384;

/// Below the workers, like the negotiators.
const NICE: i32 = 5;

/// Reports that come sooner after those before wait until then, for what follows them: a wake-up costs the core that it shares
/// with a worker more than a report does.
const PAUSE: Duration = Duration::from_millis(1);

/// Starts the thread, which ends when every worker is gone. A server that only pumps has no rooms and no
/// reflector, and not every one has a relay. Tasks run on `runtime`.
///
/// # Errors
/// When it cannot be started.
pub fn listen(
    reports: Receiver<Report>,
    (rooms, livekit): (Option<Arc<RoomsControl>>, Option<Arc<LivekitControl>>),
    pump: Arc<PumpControl>,
    relay: Option<Arc<RelayControl>>,
    reflect: Option<Arc<ReflectControl>>,
    runtime: Handle,
) -> anyhow::Result<JoinHandle<()>> {
    let body = move || {
        if let Err(error) = engine::sys::set_nice(NICE) {
            tracing::debug!(%error, "cannot lower the priority of the thread that hears the workers");
        }
        let mut woken = Instant::now();
        while let Ok(report) = next(&reports, &mut woken) {
            match report {
                Report::Rooms(event) => {
                    if let Some(livekit) = &livekit {
                        livekit.handle_event(&event);
                    }
                    if let Some(rooms) = &rooms {
                        rooms.handle_event(event);
                    }
                }
                Report::Pump(event) => pump.handle_event(event, &runtime),
                Report::Relay { worker, event } => {
                    if let Some(relay) = &relay {
                        relay.handle_event(worker, event);
                    }
                }
                Report::Reflect { worker, event } => {
                    if let Some(reflect) = &reflect {
                        reflect.handle_event(worker, event);
                    }
                }
                Report::Moved(moved) => {
                    if let Some(reflect) = &reflect {
                        reflect.handle_moved(moved);
                    }
                }
                Report::Refused { remote } => pump.handle_refused(remote),
            }
        }
    };
    thread::Builder::new().name("reports".into()).spawn(body).context("starting the thread that hears the workers")
}

/// The next report, when it comes. The thread was `woken` last then.
fn next(reports: &Receiver<Report>, woken: &mut Instant) -> Result<Report, RecvError> {
    if let Some(report) = reports.try_recv() {
        return Ok(report);
    }
    thread::sleep(PAUSE.saturating_sub(woken.elapsed()));
    let report = reports.recv_timeout(None);
    *woken = Instant::now();
    report
}
