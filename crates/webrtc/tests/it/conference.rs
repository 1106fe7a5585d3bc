//! Sessions whose sections come and go, against a str0m that knows nothing of us.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use str0m::change::{SdpAnswer, SdpOffer};
use str0m::channel::{ChannelConfig, ChannelId};
use str0m::media::{Direction as Flow, MediaKind as Str0mKind, Mid};
use str0m::net::{Protocol, Receive};
use str0m::{Event, Rtc};
use webrtc::{
    BEHIND_BYTES, ChannelEvent, Conference, ConferenceOptions, Context, DataRefused, Delivery, Described, Down,
    EndReason, Error, MESSAGE_BYTES_MAX, Output, Peer, Remote, Section, UpWish,
};
use wire::codec::{Codec, MediaKind};

use crate::common::{addr, udp};

pub const CHROME: &str = include_str!("../offers/chrome-whep-max-bundle-extra.sdp");
const CHROME_SIMULCAST: &str = include_str!("../offers/chrome-whip-simulcast.sdp");
const PION: &str = include_str!("../offers/pion-whip.sdp");

pub fn options(wants_data: bool) -> ConferenceOptions {
    ConferenceOptions {
        candidates: [udp("127.0.0.1:7000")].into(),
        cname: "room".into(),
        wants_data,
        codecs: crate::common::ALL.into(),
    }
}

pub fn down(id: u64, codec: Codec) -> Down {
    let (media_stream, track) = (format!("PA_{id}|TR_{id}"), format!("TR_{id}"));
    Down { id, codec, fmtp: String::new(), red: false, media_stream, track, subscription: 0 }
}

/// A room's session and a client of it.
pub struct World {
    now: Instant,
    pub peer: Peer,
    pub conference: Conference,
    client: Rtc,
    events: Vec<ChannelEvent>,
    ended: Option<EndReason>,
    client_events: Vec<Event>,
    /// First bytes of what the session has sent.
    sent: HashSet<u8>,
}

impl World {
    pub fn new(offers: bool, wants_data: bool) -> World {
        let now = Instant::now();
        let context = Context::new().unwrap();
        let made = if offers { Conference::offerer } else { Conference::answerer };
        let (peer, conference) = made(&context, now, options(wants_data)).unwrap();
        let mut client = Rtc::builder().build(now);
        client.add_local_candidate(str0m::Candidate::host(addr("127.0.0.1:9000"), "udp").unwrap());
        let (events, ended, client_events, sent) = (Vec::new(), None, Vec::new(), HashSet::new());
        World { now, peer, conference, client, events, ended, client_events, sent }
    }

