//! A random walk: many participants come, publish, choose, are refused, lose their connections and go; and after each
//! step what the packet path and the clients know is what permissions and wishes say.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use livekit::join::Join;
use livekit::media::{Event, Request, SessionId, TrackId};
use livekit::proto::participant_info::State;
use livekit::proto::signal_request::Message as Signal;
use livekit::proto::signal_response::Message;
use livekit::proto::{
    AddTrackRequest, BackupCodecPolicy, ParticipantPermission, SimulcastCodec, SubscriptionPermission, TrackPermission,
    UpdateParticipantRequest, UpdateSubscription,
};
use proptest::prelude::*;

use crate::support::{Client, Lab, a_join, camera};

const PEOPLE: usize = 6;
/// Of each participant.
const CIDS: usize = 2;

#[derive(Clone, Debug)]
enum Step {
    Join {
        who: usize,
        chooses: bool,
    },
    Leave(usize),
    Cut(usize),
    Resume(usize),
    Lose(usize),
    Publish {
        who: usize,
        cid: usize,
    },
    Unpublish {
        who: usize,
        cid: usize,
    },
    /// The track that it has announced in two codecs comes in the second, too, or not any more.
    Backup {
        who: usize,
        is_sent: bool,
    },
    /// Finds that it cannot decode what it gets of that.
    Lack {
        who: usize,
        of: usize,
    },
    Subscribe {
        who: usize,
        of: usize,
        cid: usize,
        wanted: bool,
    },
    Allow {
        who: usize,
        only: BTreeSet<usize>,
        all: bool,
    },
    Permit {
        who: usize,
        publishes: bool,
        subscribes: bool,
    },
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let (who, cid) = (0..PEOPLE, 0..CIDS);
    let some = proptest::collection::btree_set(0..PEOPLE, 0..PEOPLE);
    prop_oneof![
        4 => (who.clone(), any::<bool>()).prop_map(|(who, chooses)| Step::Join { who, chooses }),
        1 => who.clone().prop_map(Step::Leave),
        1 => who.clone().prop_map(Step::Cut),
        1 => who.clone().prop_map(Step::Resume),
        1 => who.clone().prop_map(Step::Lose),
        4 => (who.clone(), cid.clone()).prop_map(|(who, cid)| Step::Publish { who, cid }),
        2 => (who.clone(), cid.clone()).prop_map(|(who, cid)| Step::Unpublish { who, cid }),
        3 => (who.clone(), any::<bool>()).prop_map(|(who, is_sent)| Step::Backup { who, is_sent }),
        3 => (who.clone(), who.clone()).prop_map(|(who, of)| Step::Lack { who, of }),
        4 => (who.clone(), who.clone(), cid, any::<bool>())
            .prop_map(|(who, of, cid, wanted)| Step::Subscribe { who, of, cid, wanted }),
        2 => (who.clone(), some, any::<bool>()).prop_map(|(who, only, all)| Step::Allow { who, only, all }),
        2 => (who, any::<bool>(), any::<bool>())
            .prop_map(|(who, publishes, subscribes)| Step::Permit { who, publishes, subscribes }),
        2 => (0..20u64).prop_map(Step::Wait),
    ]
}

/// What the test knows of somebody who is in the room.
struct Person {
    client: Client,
    is_cut: bool,
    /// For so many seconds.
    lost_for: Option<u64>,
    chooses: bool,
    publishes: bool,
    subscribes: bool,
    /// Sids, by cid.
    tracks: BTreeMap<usize, String>,
    /// What the packet path calls the track that it has announced in two codecs, in each of them.
    first: Option<TrackId>,
    backup: Option<TrackId>,
    wishes: BTreeMap<String, bool>,
    /// Sids of tracks of which it cannot decode the first codec, of those whose second it cannot, and of those that it is not given
    /// as it can decode neither.
    lacks: BTreeSet<String>,
    lacks_backup: BTreeSet<String>,
    refused: BTreeSet<String>,
    /// Who may subscribe; `None` is everybody.
    allowed: Option<BTreeSet<usize>>,
    /// What it has heard of: by identity, the sid of who publishes, and the tracks.
    seen: BTreeMap<String, (String, BTreeSet<String>)>,
}

struct Walk {
    lab: Lab,
    people: BTreeMap<usize, Person>,
    /// What the packet path sends to each session, and in which codec.
    downs: BTreeMap<SessionId, BTreeMap<String, TrackId>>,
}

