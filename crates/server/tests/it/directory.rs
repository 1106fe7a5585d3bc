//! Streams and sessions without sockets: where they go, what workers are told, and what becomes of them.

use std::time::{Duration, Instant};

use rooms::spec::{Command, SessionId, StreamId, TrackSpec, WorkerId};
use server::plane::placement::{self, Placement};
use server::rooms::client::Client;
use server::rooms::directory::{
    self, Admitted, Census, Directory, DirectoryError, Role, STREAMS_MAX, StreamState, StreamView,
};
use wire::codec::Codec;

const GRACE: Duration = Duration::from_secs(10);
const SESSIONS_MAX: usize = 10;
const WAITING_MAX: usize = 12;
const VIEWERS_MAX: usize = 12;

#[test]
fn sessions_go_to_the_worker_with_the_least_to_do() {
    let mut test = Harness::new(3);
    let places = [test.publish("a"), test.watch("a"), test.watch("a"), test.watch("a")];

    assert_eq!(places.map(|place| place.worker.0), [0, 1, 2, 0]);
}

#[test]
fn viewers_go_to_their_publishers_worker_until_that_has_enough_sessions() {
    let near = placement::Settings { near_max: 0.5, ..placement::Settings::default() };
    let mut test = Harness::with(2, near);
    test.publish("a");
    let publisher = test.publish("b");
    assert_eq!(publisher.worker.0, 1);

    let workers: Vec<u16> = (1..SESSIONS_MAX).map(|_| test.watch("b").worker.0).collect();
    assert!(workers.iter().all(|worker| *worker == 1));
    assert_eq!(test.watch("b").worker.0, 0);
}

#[test]
fn a_stream_comes_to_another_worker_with_its_first_viewer_and_goes_with_the_last() {
    let mut test = Harness::new(2);
    let id = test.publish("a").stream;
    assert_eq!(test.commands(), [format!("0 open {}", id.0)]);

    let remote = test.begin_watch("a").expect("a place");
    assert!(test.commands().is_empty(), "an offer alone moves nothing");
    test.connect(&remote);
    let local = test.watch("a");
    let remote_too = test.watch("a");
    assert_eq!((remote.worker.0, local.worker.0, remote_too.worker.0), (1, 0, 1));
    assert_eq!(test.commands(), [format!("1 open {}", id.0), format!("0 mirror {} to 1 on", id.0)]);

    test.end(remote.session);
    test.end(local.session);
    assert!(test.commands().is_empty());
    test.end(remote_too.session);
    assert_eq!(test.commands(), [format!("0 mirror {} to 1 off", id.0), format!("1 close {}", id.0)]);
}

#[test]
fn viewers_stay_when_the_publisher_returns_with_the_same_tracks_in_time() {
    let mut test = Harness::new(2);
    let first = test.publish("a");
    let viewer = test.watch("a");
    test.commands();

    test.end(first.session);
    assert_eq!(test.state("a"), Some(StreamState::Interrupted));
    test.advance(GRACE - Duration::from_secs(1));
    let second = test.publish("a");
    test.advance(GRACE);

    assert_eq!((second.stream, second.worker), (first.stream, first.worker));
    assert_eq!(test.state("a"), Some(StreamState::Live));
    assert!(test.directory.session(viewer.session).is_some());
    assert!(test.commands().is_empty());
}

#[test]
fn a_stream_whose_publisher_does_not_return_is_closed_on_all_of_its_workers() {
    let mut test = Harness::new(2);
    let publisher = test.publish("a");
    test.watch("a");
    test.commands();

    test.end(publisher.session);
    test.advance(GRACE);

    let id = publisher.stream.0;
    assert_eq!(test.commands(), [format!("0 close {id}"), format!("1 close {id}")]);
    assert_eq!(test.state("a"), None);
    assert_eq!(test.begin_watch("a").err(), Some(DirectoryError::NoStream));
}

