//! WHIP, WHEP and the API as clients meet them, with a negotiator and a worker that only pretend.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use engine::{Receiver, mailbox};
use rooms::spec::{Command, Counters, Event, LayerLimit, SessionId, SessionStats};
use server::auth::{Auth, Claims, Rights, SigningKey, mint};
use server::config::{self, IceServer, Origin, Secret};
use server::http::{App, Metrics, MetricsSettings, metrics_router, router};
use server::plane::workers::Workers;
use server::plane::{Plane, placement};
use server::rooms::control::{NegotiatorEnd, RoomsControl};
use server::rooms::directory;
use server::rooms::negotiator::{self, Answer, Input, NegotiationError, Notice, Patched};
use server::worker::Message;
use tower::ServiceExt;

use crate::offers;

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const SDP: (&str, &str) = ("content-type", "application/sdp");
const FRAGMENT: (&str, &str) = ("content-type", "application/trickle-ice-sdpfrag");
/// How long anything may take before a test gives up. Far more than it takes, as the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(40);
const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test]
async fn an_offer_is_answered_with_a_resource_an_etag_and_ice_servers() {
    let test = Harness::new();
    for endpoint in ["/whip/a", "/whep/a", "/whep/a?track=video0&x=y"] {
        let response = test.send("POST", endpoint, &[SDP], &offer(endpoint)).await;
        assert_eq!(response.status(), StatusCode::CREATED, "{endpoint}");
        assert_eq!(header(&response, "content-type"), "application/sdp");
        // It is found from the endpoint, wherever a proxy has that (RFC 3986 §5.2).
        let (stream, key) = header(&response, "location").split_once('/').expect("a relative path");
        assert!(stream == "a" && key.len() == 22 && !key.contains('/'), "{stream}/{key}");
        assert_eq!(header(&response, "etag"), "\"tag\"");
        assert_eq!(header(&response, "accept-patch"), "application/trickle-ice-sdpfrag");
        let links: Vec<_> = response.headers().get_all("link").iter().map(|link| link.to_str().unwrap()).collect();
        let turn = "<turn:turn.example>; rel=\"ice-server\"; username=\"me\"; credential=\"secret\"; \
                    credential-type=\"password\"";
        assert_eq!(links, ["<stun:stun.example:3478>; rel=\"ice-server\"", turn]);
        assert_eq!(text(response).await, "answer");
    }
}

#[tokio::test]
async fn offers_that_do_not_do_are_refused_each_in_its_way() {
    let test = Harness::new();
    test.open("/whip/live").await;
    let long = "x".repeat(65 * 1024);
    let (good, overload) = (offer("/whip/a"), offer("/whip/a").replace("s=-", "s=overload"));
    let (h263, h264) = (good.replace("VP8", "H263"), offer("/whep/live").replace("VP8", "H264"));
    let two = offers::section(&good, "1", "sendonly", "VP8");
    let (no_mid, sends) = (good.replace("a=mid:0", "a=mid:"), offers::video("sendonly", "VP8", &[]));
    let cases = [
        ("/whip/a", SDP, no_mid.as_str(), StatusCode::BAD_REQUEST, "line 7: a=mid"),
        ("/whip/a", SDP, &h263, StatusCode::NOT_ACCEPTABLE, "no Video codec in media section 0"),
        ("/whep/live", SDP, &h264, StatusCode::NOT_ACCEPTABLE, "Vp8 was not offered"),
        ("/whep/live", SDP, &sends, StatusCode::NOT_ACCEPTABLE, "no media section to send on"),
        ("/whep/live?track=video0&track=audio1", SDP, &h264, StatusCode::NOT_FOUND, "\"audio1\"; it has video0"),
        ("/whip/a", SDP, &offer("/whep/a"), StatusCode::NOT_ACCEPTABLE, "no media section to receive from"),
        ("/whip/a", SDP, &two, StatusCode::UNPROCESSABLE_ENTITY, "BUNDLE"),
        ("/whip/a", SDP, &overload, StatusCode::SERVICE_UNAVAILABLE, "try again in 2 s"),
        ("/whip/a", SDP, long.as_str(), StatusCode::PAYLOAD_TOO_LARGE, "65536 bytes"),
        ("/whip/a", JSON, "offer", StatusCode::UNSUPPORTED_MEDIA_TYPE, "application/sdp"),
        ("/whip/a%20b", SDP, &good, StatusCode::BAD_REQUEST, "letters"),
        ("/whip/%ff", SDP, "offer", StatusCode::BAD_REQUEST, "UTF-8"),
        ("/whep/none", SDP, "offer", StatusCode::NOT_FOUND, "nobody publishes"),
        ("/nothing", SDP, "offer", StatusCode::NOT_FOUND, "nothing here"),
    ];
    for (path, content_type, body, status, detail) in cases {
        let response = test.send("POST", path, &[content_type], body).await;
        assert_problem(response, status, detail).await;
    }
    assert_eq!(test.get_json("/api/streams").await.as_array().map(Vec::len), Some(1));
    assert_eq!(test.rooms.census().publishers, (1, 1));
    assert_eq!(test.rooms.census().viewers, (0, 0));
}

