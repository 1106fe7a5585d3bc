//! The built-in clip plays with sound and picture, for whoever comes whenever.

use crate::common::{Client, Server, Way, wait_until};
use srtp::Profile;
use webrtc::{Direction, OfferOptions};
use wire::codec::{Codec, MediaKind};
use wire::rtcp::{self, Packet};
use wire::rtp::{self, Kind, RtpPacket};

#[test]
fn sound_and_picture_begin_soon_and_share_a_clock() {
    sound_and_picture_play("/whep/demo");
}

#[test]
fn the_clip_is_a_participant_of_a_room_too() {
    sound_and_picture_play("/whep/demo/clip");
}

fn sound_and_picture_play(endpoint: &str) {
    let server = Server::start_with(&["--demo"], &[]);
    let video = [Codec::H264, Codec::Vp8];
    let options =
        OfferOptions { direction: Direction::Receive, audio: true, video: &video, rids: &[], stream: "", tcp: false };
    let mut viewer = Client::join(&server, endpoint, Way::Udp4, &options);
    let mut tracks = [Track::new(&viewer, MediaKind::Audio), Track::new(&viewer, MediaKind::Video)];

    wait_until("both tracks play, and reports of both came", || {
        viewer.pump();
        while let Some(mut datagram) = viewer.next_media() {
            let link = viewer.link.as_mut().expect("keys");
            assert_ne!(link.profile, Profile::Aes128CmSha1_80);
            if rtp::classify(&datagram) == Kind::Rtcp {
                let len = link.opener.open_rtcp(&mut datagram).expect("RTCP of the server");
                rtcp::packets(&datagram[..len]).expect("well-formed").for_each(|packet| {
                    tracks.iter_mut().for_each(|track| track.take_report(&packet));
                });
            } else {
                let len = link.opener.open_rtp(&mut datagram).expect("RTP of the server");
                let packet = RtpPacket::parse(&datagram[..len]).expect("well-formed");
                tracks.iter_mut().for_each(|track| track.take(&packet));
            }
        }
        tracks.iter().all(|track| track.packets >= 100 && track.clock.is_some())
    });

    assert!(tracks[1].began_with_keyframe, "the picture begins with a keyframe");
    // What each track's reports say of its newest packet's time, in seconds: sound and picture play together.
    let [sound, picture] = tracks.map(|track| track.newest_seconds());
    assert!((sound - picture).abs() < 1.0, "sound at {sound} s, picture at {picture} s");
}

/// One track as it comes in.
struct Track {
    ssrc: u32,
    clock_rate: u32,
    kind: MediaKind,
    packets: usize,
    began_with_keyframe: bool,
    newest_timestamp: u32,
    /// NTP and RTP time of the last report.
    clock: Option<(u64, u32)>,
}

impl Track {
    fn new(viewer: &Client, kind: MediaKind) -> Self {
        let media = viewer.media.iter().find(|media| media.codec.kind() == kind).expect("the demo has both");
        let (ssrc, _) = media.rx[0];
        let (clock_rate, newest_timestamp) = (media.codec.clock_rate(), 0);
        Track { ssrc, clock_rate, kind, packets: 0, began_with_keyframe: false, newest_timestamp, clock: None }
    }

    fn take(&mut self, packet: &RtpPacket<'_>) {
        if packet.ssrc() != self.ssrc {
            return;
        }
        if self.packets == 0 && self.kind == MediaKind::Video {
            self.began_with_keyframe = wire::codec::inspect(Codec::Vp8, packet.payload(), None).keyframe;
        }
        self.packets += 1;
        self.newest_timestamp = packet.timestamp();
    }

    fn take_report(&mut self, packet: &Packet<'_>) {
        if let Packet::SenderReport(report) = packet
            && report.info.ssrc == self.ssrc
        {
            self.clock = Some((report.info.ntp, report.info.rtp_timestamp));
        }
    }

    fn newest_seconds(&self) -> f64 {
        let (ntp, rtp) = self.clock.expect("a report");
        let ahead = f64::from(self.newest_timestamp.wrapping_sub(rtp) as i32) / f64::from(self.clock_rate);
        // Seconds of the hour are enough to compare.
        ((ntp >> 32) % 3_600) as f64 + (ntp as u32 as f64) / 2_f64.powi(32) + ahead
    }
}