/// The one of a participant's tracks that is announced in two codecs, and the client's id of the second.
const IN_TWO_CODECS: usize = 1;
const BACKUP: &str = "backup";

fn codec(name: &str, cid: &str) -> SimulcastCodec {
    SimulcastCodec { codec: name.into(), cid: cid.into(), ..SimulcastCodec::default() }
}

fn announcement(who: usize, cid: usize) -> AddTrackRequest {
    let name = format!("cid{cid}");
    let simulcast_codecs = vec![codec("h264", &name), codec("vp8", "")];
    let track = camera(&name);
    match cid {
        IN_TWO_CODECS => AddTrackRequest { simulcast_codecs, backup_codec_policy: policy(who) as i32, ..track },
        _ => track,
    }
}

fn policy(who: usize) -> BackupCodecPolicy {
    if who.is_multiple_of(2) { BackupCodecPolicy::Simulcast } else { BackupCodecPolicy::PreferRegression }
}

/// What somebody is to get of a track in two codecs.
fn expected_of_two(sid: &String, policy: BackupCodecPolicy, publisher: &Person, person: &Person) -> Option<TrackId> {
    let is_regressed = publisher.backup.is_some() && policy != BackupCodecPolicy::Simulcast;
    match (is_regressed && !person.lacks_backup.contains(sid)) || person.lacks.contains(sid) {
        _ if person.refused.contains(sid) => None,
        true => publisher.backup,
        false => publisher.first,
    }
}

fn name(who: usize) -> String {
    format!("person{who}")
}

impl Walk {
    fn take(&mut self, step: Step) {
        match step {
            Step::Join { who, chooses } => self.join(who, chooses),
            Step::Leave(who) => self.with_connected(who, |lab, person| {
                lab.say(&person.client, Signal::Leave(Default::default()));
                true
            }),
            Step::Cut(who) => self.with_connected(who, |lab, person| {
                lab.cut(&person.client);
                person.is_cut = true;
                false
            }),
            Step::Resume(who) => self.resume(who),
            Step::Lose(who) => self.with_connected(who, |lab, person| {
                lab.hear(Event::Lost { session: person.client.down });
                (person.is_cut, person.lost_for) = (true, Some(0));
                false
            }),
            Step::Publish { who, cid } => self.with_connected(who, |lab, person| {
                if person.publishes && !person.tracks.contains_key(&cid) {
                    let sid = lab.publish(&person.client, announcement(who, cid));
                    person.tracks.insert(cid, sid);
                    if cid == IN_TWO_CODECS {
                        person.first = Some(lab.last_track());
                    }
                }
                false
            }),
            Step::Backup { who, is_sent } => self.back_up(who, is_sent),
            Step::Lack { who, of } => self.lack(who, of),
            Step::Unpublish { who, cid } => self.unpublish(who, cid),
            Step::Subscribe { who, of, cid, wanted } => self.subscribe(who, of, cid, wanted),
            Step::Allow { who, only, all } => self.with_connected(who, |lab, person| {
                let named = only.iter().map(|who| TrackPermission {
                    participant_identity: name(*who),
                    all_tracks: true,
                    ..TrackPermission::default()
                });
                let update = SubscriptionPermission { all_participants: all, track_permissions: named.collect() };
                lab.say(&person.client, Signal::SubscriptionPermission(update));
                person.allowed = (!all).then_some(only);
                false
            }),
            Step::Permit { who, publishes, subscribes } => self.permit(who, publishes, subscribes),
            Step::Wait(seconds) => {
                self.lab.advance(Duration::from_secs(seconds));
                for lost in self.people.values_mut().filter_map(|person| person.lost_for.as_mut()) {
                    *lost += seconds;
                }
                self.people.retain(|_, person| person.lost_for.is_none_or(|seconds| seconds < 10));
            }
        }
    }

    fn with_connected(&mut self, who: usize, act: impl FnOnce(&mut Lab, &mut Person) -> bool) {
        let Some(person) = self.people.get_mut(&who).filter(|person| !person.is_cut) else { return };
        if act(&mut self.lab, person) {
            self.people.remove(&who);
        }
    }

    fn join(&mut self, who: usize, chooses: bool) {
        let client = self.lab.enter_as(Join { auto_subscribe: !chooses, ..a_join(&name(who)) });
        let person = Person {
            client,
            is_cut: false,
            lost_for: None,
            chooses,
            publishes: true,
            subscribes: true,
            tracks: BTreeMap::new(),
            first: None,
            backup: None,
            wishes: BTreeMap::new(),
            lacks: BTreeSet::new(),
            lacks_backup: BTreeSet::new(),
            refused: BTreeSet::new(),
            allowed: None,
            seen: BTreeMap::new(),
        };
        self.people.insert(who, person);
    }

