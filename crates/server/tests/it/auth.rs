//! Tokens: who gets in, and what a token that does not hold is answered with.

use std::time::{SystemTime, UNIX_EPOCH};

use server::auth::{Auth, Claims, KeyError, Refusal, Rights, SigningKey, mint};
use server::config::{self, Config, Secret};

const SECRET: &str = "0123456789abcdef0123456789abcdef";
/// From `openssl genpkey -algorithm ed25519`; made for this test.
const PRIVATE: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIEOEsctrDVDePg9U1La00lA/aHU4TodT3Z8jkj+FqTj3\n-----END PRIVATE KEY-----\n";
const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAsqsE5Ddk/pWwRKmG8s5JhRSE6nIE1J/BM6tD2md3KE0=\n-----END PUBLIC KEY-----\n";

#[test]
fn a_token_of_either_kind_gives_the_rights_that_it_names() {
    let auth = Auth::new(&both_keys()).expect("good keys");
    for key in [SigningKey::Hs256(SECRET), SigningKey::EdDsaPem(PRIVATE)] {
        let token = mint(&claims(), key).expect("signed");
        let rights = auth.rights(Some(format!("Bearer {token}").as_bytes())).expect("let in");
        assert!(rights.may_publish("studio") && rights.may_publish("event-7"));
        assert!(!rights.may_publish("studio2") && !rights.may_publish("other"));
        assert!(rights.may_watch("lobby") && rights.may_watch("studio") && !rights.may_watch("other"));
        assert!(!rights.admin);
    }
}

#[test]
fn a_token_that_does_not_hold_is_refused_with_its_reason() {
    let auth = Auth::new(&both_keys()).expect("good keys");
    let with = |change: fn(&mut Claims)| {
        let mut claims = claims();
        change(&mut claims);
        format!("Bearer {}", mint(&claims, SigningKey::Hs256(SECRET)).expect("signed"))
    };
    let other_key = mint(&claims(), SigningKey::Hs256("another secret of thirty-two bytes")).expect("signed");
    // {"alg":"none"} and no signature.
    let unsigned = format!("Bearer eyJhbGciOiJub25lIn0.{}.", other_key.split('.').nth(1).expect("claims"));
    let cases = [
        (with(|claims| claims.exp = now() - 60), "the token has expired (exp)"),
        (with(|claims| claims.nbf = Some(now() + 60)), "the token is not valid yet (nbf)"),
        (with(|claims| claims.iss = Some("else".to_owned())), "the token is from another issuer (iss)"),
        (with(|claims| claims.iss = None), "the token lacks the claim iss"),
        (with(|claims| claims.aud = Some("else".into())), "the token is for another audience (aud)"),
        (format!("Bearer {other_key}"), "the token is signed with another key"),
        (unsigned, "the token cannot be read: unknown variant `none`"),
        ("Bearer nonsense".to_owned(), "the token is not a JSON Web Token that can be checked here"),
        ("Basic dXNlcjpwYXNz".to_owned(), "the Authorization header is not of the form \"Bearer …\""),
        ("Bearer ".to_owned(), "the Authorization header is not of the form \"Bearer …\""),
    ];
    for (header, expected) in cases {
        let refusal = auth.rights(Some(header.as_bytes())).expect_err(expected);
        let words = |text: &str| text.split(", expected").next().unwrap_or_default().to_owned();
        assert_eq!(words(&refusal.to_string()), words(expected));
    }
    assert_eq!(auth.rights(None), Err(Refusal::NoToken));
}

#[test]
fn a_key_of_one_kind_accepts_no_token_of_the_other() {
    let only_public = config::Auth { hs256_secret: None, ..both_keys() };
    let auth = Auth::new(&only_public).expect("a good key");
    // The classic confusion: the public key taken for an HMAC secret.
    let token = mint(&claims(), SigningKey::Hs256(PUBLIC)).expect("signed");

    let refusal = auth.rights(Some(format!("Bearer {token}").as_bytes())).expect_err("refused");

    assert_eq!(refusal.to_string(), "the token is signed with HS256, which is not accepted here");
}

#[test]
fn a_misspelt_right_is_refused_and_not_ignored() {
    let text = r#"{"exp": 1, "millrace": {"publsh": ["*"]}}"#;
    let error = serde_json::from_str::<Claims>(text).expect_err("misspelt").to_string();
    assert!(error.contains("unknown field `publsh`, expected one of `publish`, `watch`, `admin`"), "{error}");
}

