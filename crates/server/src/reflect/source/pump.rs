//! What the pump plays, as a stream: a session of its own, over loopback.
//!
//! In: a title, which is played over and over, or a live input. Out: its packets, as the pump paces them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use engine::sys::{BufferSide, set_buffer_bytes};
use pump::spec::SessionId;
use std::os::fd::AsFd as _;
use tokio::net::UdpSocket;
use tokio::time::interval;

use super::{Input, Sink, Stop, datagrams};
use crate::pump::control::{PumpControl, PumpError};
use crate::pump::destination::{Destination, DestinationError};
use crate::pump::request::OpenRequest;

/// It is looked so often whether the session is still there.
const LOOK: Duration = Duration::from_millis(500);

/// What the kernel keeps while nobody reads: a second of 30 Mbit/s.
const SOCKET_BUFFER: usize = 4 << 20;

/// A session that ends with this.
struct Playing<'a> {
    control: &'a PumpControl,
    id: SessionId,
}

impl Drop for Playing<'_> {
    fn drop(&mut self) {
        // It may have ended.
        self.control.close(self.id).ok();
    }
}

/// Until the session ends, or nothing comes.
///
/// # Errors
/// Why it is not heard any more.
pub(super) async fn run<S: Sink>(
    input: &mut Input<'_, S>,
    title: &str,
    control: &Arc<PumpControl>,
    silence: Duration,
) -> Result<(), Stop> {
    let (socket, playing) = match open(title, control, Ipv4Addr::LOCALHOST.into()).await {
        Err(PumpError::Destination(DestinationError::NoSocket(_))) => {
            open(title, control, Ipv6Addr::LOCALHOST.into()).await
        }
        opened => opened,
    }
    .map_err(Stop::because)?;
    let mut look = interval(LOOK);
    let ended = async {
        while control.is_open(playing.id) {
            look.tick().await;
        }
    };
    tokio::select! {
        heard = datagrams::receive(input, &socket, None, silence) => heard,
        () = ended => Ok(()),
    }
}

async fn open<'a>(title: &str, control: &'a PumpControl, ip: IpAddr) -> Result<(UdpSocket, Playing<'a>), PumpError> {
    let busy = |_| PumpError::Busy;
    let socket = UdpSocket::bind((ip, 0)).await.map_err(busy)?;
    // A smaller one is better than none.
    set_buffer_bytes(socket.as_fd(), BufferSide::Receive, SOCKET_BUFFER).ok();
    let port = socket.local_addr().map_err(busy)?.port();
    let destination = Destination { is_rtp: true, host: ip.to_string(), port };
    let mut request = OpenRequest::new(title.to_owned(), destination);
    request.play.looped = !control.is_live(title);
    let session = control.open_own(&request).await?;
    Ok((socket, Playing { control, id: session.id }))
}