    /// The client offers what `change` makes, and gets its answer.
    fn client_offers(&mut self, change: impl FnOnce(&mut str0m::change::SdpApi<'_>)) -> Described {
        let mut changes = self.client.sdp_api();
        change(&mut changes);
        let (offer, pending) = changes.apply().expect("something to offer");
        let described = self.conference.answer(&mut self.peer, self.now, &offer.to_sdp_string()).unwrap();
        let answer = SdpAnswer::from_sdp_string(&described.sdp).unwrap();
        self.client.sdp_api().accept_answer(pending, answer).unwrap();
        described
    }

    /// We offer, and the client answers.
    pub fn we_offer(&mut self) -> Option<Described> {
        let offer = self.conference.offer(&mut self.peer).unwrap()?;
        let offer = SdpOffer::from_sdp_string(&offer).unwrap();
        let answer = self.client.sdp_api().accept_offer(offer).unwrap().to_sdp_string();
        Some(self.conference.accept_answer(&mut self.peer, self.now, &answer).unwrap())
    }

    fn run_until(&mut self, done: impl Fn(&World) -> bool) {
        for _ in 0..2_000 {
            if done(self) {
                return;
            }
            self.now += Duration::from_millis(5);
            self.peer.handle_timeout(self.now);
            self.client.handle_input(str0m::Input::Timeout(self.now)).unwrap();
            self.exchange();
        }
        panic!("not within 10 s: {:?} {:?}", self.ended, self.events);
    }

    fn exchange(&mut self) {
        let (client_at, server_at) = (addr("127.0.0.1:9000"), addr("127.0.0.1:7000"));
        let remote = Remote { addr: client_at, tcp: false };
        let (mut to_server, mut to_client) = (VecDeque::new(), VecDeque::new());
        self.poll_both(&mut to_server, &mut to_client);
        while !(to_server.is_empty() && to_client.is_empty()) {
            if let Some(data) = to_server.pop_front() {
                let _ = self.peer.handle_datagram(self.now, remote, &data);
            }
            if let Some(data) = to_client.pop_front() {
                let received = Receive::new(Protocol::Udp, server_at, client_at, &data).unwrap();
                self.client.handle_input(str0m::Input::Receive(self.now, received)).unwrap();
            }
            self.poll_both(&mut to_server, &mut to_client);
        }
    }

    fn poll_both(&mut self, to_server: &mut VecDeque<Vec<u8>>, to_client: &mut VecDeque<Vec<u8>>) {
        loop {
            match self.client.poll_output().unwrap() {
                str0m::Output::Transmit(sent) => to_server.push_back(sent.contents.to_vec()),
                str0m::Output::Timeout(_) => break,
                str0m::Output::Event(event) => self.client_events.push(event),
            }
        }
        loop {
            match self.peer.poll() {
                Output::Transmit { data, .. } => {
                    self.sent.insert(data[0]);
                    to_client.push_back(data.into());
                }
                Output::Channel(event) => self.events.push(event),
                Output::Ended(reason) => self.ended = Some(reason),
                Output::Timeout(_) => return,
                Output::Connected { .. } | Output::PathChanged(_) => {}
            }
        }
    }

    fn is_connected(&self) -> bool {
        self.peer.is_connected() && self.client.is_connected()
    }

    fn client_channels(&self) -> Vec<(ChannelId, String)> {
        let opened = |event: &Event| match event {
            Event::ChannelOpen(id, label) => Some((*id, label.clone())),
            _ => None,
        };
        self.client_events.iter().filter_map(opened).collect()
    }

    fn client_channel(&self, delivery: Delivery) -> Option<ChannelId> {
        let name: &str = delivery.into();
        self.client_channels().into_iter().find(|(_, label)| label == name).map(|(id, _)| id)
    }

    fn client_messages(&self) -> Vec<&[u8]> {
        let mut messages = Vec::new();
        for event in &self.client_events {
            if let Event::ChannelData(message) = event {
                messages.push(&message.data[..]);
            }
        }
        messages
    }

    fn messages(&self) -> Vec<(Delivery, &[u8])> {
        let mut messages = Vec::new();
        for event in &self.events {
            if let ChannelEvent::Message { delivery, data, .. } = event {
                messages.push((*delivery, &data[..]));
            }
        }
        messages
    }

    fn has_both_channels(&self) -> bool {
        let is_open =
            |delivery| self.events.contains(&ChannelEvent::Opened(delivery)) && self.client_channel(delivery).is_some();
        is_open(Delivery::Reliable) && is_open(Delivery::Lossy)
    }
}

fn add_channels(changes: &mut str0m::change::SdpApi<'_>) {
    changes.add_channel("_reliable".into());
    let reliability = str0m::channel::Reliability::MaxRetransmits { retransmits: 0 };
    let lossy = ChannelConfig { label: "_lossy".into(), ordered: false, reliability, ..ChannelConfig::default() };
    changes.add_channel_with_config(lossy);
}

pub fn downs_of(sections: &[Section]) -> Vec<(u64, &str)> {
    sections.iter().filter_map(|section| Some((section.down.as_ref()?.0, section.mid.as_str()))).collect()
}

pub fn ssrcs_of(sections: &[Section]) -> Vec<u32> {
    let media = sections.iter().filter_map(|section| section.down.as_ref());
    media.flat_map(|(_, media)| &media.tx).flat_map(|(ssrc, rtx)| [Some(*ssrc), *rtx]).flatten().collect()
}

#[test]
fn one_connection_publishes_watches_and_has_data_both_ways() {
    let mut world = World::new(false, true);
    world.conference.set_downs(vec![down(7, Codec::Opus), down(8, Codec::Vp8)]).unwrap();
    let described = world.client_offers(|changes| {
        add_channels(changes);
        changes.add_media(Str0mKind::Audio, Flow::SendOnly, Some("ms".into()), Some("cid-1".into()), None);
        changes.add_media(Str0mKind::Audio, Flow::RecvOnly, None, None, None);
        changes.add_media(Str0mKind::Video, Flow::RecvOnly, None, None, None);
    });
    let up: Vec<_> = described.sections.iter().filter_map(|section| section.up.as_ref()).collect();
    assert_eq!(up.len(), 1);
    assert_eq!((up[0].cid.as_str(), up[0].media.codec), ("cid-1", Codec::Opus));
    assert_eq!(downs_of(&described.sections).iter().map(|(id, _)| *id).collect::<Vec<_>>(), [7, 8]);
    assert!(described.sdp.contains("a=msid:PA_8|TR_8 TR_8\r\n"), "{}", described.sdp);

    world.run_until(|world| world.is_connected() && world.has_both_channels());
    for (delivery, text) in [(Delivery::Reliable, &b"kept"[..]), (Delivery::Lossy, b"fast")] {
        world.peer.send_data(world.now, delivery, text).unwrap();
        let id = world.client_channel(delivery).unwrap();
        assert!(world.client.channel(id).unwrap().write(true, text).unwrap());
    }
    world.run_until(|world| world.client_messages().len() == 2 && world.messages().len() == 2);
    assert_eq!(world.messages(), [(Delivery::Reliable, &b"kept"[..]), (Delivery::Lossy, b"fast")]);
    assert_eq!(world.client_messages(), [&b"kept"[..], b"fast"]);
}

#[test]
fn sections_are_added_go_idle_and_are_used_again_while_the_rest_stays() {
    let mut world = World::new(false, false);
    let described = world.client_offers(|changes| {
        changes.add_media(Str0mKind::Video, Flow::RecvOnly, None, None, None);
    });
    assert!(described.sdp.contains("a=inactive\r\n"), "{}", described.sdp);
    world.run_until(World::is_connected);

    world.conference.set_downs(vec![down(1, Codec::Vp8), down(2, Codec::H264)]).unwrap();
    // str0m takes a section that was answered so for one that it does not want itself.
    let mid = Mid::from(described.sections[0].mid.as_str());
    let described = world.client_offers(|changes| {
        changes.set_direction(mid, Flow::RecvOnly);
        changes.add_media(Str0mKind::Audio, Flow::SendOnly, None, None, None);
    });
    assert_eq!((downs_of(&described.sections).len(), described.unplaced), (1, vec![2]));
    let first = described.sections.iter().find(|section| section.down.is_some()).unwrap().clone();

    let described = world.client_offers(|changes| {
        changes.add_media(Str0mKind::Video, Flow::RecvOnly, None, None, None);
    });
    assert!(described.sections.contains(&first), "who is there stays as it is");
    assert_eq!((downs_of(&described.sections).len(), described.unplaced), (2, vec![]));
    let before: HashSet<u32> = ssrcs_of(&described.sections).into_iter().collect();

    // Another takes the place of the first, which has been idle for one answer before.
    world.conference.set_downs(vec![down(3, Codec::Vp9), down(2, Codec::H264)]).unwrap();
    let described = world.client_offers(|changes| {
        changes.add_media(Str0mKind::Audio, Flow::RecvOnly, None, None, None);
    });
    assert_eq!((downs_of(&described.sections).len(), described.unplaced), (1, vec![3]));
    let mid = Mid::from(first.mid.as_str());
    let described = world.client_offers(|changes| changes.set_direction(mid, Flow::RecvOnly));
    let reused = described.sections.iter().find(|section| section.mid == first.mid).unwrap();
    let (id, media) = reused.down.as_ref().unwrap();
    assert_eq!((*id, media.codec), (3, Codec::Vp9));
    assert!(media.tx.iter().all(|(ssrc, rtx)| !before.contains(ssrc) && !rtx.is_some_and(|rtx| before.contains(&rtx))));
    assert_eq!(world.ended, None);
}

#[test]
fn a_section_may_be_both_ways_and_others_are_filled_first() {
    let (mut peer, mut conference) =
        Conference::answerer(&Context::new().unwrap(), Instant::now(), options(false)).unwrap();
    conference.set_downs(vec![down(1, Codec::Opus), down(2, Codec::Opus)]).unwrap();
    let both = PION.to_owned();
    let described = conference.answer(&mut peer, Instant::now(), &both).unwrap();
    let audio = described.sections.iter().find(|section| section.kind == Some(MediaKind::Audio)).unwrap();
    assert!(audio.up.is_some() && audio.down.as_ref().is_some_and(|(id, _)| *id == 1), "{described:?}");
    assert!(described.sdp.contains("a=sendrecv\r\n") && described.unplaced == [2]);
}

/// pion's offer, with H.264 alone where it publishes, and a second picture to receive, in VP8.
fn pion_that_receives_in_another_codec() -> String {
    let video = &PION[PION.find("m=video").unwrap()..PION.find("m=audio").unwrap()];
    let of_its_own = ["a=ssrc", "a=msid", "a=candidate", "a=end-of"];
    let lines = video.lines().filter(|line| !of_its_own.iter().any(|name| line.starts_with(name)));
    let received: String = lines.map(|line| format!("{line}\r\n")).collect();
    let received = received.replace("96 97 102 103 45 46", "96 97").replace("a=mid:0", "a=mid:2");
    let published = PION.replacen("96 97 102 103 45 46", "102 103", 1).replace("BUNDLE 0 1", "BUNDLE 0 1 2");
    published + &received.replace("a=sendrecv", "a=recvonly")
}

#[test]
fn a_track_waits_for_the_section_that_suits_it_and_has_just_been_left() {
    let (mut peer, mut conference) =
        Conference::answerer(&Context::new().unwrap(), Instant::now(), options(false)).unwrap();
    let offer = pion_that_receives_in_another_codec();
    let mut answer = |id| {
        conference.set_downs(vec![down(id, Codec::Vp8)]).unwrap();
        let described = conference.answer(&mut peer, Instant::now(), &offer).unwrap();
        let placed =
            downs_of(&described.sections).into_iter().map(|(id, mid)| (id, mid.to_owned())).collect::<Vec<_>>();
        (placed, described.unplaced, described.refused)
    };
    assert_eq!(answer(1), (vec![(1, "2".to_owned())], vec![], vec![]));
    assert_eq!(answer(2), (vec![], vec![2], vec![]), "the section rests for one answer");
    assert_eq!(answer(2), (vec![(2, "2".to_owned())], vec![], vec![]));
}

#[test]
fn the_server_offers_although_it_is_lite() {
    let mut world = World::new(true, true);
    let offer = world.conference.offer(&mut world.peer).unwrap().unwrap();
    assert!(offer.contains("a=ice-lite\r\n") && offer.contains("a=setup:actpass\r\n") && !offer.contains("m=audio"));
    assert!(world.conference.is_waiting() && world.conference.offer(&mut world.peer).unwrap().is_none());
    let answer = world.client.sdp_api().accept_offer(SdpOffer::from_sdp_string(&offer).unwrap()).unwrap();
    world.conference.accept_answer(&mut world.peer, world.now, &answer.to_sdp_string()).unwrap();
    world.run_until(|world| world.is_connected() && world.has_both_channels());

    world.peer.send_data(world.now, Delivery::Reliable, b"to you").unwrap();
    world.run_until(|world| world.client_messages() == [b"to you"]);
    let id = world.client_channel(Delivery::Lossy).unwrap();
    let config = world.client.channel(id).unwrap().config().cloned().unwrap();
    assert!(!config.ordered);
    assert_eq!(config.reliability, str0m::channel::Reliability::MaxRetransmits { retransmits: 0 });
}

#[test]
fn offers_go_on_and_use_the_sections_of_tracks_that_are_gone() {
    let mut world = World::new(true, true);
    world.we_offer().unwrap();
    world.run_until(World::is_connected);
    assert!(world.we_offer().is_none(), "nothing is new");

    world.conference.set_downs(vec![down(1, Codec::Opus), down(2, Codec::Vp8), down(3, Codec::H264)]).unwrap();
    let described = world.we_offer().unwrap();
    assert_eq!(downs_of(&described.sections), [(1, "1"), (2, "2"), (3, "3")]);
    let mut known: HashSet<u32> = ssrcs_of(&described.sections).into_iter().collect();
    assert_eq!(known.len(), 5, "sound is not sent again");

    world.conference.set_downs(vec![down(1, Codec::Opus), down(3, Codec::H264)]).unwrap();
    let described = world.we_offer().unwrap();
    assert_eq!(downs_of(&described.sections), [(1, "1"), (3, "3")]);

    world.conference.set_downs(vec![down(1, Codec::Opus), down(3, Codec::H264), down(4, Codec::Vp9)]).unwrap();
    // str0m, other than browsers and pion, has an idle section for one that it does not want itself.
    let offer = world.conference.offer(&mut world.peer).unwrap().unwrap();
    let offer = SdpOffer::from_sdp_string(&offer).unwrap();
    let answer = world.client.sdp_api().accept_offer(offer).unwrap().to_sdp_string();
    let answer = answer.replace("a=inactive", "a=recvonly");
    let described = world.conference.accept_answer(&mut world.peer, world.now, &answer).unwrap();
    assert_eq!(downs_of(&described.sections), [(1, "1"), (4, "2"), (3, "3")]);
    assert!(ssrcs_of(&described.sections).into_iter().filter(|ssrc| known.insert(*ssrc)).count() == 2);

    // One that comes while another goes waits until that is gone, and makes no further section.
    world.conference.set_downs(vec![down(1, Codec::Opus), down(5, Codec::Vp8), down(4, Codec::Vp9)]).unwrap();
    let described = world.we_offer().unwrap();
    assert_eq!((downs_of(&described.sections), described.sections.len()), (vec![(1, "1"), (4, "2")], 4));
    let offer = world.conference.offer(&mut world.peer).unwrap().unwrap();
    assert!(offer.contains("a=msid:PA_5|TR_5 TR_5") && offer.matches("m=video").count() == 2, "{offer}");
    assert_eq!(world.ended, None);
}

#[test]
fn a_payload_type_means_one_format_in_all_sections() {
    let mut world = World::new(true, false);
    let h264 = |id, level: &str| Down {
        fmtp: format!("packetization-mode=1;profile-level-id={level}"),
        ..down(id, Codec::H264)
    };
    let wanted = vec![h264(1, "42e01f"), h264(2, "640032"), h264(3, "42e01f"), down(4, Codec::Vp8)];
    world.conference.set_downs(wanted).unwrap();
    let offer = world.conference.offer(&mut world.peer).unwrap().unwrap();
    let numbers: Vec<&str> =
        offer.lines().filter_map(|line| line.strip_prefix("m=video 9 UDP/TLS/RTP/SAVPF ")).collect();
    assert_eq!(numbers[0], "104 105 96 97 98 99 102 103 49 50 45 46");
    assert_eq!(numbers[1], "106 107 96 97 98 99 102 103 49 50 45 46");
    assert!(numbers[2] == numbers[0] && numbers[3].starts_with("96 97 98"));
}

#[test]
fn a_publisher_with_ever_other_parameters_leaves_others_their_tracks() {
    let mut world = World::new(true, false);
    let wanted = (0..12).map(|id| Down { fmtp: format!("profile-level-id=42e0{id:02x}"), ..down(id, Codec::H264) });
    world.conference.set_downs(wanted.collect()).unwrap();
    let offer = world.conference.offer(&mut world.peer).unwrap().unwrap();
    let sections = offer.lines().filter_map(|line| line.strip_prefix("m=video 9 UDP/TLS/RTP/SAVPF "));
    let usual = sections.map(|numbers| numbers.starts_with("102 103 "));
    assert_eq!(usual.collect::<Vec<_>>(), [&[false; 11][..], &[true]].concat(), "{offer}");
}

#[test]
fn parameters_of_a_publisher_put_no_lines_into_the_offers_of_others() {
    let mut world = World::new(true, false);
    let fmtp = "profile-id=0\r\na=setup:passive".to_owned();
    world.conference.set_downs(vec![Down { fmtp, media_stream: "a\r\nb".into(), ..down(1, Codec::Vp9) }]).unwrap();
    let offer = world.conference.offer(&mut world.peer).unwrap().unwrap();
    assert!(!offer.contains("a=setup:passive") && offer.contains("a=fmtp:98 profile-id=0\r\n"), "{offer}");
    assert!(offer.contains("a=msid:ab TR_1\r\n"));
}

#[test]
fn either_side_restarts_ice_and_keeps_its_keys_and_channels() {
    for offers in [false, true] {
        let mut world = World::new(offers, true);
        if offers {
            world.we_offer().unwrap();
        } else {
            world.client_offers(add_channels);
        }
        world.run_until(|world| world.is_connected() && world.has_both_channels());
        let before = world.peer.ufrag().to_owned();
        let described = if offers {
            world.conference.restart();
            world.we_offer().unwrap()
        } else {
            world.client_offers(|changes| _ = changes.ice_restart(true))
        };
        assert!(described.restarted && world.peer.ufrag() != before);
        let until = world.now + Duration::from_secs(8);
        world.run_until(|world| world.now >= until);
        world.peer.send_data(world.now, Delivery::Reliable, b"still here").unwrap();
        world.run_until(|world| world.client_messages() == [b"still here"]);
        assert_eq!(world.ended, None);
    }
}

#[test]
fn an_answer_that_cannot_be_used_changes_nothing() {
    let mut world = World::new(true, true);
    let offer = world.conference.offer(&mut world.peer).unwrap().unwrap();
    let offer = SdpOffer::from_sdp_string(&offer).unwrap();
    let answer = world.client.sdp_api().accept_offer(offer).unwrap().to_sdp_string();
    let wrong = answer.replace("a=setup:passive", "a=setup:actpass");
    let refused = world.conference.accept_answer(&mut world.peer, world.now, &wrong);
    assert!(matches!(refused, Err(Error::Invalid { what: "a=setup", .. })), "{refused:?}");
    world.conference.accept_answer(&mut world.peer, world.now, &answer).unwrap();
    world.run_until(World::is_connected);

    world.conference.set_downs(vec![down(1, Codec::Vp8)]).unwrap();
    let offer = world.conference.offer(&mut world.peer).unwrap().unwrap();
    let offer = SdpOffer::from_sdp_string(&offer).unwrap();
    let answer = world.client.sdp_api().accept_offer(offer).unwrap().to_sdp_string();
    let line = |name: &str| answer.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    let (fingerprint, ufrag) = (line("a=fingerprint"), line("a=ice-ufrag"));
    let other = format!("a=fingerprint:sha-256 {}", ["00"; 32].join(":"));
    for (what, wrong) in [
        ("a=fingerprint", answer.replace(&fingerprint, &other)),
        ("a=ice-ufrag", answer.replace(&ufrag, "a=ice-ufrag:another")),
    ] {
        let refused = world.conference.accept_answer(&mut world.peer, world.now, &wrong);
        assert!(matches!(refused, Err(Error::Invalid { what: named, .. }) if named == what), "{refused:?}");
        assert_eq!(world.conference.sections().len(), 1);
    }
    let described = world.conference.accept_answer(&mut world.peer, world.now, &answer).unwrap();
    assert_eq!(downs_of(&described.sections), [(1, "1")]);
    assert_eq!(world.ended, None);
}

/// A str0m answers passive, as a pion does. This one is as a browser's.
#[test]
fn who_answers_active_has_the_server_for_its_dtls_server() {
    let now = Instant::now();
    let context = Context::new().unwrap();
    let (mut peer, mut conference) = Conference::offerer(&context, now, options(false)).unwrap();
    conference.set_downs(vec![down(1, Codec::Opus), down(2, Codec::Vp8)]).unwrap();
    let offer = conference.offer(&mut peer).unwrap().unwrap();
    let purpose = webrtc::Purpose::Receive { codecs: &crate::common::ALL };
    let answer_options = webrtc::AnswerOptions { purpose, candidates: &[] };
    let (_, answer) = Peer::answer(&context, now, &offer.replace("a=ice-lite\r\n", ""), &answer_options).unwrap();
    let answer = answer.sdp.replace("a=ice-lite\r\n", "").replace("a=setup:passive", "a=setup:active");
    let described = conference.accept_answer(&mut peer, now, &answer).unwrap();
    assert_eq!(downs_of(&described.sections), [(1, "0"), (2, "1")]);
    let media = &described.sections[1].down.as_ref().unwrap().1;
    assert!(media.transport_cc && media.rtx_payload_type == Some(97), "{media:?}");
}

#[test]
fn a_section_in_use_keeps_its_name_and_medium_and_none_is_left_out() {
    let context = Context::new().unwrap();
    let now = Instant::now();
    let (mut peer, mut conference) = Conference::answerer(&context, now, options(true)).unwrap();
    conference.answer(&mut peer, now, CHROME).unwrap();
    let before = conference.sections();
    let mid = before.iter().find(|section| section.kind == Some(MediaKind::Video)).unwrap().mid.clone();
    let renamed =
        CHROME.replace(&format!("a=mid:{mid}\r"), "a=mid:other\r").replace(&format!("a=mid:{mid}\n"), "a=mid:other\n");
    let renamed = renamed.replace("BUNDLE", "BUNDLE other");
    assert!(conference.answer(&mut peer, now, &renamed).is_err());
    let last = CHROME.rfind("m=").unwrap();
    assert!(conference.answer(&mut peer, now, &CHROME[..last]).is_err());
    assert_eq!(conference.sections(), before, "what is refused changes nothing");
    conference.answer(&mut peer, now, CHROME).unwrap();
    assert_eq!(conference.sections(), before);
}

#[test]
fn a_publisher_s_codec_redundancy_and_silence_are_as_wished() {
    let answer = |wish: UpWish| {
        let (mut peer, mut conference) =
            Conference::answerer(&Context::new().unwrap(), Instant::now(), options(false)).unwrap();
        conference.set_ups(vec![wish]).unwrap();
        conference.answer(&mut peer, Instant::now(), CHROME_SIMULCAST).unwrap()
    };
    let plain = answer(UpWish::default());
    let of = |described: &Described, kind| {
        let section = described.sections.iter().find(|section| section.kind == Some(kind));
        section.and_then(|section| section.up.clone()).unwrap()
    };
    let codecs = |described: &Described| {
        let video = &described.sdp[described.sdp.find("m=video").unwrap()..];
        let lines =
            video.lines().filter_map(|line| line.strip_prefix("a=rtpmap:")?.strip_suffix("/90000")?.split(' ').nth(1));
        lines.filter(|codec| *codec != "rtx").map(str::to_owned).collect::<Vec<_>>()
    };
    let (video, audio) = (of(&plain, MediaKind::Video), of(&plain, MediaKind::Audio));
    assert_eq!(video.media.rids.len(), 3, "{plain:?}");
    assert!(!plain.sdp.contains("usedtx"));
    assert_eq!(codecs(&plain), ["VP8", "H264", "AV1", "VP9"], "nobody has said yet what it sends");

    let wished = answer(UpWish { cid: video.cid.clone(), codecs: vec![Codec::H265, Codec::H264], ..UpWish::default() });
    let chosen = of(&wished, MediaKind::Video).media;
    assert!(chosen.codec == Codec::H264 && chosen.rids.len() == 3, "{chosen:?}");

    let others = vec![Codec::H264, Codec::Vp9, Codec::Vp8];
    let listed = answer(UpWish { cid: video.cid.clone(), codecs: vec![Codec::Vp8], others, ..UpWish::default() });
    assert_eq!(of(&listed, MediaKind::Video).media.codec, Codec::Vp8);
    assert_eq!(codecs(&listed), ["VP8", "H264", "VP9"]);

    let audio_formats = |described: &Described| {
        let line = described.sdp.lines().find(|line| line.starts_with("m=audio")).unwrap().to_owned();
        line.split(' ').skip(3).take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(audio_formats(&plain), ["111", "63"], "as it is offered");
    let redundant = answer(UpWish { cid: audio.cid.clone(), red: true, ..UpWish::default() });
    assert_eq!(audio_formats(&redundant), ["63", "111"]);
    let by_another_name = answer(UpWish { cid: "another".into(), red: true, ..UpWish::default() });
    assert_eq!(audio_formats(&by_another_name), ["63", "111"]);

    let wish = UpWish { cid: audio.cid, dtx: true, stereo: true, ..UpWish::default() };
    let wished = answer(wish);
    assert!(wished.sdp.contains(";usedtx=1;stereo=1\r\n"), "{}", wished.sdp);
    assert_eq!(of(&wished, MediaKind::Audio).media.red, None);
}

#[test]
fn who_did_not_ask_for_data_channels_has_none() {
    let mut world = World::new(false, false);
    world.client_offers(|changes| {
        changes.add_media(Str0mKind::Audio, Flow::SendOnly, None, None, None);
    });
    world.run_until(World::is_connected);
    assert_eq!(world.peer.send_data(world.now, Delivery::Reliable, b"x"), Err(DataRefused::NotOpen));
    let (mut peer, mut conference) =
        Conference::answerer(&Context::new().unwrap(), Instant::now(), options(false)).unwrap();
    let mut client = Rtc::builder().build(Instant::now());
    let mut changes = client.sdp_api();
    add_channels(&mut changes);
    let (offer, _) = changes.apply().unwrap();
    let refused = conference.answer(&mut peer, Instant::now(), &offer.to_sdp_string());
    assert!(matches!(refused, Err(Error::NoMedia(_))), "{refused:?}");
}

#[test]
fn what_waits_in_a_channel_is_bounded_and_so_is_a_message() {
    let mut world = World::new(false, true);
    world.client_offers(add_channels);
    world.run_until(|world| world.is_connected() && world.has_both_channels());
    let message = vec![7; MESSAGE_BYTES_MAX];
    assert_eq!(
        world.peer.send_data(world.now, Delivery::Reliable, &[&message[..], &[0]].concat()),
        Err(DataRefused::TooLong { got: MESSAGE_BYTES_MAX + 1, max: MESSAGE_BYTES_MAX })
    );
    let taken = |world: &mut World, delivery| {
        (0..100).filter(|_| world.peer.send_data(world.now, delivery, &message).is_ok()).count()
    };
    assert_eq!(taken(&mut world, Delivery::Lossy), 1);
    let count = taken(&mut world, Delivery::Reliable);
    assert_eq!(count, 31, "two mebibytes, less what is lossy");
    world.run_until(|world| world.client_messages().len() == count + 1);
    assert!(world.client_messages().iter().all(|got| *got == message));
}

#[test]
fn who_is_behind_is_told_of_once_and_so_is_that_it_has_caught_up() {
    let mut world = World::new(false, true);
    world.client_offers(add_channels);
    world.run_until(|world| world.is_connected() && world.has_both_channels());
    let message = [7; 16 * 1024];
    let count = |world: &World, event| world.events.iter().filter(|told| **told == event).count();
    let at_once = BEHIND_BYTES / message.len() + 4;
    for round in 1..=2 {
        for _ in 0..at_once {
            world.peer.send_data(world.now, Delivery::Reliable, &message).unwrap();
        }
        world.run_until(|world| count(world, ChannelEvent::CaughtUp) == round);
        assert_eq!(count(&world, ChannelEvent::Behind), round);
    }
    world.run_until(|world| world.client_messages().len() == 2 * at_once);
    // Less than that is nothing to be told of.
    world.peer.send_data(world.now, Delivery::Reliable, &message).unwrap();
    world.run_until(|world| world.client_messages().len() == 2 * at_once + 1);
    assert_eq!((count(&world, ChannelEvent::Behind), count(&world, ChannelEvent::CaughtUp)), (2, 2));
}

#[test]
fn what_a_held_peer_sends_waits_and_what_it_acknowledges_does_not() {
    let mut world = World::new(false, true);
    world.client_offers(add_channels);
    world.run_until(|world| world.is_connected() && world.has_both_channels());
    let id = world.client_channel(Delivery::Reliable).unwrap();
    world.peer.hold_data(world.now, true);
    let mut sent = 0_u32;
    while world.client.channel(id).unwrap().write(true, &[&sent.to_be_bytes()[..], &[7; 1_000]].concat()).unwrap() {
        sent += 1;
    }
    let message = [7; 16 * 1024];
    for _ in 0..BEHIND_BYTES / message.len() {
        world.peer.send_data(world.now, Delivery::Reliable, &message).unwrap();
    }
    world.run_until(|world| world.events.contains(&ChannelEvent::CaughtUp));
    // It repeats what is not acknowledged.
    let until = world.now + Duration::from_secs(5);
    world.run_until(|world| world.now >= until);
    assert!(world.messages().is_empty());

    world.peer.hold_data(world.now, false);
    world.run_until(|world| world.messages().len() == sent as usize);
    assert!(world.messages().iter().zip(0..).all(|((_, data), number): (_, u32)| data[..4] == number.to_be_bytes()));
    assert!(world.client.channel(id).unwrap().write(true, b"more").unwrap());
    world.run_until(|world| world.messages().len() == sent as usize + 1);
}

#[test]
fn many_small_messages_at_once_are_all_heard() {
    let mut world = World::new(false, true);
    world.client_offers(add_channels);
    world.run_until(|world| world.is_connected() && world.has_both_channels());
    let id = world.client_channel(Delivery::Reliable).unwrap();
    for number in 0..3_000_u32 {
        assert!(world.client.channel(id).unwrap().write(true, &number.to_be_bytes()).unwrap());
    }
    world.run_until(|world| world.messages().len() == 3_000);
    assert!(world.messages().iter().zip(0..).all(|((_, data), number): (_, u32)| *data == number.to_be_bytes()));
    assert_eq!(world.ended, None);
}

#[test]
fn a_channel_of_another_name_is_read_unless_it_is_the_protocols() {
    let mut world = World::new(false, true);
    world.client_offers(add_channels);
    world.run_until(|world| world.is_connected() && world.has_both_channels());
    let others: Vec<ChannelId> = ["_data_track", "_reliable", "mine"]
        .map(|label| ChannelConfig { label: label.into(), ..ChannelConfig::default() })
        .map(|config| world.client.direct_api().create_data_channel(config))
        .into();
    world.run_until(|world| world.client_channels().len() == 5);
    for id in others {
        assert!(world.client.channel(id).unwrap().write(true, b"hello").unwrap());
    }
    let is_heard = |event: &ChannelEvent| matches!(event, ChannelEvent::Other { data } if data == b"hello");
    world.run_until(|world| world.events.iter().any(is_heard));
    assert!(world.events.iter().filter(|event| is_heard(event)).count() == 1 && world.messages().is_empty());
}

#[test]
fn further_channels_are_closed_and_the_session_goes_on() {
    let mut world = World::new(false, true);
    world.client_offers(add_channels);
    world.run_until(|world| world.is_connected() && world.has_both_channels());
    for number in 0..100 {
        let config = ChannelConfig { label: format!("other {number}"), ..ChannelConfig::default() };
        world.client.direct_api().create_data_channel(config);
    }
    let until = world.now + Duration::from_secs(5);
    world.run_until(|world| world.now >= until);
    let closed = world.client_events.iter().filter(|event| matches!(event, Event::ChannelClose(_))).count();
    assert!(closed > 0 && world.client_channels().len() < 40, "{closed} of {}", world.client_channels().len());
    world.peer.send_data(world.now, Delivery::Lossy, b"on").unwrap();
    world.run_until(|world| world.client_messages() == [b"on"]);
    assert_eq!(world.ended, None);
}

#[test]
fn no_media_leaves_a_conference() {
    let mut world = World::new(false, true);
    world.conference.set_downs(vec![down(1, Codec::Opus), down(2, Codec::Vp8)]).unwrap();
    world.client_offers(|changes| {
        add_channels(changes);
        changes.add_media(Str0mKind::Audio, Flow::SendRecv, None, None, None);
        changes.add_media(Str0mKind::Video, Flow::SendRecv, None, None, None);
    });
    world.run_until(|world| world.is_connected() && world.has_both_channels());
    let until = world.now + Duration::from_secs(8);
    world.run_until(|world| world.now >= until);
    assert!(!world.sent.is_empty() && !world.sent.iter().any(|first| (128..=191).contains(first)));
}
