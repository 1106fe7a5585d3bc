//! A client that answers a server's offers: one that is lite as ours is, and one with full ICE.

use std::time::{Duration, Instant};

use str0m::Rtc;
use str0m::change::SdpAnswer;
use str0m::media::{Direction as Flow, MediaKind as Str0mKind};
use str0m::net::{Protocol, Receive};
use webrtc::{
    ChannelEvent, Conference, ConferenceClient, Context, Delivery, Error, Extension, Media, Negotiated, Output, Peer,
    Remote,
};
use wire::codec::Codec;

use crate::common::addr;
use crate::conference::{down, options};

const CODECS: [Codec; 2] = [Codec::Opus, Codec::Vp8];
const SERVER: &str = "127.0.0.1:7000";
const CLIENT: &str = "127.0.0.1:9000";

/// A room's session and a client of it.
struct World {
    now: Instant,
    server: Peer,
    conference: Conference,
    client: Peer,
    answers: ConferenceClient,
    events: Vec<ChannelEvent>,
}

impl World {
    fn new(wants_data: bool, tracks: &[(u64, Codec)]) -> (World, Negotiated) {
        let (now, context) = (Instant::now(), Context::new().unwrap());
        let (mut server, mut conference) = Conference::offerer(&context, now, options(wants_data)).unwrap();
        conference.set_downs(tracks.iter().map(|(id, codec)| down(*id, *codec)).collect()).unwrap();
        let offer = conference.offer(&mut server).unwrap().unwrap();
        let (client, answers, negotiated) = ConferenceClient::join(&context, now, &offer, &CODECS).unwrap();
        conference.accept_answer(&mut server, now, &negotiated.sdp).unwrap();
        (World { now, server, conference, client, answers, events: Vec::new() }, negotiated)
    }

    fn run_until(&mut self, done: impl Fn(&World) -> bool) {
        for _ in 0..2_000 {
            if done(self) {
                return;
            }
            self.now += Duration::from_millis(5);
            self.server.handle_timeout(self.now);
            self.client.handle_timeout(self.now);
            while self.exchange() {}
        }
        panic!("not within 10 s: {:?}", self.events);
    }

    /// False when neither had anything to say.
    fn exchange(&mut self) -> bool {
        let (to_client, to_server) =
            (drain(&mut self.server, &mut self.events), drain(&mut self.client, &mut Vec::new()));
        for data in &to_client {
            let _ = self.client.handle_datagram(self.now, at(SERVER), data);
        }
        for data in &to_server {
            let _ = self.server.handle_datagram(self.now, at(CLIENT), data);
        }
        !(to_client.is_empty() && to_server.is_empty())
    }

    fn sent(&self) -> Vec<Media> {
        self.conference.sections().into_iter().filter_map(|section| Some(section.down?.1)).collect()
    }
}

fn at(address: &str) -> Remote {
    Remote { addr: addr(address), tcp: false }
}

fn drain(peer: &mut Peer, events: &mut Vec<ChannelEvent>) -> Vec<Box<[u8]>> {
    let mut datagrams = Vec::new();
    loop {
        match peer.poll() {
            Output::Transmit { data, .. } => datagrams.push(data),
            Output::Channel(event) => events.push(event),
            Output::Ended(reason) => panic!("{reason:?}"),
            Output::Timeout(_) => return datagrams,
            Output::Connected { .. } | Output::PathChanged(_) => {}
        }
    }
}

