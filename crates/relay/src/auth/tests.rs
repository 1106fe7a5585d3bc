//! Requests of every kind, and what becomes of them.

mod lookups;
mod samples;

use proptest::prelude::*;
use wire::LinkId;

use super::*;
use crate::answer::Writer;
use crate::limits::LimitSettings;
use crate::message::attribute;

const REALM: &str = "millrace";
const UNIX: u64 = 1_800_000_000;
const TRANSACTION: [u8; 12] = [5; 12];

/// An authority, and a client who talks to it.
struct World {
    authority: Authority,
    limits: Limits,
    now: Instant,
    client: Client,
    /// Who has an allocation there.
    owner: Option<&'static str>,
}

impl World {
    fn new(credentials: Credentials) -> Self {
        World::with(credentials, |_| {})
    }

    fn with(credentials: Credentials, change: impl FnOnce(&mut AuthSettings)) -> Self {
        let now = Instant::now();
        let mut settings = AuthSettings::new(NonceKey::new(&[9; 32]));
        settings.credentials = Arc::new(credentials);
        change(&mut settings);
        World {
            authority: Authority::new(REALM.into(), (now, Duration::from_secs(UNIX)), settings),
            limits: Limits::new(now, LimitSettings::default(), 1),
            now,
            client: client_at([9, 8, 7, 6]),
            owner: None,
        }
    }

    fn judge(&mut self, request: &[u8]) -> Verdict {
        let message = Message::parse(request).expect("a message");
        self.authority.judge(self.now, &self.client, self.owner, &message, &mut self.limits)
    }