#[test]
fn other_tracks_take_the_name_from_the_old_stream_when_they_are_connected() {
    let mut test = Harness::new(1);
    let old = test.publish("a");
    let viewer = test.watch("a");
    test.commands();

    let new = test.begin_publish_other("a");
    assert_ne!(new.stream, old.stream);
    assert_eq!(test.begin_watch("a").expect("a place").stream, old.stream, "until then viewers get the old one");
    assert!(test.commands().is_empty());
    test.connect(&new);

    assert_eq!(test.commands(), [format!("0 open {}", new.stream.0), format!("0 close {}", old.stream.0)]);
    // What the worker reports of the old stream's sessions does not touch the new one.
    test.end(viewer.session);
    test.end(old.session);
    assert_eq!(test.state("a"), Some(StreamState::Live));
    assert_eq!(test.begin_watch("a").expect("a place").stream, new.stream);
}

#[test]
fn a_second_publisher_that_never_connects_leaves_the_first_one_live() {
    for is_other in [false, true] {
        let mut test = Harness::new(1);
        let first = test.publish("a");
        let viewer = test.watch("a");
        test.commands();
        let second = if is_other { test.begin_publish_other("a") } else { test.begin_publish("a").expect("a place") };
        test.advance(GRACE * 2);

        test.end(second.session);
        test.advance(GRACE * 2);

        assert_eq!(test.state("a"), Some(StreamState::Live));
        assert!(test.directory.session(first.session).is_some() && test.directory.session(viewer.session).is_some());
        assert_eq!(test.begin_watch("a").expect("a place").stream, first.stream);
        assert!(test.commands().is_empty());
    }
}

#[test]
fn of_several_publishers_that_wait_each_takes_the_name_when_it_connects() {
    let mut test = Harness::new(1);
    let live = test.publish("a");
    let (one, two) = (test.begin_publish_other("a"), test.begin_publish_other("a"));
    test.commands();

    test.connect(&two);
    assert_eq!(test.commands(), [format!("0 open {}", two.stream.0), format!("0 close {}", live.stream.0)]);
    test.connect(&one);
    assert_eq!(test.commands(), [format!("0 open {}", one.stream.0), format!("0 close {}", two.stream.0)]);

    for place in [live, two] {
        test.end(place.session);
    }
    assert_eq!((test.state("a"), test.streams().len()), (Some(StreamState::Live), 1));
}

#[test]
fn a_publisher_that_returns_finds_its_viewers_though_another_one_waits() {
    let mut test = Harness::new(1);
    let first = test.publish("a");
    let viewer = test.watch("a");
    test.end(first.session);
    let other = test.begin_publish_other("a");
    test.commands();

    let returned = test.publish("a");
    test.end(other.session);
    test.advance(GRACE * 2);

    assert_eq!((returned.stream, test.state("a")), (first.stream, Some(StreamState::Live)));
    assert!(test.directory.session(viewer.session).is_some());
    assert!(test.commands().is_empty());
}

#[test]
fn who_waits_for_a_connection_does_not_keep_a_stream_whose_publisher_stays_away() {
    let mut test = Harness::new(1);
    let first = test.publish("a");
    test.end(first.session);
    let returning = test.begin_publish("a").expect("a place");
    test.advance(GRACE * 2);
    assert_eq!(test.state("a"), Some(StreamState::Connecting), "it may connect yet");

    test.end(returning.session);
    test.advance(Duration::ZERO);
    assert_eq!(test.state("a"), None);
}

#[test]
fn a_session_whose_stream_was_closed_meanwhile_opens_nothing() {
    let mut test = Harness::new(2);
    test.publish("a");
    let (viewer, publisher) = (test.begin_watch("a").expect("a place"), test.begin_publish("a").expect("a place"));
    test.directory.close_stream("a").expect("it is there");
    test.commands();

    for place in [viewer, publisher] {
        test.connect(&place);
        test.end(place.session);
    }
    assert!(test.commands().is_empty());
    assert_eq!(test.state("a"), None);
}

#[test]
fn a_publisher_that_is_replaced_does_not_interrupt_the_stream() {
    let mut test = Harness::new(1);
    let first = test.publish("a");
    test.publish("a");

    test.end(first.session);

    assert_eq!(test.state("a"), Some(StreamState::Live));
}

