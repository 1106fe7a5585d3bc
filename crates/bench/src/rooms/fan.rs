//! The bare loop: a frame comes in, and goes out to each viewer.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use anyhow::{Context as _, Result};
use engine::CountersSnapshot;
use engine::sys::{Epoll, EventFd, Interest, RecvBatch};
use engine::udp::{SendQueue, UdpSocket, recv_batch};
use srtp::{Opener, Sealer, SessionKeys};
use webrtc::{Extension, Media, Output, Peer, Remote};
use wire::codec::MediaKind;
use wire::rtp::{self, HeaderWriter, Kind, RtpHeader, RtpPacket};
use wire::{LinkId, Outbox, Path, Seq, Token};

/// Who has come in by the door, or gone.
pub(super) enum Arrival {
    /// Its answer is under way; whatever it sends comes to the fan.
    Publisher(Box<Publisher>),
    Viewer(Box<Viewer>),
    Gone {
        session: u64,
    },
}

/// One viewer's copies of what is published.
pub(super) struct Viewer {
    session: u64,
    path: Path,
    sealer: Sealer,
    video: DownTrack,
    sound: Option<DownTrack>,
}

/// One viewer's copy of the video, or of the sound.
struct DownTrack {
    ssrc: u32,
    payload_type: u8,
    transport_cc: Option<u8>,
    /// Extended sequence number of the next packet.
    next_seq: u64,
}

impl Viewer {
    /// `None` where its keys are none, or it gets no video.
    pub(super) fn new(session: u64, media: &[Media], keys: &SessionKeys, remote: SocketAddr) -> Option<Self> {
        Some(Viewer {
            session,
            path: path_to(remote),
            sealer: Sealer::new(keys).ok()?,
            video: DownTrack::new(media, MediaKind::Video)?,
            sound: DownTrack::new(media, MediaKind::Audio),
        })
    }
}

impl DownTrack {
    fn new(media: &[Media], kind: MediaKind) -> Option<Self> {
        let media = media.iter().find(|media| media.codec.kind() == kind)?;
        Some(DownTrack {
            ssrc: media.tx.first()?.0,
            payload_type: media.payload_type,
            transport_cc: media.extension_id(Extension::TransportCc),
            next_seq: 1 << 16,
        })
    }

    /// Writes the finished datagram for one packet, and returns its length.
    fn write(&mut self, packet: &Packet, sealer: &mut Sealer, slot: &mut [u8]) -> usize {
        let seq = self.next_seq;
        self.next_seq += 1;
        let header = RtpHeader {
            payload_type: self.payload_type,
            marker: packet.marker,
            seq: Seq(seq as u16),
            timestamp: packet.timestamp,
            ssrc: self.ssrc,
        };
        let Some(mut writer) = HeaderWriter::new(slot, &header) else { return 0 };
        if let Some(id) = self.transport_cc {
            writer.extension(id, &(seq as u16).to_be_bytes());
        }
        let header_len = writer.finish();
        if packet.is_padded {
            slot[0] |= PADDED;
        }
        sealer.seal_rtp_from(slot, header_len, &packet.payload, self.ssrc, seq)
    }
}

/// The bit of a header that says that the payload ends in padding (RFC 3550 §5.1).
const PADDED: u8 = 0x20;

pub(super) fn path_to(remote: SocketAddr) -> Path {
    Path { link: LinkId::datagrams(0), remote, local: None }
}

/// The packets of one frame, padded to one size so that they are one message, and the sound that came since the one before,
/// of which the first is that message's shorter last datagram.
#[derive(Default)]
struct Frame {
    packets: Vec<Packet>,
    sound: Vec<Packet>,
}

struct Packet {
    timestamp: u32,
    marker: bool,
    payload: Vec<u8>,
    is_padded: bool,
}

/// Of a frame whose end does not come: what came so far is sent.
const PACKETS_MAX: usize = 256;

impl Frame {
    fn pad(&mut self) {
        let size = self.packets.iter().map(|packet| packet.payload.len()).max().unwrap_or(0);
        for Packet { payload, is_padded, .. } in &mut self.packets {
            if let count @ 1..=255 = size - payload.len() {
                payload.resize(size - 1, 0);
                payload.push(count as u8);
                *is_padded = true;
            }
        }
    }
}

/// Whose video it is.
pub(super) struct Publisher {
    peer: Peer,
    /// Of its sound.
    sound_payload_type: Option<u8>,
    opener: Option<Opener>,
}

pub(super) struct Fan {
    viewers_socket: UdpSocket,
    publisher_socket: UdpSocket,
    pub(super) arrived: Receiver<Arrival>,
    signal: Arc<EventFd>,
    epoll: Epoll,
    batch: RecvBatch,
    publisher: Option<Box<Publisher>>,
    viewers: Vec<Viewer>,
    frame: Frame,
    out: Outbox,
    queue: SendQueue,
    counts: CountersSnapshot,
}

const OUTBOX_BYTES: usize = 256 << 10;
const PUBLISHER: u64 = 0;
const ARRIVALS: u64 = 1;