    fn answer(&mut self, request: &[u8]) -> Reply {
        match self.judge(request) {
            Verdict::Answer(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn granted(&mut self, request: &[u8]) -> Granted {
        match self.judge(request) {
            Verdict::Granted(granted) => granted,
            Verdict::Answer(reply) => panic!("error {}", code(&reply)),
            other => panic!("{other:?}"),
        }
    }

    fn code(&mut self, request: &[u8]) -> u16 {
        code(&self.answer(request))
    }

    fn silence(&mut self, request: &[u8]) -> DropReason {
        match self.judge(request) {
            Verdict::Silence(reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    /// Of a first answer; with features when there is room for them.
    fn nonce(&mut self, with_features: bool) -> Vec<u8> {
        let request = if with_features { allocate().fingerprint() } else { allocate().plain() };
        let answer = self.answer(&request);
        let nonce = Message::parse(&answer).expect("a message").nonce.expect("401 has a nonce");
        assert_eq!(nonce.starts_with(b"obMatJos2"), with_features);
        nonce.to_vec()
    }

    /// An Allocate of this user with a fresh nonce.
    fn signed(&mut self, name: &str, password: &str) -> Vec<u8> {
        let nonce = self.nonce(false);
        allocate().user(name.as_bytes(), &nonce).sealed_by(name, password)
    }
}

fn client_at(address: impl Into<IpAddr>) -> Client {
    let link = LinkId::datagrams(1);
    let remote = (address.into(), 4_000).into();
    let path = Path { link, remote, local: None };
    Client { token: Token { owner: 1, number: 0 }, path, address: remote, is_proved: false }
}

fn code(reply: &[u8]) -> u16 {
    let at = reply.windows(4).position(|bytes| bytes == [0, 9, 0, 4]).expect("ERROR-CODE without a reason");
    u16::from(reply[at + 6]) * 100 + u16::from(reply[at + 7])
}

/// A request that is being written.
struct Request {
    method: Method,
    attributes: Vec<(u16, Vec<u8>)>,
}

fn request(method: Method) -> Request {
    Request { method, attributes: Vec::new() }
}

fn allocate() -> Request {
    request(Method::Allocate).with(attribute::REQUESTED_TRANSPORT, &[17, 0, 0, 0])
}

impl Request {
    fn with(mut self, kind: u16, value: &[u8]) -> Self {
        self.attributes.push((kind, value.to_vec()));
        self
    }

    fn user(self, name: &[u8], nonce: &[u8]) -> Self {
        self.with(attribute::USERNAME, name).with(attribute::REALM, REALM.as_bytes()).with(attribute::NONCE, nonce)
    }

    fn write(&self, last: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut buf = [0; 2_000];
        let mut writer = Writer::new(&mut buf, Class::Request, self.method, TRANSACTION);
        for (kind, value) in &self.attributes {
            writer.attribute(*kind, value);
        }
        last(&mut writer);
        let len = writer.finish().expect("there is room");
        buf[..len].to_vec()
    }

    fn plain(&self) -> Vec<u8> {
        self.write(|_| {})
    }

    fn fingerprint(&self) -> Vec<u8> {
        self.write(|writer| _ = writer.fingerprint())
    }

    fn sealed(&self, seal: &Seal) -> Vec<u8> {
        self.write(|writer| _ = writer.seal(seal))
    }

    fn sealed_by(&self, name: &str, password: &str) -> Vec<u8> {
        self.sealed(&Seal::sha1(&UserKeys::new(name, REALM, password).md5.expect("both are made")))
    }
}

fn users(names: &[(&str, &str)]) -> Credentials {
    let keys = |&(name, password): &(&str, &str)| (Arc::from(name), UserKeys::new(name, REALM, password));
    Credentials::new(REALM, names.iter().map(keys), [])
}

fn ada() -> Credentials {
    users(&[("ada", "lovelace")])
}

#[test]
fn a_user_is_challenged_and_then_granted() {
    let mut world = World::new(ada());
    let first = world.answer(&allocate().plain());
    let challenge = Message::parse(&first).expect("a message");
    assert_eq!((challenge.class, challenge.method, code(&first)), (Class::Error, Some(Method::Allocate), 401));
    assert_eq!((challenge.realm, challenge.transaction()), (Some(REALM.as_bytes()), TRANSACTION));
    let request = world.signed("ada", "lovelace");
    let granted = world.granted(&request);
    assert_eq!(&*granted.user, "ada");
    let answer = request_sealed_again(&granted.seal);
    let key = UserKeys::new("ada", REALM, "lovelace").md5.expect("both");
    assert_eq!(answer, request_sealed_again(&Seal::sha1(&key)));
}

fn request_sealed_again(seal: &Seal) -> Vec<u8> {
    request(Method::Refresh).sealed(seal)
}

#[test]
fn a_client_that_leaves_room_is_offered_sha_256_and_hashed_names() {
    let mut world = World::new(ada());
    let nonce = world.nonce(true);
    assert_eq!(&nonce[..13], b"obMatJos2AAAD");
    let keys = UserKeys::new("ada", REALM, "lovelace");
    let hash = digest_of("ada:millrace");
    let request = allocate()
        .with(attribute::USERHASH, &hash)
        .with(attribute::REALM, REALM.as_bytes())
        .with(attribute::NONCE, &nonce)
        .with(attribute::PASSWORD_ALGORITHMS, &credentials::OFFERED_ALGORITHMS)
        .with(attribute::PASSWORD_ALGORITHM, &[0, 2, 0, 0])
        .sealed(&Seal::sha256(&keys.sha256.expect("both")));
    let granted = world.granted(&request);
    assert_eq!(&*granted.user, "ada");
    assert!(matches!(granted.seal, Seal::Sha256(_)));
}

fn digest_of(text: &str) -> [u8; 32] {
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    std::array::from_fn(|index| hash.as_ref()[index])
}

#[test]
fn of_two_proofs_the_stronger_one_counts() {
    let mut world = World::new(ada());
    let nonce = world.nonce(false);
    let md5 = UserKeys::new("ada", REALM, "lovelace").md5.expect("both");
    let both = |strong: &[u8]| {
        let (sha1, sha256) = (Seal::sha1(&md5), Seal::sha256(strong));
        allocate().user(b"ada", &nonce).write(|writer| _ = writer.seal(&sha1).seal(&sha256))
    };
    assert!(matches!(world.granted(&both(&md5)).seal, Seal::Sha256(_)));
    assert_eq!(world.code(&both(b"another key")), 401);
}

#[test]
fn offers_that_were_taken_away_or_changed_are_noticed() {
    let mut world = World::new(ada());
    let nonce = world.nonce(true);
    let keys = UserKeys::new("ada", REALM, "lovelace");
    let mut judged = |algorithms: Option<&[u8]>, algorithm: Option<&[u8]>, key: &[u8]| {
        let mut request = allocate().user(b"ada", &nonce);
        for (kind, value) in [(attribute::PASSWORD_ALGORITHMS, algorithms), (attribute::PASSWORD_ALGORITHM, algorithm)]
        {
            if let Some(value) = value {
                request = request.with(kind, value);
            }
        }
        match world.judge(&request.sealed(&Seal::sha1(key))) {
            Verdict::Granted(_) => 200,
            Verdict::Answer(reply) => code(&reply),
            other => panic!("{other:?}"),
        }
    };
    let (md5, sha256) = (keys.md5.expect("both"), keys.sha256.expect("both"));
    let offered = Some(&credentials::OFFERED_ALGORITHMS[..]);
    assert_eq!(judged(None, None, &md5), 200, "a client of RFC 5389");
    assert_eq!(judged(offered, Some(&[0, 1, 0, 0]), &md5), 200);
    assert_eq!(judged(offered, Some(&[0, 2, 0, 0]), &sha256), 200);
    assert_eq!(judged(offered, Some(&[0, 2, 0, 0]), &md5), 401);
    assert_eq!(judged(Some(&[0, 1, 0, 0]), Some(&[0, 1, 0, 0]), &md5), 400, "a shorter offer");
    assert_eq!(judged(None, Some(&[0, 1, 0, 0]), &md5), 400);
    assert_eq!(judged(offered, None, &md5), 400);
    assert_eq!(judged(offered, Some(&[0, 3, 0, 0]), &md5), 400);
}

#[test]
fn sha_256_is_offered_only_where_every_user_has_such_a_key() {
    let without = UserKeys { sha256: None, ..UserKeys::new("bob", REALM, "x") };
    let some = Credentials::new(REALM, [("bob".into(), without)], []);
    let features = some.features(false);
    assert!(!features.password_algorithms && features.user_anonymity);
    assert_eq!(
        ada().features(true),
        Default::default(),
        "who is looked up has a key of MD5, and is not found by a hash"
    );
    let services = Credentials::new(REALM, [], [Secret::new(b"s")]).features(false);
    assert!(services.password_algorithms && !services.user_anonymity);
}

#[test]
fn an_answer_to_a_stranger_is_not_much_larger_than_its_request() {
    let mut world = World::new(ada());
    for request in [allocate().plain(), allocate().fingerprint()] {
        let answer = world.answer(&request);
        assert!(answer.len() * 10 <= request.len() * 26, "{} for {}", answer.len(), request.len());
    }
}

#[test]
fn only_an_allocate_with_a_transport_is_challenged() {
    let mut world = World::new(ada());
    let transport = |value: &[u8]| request(Method::Allocate).with(attribute::REQUESTED_TRANSPORT, value).plain();
    let unanswered = [
        request(Method::Allocate).plain(),
        transport(&[99, 0, 0, 0]),
        transport(&[17, 0]),
        request(Method::Refresh).plain(),
        request(Method::CreatePermission).with(attribute::REQUESTED_TRANSPORT, &[17, 0, 0, 0]).plain(),
        request(Method::ConnectionBind).plain(),
    ];
    for request in &unanswered {
        assert_eq!(world.silence(request), DropReason::NotAnswered);
    }
    // Who completed a handshake is where he says.
    world.client.is_proved = true;
    for request in &unanswered {
        assert_eq!(world.code(request), 401);
    }
}

#[test]
fn a_refusal_has_a_fingerprint_where_the_request_has_one_and_its_sender_is_where_he_says() {
    let mut world = World::new(ada());
    let has_one = |reply: &Reply| Message::parse(reply).expect("a message").has_fingerprint;
    for is_proved in [false, true] {
        world.client.is_proved = is_proved;
        let answers = [allocate().plain(), allocate().fingerprint()].map(|request| has_one(&world.answer(&request)));
        assert_eq!(answers, [false, is_proved]);
    }
}

#[test]
fn padding_of_an_answer_is_zero_cve_2020_4067() {
    let mut world = World::new(ada());
    world.authority.realm = "a.realm".into();
    let answer = world.answer(&allocate().plain());
    let at = answer.windows(7).position(|bytes| bytes == b"a.realm").expect("the realm");
    assert_eq!(answer[at + 7], 0);
}

#[test]
fn a_realm_longer_than_fits_is_told_all_the_same() {
    let mut world = World::new(ada());
    world.authority.realm = "r".repeat(127).into();
    assert_eq!(world.code(&allocate().plain()), 401);
    assert_eq!(world.answer(&allocate().fingerprint()).len(), 20 + 8 + 132 + 20);
}

#[test]
fn a_request_that_lacks_a_part_of_its_proof_gets_400() {
    let mut world = World::new(ada());
    let nonce = world.nonce(false);
    let seal = Seal::sha1(b"k");
    let realm = |request: Request| request.with(attribute::REALM, REALM.as_bytes());
    let lacking = [
        allocate().with(attribute::USERNAME, b"ada").with(attribute::NONCE, &nonce),
        realm(allocate()).with(attribute::USERNAME, b"ada"),
        realm(allocate()).with(attribute::NONCE, &nonce),
        allocate().user(&[b'a'; USERNAME_LEN_MAX + 1], &nonce),
        realm(allocate()).with(attribute::USERHASH, b"short").with(attribute::NONCE, &nonce),
    ];
    for request in lacking.map(|request| request.sealed(&seal)) {
        let answer = world.answer(&request);
        assert_eq!(code(&answer), 400);
        assert!(answer.len() <= request.len());
    }
}

#[test]
fn a_wrong_password_a_wrong_realm_and_an_unknown_user_get_401() {
    let mut world = World::new(ada());
    for (name, password) in [("ada", "byron"), ("bob", "lovelace"), ("", "")] {
        let request = world.signed(name, password);
        assert_eq!(world.code(&request), 401, "{name}");
    }
    let nonce = world.nonce(false);
    let elsewhere = allocate().with(attribute::USERNAME, b"ada").with(attribute::REALM, b"other");
    assert_eq!(world.code(&elsewhere.with(attribute::NONCE, &nonce).sealed_by("ada", "lovelace")), 401);
    assert_eq!(world.code(&allocate().user(b"\xff\xfe", &nonce).sealed_by("ada", "lovelace")), 401);
}

#[test]
fn names_are_bytes_and_nothing_else() {
    let names = ["%n%s%x", "' OR 1=1 --", "../../etc/passwd", "a\r\nSET x y", "{\"a\":1}", "\0", "\u{202e}ada"];
    let all: Vec<(&str, &str)> = names.iter().map(|name| (*name, "pw")).collect();
    let mut world = World::new(users(&all));
    for name in names {
        let request = world.signed(name, "pw");
        assert_eq!(&*world.granted(&request).user, name);
    }
    let longest = "x".repeat(USERNAME_LEN_MAX);
    let mut world = World::new(users(&[(&longest, "pw")]));
    let request = world.signed(&longest, "pw");
    assert_eq!(&*world.granted(&request).user, longest);
}

#[test]
fn an_old_nonce_a_forged_one_and_another_client_s_get_a_fresh_one() {
    let mut world = World::new(ada());
    let request = world.signed("ada", "lovelace");
    world.granted(&request);
    world.now += Duration::from_secs(3_601);
    let answer = world.answer(&request);
    assert_eq!(code(&answer), 438);
    assert!(answer.len() <= request.len());
    let fresh = Message::parse(&answer).expect("a message").nonce.expect("a nonce").to_vec();
    world.granted(&allocate().user(b"ada", &fresh).sealed_by("ada", "lovelace"));
    let refresh = |nonce: &[u8]| request_of(Method::Refresh, nonce);
    assert_eq!(world.code(&refresh(b"forged-like-ours")), 438);
    assert_eq!(world.silence(&refresh(b"")), DropReason::NotAnswered, "the answer would be larger");
    assert_eq!(world.code(&allocate().user(b"ada", b"").sealed_by("ada", "lovelace")), 438);
    world.client = client_at([9, 8, 7, 5]);
    assert_eq!(world.code(&refresh(&fresh)), 438);
}

fn request_of(method: Method, nonce: &[u8]) -> Vec<u8> {
    let method = request(method);
    let name = method.with(attribute::USERNAME, b"").with(attribute::REALM, b"").with(attribute::NONCE, nonce);
    name.sealed(&Seal::sha1(b"k"))
}

#[test]
fn nonces_of_two_processes_say_nothing_of_each_other_cve_2025_69217() {
    let mut world = World::new(ada());
    let request = world.signed("ada", "lovelace");
    let mut restarted = World::with(ada(), |settings| settings.nonce_key = NonceKey::new(&[8; 32]));
    assert_eq!(restarted.code(&request), 438);
}

fn service(secrets: &[&[u8]]) -> Credentials {
    Credentials::new(REALM, [], secrets.iter().map(|secret| Secret::new(secret)))
}

#[test]
fn a_time_limited_credential_of_any_secret_is_good_until_it_expires() {
    let mut world = World::new(service(&[b"new", b"old"]));
    let name = format!("{}:ada:lovelace", UNIX + 60);
    for secret in [&b"new"[..], b"old"] {
        let request = world.signed(&name, &Secret::new(secret).password(&name));
        assert_eq!(&*world.granted(&request).user, "ada:lovelace", "what is counted is the user");
    }
    let request = world.signed(&name, &Secret::new(b"other").password(&name));
    assert_eq!(world.code(&request), 401);
    let request = world.signed(&name, &Secret::new(b"new").password(&name));
    world.now += Duration::from_secs(59);
    world.granted(&request);
    world.now += Duration::from_secs(1);
    assert_eq!(world.code(&request), 401);
}

#[test]
fn when_the_clock_is_set_credentials_expire_by_it_and_nonces_stay_good() {
    let mut world = World::new(service(&[b"s"]));
    let day = Duration::from_secs(86_400);
    let name = format!("{}:ada", UNIX + 60);
    let request = world.signed(&name, &Secret::new(b"s").password(&name));
    world.authority.set_clock((world.now, Duration::from_secs(UNIX) + day));
    assert_eq!(world.code(&request), 401, "expired, and not 438");
    world.authority.set_clock((world.now, Duration::from_secs(UNIX) - day));
    world.granted(&request);
}

#[test]
fn passwords_are_those_of_other_services() {
    // As `echo -n 1433895918:ada | openssl dgst -binary -sha1 -hmac north | base64` has it.
    assert_eq!(Secret::new(b"north").password("1433895918:ada"), PASSWORD_BY_OPENSSL);
}

const PASSWORD_BY_OPENSSL: &str = "KJ5PTMBeGkZIwdEVUss3BPdY8wE=";

#[test]
fn a_call_outlasts_its_credential_unless_the_operator_says_otherwise() {
    let name = format!("{}:ada", UNIX - 1);
    for (strict_expiry, refreshes) in [(false, true), (true, false)] {
        let mut world = World::with(service(&[b"s"]), |settings| settings.strict_expiry = strict_expiry);
        let nonce = world.nonce(false);
        let password = Secret::new(b"s").password(&name);
        let of = |request: Request| request.user(name.as_bytes(), &nonce).sealed_by(&name, &password);
        assert_eq!(world.code(&of(allocate())), 401);
        let refresh = of(request(Method::Refresh));
        assert_eq!(matches!(world.judge(&refresh), Verdict::Granted(_)), refreshes);
    }
}

#[test]
fn a_time_alone_is_a_user_and_what_is_no_time_is_none() {
    let mut world = World::new(service(&[b"s"]));
    let granted = |world: &mut World, name: &str| {
        let request = world.signed(name, &Secret::new(b"s").password(name));
        matches!(world.judge(&request), Verdict::Granted(_))
    };
    let later = (UNIX + 9).to_string();
    assert!(granted(&mut world, &later));
    for name in ["ada", "ada:1800000009", "", ":ada", "-1:ada", "+1800000009:ada", "99999999999999999999:ada"] {
        assert!(!granted(&mut world, name), "{name}");
    }
}

#[test]
fn who_is_known_by_name_needs_no_secret() {
    let keys = UserKeys::new("1:ada", REALM, "pw");
    let mut world = World::new(Credentials::new(REALM, [("1:ada".into(), keys)], [Secret::new(b"s")]));
    let request = world.signed("1:ada", "pw");
    assert_eq!(&*world.granted(&request).user, "1:ada");
}

#[test]
fn users_and_secrets_are_replaced_at_once() {
    let mut world = World::new(ada());
    let request = world.signed("ada", "lovelace");
    world.authority.replace(Arc::new(users(&[("bob", "b")])));
    assert_eq!(world.code(&request), 401);
    let request = world.signed("bob", "b");
    world.granted(&request);
}

fn looking_up() -> World {
    World::with(Credentials::default(), |settings| settings.looks_up = true)
}

fn keys(name: &str) -> Found {
    Found::Keys(UserKeys { sha256: None, ..UserKeys::new(name, REALM, "pw") })
}

const UNLIMITED: LimitSettings = {
    let rate = wire::Rate { burst: 1_000_000, interval: Duration::from_nanos(1) };
    LimitSettings { source: rate, total: rate, cookies: rate, source_handshakes: rate, handshakes: rate }
};

#[test]
fn so_many_proofs_may_fail_at_one_address_and_strangers_answers_are_others() {
    let mut world = World::new(ada());
    let wrong = world.signed("ada", "byron");
    let right = world.signed("ada", "lovelace");
    let answered = (0..1_000).filter(|_| matches!(world.judge(&wrong), Verdict::Answer(_))).count();
    assert!((100..=400).contains(&answered), "{answered}");
    assert_eq!(world.code(&allocate().plain()), 401, "a stranger's");
    assert_eq!(world.silence(&right), DropReason::AttemptsSpent, "it is not even looked at");
    world.owner = Some("ada");
    world.granted(&right);
    world.owner = Some("bob");
    assert_eq!(world.silence(&right), DropReason::AttemptsSpent, "he tries for another");
    world.owner = None;
    world.now += Duration::from_secs(1);
    world.granted(&right);
}

#[test]
fn what_was_wrong_with_a_proof_is_told_but_for_what_nobody_is_at() {
    let credentials = Credentials::new(REALM, [("ada".into(), UserKeys::new("ada", REALM, "pw"))], [Secret::new(b"s")]);
    let mut world = World::with(credentials, |_| {});
    world.answer(&allocate().plain());
    world.answer(&allocate().user(b"ada", b"forged-like-ours").sealed(&Seal::sha1(b"key")));
    assert_eq!(world.authority.poll_failure(), None, "anybody may have sent these");
    let nonce = world.nonce(false);
    let elsewhere = allocate().with(attribute::USERNAME, b"ada").with(attribute::REALM, b"elsewhere");
    let wrong = [
        (world.signed("ada", "wrong"), ProofError::WrongPassword, "ada"),
        (world.signed("eve\n", "pw"), ProofError::UnknownUser, "eve\n"),
        (world.signed("1:ada", "pw"), ProofError::Expired, "1:ada"),
        (world.signed("9999999999:ada", "pw"), ProofError::WrongPassword, "9999999999:ada"),
        (elsewhere.with(attribute::NONCE, &nonce).sealed_by("ada", "pw"), ProofError::WrongRealm, "ada"),
    ];
    for (request, error, user) in wrong {
        assert_eq!(world.code(&request), 401);
        let (user, client) = (Some(user.to_owned()), world.client.path.remote);
        assert_eq!(world.authority.poll_failure(), Some(FailedProof { user, client, error, left_out: 0 }));
    }
}

#[test]
fn a_flood_in_the_name_of_an_address_keeps_nobody_there_from_a_new_nonce_or_from_an_answer() {
    let mut world = looking_up();
    let request = world.signed("ada", "pw");
    world.authority.handle_found(world.now, &"bob".into(), keys("bob"));
    let wrong = world.signed("bob", "wrong");
    while matches!(world.judge(&allocate().plain()), Verdict::Answer(_)) {}
    assert!(matches!(world.judge(&request), Verdict::Waits), "she is looked up");
    assert_eq!(world.code(&wrong), 401);
    world.now += Duration::from_secs(3_601);
    while matches!(world.judge(&allocate().plain()), Verdict::Answer(_)) {}
    assert_eq!(world.code(&request), 438);
    let forged = request_of(Method::Refresh, b"forged-like-ours");
    assert_eq!(world.silence(&forged), DropReason::UnauthenticatedBudgetSpent);
}

#[test]
fn no_key_or_secret_is_ever_shown() {
    let keys = UserKeys { md5: Some([0xab; 16]), sha256: Some([0xcd; 32]) };
    let credentials = Credentials::new(REALM, [("ada".into(), keys.clone())], [Secret::new(b"hush")]);
    let world = World::with(credentials, |settings| settings.looks_up = true);
    let shown = format!("{keys:?} {:?} {:?}", world.authority, Found::Keys(keys.clone()));
    for secret in ["171, 171", "abab", "205, 205", "cdcd", "hush"] {
        assert!(!shown.to_lowercase().contains(secret), "{shown}");
    }
}

proptest! {
    #[test]
    fn a_request_that_was_changed_anywhere_is_not_granted(at in any::<prop::sample::Index>(), bits in 1_u8..) {
        let mut world = World::new(ada());
        let mut request = world.signed("ada", "lovelace");
        let at = at.index(request.len());
        request[at] ^= bits;
        if let Ok(message) = Message::parse(&request) {
            let verdict = world.authority.judge(world.now, &world.client, None, &message, &mut world.limits);
            prop_assert!(!matches!(verdict, Verdict::Granted(_)));
        }
    }

    #[test]
    fn no_answer_to_a_stranger_is_larger_than_is_said(
        method in prop::sample::select(vec![Method::Allocate, Method::Refresh, Method::ChannelBind, Method::Connect]),
        attributes in prop::collection::vec((kind(), prop::collection::vec(any::<u8>(), 0..40)), 0..6),
        has_transport in any::<bool>(),
        is_sealed in any::<bool>(),
    ) {
        let mut world = looking_up();
        let mut request = request(method);
        request.attributes = attributes;
        if has_transport {
            request = request.with(attribute::REQUESTED_TRANSPORT, &[17, 0, 0, 0]);
        }
        let bytes = if is_sealed { request.sealed_by("a", "b") } else { request.plain() };
        match world.judge(&bytes) {
            Verdict::Granted(_) => prop_assert!(false, "nobody is known"),
            Verdict::Answer(answer) => {
                let tenths = if has_transport && method == Method::Allocate { 26 } else { 10 };
                prop_assert!(answer.len() * 10 <= bytes.len() * tenths, "{} for {}", answer.len(), bytes.len());
            }
            Verdict::Silence(_) | Verdict::Waits => {}
        }
    }
}

fn kind() -> impl Strategy<Value = u16> {
    prop::sample::select(vec![
        attribute::USERNAME,
        attribute::REALM,
        attribute::NONCE,
        attribute::USERHASH,
        attribute::PASSWORD_ALGORITHM,
        attribute::PASSWORD_ALGORITHMS,
        attribute::LIFETIME,
        0x8022,
    ])
}