#[test]
fn a_publisher_that_says_goodbye_takes_the_stream_along_at_once() {
    let mut test = Harness::new(1);
    let publisher = test.publish("a");

    test.directory.handle_ended(&mut test.placement, test.now, publisher.session, true);

    assert_eq!(test.state("a"), None);
}

#[test]
fn a_publisher_that_was_never_connected_takes_nothing_along() {
    let mut test = Harness::new(1);
    let first = test.publish("a");
    let viewer = test.watch("a");
    test.end(first.session);
    test.commands();

    // Its client gives up and deletes what it was offered.
    let returning = test.begin_publish("a").expect("a place");
    test.directory.handle_ended(&mut test.placement, test.now, returning.session, true);

    assert_eq!((test.state("a"), test.commands()), (Some(StreamState::Interrupted), vec![]));
    assert!(test.directory.session(viewer.session).is_some());
    assert_eq!(test.publish("a").stream, first.stream);
}

#[test]
fn a_publisher_whose_offer_is_refused_leaves_nothing_behind() {
    let mut test = Harness::new(2);
    let place = test.begin_publish("a").expect("a place");
    assert_eq!(test.state("a"), Some(StreamState::Connecting));
    test.end(place.session);

    assert_eq!(test.state("a"), None);
    assert_eq!(test.directory.census().publishers, (0, 0));
    assert!(test.commands().is_empty());
    assert_eq!(test.publish("b").worker.0, 0, "the load is given back");
}

#[test]
fn what_is_counted_is_what_a_walk_would_find() {
    let mut test = Harness::new(2);
    let check = |test: &mut Harness| assert_eq!(test.directory.census(), test.census());
    check(&mut test);
    let publisher = test.publish("a");
    let (viewer, waiting) = (test.watch("a"), test.begin_watch("a").expect("a place"));
    let connecting = test.begin_publish("b").expect("a place");
    check(&mut test);
    test.end(publisher.session);
    check(&mut test);
    let returning = test.begin_publish("a").expect("a place");
    check(&mut test);
    test.end(viewer.session);
    test.end(waiting.session);
    test.end(returning.session);
    test.end(connecting.session);
    check(&mut test);
    test.advance(GRACE);
    check(&mut test);
    assert_eq!(test.directory.census(), Census::default());

    // A stream that waits for its name is not listed, and counted as connecting.
    let live = test.publish("a");
    let other = test.begin_publish_other("a");
    assert_eq!(test.directory.census().streams, [1, 1, 0]);
    test.connect(&other);
    test.end(live.session);
    check(&mut test);
}

#[test]
fn names_that_would_need_an_escape_in_a_path_are_refused() {
    let mut test = Harness::new(1);
    let long = "x".repeat(65);
    for name in ["", ".", "..", "a/b", "a b", "ü", "a%20", long.as_str()] {
        assert_eq!(test.begin_publish(name).err(), Some(DirectoryError::BadName), "{name:?}");
    }
    for name in ["a", "Studio-1.main_~", &long[..64]] {
        assert!(test.begin_publish(name).is_ok(), "{name:?}");
    }
}