    fn resume(&mut self, who: usize) {
        let Some(person) = self.people.get_mut(&who) else { return };
        let join = Join { reconnect: Some(person.client.sid.clone()), ..a_join(&name(who)) };
        let back = self.lab.try_join(join).expect("a connection");
        if self.lab.closed(&back).is_some() {
            assert!(person.lost_for.is_some(), "only who is lost may be gone");
            self.people.remove(&who);
            return;
        }
        person.client.connection = back.connection;
        self.lab.hear(Event::Heard { session: person.client.down });
        (person.is_cut, person.lost_for) = (false, None);
        person.seen.clear();
    }

    fn unpublish(&mut self, who: usize, cid: usize) {
        let mut ended = None;
        self.with_connected(who, |lab, person| {
            ended = person.tracks.remove(&cid);
            if ended.is_some() {
                lab.unpublish(&person.client, &format!("cid{cid}"));
            }
            if cid == IN_TWO_CODECS && person.backup.take().is_some() {
                lab.unpublish(&person.client, BACKUP);
            }
            false
        });
        self.forget(ended);
    }

    fn back_up(&mut self, who: usize, is_sent: bool) {
        self.with_connected(who, |lab, person| {
            let Some(sid) = person.tracks.get(&IN_TWO_CODECS) else { return false };
            if is_sent && person.backup.is_none() {
                let simulcast_codecs = vec![codec("vp8", BACKUP)];
                lab.publish(&person.client, AddTrackRequest { sid: sid.clone(), simulcast_codecs, ..camera(BACKUP) });
                person.backup = Some(lab.last_track());
            } else if !is_sent && person.backup.take().is_some() {
                lab.unpublish(&person.client, BACKUP);
            }
            false
        });
    }

    /// The packet path knows also of who has no signalling connection.
    fn lack(&mut self, who: usize, of: usize) {
        let Some(publisher) = self.people.get(&of) else { return };
        let (Some(sid), first) = (publisher.tracks.get(&IN_TWO_CODECS).cloned(), publisher.first) else { return };
        let Some(person) = self.people.get_mut(&who) else { return };
        let Some(track) = self.downs.get(&person.client.down).and_then(|downs| downs.get(&sid)) else { return };
        match Some(*track) == first {
            true => person.lacks.insert(sid.clone()),
            false => person.lacks_backup.insert(sid.clone()),
        };
        if person.lacks.contains(&sid) && person.lacks_backup.contains(&sid) {
            person.refused.insert(sid);
        }
        self.lab.hear(Event::Unsupported { session: person.client.down, track: *track });
    }

    fn subscribe(&mut self, who: usize, of: usize, cid: usize, wanted: bool) {
        let Some(sid) = self.people.get(&of).and_then(|person| person.tracks.get(&cid)).cloned() else { return };
        self.with_connected(who, |lab, person| {
            let update =
                UpdateSubscription { track_sids: vec![sid.clone()], subscribe: wanted, participant_tracks: vec![] };
            lab.say(&person.client, Signal::Subscription(update));
            person.refused.remove(&sid);
            person.wishes.insert(sid, wanted);
            false
        });
    }

    fn permit(&mut self, who: usize, publishes: bool, subscribes: bool) {
        let Some(person) = self.people.get_mut(&who) else { return };
        let permission =
            ParticipantPermission { can_publish: publishes, can_subscribe: subscribes, ..Default::default() };
        let request = UpdateParticipantRequest {
            room: "room".into(),
            identity: name(who),
            permission: Some(permission),
            ..UpdateParticipantRequest::default()
        };
        self.lab.admin(livekit::admin::Request::UpdateParticipant(request)).expect("a participant");
        (person.publishes, person.subscribes) = (publishes, subscribes);
        let ended = if publishes { BTreeMap::new() } else { std::mem::take(&mut person.tracks) };
        person.backup.take_if(|_| !publishes);
        for sid in ended.into_values() {
            self.forget(Some(sid));
        }
    }