impl Fan {
    pub(super) fn new(
        viewers_socket: UdpSocket,
        publisher_socket: UdpSocket,
        arrived: Receiver<Arrival>,
        signal: Arc<EventFd>,
    ) -> Result<Self> {
        let epoll = Epoll::new(2).context("open an epoll set")?;
        epoll.add(publisher_socket.as_fd(), PUBLISHER, Interest::READ).context("watch the publisher's socket")?;
        epoll.add(signal.as_fd(), ARRIVALS, Interest::READ).context("watch for arrivals")?;
        Ok(Fan {
            viewers_socket,
            publisher_socket,
            arrived,
            signal,
            epoll,
            batch: recv_batch(true),
            publisher: None,
            viewers: Vec::new(),
            frame: Frame::default(),
            out: Outbox::new(OUTBOX_BYTES),
            queue: SendQueue::default(),
            counts: CountersSnapshot::default(),
        })
    }

    pub(super) fn run(mut self) -> Result<Infallible> {
        loop {
            self.epoll.wait(None).context("wait for the publisher")?;
            for index in 0..self.epoll.ready_count() {
                match self.epoll.ready(index).map(|ready| ready.token) {
                    Some(PUBLISHER) => self.receive(),
                    _ => self.let_in(),
                }
            }
        }
    }

    fn let_in(&mut self) {
        self.signal.clear();
        for arrival in self.arrived.try_iter() {
            match arrival {
                Arrival::Publisher(publisher) => self.publisher = Some(publisher),
                Arrival::Viewer(viewer) => self.viewers.push(*viewer),
                Arrival::Gone { session } => self.viewers.retain(|known| known.session != session),
            }
        }
    }

    /// Takes what the publisher has sent.
    fn receive(&mut self) {
        // What ICMP says is nothing to us.
        self.batch.fill(&self.publisher_socket).ok();
        let now = Instant::now();
        for index in 0..self.batch.message_count() {
            let Some(message) = self.batch.message(index) else { break };
            let run = message.into_run(Token::default(), LinkId::datagrams(0), 0, usize::MAX);
            for datagram in run.into_datagrams() {
                let Some(publisher) = &mut self.publisher else { continue };
                match rtp::classify(datagram.data) {
                    Kind::Rtp if publisher.take(datagram.data, &mut self.frame) => {
                        fan_out(&mut self.frame, &mut self.viewers, &mut self.out, |out| {
                            self.queue.send_outbox(&mut self.viewers_socket, out, &mut self.counts);
                            out.clear();
                        });
                    }
                    Kind::Stun | Kind::Dtls => {
                        publisher.answer(now, datagram.path.remote, datagram.data, &mut self.out);
                        self.queue.send_outbox(&mut self.publisher_socket, &self.out, &mut self.counts);
                        self.out.clear();
                    }
                    _ => {}
                }
            }
        }
        self.batch.clear();
    }
}

impl Publisher {
    pub(super) fn new(peer: Peer, media: &[Media]) -> Self {
        let sound = media.iter().find(|media| media.codec.kind() == MediaKind::Audio);
        Publisher { peer, sound_payload_type: sound.map(|media| media.payload_type), opener: None }
    }

    /// Takes one packet; true where its frame is whole.
    fn take(&mut self, data: &mut [u8], frame: &mut Frame) -> bool {
        let Some(opener) = &mut self.opener else { return false };
        let Ok(len) = opener.open_rtp(data) else { return false };
        let Ok(packet) = RtpPacket::parse(&data[..len]) else { return false };
        let (timestamp, marker, payload) = (packet.timestamp(), packet.marker(), packet.payload().to_vec());
        let is_sound = Some(packet.payload_type()) == self.sound_payload_type;
        let packets = if is_sound { &mut frame.sound } else { &mut frame.packets };
        packets.push(Packet { timestamp, marker, payload, is_padded: false });
        marker && !is_sound || packets.len() == PACKETS_MAX
    }

    /// Goes on with its handshake, and answers its checks.
    fn answer(&mut self, now: Instant, remote: SocketAddr, data: &[u8], out: &mut Outbox) {
        if self.peer.handle_datagram(now, Remote { addr: remote, tcp: false }, data).is_err() {
            return;
        }
        loop {
            match self.peer.poll() {
                Output::Transmit { remote, data } => drop(out.push(&path_to(remote.addr), &data)),
                Output::Connected { keys, .. } => self.opener = Opener::new(&keys).ok(),
                Output::PathChanged(_) | Output::Channel(_) => {}
                Output::Ended(_) | Output::Timeout(_) => return,
            }
        }
    }
}

/// Writes the frame for each viewer.
fn fan_out(frame: &mut Frame, viewers: &mut [Viewer], out: &mut Outbox, mut flush: impl FnMut(&mut Outbox)) {
    frame.pad();
    for Viewer { path, sealer, video, sound, .. } in viewers {
        let mut send = |track: &mut DownTrack, packets: &[Packet]| {
            for packet in packets {
                if !out.has_room() {
                    flush(out);
                }
                let Some(slot) = out.slot() else { continue };
                let len = track.write(packet, sealer, slot);
                out.commit(path, len);
            }
        };
        send(video, &frame.packets);
        if let Some(sound) = sound {
            send(sound, &frame.sound);
        }
    }
    flush(out);
    frame.packets.clear();
    frame.sound.clear();
}