#[test]
fn a_client_has_so_many_offers_that_wait_and_others_are_not_its_victims() {
    let mut test = Harness::new(2);
    test.publish("a");
    let from = |address: &str, subject: Option<&str>| Client {
        address: Some(address.parse().expect("an address")),
        subject: subject.map(Into::into),
        ..Client::default()
    };
    let mut ask = |client: Client| test.directory.begin_watch(&mut test.placement, test.now, "a", client);
    let refused = Err(DirectoryError::TooManyWaiting);
    let one = ask(from("192.0.2.1", None)).expect("a place");
    for _ in 1..WAITING_MAX {
        ask(from("192.0.2.1", None)).expect("a place");
    }
    assert_eq!(ask(from("192.0.2.1", None)), refused);
    assert!(ask(from("192.0.2.2", Some("bob"))).is_ok());

    for host in 1..=WAITING_MAX {
        // One host may have all addresses of a /64.
        let result = ask(from(&format!("2001:db8::{host}"), None));
        assert!(result.is_ok());
    }
    assert_eq!(ask(from("2001:db8::ffff", None)), refused);
    assert!(ask(from("2001:db8:0:1::1", Some("bob"))).is_ok());
    assert!(ask(from("192.0.2.3", Some("bob"))).is_ok());
    assert_eq!(ask(from("192.0.2.4", Some("bob"))), refused, "from wherever");

    test.connect(&one);
    let next = test
        .directory
        .begin_watch(&mut test.placement, test.now, "a", from("192.0.2.1", None))
        .expect("one less waits");
    test.end(one.session);
    test.directory
        .begin_watch(&mut test.placement, test.now, "a", from("192.0.2.1", None))
        .expect_err("that one did not");
    test.end(next.session);
    test.directory.begin_watch(&mut test.placement, test.now, "a", from("192.0.2.1", None)).expect("one less waits");
}

#[test]
fn two_hundred_of_an_office_join_at_once_and_its_publisher_too() {
    let mut test = Harness::set(directory::Settings::default());
    test.publish("a");
    let office = Client { address: Some([192, 0, 2, 1].into()), ..Client::default() };
    let mut watch = || test.directory.begin_watch(&mut test.placement, test.now, "a", office.clone());
    let waiting: Vec<_> = (0..200).map(|_| watch().expect("a place")).collect();
    // Somebody there floods the server besides.
    assert!((0..10_000).any(|_| watch() == Err(DirectoryError::TooManyWaiting)));
    assert!(test.publish_as(&office).is_ok());
    waiting.iter().for_each(|place| test.connect(place));
}

#[test]
fn a_session_is_overdue_when_its_token_is_and_a_newer_one_renews_it() {
    let mut test = Harness::new(1);
    test.publish("a");
    let ends_at = Some(test.now + Duration::from_secs(60));
    let client = Client { ends_at, ..Client::default() };
    let mut watch = || test.directory.begin_watch(&mut test.placement, test.now, "a", client.clone());
    let (one, other) = (watch().expect("a place").session, watch().expect("a place").session);
    test.directory.renew(other, test.now + Duration::from_secs(30));
    test.directory.renew(other, test.now + Duration::from_secs(90));

    let overdue = |test: &Harness, seconds| test.directory.overdue(test.now + Duration::from_secs(seconds));
    assert!(overdue(&test, 59).is_empty());
    assert_eq!(overdue(&test, 89), [one]);
    assert_eq!(overdue(&test, 90), [one, other]);
    test.end(one);
    assert_eq!(overdue(&test, 90), [other], "one that has ended is not ended again");
}

#[test]
fn a_stream_has_so_many_viewers_and_a_place_when_one_leaves() {
    let mut test = Harness::new(2);
    test.publish("a");
    let viewers: Vec<_> = (0..VIEWERS_MAX).map(|_| test.watch("a")).collect();
    assert_eq!(test.begin_watch("a").err(), Some(DirectoryError::StreamFull));
    test.publish("b");
    test.watch("b");

    test.end(viewers[0].session);
    test.watch("a");
    assert_eq!(test.begin_watch("a").err(), Some(DirectoryError::StreamFull));
}

#[test]
fn offers_that_wait_take_no_place_of_those_who_connect() {
    let mut test = Harness::new(2);
    test.publish("a");
    let waiting: Vec<_> = (0..100).map(|_| test.begin_watch("a").expect("a place")).collect();
    let viewers: Vec<_> = (0..VIEWERS_MAX).map(|_| test.watch("a")).collect();
    assert_eq!(test.begin_watch("a").err(), Some(DirectoryError::StreamFull));
    let late = test.directory.handle_connected(waiting[0].session);
    assert_eq!(late, Err(DirectoryError::StreamFull), "who was offered a place is no exception");
    assert_eq!(test.streams()[0].viewers, VIEWERS_MAX);

    test.end(waiting[0].session);
    test.end(viewers[0].session);
    test.connect(&waiting[1]);
    assert_eq!((test.directory.census(), test.directory.census().viewers.1), (test.census(), VIEWERS_MAX));
}