    /// Wishes end with their track.
    fn forget(&mut self, sid: Option<String>) {
        for person in self.people.values_mut() {
            person.wishes.retain(|known, _| Some(known) != sid.as_ref());
            person.lacks.retain(|known| Some(known) != sid.as_ref());
            person.lacks_backup.retain(|known| Some(known) != sid.as_ref());
            person.refused.retain(|known| Some(known) != sid.as_ref());
        }
    }

    fn check(&mut self) {
        for request in self.lab.take_media() {
            match request {
                Request::SetDown { session, tracks } => {
                    self.downs.insert(session, tracks.into_iter().map(|down| (down.sid, down.track)).collect());
                }
                Request::Close { session } => {
                    self.downs.remove(&session);
                }
                _ => {}
            }
        }
        let sizes = self.lab.rooms.sizes();
        assert_eq!(sizes.participants, self.people.len(), "participants");
        assert_eq!(sizes.connections, self.people.values().filter(|person| !person.is_cut).count(), "connections");
        assert_eq!(sizes.tracks, self.people.values().map(|person| person.tracks.len()).sum::<usize>(), "tracks");
        for (who, person) in &self.people {
            let expected = self.expected(*who, person);
            let sent = self.downs.get(&person.client.down).cloned().unwrap_or_default();
            assert!(sent.keys().eq(expected.keys()), "{} gets {sent:?}, not {expected:?}", name(*who));
            let is_it =
                |(track, expected): (&TrackId, &Option<TrackId>)| expected.is_none_or(|expected| expected == *track);
            assert!(sent.values().zip(expected.values()).all(is_it), "{} gets {sent:?}, not {expected:?}", name(*who));
        }
        self.check_what_is_seen();
    }

    /// What somebody is to get, by what was said, and in which codec where there are two.
    fn expected(&self, who: usize, person: &Person) -> BTreeMap<String, Option<TrackId>> {
        let others = self.people.iter().filter(|(other, _)| **other != who && person.subscribes);
        let allowed = others.filter(|(_, other)| other.allowed.as_ref().is_none_or(|allowed| allowed.contains(&who)));
        let tracks = allowed.flat_map(|(other, publisher)| {
            publisher.tracks.iter().map(move |(cid, sid)| (sid, (*cid == IN_TWO_CODECS).then_some((other, publisher))))
        });
        let wanted = tracks.filter(|(sid, _)| person.wishes.get(*sid).copied().unwrap_or(!person.chooses));
        let of = |(sid, in_two): (&String, Option<(&usize, &Person)>)| match in_two {
            None => Some((sid.clone(), None)),
            Some((other, publisher)) => {
                let track = expected_of_two(sid, policy(*other), publisher, person)?;
                Some((sid.clone(), Some(track)))
            }
        };
        wanted.filter_map(of).collect()
    }

    /// Who has a connection has heard of all tracks that there are, and of none of somebody who has left.
    fn check_what_is_seen(&mut self) {
        let there: BTreeMap<String, BTreeSet<String>> = self
            .people
            .values()
            .map(|person| (person.client.sid.clone(), person.tracks.values().cloned().collect()))
            .collect();
        for person in self.people.values_mut().filter(|person| !person.is_cut) {
            for message in self.lab.take(&person.client) {
                let infos = match message {
                    Message::Join(join) => join.other_participants,
                    Message::Update(update) => update.participants,
                    _ => continue,
                };
                // What it is itself it knows without being told.
                for info in infos.into_iter().filter(|info| info.identity != person.client.identity) {
                    let is_of_known = person.seen.get(&info.identity).is_none_or(|(sid, _)| *sid == info.sid);
                    let tracks = info.tracks.iter().map(|track| track.sid.clone()).collect();
                    match info.state() {
                        State::Disconnected if is_of_known => drop(person.seen.remove(&info.identity)),
                        State::Disconnected => {}
                        _ => drop(person.seen.insert(info.identity, (info.sid, tracks))),
                    }
                }
            }
            let seen: BTreeSet<_> = person.seen.values().flat_map(|(_, tracks)| tracks).cloned().collect();
            let others = there.iter().filter(|(sid, _)| **sid != person.client.sid);
            let others: BTreeSet<_> = others.flat_map(|(_, tracks)| tracks).cloned().collect();
            assert_eq!(seen, others, "what {} sees", person.client.identity);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn everybody_gets_what_is_wanted_and_allowed_and_sees_what_is_there(
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let mut walk = Walk { lab: Lab::new(), people: BTreeMap::new(), downs: BTreeMap::new() };
        for step in steps {
            walk.take(step);
            walk.check();
        }
    }
}
