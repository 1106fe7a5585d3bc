//! A stream that comes by UDP or RTP: to an address, or to a group.
//!
//! In: datagrams of one sender (`pump::live::Receiver`). Out: the packets in them, in order.
//! Another sender is another source. An only source is waited for without an end, its socket stays.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use pump::live::{Datagram, Heard, Receiver};
use tokio::net::UdpSocket;
use tokio::time::sleep_until;

use super::{Input, Sink, Stop};
use crate::config::LiveInput;
use crate::pump::live::bind;

/// What is missing of RTP is waited for so long.
const MISSING_NS: i64 = 60_000_000;

/// Datagrams that are received before they are written.
const BATCH: usize = 64;

/// Largest datagram.
const DATAGRAM_MAX: usize = 65_536;

/// All that comes in datagrams.
const CONTENT_TYPE: &str = "video/mp2t";

/// Until it is silent for too long, or for ever.
///
/// # Errors
/// Why it is not heard any more.
pub(super) async fn run<S: Sink>(
    input: &mut Input<'_, S>,
    from: &LiveInput,
    silence: Duration,
    is_alone: bool,
) -> Result<(), Stop> {
    let socket = bind(from).and_then(|socket| Ok(UdpSocket::from_std(socket)?));
    let socket = socket.map_err(|error| Stop::because(format_args!("{error:#}")))?;
    loop {
        receive(input, &socket, from.source, silence).await?;
        if !is_alone {
            return Err(Stop::because("nothing comes"));
        }
        input.pause();
    }
}

/// Until nothing comes for so long.
pub(super) async fn receive<S: Sink>(
    input: &mut Input<'_, S>,
    socket: &UdpSocket,
    only: Option<IpAddr>,
    silence: Duration,
) -> Result<(), Stop> {
    input.content_type = Some(CONTENT_TYPE.to_owned());
    let (zero, mut receiver) = (Instant::now(), Receiver::new(only, MISSING_NS));
    let (mut heard_at, mut buf, mut packets) = (zero, vec![0; DATAGRAM_MAX], Vec::new());
    loop {
        let missing_at = receiver.poll_timeout().map(|at_ns| zero + Duration::from_nanos(at_ns.max(0) as u64));
        let silent_at = heard_at + silence;
        tokio::select! {
            ready = socket.readable() => ready.map_err(Stop::because)?,
            () = sleep_until(missing_at.map_or(silent_at, |at| at.min(silent_at)).into()) => {}
        }
        let now = Instant::now();
        let now_ns = i64::try_from((now - zero).as_nanos()).unwrap_or(i64::MAX);
        for _ in 0..BATCH {
            // What the kernel has to say of earlier datagrams is of no use here.
            let Ok((len, from)) = socket.try_recv_from(&mut buf) else { break };
            let datagram = Datagram::parse(&buf[..len]);
            let heard = receiver.hear(now_ns, from, &datagram);
            if heard == Heard::Foreign {
                continue;
            }
            heard_at = now;
            if heard == Heard::Another {
                receiver.restart(&mut |_, payload| packets.extend_from_slice(payload));
                input.write(&packets).await?;
                packets.clear();
                input.pause();
            }
            receiver.push(now_ns, &datagram, &mut |_, payload| packets.extend_from_slice(payload));
        }
        receiver.handle_timeout(now_ns, &mut |_, payload| packets.extend_from_slice(payload));
        input.write(&packets).await?;
        packets.clear();
        if now >= silent_at && heard_at < now {
            return Ok(());
        }
    }
}