#[test]
fn without_keys_the_server_does_not_start_unless_it_is_for_development() {
    assert_eq!(Auth::new(&config::Auth::default()).err(), Some(KeyError::NoKey));
    let bad = config::Auth { eddsa_public_key: Some(PRIVATE.to_owned()), ..config::Auth::default() };
    assert_eq!(Auth::new(&bad).err(), Some(KeyError::BadPublicKey));

    let dev = Auth::new(&config::Auth { dev: true, ..config::Auth::default() }).expect("no key needed");
    assert_eq!(dev.rights(None), Ok(Rights::all()));
}

#[test]
fn without_keys_it_starts_where_somebody_gets_in_without_a_token_which_lets_nobody_else_in() {
    let with = |assignment: &str| Config::load(None, [], &[assignment.to_owned()]).expect("valid");
    let (pushed, keys) = (format!("reflect.streams=news push_token={SECRET}"), format!("livekit.keys=id: {SECRET}"));
    let opens = ["reflect.streams=news source=http://192.0.2.1/a", &pushed, &keys];
    for assignment in opens {
        let auth = Auth::of(&with(assignment)).expect(assignment);
        assert_eq!(auth.rights(None), Err(Refusal::NoToken), "{assignment}");
        let token = mint(&claims(), SigningKey::Hs256(SECRET)).expect("signed");
        assert!(matches!(auth.rights(Some(format!("Bearer {token}").as_bytes())), Err(Refusal::BadToken(_))));
    }
    assert_eq!(Auth::of(&with("reflect.streams=news")).err(), Some(KeyError::NoKey));
}

#[test]
fn a_server_for_development_has_no_keys_that_it_would_not_ask_for() {
    let secret = config::Auth { hs256_secret: Some(Secret(SECRET.to_owned())), dev: true, ..config::Auth::default() };
    assert_eq!(Auth::new(&secret).err(), Some(KeyError::DevWithKey("auth.hs256_secret")));
    let public = config::Auth { eddsa_public_key: Some(PUBLIC.to_owned()), dev: true, ..config::Auth::default() };
    assert_eq!(Auth::new(&public).err(), Some(KeyError::DevWithKey("auth.eddsa_public_key")));
}

#[test]
fn a_token_holds_for_five_seconds_longer_than_it_says_and_no_more() {
    let auth = Auth::new(&both_keys()).expect("good keys");
    let bearer = |exp| {
        let token = mint(&Claims { exp, ..claims() }, SigningKey::Hs256(SECRET)).expect("signed");
        auth.bearer(Some(format!("Bearer {token}").as_bytes()))
    };
    // Seconds away from the limit on either side, as the test may take some.
    let exp = now();
    assert_eq!(bearer(exp).map(|bearer| (bearer.subject, bearer.expires)), Ok((Some("alice".to_owned()), Some(exp))));
    assert_eq!(bearer(now() - 6), Err(Refusal::BadToken("has expired (exp)".to_owned())));
}

#[test]
fn tokens_that_name_nobody_are_told_apart_and_those_that_do_are_not() {
    let auth = Auth::new(&both_keys()).expect("good keys");
    let bearer = |change: fn(&mut Claims)| {
        let mut claims = claims();
        change(&mut claims);
        let token = mint(&claims, SigningKey::Hs256(SECRET)).expect("signed");
        let bearer = auth.bearer(Some(format!("Bearer {token}").as_bytes())).expect("let in");
        (bearer.subject, bearer.token)
    };
    assert_eq!(bearer(|_| {}), (Some("alice".to_owned()), None));
    let nobody = |claims: &mut Claims| (claims.sub, claims.exp) = (None, EXPIRES);
    let (subject, token) = bearer(nobody);
    assert!(subject.is_none() && token.is_some());
    let same = |claims: &mut Claims| (claims.sub, claims.exp, claims.nbf) = (None, EXPIRES, Some(1));
    assert_eq!(bearer(same), bearer(same));
    assert_ne!(bearer(same).1, token);
}

/// In the year 2100.
const EXPIRES: u64 = 4_102_444_800;

fn both_keys() -> config::Auth {
    config::Auth {
        hs256_secret: Some(Secret(SECRET.to_owned())),
        eddsa_public_key: Some(PUBLIC.to_owned()),
        issuer: Some("the issuer".to_owned()),
        audience: Some("millrace".to_owned()),
        ..config::Auth::default()
    }
}

fn claims() -> Claims {
    Claims {
        sub: Some("alice".to_owned()),
        exp: now() + 60,
        nbf: Some(now()),
        iss: Some("the issuer".to_owned()),
        aud: Some(serde_json::json!(["millrace", "else"])),
        millrace: Rights {
            publish: vec!["studio".to_owned(), "event-*".to_owned()],
            watch: vec!["lobby".to_owned()],
            admin: false,
        },
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}
