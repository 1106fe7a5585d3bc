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

/// A client at the other end of a connection.
fn on_a_connection(slot: u32) -> Client {
    let mut client = client_at([9, 8, 7, 6]);
    client.token.number = slot;
    client.path.link = LinkId::new(wire::LinkKind::Framed, slot, 0);
    Client { is_proved: true, ..client }
}

#[test]
fn all_connections_on_which_one_user_asks_wait_for_him_and_one_too_many_is_told() {
    let mut world = looking_up();
    world.limits = Limits::new(world.now, UNLIMITED, 1);
    let nonce = world.nonce(false);
    let ask = |world: &mut World, slot, transaction| {
        world.client = on_a_connection(slot);
        let mut request = allocate().user(b"ada", &nonce);
        request.attributes.push((attribute::LIFETIME, vec![transaction; 4]));
        world.judge(&request.sealed_by("ada", "pw"))
    };
    for slot in 0..1_000 {
        assert!(matches!(ask(&mut world, slot, 0), Verdict::Waits));
    }
    assert!((1..4).all(|again| matches!(ask(&mut world, 0, again), Verdict::Waits)));
    let refused = |verdict| matches!(verdict, Verdict::Answer(reply) if code(&reply) == 500);
    assert!(refused(ask(&mut world, 0, 4)), "so many of one connection");
    world.client = client_at([9, 8, 7, 6]);
    let by_udp = world.signed("ada", "pw");
    assert!(matches!(world.judge(&by_udp), Verdict::Waits));
    assert!((1_000..1_021).all(|slot| matches!(ask(&mut world, slot, 0), Verdict::Waits)));
    assert!(refused(ask(&mut world, 1_021, 0)), "so many of one user");
    assert_eq!(world.authority.handle_found(world.now, &"ada".into(), keys("ada")).len(), 1_000 + 3 + 1 + 21);
}

#[test]
fn what_waits_for_users_has_a_limit_for_all_and_for_each_connection() {
    let mut world = looking_up();
    world.limits = Limits::new(world.now, UNLIMITED, 1);
    let nonce = world.nonce(false);
    let ask = |world: &mut World, slot, name: &str| {
        world.client = on_a_connection(slot);
        let request = allocate().user(name.as_bytes(), &nonce).with(0x8022, &[7; 1_200]);
        world.judge(&request.sealed_by(name, "pw"))
    };
    let refused = |verdict| matches!(verdict, Verdict::Answer(reply) if code(&reply) == 500);
    let names: Vec<String> = (0..1_024).map(|number| format!("user-{number}")).collect();
    for name in &names[..4] {
        assert!(matches!(ask(&mut world, 0, name), Verdict::Waits));
    }
    assert!(refused(ask(&mut world, 0, &names[4])), "so many of one connection");
    let kept =
        (1..10_000).take_while(|slot| matches!(ask(&mut world, *slot, &names[*slot as usize % 1_024]), Verdict::Waits));
    let kept = kept.count();
    assert!((2_000..3_300).contains(&kept), "of some 1,400 bytes each: {kept}");
    // What waited for one is gone with the answer, and leaves its room to others.
    assert!(!world.authority.handle_found(world.now, &names[0].as_str().into(), keys(&names[0])).is_empty());
    assert!(matches!(ask(&mut world, 0, &names[1_023]), Verdict::Waits));
    for name in &names {
        world.authority.handle_found(world.now, &name.as_str().into(), Found::Nobody);
    }
    world.now += Duration::from_secs(10);
    assert!((0..2_000).all(|slot| matches!(ask(&mut world, slot, &names[slot as usize % 1_024]), Verdict::Waits)));
}

#[test]
fn however_many_users_who_prove_themselves_are_new_at_one_address_none_is_turned_away() {
    let mut world = looking_up();
    let nonce = world.nonce(false);
    for number in 0..2_000 {
        let name: Arc<str> = format!("user-{number}").into();
        let request = allocate().user(name.as_bytes(), &nonce).sealed_by(&name, "pw");
        assert!(matches!(world.judge(&request), Verdict::Waits), "{name}");
        world.authority.handle_found(world.now, &name, Found::Keys(UserKeys::new(&name, REALM, "pw")));
        world.granted(&request);
        world.granted(&request);
    }
    let mut failed = 0;
    while failed < 1_000 && world.limits.take_attempt(world.now, [9, 8, 7, 6].into()) {
        failed += 1;
    }
    assert_eq!(failed, 400, "nobody gave back more than he took");
}

#[test]
fn a_user_whose_name_is_a_number_is_looked_up_though_it_could_be_a_time() {
    let credentials = service(&[b"a secret"]);
    let mut world = World::with(credentials, |settings| settings.looks_up = true);
    for name in ["1001", "491701234567"] {
        world.authority.handle_found(world.now, &name.into(), Found::Keys(UserKeys::new(name, REALM, "pw")));
        let request = world.signed(name, "pw");
        assert_eq!(&*world.granted(&request).user, name);
        let wrong = world.signed(name, "guessed");
        assert_eq!(world.code(&wrong), 401);
    }
    let web = world.signed("1001:ada", "pw");
    assert_eq!(world.code(&web), 401);
    let now = UNIX.to_string();
    let password = Secret::new(b"a secret").password(&now);
    let request = world.signed(&now, &password);
    assert!(matches!(world.judge(&request), Verdict::Waits), "it has expired");
    assert_eq!(world.authority.poll_lookup().as_deref(), Some(&*now));
}