#[test]
fn offers_that_wait_take_no_place_of_a_worker() {
    let mut test = Harness::new(1);
    test.publish("a");
    let waiting: Vec<_> = (0..100).map(|_| test.begin_watch("a").expect("a place")).collect();
    for _ in 1..SESSIONS_MAX {
        test.watch("a");
    }
    assert_eq!(test.begin_watch("a").err(), Some(DirectoryError::Overloaded));
    assert_eq!(test.directory.handle_connected(waiting[0].session), Err(DirectoryError::Overloaded));
}

#[test]
fn a_publisher_comes_back_to_a_worker_whose_places_viewers_would_fill() {
    let mut test = Harness::set(directory::Settings { sessions_max: 32, ..directory::Settings::default() });
    let first = test.publish("a");
    let viewers = (0..100).take_while(|_| test.watch_as(&Client::default()).is_ok()).count();
    assert_eq!(viewers, 29, "one in sixteen places is not theirs");
    test.end(first.session);
    assert!(test.watch_as(&Client::default()).is_ok(), "a place is free");
    assert_eq!(test.watch_as(&Client::default()).err(), Some(DirectoryError::Overloaded));

    assert_eq!(test.publish("a").stream, first.stream);
    test.publish("b");
    assert_eq!(test.begin_publish("c").err(), Some(DirectoryError::Overloaded));
}

#[test]
fn streams_whose_publishers_never_connect_take_no_place_of_those_that_do() {
    let mut test = Harness::set(directory::Settings { sessions_max: 100_000, ..directory::Settings::default() });
    test.publish("a");
    let waiting: Vec<_> = (0..STREAMS_MAX + 5).map(|_| test.begin_publish_other("a")).collect();
    let mut streams: Vec<_> = (1..STREAMS_MAX).map(|index| test.publish(&format!("s{index}"))).collect();
    assert_eq!(test.begin_publish("b").err(), Some(DirectoryError::TooManyStreams));
    // It takes the place of the former stream of its name.
    test.connect(&waiting[0]);
    test.commands();
    let returning = test.begin_publish("s1").expect("it has a stream");
    test.connect(&returning);
    assert!(test.commands().is_empty());

    let gone = streams.pop().expect("a stream");
    test.directory.handle_ended(&mut test.placement, test.now, gone.session, true);
    test.publish("c");
    assert_eq!(test.begin_publish("b").err(), Some(DirectoryError::TooManyStreams));

    // Streams that wait for their publishers make room, the one that waits for longest first.
    for stream in [&streams[5], &streams[3]] {
        test.end(stream.session);
        test.now += Duration::from_millis(1);
    }
    // But not for who takes the place of its own name.
    test.connect(&waiting[1]);
    assert!(test.begin_watch("s6").is_ok() && test.begin_watch("s4").is_ok());
    test.publish("d");
    assert_eq!(test.begin_watch("s6").err(), Some(DirectoryError::NoStream));
    assert!(test.begin_watch("s4").is_ok());
    test.publish("e");
    assert_eq!(test.begin_publish("f").err(), Some(DirectoryError::TooManyStreams));
    assert_eq!(test.directory.handle_connected(SessionId(u64::MAX)), Err(DirectoryError::NoSession));
}

