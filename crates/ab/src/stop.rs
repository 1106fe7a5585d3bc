//! The wish to stop: SIGINT, SIGTERM or SIGHUP. Whoever waits asks for it, so that everything is ended in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, bail};
use nix::sys::signal::Signal;

/// Whether a signal has come.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicUsize>);

impl Stop {
    /// From now on signals are noted, and no longer end the process.
    pub fn on_signals() -> anyhow::Result<Stop> {
        let stop = Stop::default();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            let number = signal as i32;
            signal_hook::flag::register_usize(number, Arc::clone(&stop.0), number as usize)
                .with_context(|| format!("handle {signal}"))?;
        }
        Ok(stop)
    }

    /// # Errors
    /// When a signal has come; the error names it.
    pub fn check(&self) -> anyhow::Result<()> {
        // 0 is no signal.
        match Signal::try_from(self.0.load(Ordering::Relaxed) as i32) {
            Ok(signal) => bail!("stopped by {signal}"),
            Err(_) => Ok(()),
        }
    }
}
