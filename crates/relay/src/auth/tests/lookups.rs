//! Users that are looked up elsewhere.

use super::*;

#[test]
fn a_request_waits_for_its_user_and_comes_back() {
    let mut world = looking_up();
    let request = world.signed("ada", "pw");
    for _ in 0..3 {
        assert!(matches!(world.judge(&request), Verdict::Waits));
    }
    assert_eq!(world.authority.poll_lookup().as_deref(), Some("ada"));
    assert_eq!(world.authority.poll_lookup(), None, "asked once");
    let waiting = world.authority.handle_found(world.now, &"ada".into(), keys("ada"));
    assert_eq!(waiting, [Waiting { client: world.client, request: request.clone().into() }]);
    assert_eq!(&*world.granted(&request).user, "ada");
}

#[test]
fn a_name_that_nobody_has_is_asked_for_again_after_a_while() {
    let mut world = looking_up();
    let request = world.signed("eve", "pw");
    assert!(matches!(world.judge(&request), Verdict::Waits));
    world.authority.poll_lookup().expect("a question");
    world.authority.handle_found(world.now, &"eve".into(), Found::Nobody);
    assert_eq!(world.code(&request), 401);
    assert_eq!(world.authority.poll_lookup(), None);
    world.now += Duration::from_secs(5);
    assert!(matches!(world.judge(&request), Verdict::Waits));
}

#[test]
fn keys_are_asked_for_again_while_the_old_ones_are_used() {
    let mut world = looking_up();
    world.authority.handle_found(world.now, &"ada".into(), keys("ada"));
    let request = world.signed("ada", "pw");
    world.granted(&request);
    assert_eq!(world.authority.poll_lookup(), None);
    world.now += Duration::from_secs(60);
    world.granted(&request);
    assert_eq!(world.authority.poll_lookup().as_deref(), Some("ada"));
    world.granted(&request);
    assert_eq!(world.authority.poll_lookup(), None, "asked once");
    world.authority.handle_found(world.now, &"ada".into(), Found::Nobody);
    assert_eq!(world.code(&request), 401);
}

#[test]
fn keys_that_nobody_asked_for_in_a_long_time_are_not_used_before_there_is_an_answer() {
    let mut world = looking_up();
    world.authority.handle_found(world.now, &"ada".into(), keys("ada"));
    world.now += Duration::from_secs(600);
    let request = world.signed("ada", "pw");
    assert!(matches!(world.judge(&request), Verdict::Waits));
}

#[test]
fn while_nobody_can_be_looked_up_those_who_are_known_go_on_and_others_get_500() {
    let mut world = looking_up();
    world.authority.handle_found(world.now, &"ada".into(), keys("ada"));
    let (ada, bob) = (world.signed("ada", "pw"), world.signed("bob", "pw"));
    assert!(matches!(world.judge(&bob), Verdict::Waits));
    let waiting = world.authority.handle_found(world.now, &"bob".into(), Found::Unavailable);
    assert_eq!(waiting.len(), 1);
    assert_eq!(world.code(&bob), 500);
    for _ in 0..20 {
        world.now += Duration::from_secs(170);
        assert!(matches!(world.judge(&ada), Verdict::Granted(_) | Verdict::Waits));
        world.authority.handle_found(world.now, &"ada".into(), Found::Unavailable);
        world.granted(&ada);
    }
    assert!(matches!(world.judge(&bob), Verdict::Waits), "asked again");
}

#[test]
fn a_flood_of_made_up_names_asks_for_few_and_leaves_the_known_alone() {
    let mut world = looking_up();
    world.authority.handle_found(world.now, &"ada".into(), keys("ada"));
    let nonce = world.nonce(false);
    let mut waiting = 0;
    for number in 0..5_000 {
        let name = format!("made-up-{number}");
        let request = allocate().user(name.as_bytes(), &nonce).sealed(&Seal::sha1(b"k"));
        waiting += usize::from(matches!(world.judge(&request), Verdict::Waits));
    }
    assert!(waiting <= 400, "no more than a source may be answered: {waiting}");
    world.limits = Limits::new(world.now, UNLIMITED, 1);
    for number in 0..5_000 {
        let name = format!("made-up-{number}");
        let request = allocate().user(name.as_bytes(), &nonce).sealed(&Seal::sha1(b"k"));
        world.judge(&request);
    }
    let lookups: Vec<Arc<str>> = std::iter::from_fn(|| world.authority.poll_lookup()).collect();
    assert_eq!(lookups.len(), 1_024);
    for name in lookups {
        world.authority.handle_found(world.now, &name, Found::Nobody);
    }
    world.granted(&allocate().user(b"ada", &nonce).sealed_by("ada", "pw"));
}
