//! The built-in clip as a stream.

use std::time::Instant;

use super::{Input, Sink, Stop};
use crate::demo::transport::Transport;

/// Until the stream is no more.
///
/// # Errors
/// Why it is not heard any more.
pub(super) async fn run<S: Sink>(input: &mut Input<'_, S>) -> Result<(), Stop> {
    input.content_type = Some("video/mp2t".to_owned());
    let (mut playing, mut due) = (Transport::new(Instant::now()), Vec::new());
    loop {
        while playing.poll(Instant::now(), &mut due) {
            input.write(&due).await?;
            due.clear();
        }
        tokio::time::sleep_until(playing.next_at().into()).await;
    }
}