#[test]
fn a_household_or_a_subject_has_so_many_sessions_and_others_have_theirs() {
    let settings = directory::Settings { sessions_per_client: 3, sessions_per_token: 5, ..Default::default() };
    let mut test = Harness::set(settings);
    test.publish("a");
    let at = |address: &str| Client { address: address.parse().ok(), ..Client::default() };
    let named = |address: &str, name: &str| Client { subject: Some(name.into()), ..at(address) };
    let full = Some(DirectoryError::TooManySessions);
    let (first, second) = (at("192.0.2.1"), at("192.0.2.2"));
    let one = test.watch_as(&first).expect("a place");
    let early = test.directory.begin_watch(&mut test.placement, test.now, "a", first.clone()).expect("a place");
    for _ in 1..3 {
        test.watch_as(&first).expect("a place");
    }
    assert_eq!(test.watch_as(&first).err(), full);
    assert_eq!(test.directory.handle_connected(early.session).err(), full, "who waited is no exception");
    test.end(early.session);
    assert!(test.watch_as(&second).is_ok());
    assert!(test.watch_as(&at("::ffff:192.0.2.1")).is_err(), "it is the same address");
    assert!(test.publish_as(&first).is_ok(), "a publisher is not kept out by viewers");

    test.end(one.session);
    assert!(test.watch_as(&first).is_ok(), "one has left");
    assert_eq!(test.watch_as(&first).err(), full);

    for host in 1..=3 {
        assert!(test.watch_as(&named(&format!("2001:db8:{host}::1"), "alice")).is_ok());
    }
    assert_eq!(test.watch_as(&named("198.51.100.7", "alice")).err(), full, "from wherever");
    assert!(test.watch_as(&named("198.51.100.7", "bob")).is_ok());
}

#[test]
fn a_token_without_a_name_has_more_sessions_than_a_client_and_a_proxy_by_itself_is_none() {
    let settings = directory::Settings { sessions_per_client: 3, sessions_per_token: 5, ..Default::default() };
    let mut test = Harness::set(settings);
    test.publish("a");
    let full = Some(DirectoryError::TooManySessions);
    let client = |host: u8| Client { address: Some([192, 0, 2, host].into()), token: Some(7), ..Client::default() };
    for host in [1, 1, 1, 2, 2] {
        test.watch_as(&client(host)).expect("a place");
    }
    assert_eq!(test.watch_as(&client(3)).err(), full, "of all who have it");
    assert!(test.watch_as(&Client { token: Some(8), ..client(3) }).is_ok());

    let proxy = Client { address: Some([127, 0, 0, 1].into()), is_proxy: true, ..Client::default() };
    for _ in 0..7 {
        test.watch_as(&proxy).expect("a place");
    }
    let named = Client { subject: Some("alice".into()), ..proxy };
    let results = [0; 4].map(|_| test.watch_as(&named).err());
    assert_eq!(results, [None, None, None, full], "but who it asks for may have a name");
}

