//! Where streams come from, and what is done when they do not.
//!
//! In: the sources of a stream, in the order in which they are wanted. Out: the bytes of one of them at a time, to a `Sink`.
//!
//! A source is heard until it fails: its connection ends, or nothing comes for a while. Then the first one is asked again, and
//! if it gives nothing, the next: who fails without a byte is not asked again before all others were. Between two rounds in
//! which nobody gave anything is a pause, which doubles up to `Patience::retry_max`. A stream begins with its source's first
//! bytes, so that one which accepts and then says nothing interrupts nobody.

mod datagrams;
mod demo;
mod pull;
mod pump;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use titles::Streams;
use tokio::task::JoinHandle;

use crate::config::ReflectSource;
use crate::pump::control::PumpControl;

/// Whom a source gives what it has.
pub trait Sink: Send + Sync + 'static {
    /// What it is called, for the log.
    fn name(&self) -> &str;

    /// A source begins. `content_type` is what it says of its format.
    fn begin(&self, content_type: Option<&str>);

    /// Takes bytes, when there is room for them.
    ///
    /// # Errors
    /// When they are not taken. The source is broken off then.
    fn write(&self, bytes: &[u8]) -> impl Future<Output = Result<(), Stop>> + Send;

    /// The source is gone.
    fn break_off(&self);
}

/// Why a source is not heard any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// Nobody wants any: the stream is no more.
    #[error("the stream is no more")]
    Ended,
    /// It failed, and may be asked again.
    #[error("{0}")]
    Failed(String),
}

impl Stop {
    fn because(error: impl std::fmt::Display) -> Stop {
        Stop::Failed(error.to_string())
    }
}

/// How long a source is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Until a connection is there, with TLS.
    pub connect: Duration,
    /// From what came last until something comes.
    pub silence: Duration,
    /// Before the first source is asked again that gave something.
    pub retry: Duration,
    /// Between two rounds in which nobody gave anything, at most.
    pub retry_max: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            connect: Duration::from_secs(5),
            silence: Duration::from_secs(10),
            retry: Duration::from_millis(200),
            retry_max: Duration::from_secs(5),
        }
    }
}

/// What sources need of the process.
#[derive(Clone)]
pub struct Around {
    http: Streams,
    pump: Option<Arc<PumpControl>>,
    patience: Patience,
}

impl Around {
    /// Trusts the system's certificates, and those of a file.
    ///
    /// # Errors
    /// When the certificates cannot be read.
    pub fn new(
        ca_file: Option<&Path>,
        pump: Option<Arc<PumpControl>>,
        patience: Patience,
    ) -> Result<Self, titles::Error> {
        Ok(Around { http: Streams::new(ca_file, patience.connect, patience.silence)?, pump, patience })
    }
}

/// A stream's sources. They are let go of with it.
#[derive(Debug)]
pub struct Running {
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Hears one of the sources after the other, until it is dropped or the stream is no more. To be called on a runtime.
pub fn start<S: Sink>(sink: S, sources: &[ReflectSource], around: &Around) -> Running {
    let (sources, around) = (sources.to_vec(), around.clone());
    Running { task: tokio::spawn(async move { run(&sink, &sources, &around).await }) }
}

async fn run<S: Sink>(sink: &S, sources: &[ReflectSource], around: &Around) {
    let Patience { retry, retry_max, .. } = around.patience;
    let (mut index, mut pause, mut is_told) = (0, retry, vec![false; sources.len()]);
    while let Some(source) = sources.get(index) {
        let mut input = Input { sink, content_type: None, has_begun: false };
        let stop = hear(&mut input, source, sources.len() == 1, around).await;
        let has_given = input.has_begun;
        if has_given {
            sink.break_off();
        }
        let Stop::Failed(error) = stop else { return };
        if std::mem::replace(&mut is_told[index], true) && !has_given {
            tracing::debug!(stream = sink.name(), %source, error, "no stream");
        } else {
            tracing::warn!(stream = sink.name(), %source, error, "no stream");
        }
        if has_given {
            (index, pause) = (0, retry);
            tokio::time::sleep(retry).await;
            continue;
        }
        index += 1;
        if index == sources.len() {
            tokio::time::sleep(pause).await;
            (index, pause) = (0, (2 * pause).min(retry_max));
        }
    }
}

/// Until it fails.
async fn hear<S: Sink>(input: &mut Input<'_, S>, source: &ReflectSource, is_alone: bool, around: &Around) -> Stop {
    let silence = around.patience.silence;
    let heard = match source {
        ReflectSource::Pull(from) => pull::run(input, from, &around.http).await,
        ReflectSource::Datagrams(from) => datagrams::run(input, from, silence, is_alone).await,
        ReflectSource::Demo => demo::run(input).await,
        ReflectSource::Pump(title) => match &around.pump {
            Some(control) => pump::run(input, title, control, silence).await,
            None => Err(Stop::because("there is no pump (see pump.enabled)")),
        },
    };
    match heard {
        Ok(()) => Stop::because("it has ended"),
        Err(stop) => stop,
    }
}

/// What one source gives, which begins with its first bytes.
struct Input<'a, S> {
    sink: &'a S,
    content_type: Option<String>,
    has_begun: bool,
}

impl<S: Sink> Input<'_, S> {
    async fn write(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        if bytes.is_empty() {
            return Ok(());
        }
        if !self.has_begun {
            self.begin();
        }
        self.sink.write(bytes).await
    }

    /// What comes does not go on from what came.
    fn begin(&mut self) {
        tracing::info!(stream = self.sink.name(), "the stream begins");
        self.has_begun = true;
        self.sink.begin(self.content_type.as_deref());
    }

    /// Nothing comes, and may again.
    fn pause(&mut self) {
        if std::mem::take(&mut self.has_begun) {
            self.sink.break_off();
        }
    }
}