#[test]
fn a_client_gets_what_the_server_sends_and_its_data_channels() {
    let (mut world, negotiated) = World::new(true, &[]);
    assert!(negotiated.media.is_empty(), "{negotiated:?}");
    world.run_until(|world| {
        let opened = [Delivery::Reliable, Delivery::Lossy].map(ChannelEvent::Opened);
        world.client.is_connected() && opened.iter().all(|event| world.events.contains(event))
    });

    world.conference.set_downs(vec![down(1, Codec::Opus), down(2, Codec::Vp8), down(3, Codec::Vp8)]).unwrap();
    let offer = world.conference.offer(&mut world.server).unwrap().unwrap();
    let negotiated = world.answers.answer(&offer).unwrap();
    world.conference.accept_answer(&mut world.server, world.now, &negotiated.sdp).unwrap();

    let sent = world.sent();
    assert_eq!(sent.len(), 3);
    for (sent, taken) in sent.iter().zip(&negotiated.media) {
        assert_eq!((&sent.mid, &sent.tx, sent.codec), (&taken.mid, &taken.rx, taken.codec));
        assert_eq!(sent.payload_type, taken.payload_type);
        let numbered = Extension::TransportCc;
        assert_eq!(sent.extension_id(numbered), taken.extension_id(numbered));
        assert!(sent.transport_cc && taken.extension_id(numbered).is_some());
    }
}

#[test]
fn what_is_sent_no_more_does_not_come_and_a_codec_that_is_not_taken_is_refused() {
    let (mut world, negotiated) = World::new(false, &[(1, Codec::Vp8), (2, Codec::H264)]);
    assert_eq!(negotiated.media.len(), 2, "VP8 is offered beside H.264");
    assert_eq!(world.sent().iter().map(|media| media.codec).collect::<Vec<_>>(), [Codec::Vp8]);

    world.conference.set_downs(vec![]).unwrap();
    let offer = world.conference.offer(&mut world.server).unwrap().unwrap();
    let negotiated = world.answers.answer(&offer).unwrap();

    assert!(negotiated.media.is_empty(), "{negotiated:?}");
    world.conference.accept_answer(&mut world.server, world.now, &negotiated.sdp).unwrap();
    assert!(world.sent().is_empty());
}

#[test]
fn a_restart_of_ice_is_not_followed() {
    let (mut world, _) = World::new(false, &[(1, Codec::Vp8)]);
    world.run_until(|world| world.client.is_connected() && world.server.is_connected());
    world.conference.restart();
    let offer = world.conference.offer(&mut world.server).unwrap().unwrap();
    assert!(matches!(world.answers.answer(&offer), Err(Error::Invalid { what: "a=ice-ufrag", .. })));
}

#[test]
fn a_server_with_full_ice_nominates() {
    let mut now = Instant::now();
    let mut server = Rtc::builder().build(now);
    let mut changes = server.sdp_api();
    changes.add_channel("_reliable".into());
    changes.add_media(Str0mKind::Video, Flow::SendOnly, None, None, None);
    let (offer, pending) = changes.apply().expect("something to offer");
    let context = Context::new().unwrap();
    let (mut client, _, answer) = ConferenceClient::join(&context, now, &offer.to_sdp_string(), &CODECS).unwrap();
    assert_eq!(answer.media.len(), 1);
    let answer = SdpAnswer::from_sdp_string(&answer.sdp).unwrap();
    server.sdp_api().accept_answer(pending, answer).unwrap();
    // It comes later.
    let candidate = str0m::Candidate::host(addr(SERVER), "udp").unwrap();
    client.add_candidate(&candidate.to_sdp_string());
    server.add_local_candidate(candidate);

    let mut has_channel = false;
    for _ in 0..2_000 {
        now += Duration::from_millis(5);
        client.handle_timeout(now);
        server.handle_input(str0m::Input::Timeout(now)).unwrap();
        loop {
            let mut is_quiet = true;
            for data in drain(&mut client, &mut Vec::new()) {
                is_quiet = false;
                let received = Receive::new(Protocol::Udp, addr(CLIENT), addr(SERVER), &data).unwrap();
                server.handle_input(str0m::Input::Receive(now, received)).unwrap();
            }
            loop {
                match server.poll_output().unwrap() {
                    str0m::Output::Transmit(sent) => {
                        is_quiet = false;
                        let _ = client.handle_datagram(now, at(SERVER), &sent.contents);
                    }
                    str0m::Output::Event(event) => has_channel |= matches!(event, str0m::Event::ChannelOpen(..)),
                    str0m::Output::Timeout(_) => break,
                }
            }
            if is_quiet {
                break;
            }
        }
        if client.is_connected() && has_channel {
            return;
        }
    }
    panic!("not within 10 s");
}