#[tokio::test]
async fn a_header_that_cannot_be_written_is_the_servers_mistake() {
    let broken = IceServer { url: "stun:a\nb".to_owned(), login: None };
    let test = Harness::with(|service| service.ice_servers = vec![broken]);

    let response = test.send("POST", "/whip/a", &[SDP], &offer("/whip/a")).await;
    assert_problem(response, StatusCode::INTERNAL_SERVER_ERROR, "cannot be written").await;
}

#[tokio::test]
async fn methods_that_a_resource_does_not_have_are_refused_with_405() {
    let test = Harness::new();
    let resource = test.open("/whip/a").await;
    for (path, methods) in [
        ("/whip/a", ["GET", "HEAD", "PUT", "DELETE", "PATCH"].as_slice()),
        ("/whep/a", &["GET", "HEAD", "PUT", "DELETE", "PATCH"]),
        (&resource, &["GET", "HEAD", "PUT", "POST"]),
    ] {
        for method in methods {
            let response = test.send(method, path, &[], "").await;
            assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
            assert!(!header(&response, "allow").is_empty(), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn a_fragment_needs_the_etag_and_a_restart_brings_a_new_one() {
    let test = Harness::new();
    let resource = test.open("/whip/a").await;
    let tag = |value| [FRAGMENT, ("if-match", value)];

    assert_problem(test.send("PATCH", &resource, &[FRAGMENT], "trickle").await, StatusCode::PRECONDITION_REQUIRED, "")
        .await;
    assert_problem(
        test.send("PATCH", &resource, &tag("\"old\""), "trickle").await,
        StatusCode::PRECONDITION_FAILED,
        "another ICE session",
    )
    .await;
    let wrong_type = [SDP, ("if-match", "*")];
    assert_problem(
        test.send("PATCH", &resource, &wrong_type, "").await,
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        FRAGMENT.1,
    )
    .await;
    let trickled = test.send("PATCH", &resource, &tag("\"tag\""), "trickle").await;
    assert_eq!(trickled.status(), StatusCode::NO_CONTENT);
    let restarted = test.send("PATCH", &resource, &tag("*"), "restart").await;
    assert_eq!((restarted.status(), header(&restarted, "etag")), (StatusCode::OK, "\"new\""));
    assert_eq!(header(&restarted, "content-type"), FRAGMENT.1);
    assert_eq!(text(restarted).await, "fragment");
}

#[tokio::test]
async fn delete_ends_a_session_and_a_publishers_stream_with_it() {
    let test = Harness::new();
    let publisher = test.open("/whip/a").await;
    let viewer = test.open("/whep/a").await;

    assert_eq!(test.send("DELETE", &viewer, &[], "").await.status(), StatusCode::OK);
    assert_problem(test.send("DELETE", &viewer, &[], "").await, StatusCode::NOT_FOUND, "no such session").await;
    assert_problem(test.send("GET", &format!("{viewer}/stats"), &[], "").await, StatusCode::NOT_FOUND, "").await;
    assert_eq!(test.get_json("/api/streams").await[0]["viewers"], 0);

    assert_eq!(test.send("DELETE", &publisher, &[], "").await.status(), StatusCode::OK);
    assert_eq!(test.get_json("/api/streams").await, serde_json::json!([]));
}

#[tokio::test]
async fn a_session_is_found_only_under_its_own_stream_and_role() {
    let test = Harness::new();
    let publisher = test.open("/whip/a").await;
    test.open("/whip/b").await;
    for path in [publisher.replace("/whip/", "/whep/"), publisher.replace("/a/", "/b/"), "/whip/a/guess".to_owned()] {
        assert_eq!(test.send("DELETE", &path, &[], "").await.status(), StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn streams_statistics_and_layers_are_json() {
    let test = Harness::new();
    let publisher = test.open("/whip/a").await;
    let viewer = test.open("/whep/a").await;

    let tracks = serde_json::json!([{"id": "video0", "kind": "video", "codec": "VP8", "rids": ["q", "h", "f"]}]);
    let stream = serde_json::json!({"name": "a", "state": "live", "viewers": 1, "tracks": tracks});
    assert_eq!(test.get_json("/api/streams").await, serde_json::json!([stream]));

    assert_eq!(test.get_json(&format!("{publisher}/stats")).await["packets_sent"], 17);
    assert_eq!(test.get_json(&format!("{viewer}/stats")).await["packets_sent"], 17);

    let layer = format!("{viewer}/layer");
    let limit = r#"{"spatial_max": 1, "temporal_max": null}"#;
    assert_eq!(test.send("POST", &layer, &[JSON], limit).await.status(), StatusCode::NO_CONTENT);
    assert_eq!(test.limit(), LayerLimit { spatial_max: 1, temporal_max: u8::MAX });
    assert_problem(
        test.send("POST", &layer, &[JSON], r#"{"spatial": 1}"#).await,
        StatusCode::BAD_REQUEST,
        "spatial_max",
    )
    .await;
}

#[tokio::test]
async fn an_admin_lists_sessions_and_ends_single_ones() {
    let auth = config::Auth { hs256_secret: Some(Secret(SECRET.to_owned())), ..config::Auth::default() };
    let test = Harness::with(|app| {
        app.auth = Auth::new(&auth).expect("a good key").into();
        app.session_grace = Some(Duration::from_secs(60));
    });
    let exp = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() + 60;
    let token = |rights| {
        let claims = Claims { sub: Some("alice".to_owned()), exp, millrace: rights, ..Claims::default() };
        format!("Bearer {}", mint(&claims, SigningKey::Hs256(SECRET)).expect("signed"))
    };
    let (admin, anybody) = (token(Rights::all()), token(Rights { watch: vec!["*".to_owned()], ..Rights::default() }));
    let ask = |method, path: String, token: String| {
        let test = &test;
        async move { test.send(method, &path, &[SDP, ("authorization", &token)], &offer(&path)).await }
    };
    for endpoint in ["/whip/a", "/whep/a"] {
        assert_eq!(ask("POST", endpoint.to_owned(), admin.clone()).await.status(), StatusCode::CREATED);
    }
    let list = async || ask("GET", "/api/sessions".to_owned(), admin.clone()).await;

    let sessions: serde_json::Value = serde_json::from_str(&text(list().await).await).expect("JSON");
    let (publisher, viewer) = (&sessions[0], &sessions[1]);
    assert_eq!(
        (&publisher["stream"], &publisher["role"], &publisher["connected"]),
        (&"a".into(), &"publisher".into(), &false.into())
    );
    assert_eq!(
        (&viewer["role"], &viewer["subject"], &viewer["address"]),
        (&"viewer".into(), &"alice".into(), &().into())
    );
    let (since, ends) = (viewer["since"].as_u64().expect("a time"), viewer["ends"].as_u64().expect("a time"));
    assert!((exp - 61..=exp).contains(&since) && (exp + 58..=exp + 61).contains(&ends), "{viewer}");

    let path = format!("/api/sessions/{}", viewer["id"].as_str().expect("a text"));
    for (filter, count) in [("stream=a", 2), ("stream=b", 0), ("worker=0&stream=a", 2), ("worker=1", 0)] {
        let found = ask("GET", format!("/api/sessions?{filter}"), admin.clone()).await;
        let found: serde_json::Value = serde_json::from_str(&text(found).await).expect("JSON");
        assert_eq!(found.as_array().map(Vec::len), Some(count), "{filter}");
    }
    let one = text(ask("GET", path.clone(), admin.clone()).await).await;
    assert!(one.contains("\"packets_sent\":17") && one.contains("\"role\":\"viewer\""), "{one}");
    let headers = [JSON, ("authorization", &*admin)];
    let limited = test.send("POST", &format!("{path}/layer"), &headers, r#"{"spatial_max": 0}"#).await;
    assert_eq!((limited.status(), test.limit().spatial_max), (StatusCode::NO_CONTENT, 0));
    for (method, path) in [("GET", "/api/sessions"), ("DELETE", &path)] {
        assert_problem(ask(method, path.to_owned(), anybody.clone()).await, StatusCode::FORBIDDEN, "admin").await;
    }
    assert_eq!(ask("DELETE", path.clone(), admin.clone()).await.status(), StatusCode::NO_CONTENT);
    assert_problem(ask("DELETE", path, admin.clone()).await, StatusCode::NOT_FOUND, "no such session").await;
    assert_problem(ask("DELETE", "/api/sessions/x".to_owned(), admin.clone()).await, StatusCode::NOT_FOUND, "").await;
    let left: serde_json::Value = serde_json::from_str(&text(list().await).await).expect("JSON");
    assert_eq!(left.as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn lists_come_in_parts_of_which_each_leads_to_the_next() {
    let test = Harness::new();
    for name in ["a", "b", "c", "d", "e"] {
        test.open(&format!("/whip/{name}")).await;
    }
    let entries = async |path: &str, key: &str| {
        let (mut path, mut seen) = (path.to_owned(), Vec::new());
        loop {
            let response = test.send("GET", &path, &[], "").await;
            assert_eq!(response.status(), StatusCode::OK, "{path}");
            let link = header(&response, "link").to_owned();
            let list: serde_json::Value = serde_json::from_str(&text(response).await).expect("JSON");
            let list = list.as_array().expect("a list");
            seen.push(list.iter().map(|entry| entry[key].as_str().expect("a text").to_owned()).collect::<String>());
            let Some(next) = link.strip_suffix(">; rel=\"next\"").and_then(|link| link.strip_prefix('<')) else {
                return seen;
            };
            path = format!("/api/{next}");
        }
    };
    assert_eq!(entries("/api/streams?limit=2", "name").await, ["ab", "cd", "e"]);
    assert_eq!(entries("/api/streams?limit=0&after=c", "name").await, ["d", "e", ""]);
    assert_eq!(entries("/api/streams", "name").await, ["abcde"]);
    assert_eq!(entries("/api/streams?limit=999999", "name").await, ["abcde"]);
    assert_eq!(entries("/api/sessions?limit=2", "stream").await, ["ab", "cd", "e"]);
    assert_eq!(entries("/api/sessions?after=3", "stream").await, ["de"]);
    for path in ["/api/streams?limit=x", "/api/sessions?after=x"] {
        assert_problem(test.send("GET", path, &[], "").await, StatusCode::BAD_REQUEST, "query").await;
    }
}

#[tokio::test]
async fn an_answer_has_a_thousand_streams_at_most() {
    let test = Harness::new();
    for index in 0..1_003 {
        let opened = test.rooms.publish(&format!("s{index:04}"), &offer("/whip/a"), Default::default()).await;
        opened.expect("answered");
    }
    let list = test.get_json("/api/streams?limit=5000").await;
    assert_eq!(list.as_array().map(Vec::len), Some(1_000));
    assert_eq!(test.get_json("/api/streams?after=s0999").await.as_array().map(Vec::len), Some(3));
    assert_eq!(test.get_json("/api/sessions").await.as_array().map(Vec::len), Some(1_000));
}

#[tokio::test]
async fn pages_of_other_origins_are_let_in_also_to_read_errors() {
    let test = Harness::new();
    for response in [
        test.send("OPTIONS", "/whip/a", &[("origin", "https://else.example")], "").await,
        test.send("POST", "/whep/none", &[SDP], "offer").await,
        test.send("GET", "/nothing", &[], "").await,
    ] {
        assert_eq!(header(&response, "access-control-allow-origin"), "*");
        assert!(header(&response, "access-control-expose-headers").contains("Location, ETag, Link"));
    }
    let preflight = test.send("OPTIONS", "/whip/a", &[], "").await;
    assert_eq!(preflight.status(), StatusCode::NO_CONTENT);
    assert_eq!(header(&preflight, "access-control-allow-methods"), "GET, POST, PUT, PATCH, DELETE, OPTIONS");
    assert_eq!(header(&preflight, "access-control-allow-headers"), "Authorization, Content-Type, If-Match");
    assert_eq!(header(&preflight, "accept-post"), "application/sdp");
}

#[tokio::test]
async fn where_origins_are_named_others_are_not_let_in() {
    let test = Harness::with(|service| service.cors_origins = vec![Origin("https://ours.example".to_owned())]);
    for (origin, allowed) in [("https://ours.example", "https://ours.example"), ("https://else.example", "")] {
        let response = test.send("GET", "/healthz", &[("origin", origin)], "").await;
        assert_eq!(header(&response, "access-control-allow-origin"), allowed);
        assert_eq!(header(&response, "vary"), "Origin");
    }
}

#[tokio::test]
async fn where_no_token_is_needed_pages_of_others_administer_nothing() {
    let test = Harness::new();
    let (here, lan) = (("host", "127.0.0.1:8080"), ("host", "192.168.1.5:8080"));
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    let (own, own_page) = (format!("{}:8080", own.trim()), format!("http://{}:8080", own.trim()));
    let asked = [
        (vec![here], true),
        (vec![lan], true),
        (vec![("host", "[::1]:8080"), ("origin", "http://[::1]:8080")], true),
        (vec![("host", "LocalHost")], true),
        (vec![("host", "localhost."), ("origin", "http://localhost.")], true),
        (vec![("host", &*own), ("origin", &*own_page)], true),
        (vec![], true),
        (vec![("origin", "http://localhost:3000")], true),
        (vec![lan, ("origin", "http://192.168.1.5:8080")], true),
        (vec![lan, ("origin", "http://localhost:3000")], true),
        // A form or `fetch` with "no-cors" that another page sends; a sandbox or a file; another server of the host.
        (vec![here, ("origin", "https://else.example")], false),
        (vec![here, ("origin", "null")], false),
        (vec![lan, ("origin", "http://192.168.1.5:81")], false),
        (vec![here, ("origin", "http://localhost.else.example")], false),
        // A page whose name points here by now is of the same origin.
        (vec![("host", "else.example:8080"), ("origin", "http://else.example:8080")], false),
        (vec![("host", "else.example:8080")], false),
        (vec![("host", "127.0.0.1.else.example")], false),
        (vec![("host", "127.0.0.1@else.example")], false),
        (vec![("host", "else.example@127.0.0.1")], false),
        (vec![here, lan], false),
        // Who answers for such a name in the network.
        (vec![("host", "other:8080")], false),
        (vec![("origin", "https://else.example")], false),
    ];
    for (headers, is_answered) in asked {
        let origin = headers.iter().find(|(name, _)| *name == "origin").map_or("", |(_, origin)| origin);
        for (method, path, expected) in [
            ("GET", "/api/streams", StatusCode::OK),
            ("DELETE", "/api/streams/none", StatusCode::NOT_FOUND),
            ("POST", "/api/relay/drain", StatusCode::NOT_FOUND),
            ("POST", "/api/relay/credentials", StatusCode::NOT_FOUND),
            ("GET", "/pump/sessions", StatusCode::NOT_FOUND),
            ("OPTIONS", "/api/relay/drain", StatusCode::NO_CONTENT),
        ] {
            let response = test.send(method, path, &headers, "").await;
            let allowed = header(&response, "access-control-allow-origin");
            assert_eq!(allowed, if is_answered { origin } else { "" }, "{method} {path} {headers:?}");
            let expected = if is_answered || method == "OPTIONS" { expected } else { StatusCode::FORBIDDEN };
            assert_eq!(response.status(), expected, "{method} {path} {headers:?}");
        }
        // Media is for all of them.
        let response = test.send("POST", "/whep/none", &[&[SDP], &headers[..]].concat(), "offer").await;
        assert_ne!(response.status(), StatusCode::FORBIDDEN);
        assert_eq!(header(&response, "access-control-allow-origin"), "*");
    }
    let named = Harness::with(|app| app.cors_origins.push(Origin("https://ours.example".to_owned())));
    for headers in
        [[here, ("origin", "https://ours.example")], [("host", "ours.example"), ("origin", "https://ours.example")]]
    {
        assert_eq!(named.send("GET", "/api/streams", &headers, "").await.status(), StatusCode::OK);
    }
    let auth = config::Auth { hs256_secret: Some(Secret(SECRET.to_owned())), ..config::Auth::default() };
    let keyed = Harness::with(|app| app.auth = Auth::new(&auth).expect("a good key").into());
    let headers = [("host", "ours.example"), ("origin", "https://else.example")];
    let response = keyed.send("GET", "/api/streams", &headers, "").await;
    assert_eq!((response.status(), header(&response, "access-control-allow-origin")), (StatusCode::UNAUTHORIZED, "*"));
}

#[tokio::test]
async fn a_token_opens_what_it_names_and_nothing_else() {
    let auth = config::Auth { hs256_secret: Some(Secret(SECRET.to_owned())), ..config::Auth::default() };
    let test = Harness::with(|service| service.auth = Auth::new(&auth).expect("a good key").into());
    let token = |publish: &[&str], watch: &[&str], admin| {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let exp = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() + 60;
        let rights = Rights { publish: list(publish), watch: list(watch), admin };
        let claims = Claims { exp, millrace: rights, ..Claims::default() };
        format!("Bearer {}", mint(&claims, SigningKey::Hs256(SECRET)).expect("signed"))
    };
    let (publisher, viewer, admin) = (token(&["a"], &[], false), token(&[], &["a"], false), token(&[], &[], true));
    let status = async |method, path, authorization: &str| {
        let headers = [SDP, ("authorization", authorization)];
        let headers = if authorization.is_empty() { &headers[..1] } else { &headers };
        test.send(method, path, headers, &offer(path)).await.status().as_u16()
    };
    let matrix = [
        ("POST", "/whip/a", ["", &viewer, &publisher, &admin], [401, 403, 201, 201]),
        ("POST", "/whip/b", ["", &viewer, &publisher, &admin], [401, 403, 403, 201]),
        ("POST", "/whep/a", ["", &viewer, &publisher, &admin], [401, 201, 201, 201]),
        ("POST", "/whep/b", ["", &viewer, &publisher, &admin], [401, 403, 403, 201]),
        ("DELETE", "/whip/a/guess", ["", &viewer, &publisher, &admin], [401, 403, 404, 404]),
        ("GET", "/whep/a/guess/stats", ["", &viewer, &publisher, &admin], [401, 404, 404, 404]),
        ("GET", "/api/streams", ["", &viewer, &publisher, &admin], [401, 200, 200, 200]),
        ("DELETE", "/api/streams/b", ["", &viewer, &publisher, &admin], [401, 403, 403, 204]),
        ("GET", "/healthz", ["", "Bearer nonsense", &viewer, &admin], [200, 200, 200, 200]),
    ];
    for (method, path, tokens, expected) in matrix {
        for (token, expected) in tokens.into_iter().zip(expected) {
            assert_eq!(status(method, path, token).await, expected, "{method} {path} {token:.20}");
        }
    }
    let refused = test.send("POST", "/whip/a", &[SDP], "offer").await;
    assert_eq!(header(&refused, "www-authenticate"), "Bearer realm=\"millrace\"");
    assert_problem(refused, StatusCode::UNAUTHORIZED, "Authorization: Bearer").await;
}

#[tokio::test]
async fn while_draining_new_sessions_are_refused_and_old_ones_go_on() {
    let test = Harness::new();
    let publisher = test.open("/whip/a").await;
    assert_eq!(test.send("GET", "/healthz", &[], "").await.status(), StatusCode::OK);

    test.rooms.plane().start_drain();

    let refused = test.send("POST", "/whep/a", &[SDP], "offer").await;
    assert_eq!(header(&refused, "retry-after"), "5");
    assert_problem(refused, StatusCode::SERVICE_UNAVAILABLE, "about to stop").await;
    assert_eq!(test.send("GET", "/healthz", &[], "").await.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(test.send("DELETE", &publisher, &[], "").await.status(), StatusCode::OK);
}

#[tokio::test]
async fn metrics_are_prometheus_text_with_each_family_once() {
    let test = Harness::new();
    test.open("/whip/a").await;
    for (_, numbers) in test.rooms.plane().workers().numbers() {
        let mut counters = Counters { packets_in: 3, ..Counters::default() };
        for micros in [20, 500] {
            counters.lateness.record(Duration::from_micros(micros));
        }
        numbers.rooms.store(&counters);
    }
    let page = text(test.send("GET", "/metrics", &[], "").await).await;

    for line in [
        "millrace_streams{state=\"live\"} 1",
        "millrace_sessions{role=\"publisher\",state=\"connected\"} 1",
        "millrace_draining 0",
        "millrace_http_connections 0",
        "millrace_http_connections_max 10000",
        "millrace_worker_datagrams_out_total{worker=\"0\"} 0",
        "millrace_handshake_certificates_refused_total{worker=\"0\"} 0",
        "millrace_rooms_packets_in_total{worker=\"0\"} 3",
        "millrace_rooms_dropped_total{worker=\"0\",reason=\"replayed\"} 0",
        "# TYPE millrace_rooms_lateness_seconds histogram",
        "millrace_rooms_lateness_seconds_bucket{worker=\"0\",le=\"0.000016384\"} 0",
        "millrace_rooms_lateness_seconds_bucket{worker=\"0\",le=\"0.000032768\"} 1",
        "millrace_rooms_lateness_seconds_bucket{worker=\"0\",le=\"+Inf\"} 2",
        "millrace_rooms_lateness_seconds_sum{worker=\"0\"} 0.00052",
        "millrace_rooms_lateness_seconds_count{worker=\"0\"} 2",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is missing in\n{page}");
    }
    let mut families: Vec<&str> = page.lines().filter(|line| line.starts_with("# TYPE")).collect();
    let count = families.len();
    families.sort_unstable();
    families.dedup();
    assert_eq!(families.len(), count);
}

#[tokio::test]
async fn metrics_are_made_anew_when_they_are_old_and_for_who_has_their_token() {
    let test = Harness::with(|app| {
        let token = Some(Secret("prometheus".to_owned()));
        app.metrics = Metrics::new(MetricsSettings { token, age_max: PATIENCE, is_apart: false });
    });
    let page = async |token| text(test.send("GET", "/metrics", &[("authorization", token)], "").await).await;
    let first = page("Bearer prometheus").await;
    assert!(first.contains("millrace_sessions{role=\"publisher\",state=\"connected\"} 0"));
    test.open("/whip/a").await;
    assert_eq!(page("Bearer prometheus").await, first, "it is young enough");

    for (token, detail) in [("Bearer promotheus", "http.metrics_token"), ("Basic x", "Bearer"), ("Bearer prom", "")] {
        let refused = test.send("GET", "/metrics", &[("authorization", token)], "").await;
        assert_problem(refused, StatusCode::UNAUTHORIZED, detail).await;
    }
    assert_problem(test.send("GET", "/metrics", &[], "").await, StatusCode::UNAUTHORIZED, "Bearer").await;
}

#[tokio::test]
async fn metrics_are_for_no_page_of_another_origin_and_can_be_apart() {
    let test = Harness::new();
    let response = test.send("GET", "/metrics", &[("origin", "https://else.example")], "").await;
    assert_eq!((response.status(), header(&response, "access-control-allow-origin")), (StatusCode::OK, ""));
    assert_problem(test.send("POST", "/metrics", &[], "").await, StatusCode::METHOD_NOT_ALLOWED, "").await;

    let apart = Harness::with(|app| {
        app.metrics = Metrics::new(MetricsSettings { is_apart: true, ..MetricsSettings::default() })
    });
    assert_problem(apart.send("GET", "/metrics", &[], "").await, StatusCode::NOT_FOUND, "nothing here").await;
    let auth = Auth::new(&config::Auth { dev: true, ..config::Auth::default() }).expect("no key needed");
    let router = metrics_router(Arc::new(App::new(apart.rooms.clone(), auth)));
    for (path, status) in [("/metrics", StatusCode::OK), ("/api/streams", StatusCode::NOT_FOUND)] {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        assert_eq!(router.clone().oneshot(request).await.expect("an answer").status(), status);
    }
}

#[tokio::test]
async fn the_page_is_part_of_the_server() {
    let test = Harness::new();
    for (path, content_type) in
        [("/", "text/html"), ("/app.js", "text/javascript"), ("/hls.js", "text/javascript"), ("/style.css", "text/css")]
    {
        let response = test.send("GET", path, &[], "").await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        assert!(header(&response, "content-type").starts_with(content_type));
        assert!(header(&response, "content-security-policy").contains("default-src 'self'"));
    }
}

struct Harness {
    rooms: Arc<RoomsControl>,
    router: axum::Router,
    /// Sessions that the negotiator was asked for.
    opened: Arc<Mutex<Vec<SessionId>>>,
    /// What the worker was told to limit.
    limits: mpsc::Receiver<LayerLimit>,
}

impl Harness {
    fn new() -> Self {
        Harness::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut App)) -> Self {
        let (rooms, opened, limits) = pretend();
        let auth = Auth::new(&config::Auth { dev: true, ..config::Auth::default() }).expect("no key needed");
        let mut service = App {
            cors_origins: vec![Origin::any()],
            ice_servers: vec![
                IceServer { url: "stun:stun.example:3478".to_owned(), login: None },
                IceServer { url: "turn:turn.example".to_owned(), login: Some(("me".to_owned(), "secret".to_owned())) },
            ],
            ..App::new(rooms.clone(), auth)
        };
        change(&mut service);
        Harness { rooms, router: router(Arc::new(service)), opened, limits }
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response<Body> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_owned())).expect("a request");
        self.router.clone().oneshot(request).await.expect("an answer")
    }

    /// Opens a session and connects it.
    async fn open(&self, endpoint: &str) -> String {
        let response = self.send("POST", endpoint, &[SDP], &offer(endpoint)).await;
        assert_eq!(response.status(), StatusCode::CREATED);
        let session = *self.opened.lock().expect("not poisoned").last().expect("a session");
        self.rooms.handle_notice(Notice::Connected { session });
        let (parent, _) = endpoint.rsplit_once('/').expect("a path");
        format!("{parent}/{}", header(&response, "location"))
    }

    async fn get_json(&self, path: &str) -> serde_json::Value {
        let response = self.send("GET", path, &[], "").await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        serde_json::from_str(&text(response).await).expect("JSON")
    }

    /// What the worker was told to limit, first.
    fn limit(&self) -> LayerLimit {
        self.limits.recv_timeout(PATIENCE).expect("it was told")
    }
}

/// Rooms over a worker and a negotiator that only pretend, each on a thread of its own; the sessions that these were asked
/// for, and the limits that they were told.
fn pretend() -> (Arc<RoomsControl>, Arc<Mutex<Vec<SessionId>>>, mpsc::Receiver<LayerLimit>) {
    let (commands, worker) = mailbox(100).expect("a mailbox");
    let (inputs, negotiator) = mailbox(100).expect("a mailbox");
    let plane = Plane::new(Workers::pretended(vec![commands]), placement::Settings::default());
    let ends = vec![NegotiatorEnd { mailbox: inputs, counters: Default::default() }];
    let settings =
        directory::Settings { reconnect_grace: Duration::from_secs(10), sessions_max: 1_000, ..Default::default() };
    let rooms = Arc::new(RoomsControl::new(plane, ends, settings));
    let opened = Arc::<Mutex<Vec<SessionId>>>::default();
    let (told, limits) = mpsc::sync_channel(100);
    let (weak, asked) = (Arc::downgrade(&rooms), opened.clone());
    let answer = move |event| {
        if let Some(rooms) = weak.upgrade() {
            rooms.handle_event(event);
        }
    };
    thread::spawn(move || work(&worker, &told, answer));
    thread::spawn(move || {
        while let Ok(input) = negotiator.recv_timeout(None) {
            negotiate(input, &asked);
        }
    });
    (rooms, opened, limits)
}

/// Answers questions, as a worker does, until control is gone.
fn work(messages: &Receiver<Message>, told: &mpsc::SyncSender<LayerLimit>, answer: impl Fn(Event)) {
    while let Ok(message) = messages.recv_timeout(None) {
        match message {
            Message::Command(Command::Inspect { token, .. }) => {
                let stats = SessionStats { packets_sent: 17, ..SessionStats::default() };
                answer(Event::Stats { token, stats: Some(stats) });
            }
            Message::Command(Command::Limit { layers, .. }) => told.send(layers).expect("the test listens"),
            _ => {}
        }
    }
}

/// Answers by what the offer's name or the fragment says.
fn negotiate(input: Input, opened: &Mutex<Vec<SessionId>>) {
    let answer = |session, offer: &str| {
        opened.lock().expect("not poisoned").push(session);
        if offer.contains("s=overload") {
            return Err(NegotiationError::Overloaded { retry_after_seconds: 2 });
        }
        Ok(Answer { sdp: "answer".to_owned(), etag: "tag".to_owned() })
    };
    let Input::Request(request) = input else { return };
    // Whoever asked waits for it.
    match request {
        negotiator::Request::Open { place, offer, reply } => reply.send(answer(place.session, &offer)).is_ok(),
        negotiator::Request::Patch { fragment, if_match, reply, .. } => {
            let patched = match (if_match.as_str(), fragment.as_str()) {
                (_, "restart") => Ok(Patched { fragment: Some("fragment".to_owned()), etag: "new".to_owned() }),
                ("\"tag\"", _) => Ok(Patched { fragment: None, etag: "tag".to_owned() }),
                _ => Err(NegotiationError::EtagMismatch),
            };
            reply.send(patched).is_ok()
        }
        negotiator::Request::Close { .. } | negotiator::Request::Conference { .. } => true,
    };
}

/// An offer that suits an endpoint.
fn offer(endpoint: &str) -> String {
    match endpoint.starts_with("/whip/") {
        true => offers::video("sendonly", "VP8", &["q", "h", "f"]),
        false => offers::video("recvonly", "VP8", &[]),
    }
}

fn header<'a>(response: &'a Response<Body>, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().expect("text"))
}

async fn text(response: Response<Body>) -> String {
    let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.expect("a body");
    String::from_utf8(bytes.into()).expect("UTF-8")
}

async fn assert_problem(response: Response<Body>, status: StatusCode, detail: &str) {
    assert_eq!(response.status(), status);
    assert_eq!(header(&response, "content-type"), "application/problem+json");
    let problem: serde_json::Value = serde_json::from_str(&text(response).await).expect("JSON");
    assert_eq!(problem["status"], status.as_u16());
    let got = problem["detail"].as_str().expect("a detail");
    assert!(got.contains(detail), "{got:?} lacks {detail:?}");
}