#[test]
fn streams_are_listed_by_name_and_only_those_that_are_asked_for() {
    let mut test = Harness::set(directory::Settings::default());
    for name in ["a", "b", "event-1", "event-2", "event-10", "events", "z"] {
        test.publish(name);
    }
    let list = |names: &[&str], after, count| {
        let views = test.directory.streams(names, after, count);
        views.iter().map(|view| view.name.to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(list(&["*"], "", 9), "a b event-1 event-10 event-2 events z");
    assert_eq!(list(&["*"], "", 3), "a b event-1");
    assert_eq!(list(&["*"], "event-1", 3), "event-10 event-2 events");
    assert_eq!(list(&["*"], "y", 3), "z");
    assert_eq!(list(&["event-*", "b", "event-1*", "c"], "", 9), "b event-1 event-10 event-2");
    assert_eq!(list(&["event-*", "b", "event-1*"], "", 2), "b event-1");
    assert_eq!(list(&["event-*", "b"], "event-1", 9), "event-10 event-2");
    assert_eq!(list(&["event-*", "b"], "events", 9), "");
    assert_eq!(list(&["a"], "a", 9), "");
    assert_eq!(list(&[], "", 9), "");
}

struct Harness {
    directory: Directory,
    placement: Placement,
    now: Instant,
}

impl Harness {
    /// Workers over which sessions are spread.
    fn new(workers: usize) -> Self {
        Harness::with(workers, placement::Settings { near_max: 0.0, ..placement::Settings::default() })
    }

    fn with(workers: usize, settings: placement::Settings) -> Self {
        let placement = Placement::new(workers, settings);
        let settings = directory::Settings {
            reconnect_grace: GRACE,
            sessions_max: SESSIONS_MAX,
            waiting_per_client: WAITING_MAX,
            viewers_per_stream: VIEWERS_MAX,
            ..directory::Settings::default()
        };
        Harness { directory: Directory::new(workers, settings), placement, now: Instant::now() }
    }

    /// One worker, and settings.
    fn set(settings: directory::Settings) -> Self {
        Harness { directory: Directory::new(1, settings), ..Harness::new(1) }
    }

    fn connect(&mut self, place: &Admitted) {
        self.directory.handle_connected(place.session).expect("there is room");
    }

    /// A viewer that has a place and connects.
    fn watch_as(&mut self, client: &Client) -> Result<Admitted, DirectoryError> {
        let place = self.directory.begin_watch(&mut self.placement, self.now, "a", client.clone())?;
        self.directory.handle_connected(place.session).map(|()| place)
    }

    fn begin_publish(&mut self, name: &str) -> Result<Admitted, DirectoryError> {
        self.directory.begin_publish(&mut self.placement, self.now, name, &tracks(), Client::default())
    }

    /// With other tracks than the stream has.
    fn begin_publish_other(&mut self, name: &str) -> Admitted {
        let other = [track(Codec::H264)];
        self.directory.begin_publish(&mut self.placement, self.now, name, &other, Client::default()).expect("a place")
    }

    fn begin_watch(&mut self, name: &str) -> Result<Admitted, DirectoryError> {
        self.directory.begin_watch(&mut self.placement, self.now, name, Client::default())
    }

    fn publish_as(&mut self, client: &Client) -> Result<Admitted, DirectoryError> {
        let (placement, tracks) = (&mut self.placement, tracks());
        let place = self.directory.begin_publish(placement, self.now, "a", &tracks, client.clone())?;
        self.directory.handle_connected(place.session).map(|()| place)
    }

    fn publish(&mut self, name: &str) -> Admitted {
        let place = self.begin_publish(name).expect("a place");
        self.connect(&place);
        place
    }

    fn watch(&mut self, name: &str) -> Admitted {
        let place = self.begin_watch(name).expect("a place");
        assert_eq!(place.tracks, tracks());
        self.connect(&place);
        place
    }

    fn streams(&self) -> Vec<StreamView> {
        self.directory.streams(&["*"], "", usize::MAX)
    }

    /// What a walk over everything would count.
    fn census(&self) -> Census {
        let mut census = Census::default();
        for (_, session) in self.directory.sessions(SessionId(0)) {
            let (all, connected) = match session.role {
                Role::Publisher => (&mut census.publishers.0, &mut census.publishers.1),
                Role::Viewer => (&mut census.viewers.0, &mut census.viewers.1),
            };
            *all += 1;
            *connected += usize::from(session.is_connected);
        }
        for stream in self.streams() {
            census.streams[stream.state as usize] += 1;
        }
        census
    }

    fn end(&mut self, session: SessionId) {
        self.directory.handle_ended(&mut self.placement, self.now, session, false);
    }

    fn advance(&mut self, time: Duration) {
        self.now += time;
        self.directory.handle_timeout(self.now);
    }

    fn state(&self, name: &str) -> Option<StreamState> {
        self.streams().into_iter().find(|stream| &*stream.name == name).map(|stream| stream.state)
    }

    /// Commands since the last call, in short words.
    fn commands(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.directory.poll_command())
            .map(|(WorkerId(worker), command)| match command {
                Command::OpenStream(spec) => format!("{worker} open {}", spec.id.0),
                Command::CloseStream(StreamId(id)) => format!("{worker} close {id}"),
                Command::Mirror { stream, to, on } => {
                    format!("{worker} mirror {} to {} {}", stream.0, to.0, if on { "on" } else { "off" })
                }
                other => panic!("unexpected {other:?}"),
            })
            .collect()
    }
}

fn tracks() -> Vec<TrackSpec> {
    vec![track(Codec::Vp8)]
}

fn track(codec: Codec) -> TrackSpec {
    TrackSpec { codec, profile: Default::default(), rids: Vec::new() }
}
