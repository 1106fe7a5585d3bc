//! Signalling, the API and webhooks over real sockets on loopback.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use livekit::admin::Request as Admin;
use livekit::media::Request;
use livekit::proto::participant_info::State;
use livekit::proto::signal_request::Message as Signal;
use livekit::proto::signal_response::Message;
use livekit::proto::{
    CreateRoomRequest, DisconnectReason, JoinRequest, LeaveRequest, Ping, Room, SignalRequest, SignalResponse,
    UpdateRoomMetadataRequest, WrappedJoinRequest,
};
use livekit::token::{Claims, Keys, VideoGrant};
use prost::Message as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::{Error, Message as Frame};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use super::hub::Hub;
use super::ice::IceServers;
use super::queue::{MESSAGES_MAX, Shared, queue};
use super::routes::routes;
use super::settings::Settings;
use super::socket::PARTING_MAX;
use super::webhooks::{SharedKeys, Webhooks};
use crate::traces::Traces;

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// What happens within this happens; nothing waits for it to pass.
const PATIENCE: Duration = Duration::from_secs(30);

struct Server {
    hub: Arc<Hub>,
    webhook_keys: SharedKeys,
    addr: SocketAddr,
}

impl Server {
    async fn start(change: impl FnOnce(&mut Settings)) -> Self {
        Server::start_with(change, || true).await
    }

    async fn start_with(
        change: impl FnOnce(&mut Settings),
        takes_newcomers: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        let mut settings = Settings { keys: vec![("key".into(), "secret".into())], ..Settings::default() };
        change(&mut settings);
        let webhooks = Webhooks::new(&settings).expect("URLs");
        for teller in webhooks.tellers {
            tokio::spawn(teller.run());
        }
        let hub = Arc::new(
            Hub::new(&settings, 1, IceServers::default(), webhooks.inlets, Box::new(takes_newcomers)).expect("a key"),
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let addr = listener.local_addr().expect("bound");
        let router = routes(hub.clone(), Traces::default());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let keeper = hub.clone();
        tokio::spawn(async move { keeper.keep_time().await });
        Server { hub, webhook_keys: webhooks.keys, addr }
    }

    async fn connect(&self, path: &str) -> Result<Socket, u16> {
        match tokio_tungstenite::connect_async(format!("ws://{}{path}", self.addr)).await {
            Ok((socket, _)) => Ok(socket),
            Err(Error::Http(answer)) => Err(answer.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    /// A request by HTTP/1.1; the head and the body of the answer.
    async fn ask(&self, head: &str, body: &[u8]) -> (String, Vec<u8>) {
        let mut stream = TcpStream::connect(self.addr).await.expect("a listener");
        let head = format!("{head}Host: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).await.expect("a request");
        stream.write_all(body).await.expect("a body");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("an answer");
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
        let body = answer.split_off(end);
        (String::from_utf8(answer).expect("text").to_lowercase(), body)
    }

    async fn get(&self, path: &str) -> (String, String) {
        let (head, body) = self.ask(&format!("GET {path} HTTP/1.1\r\n"), b"").await;
        (head, String::from_utf8(body).expect("text"))
    }

    async fn call(&self, method: &str, media_type: &str, token: &str, body: &[u8]) -> (String, Vec<u8>) {
        let path = format!("/twirp/livekit.RoomService/{method}");
        let head = format!("POST {path} HTTP/1.1\r\nContent-Type: {media_type}\r\nAuthorization: Bearer {token}\r\n");
        self.ask(&head, body).await
    }
}

fn keys(key: &str) -> Keys {
    Keys::new([(key.to_owned(), "secret".to_owned())]).expect("a key")
}

fn token(identity: &str, grant: VideoGrant) -> String {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).expect("later").as_secs();
    keys("key").sign(Claims { sub: identity.into(), exp: unix + 60, video: Some(grant), ..Claims::default() })
}

fn to_join(identity: &str) -> String {
    token(identity, VideoGrant { room_join: true, room: "room".into(), ..VideoGrant::default() })
}

fn to_do_everything() -> String {
    let grant = VideoGrant {
        room_create: true,
        room_list: true,
        room_admin: true,
        room: "room".into(),
        ..VideoGrant::default()
    };
    token("", grant)
}

fn ping() -> SignalRequest {
    SignalRequest { message: Some(Signal::PingReq(Ping { timestamp: 7, rtt: 0 })) }
}

/// The next message in protobuf; frames that are none are left out.
async fn next(socket: &mut Socket) -> Message {
    loop {
        let frame = tokio::time::timeout(PATIENCE, socket.next()).await.expect("in time");
        match frame.expect("a frame").expect("a frame") {
            Frame::Binary(bytes) => {
                return SignalResponse::decode(&*bytes).expect("a message").message.expect("a message");
            }
            Frame::Ping(_) | Frame::Pong(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_client_of_v0_hears_join_first_and_is_answered() {
    let server = Server::start(|_| {}).await;
    let mut socket = server.connect(&format!("/rtc?access_token={}&protocol=16", to_join("eve"))).await.expect("in");
    assert!(matches!(next(&mut socket).await, Message::Join(join) if join.subscriber_primary));
    assert!(matches!(next(&mut socket).await, Message::RefreshToken(_)));
    socket.send(Frame::Binary(ping().encode_to_vec().into())).await.expect("sent");
    assert!(matches!(next(&mut socket).await, Message::PongResp(pong) if pong.last_ping_timestamp == 7));
    assert!(matches!(server.hub.media().await[..], [Request::Open { .. }]));
}

#[tokio::test]
async fn a_client_of_v1_comes_in_with_its_join_request() {
    let server = Server::start(|_| {}).await;
    let join = JoinRequest { reconnect_reason: 1, ..JoinRequest::default() };
    let wrapped = WrappedJoinRequest { join_request: join.encode_to_vec(), ..WrappedJoinRequest::default() };
    let request = URL_SAFE.encode(wrapped.encode_to_vec());
    let path = format!("/rtc/v1?access_token={}&join_request={request}", to_join("eve"));
    let mut socket = server.connect(&path).await.expect("in");
    assert!(matches!(next(&mut socket).await, Message::Join(join) if !join.subscriber_primary));
}

#[tokio::test]
async fn who_sends_text_reads_json_from_then_on() {
    let server = Server::start(|_| {}).await;
    let mut socket = server.connect(&format!("/rtc?access_token={}", to_join("eve"))).await.expect("in");
    next(&mut socket).await;
    next(&mut socket).await;
    socket.send(Frame::Text(json!({ "pingReq": { "timestamp": "7" } }).to_string().into())).await.expect("sent");
    let frame = tokio::time::timeout(PATIENCE, socket.next()).await.expect("in time").expect("a frame");
    let text = frame.expect("a frame").into_text().expect("text");
    let json: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(json["pongResp"]["lastPingTimestamp"], "7");
}

#[tokio::test]
async fn frames_that_cannot_be_read_are_left_out() {
    let server = Server::start(|_| {}).await;
    let mut socket = server.connect(&format!("/rtc?access_token={}", to_join("eve"))).await.expect("in");
    next(&mut socket).await;
    next(&mut socket).await;
    socket.send(Frame::Binary(vec![0xff; 1000].into())).await.expect("sent");
    socket.send(Frame::Binary(ping().encode_to_vec().into())).await.expect("sent");
    assert!(matches!(next(&mut socket).await, Message::PongResp(_)));
}

#[tokio::test]
async fn a_frame_that_is_too_long_ends_its_client_alone() {
    let server = Server::start(|_| {}).await;
    let mut eve = server.connect(&format!("/rtc?access_token={}", to_join("eve"))).await.expect("in");
    let mut adam = server.connect(&format!("/rtc?access_token={}", to_join("adam"))).await.expect("in");
    for _ in 0..2 {
        next(&mut eve).await;
        next(&mut adam).await;
    }
    let _it_may_be_cut_off = eve.send(Frame::Binary(vec![0; 3 << 20].into())).await;
    let mut asked = Vec::new();
    while !asked.iter().any(|request| matches!(request, Request::Close { .. })) {
        asked.extend(tokio::time::timeout(PATIENCE, server.hub.media()).await.expect("in time"));
    }
    adam.send(Frame::Binary(ping().encode_to_vec().into())).await.expect("sent");
    while !matches!(next(&mut adam).await, Message::PongResp(_)) {}
    assert_eq!(server.hub.sizes().participants, 1);
}

/// The connection ends after the server has said so, and is not reset.
async fn ends(socket: &mut Socket) {
    let mut is_said = false;
    while let Some(frame) = tokio::time::timeout(PATIENCE, socket.next()).await.expect("in time") {
        is_said |= frame.expect("a frame").is_close();
    }
    assert!(is_said);
}

#[tokio::test]
async fn who_is_removed_is_told_so_and_the_connection_ends_whatever_it_still_says() {
    let server = Server::start(|_| {}).await;
    let mut eve = server.connect(&format!("/rtc?access_token={}", to_join("eve"))).await.expect("in");
    let body = br#"{"room":"room","identity":"eve"}"#;
    server.call("RemoveParticipant", "application/json", &to_do_everything(), body).await;
    eve.send(Frame::Binary(ping().encode_to_vec().into())).await.expect("sent");
    while !matches!(next(&mut eve).await, Message::Leave(_)) {}
    ends(&mut eve).await;
}

#[tokio::test]
async fn a_client_that_ends_its_connection_is_answered() {
    let server = Server::start(|_| {}).await;
    let mut eve = server.connect(&format!("/rtc?access_token={}", to_join("eve"))).await.expect("in");
    next(&mut eve).await;
    next(&mut eve).await;
    eve.close(None).await.expect("sent");
    ends(&mut eve).await;
}

#[tokio::test]
async fn a_leave_counts_that_comes_when_nothing_can_be_sent_any_more() {
    let server = Server::start(|_| {}).await;
    let mut adam = server.connect(&format!("/rtc?access_token={}", to_join("adam"))).await.expect("in");
    let mut eve = server.connect(&format!("/rtc?access_token={}", to_join("eve"))).await.expect("in");
    next(&mut eve).await;
    next(&mut eve).await;
    let grant = VideoGrant { room_admin: true, room: "room".into(), ..VideoGrant::default() };
    // All of it at once, as far as the server's tasks can see: something for eve is there, she has left, and takes nothing.
    let request = UpdateRoomMetadataRequest { room: "room".into(), metadata: "news".into() };
    server.hub.admin(&grant, Admin::UpdateRoomMetadata(request)).expect("a room");
    let leave = SignalRequest { message: Some(Signal::Leave(LeaveRequest::default())) };
    eve.send(Frame::Binary(leave.encode_to_vec().into())).now_or_never().expect("room for it").expect("sent");
    let MaybeTlsStream::Plain(stream) = eve.into_inner() else { panic!("there is no TLS") };
    stream.set_zero_linger().expect("a socket");
    drop(stream);
    let reason = loop {
        let Message::Update(update) = next(&mut adam).await else { continue };
        let mut gone = update.participants.iter().filter(|info| info.state() == State::Disconnected);
        if let Some(info) = gone.find(|info| info.identity == "eve") {
            break info.disconnect_reason();
        }
    };
    assert_eq!(reason, DisconnectReason::ClientInitiated);
}

/// Who has left is counted nowhere, so only some may take their time to hear of it.
#[tokio::test]
async fn who_does_not_answer_the_end_is_not_waited_for_where_many_do_not() {
    let server = Server::start(|_| {}).await;
    let places = server.hub.parting.try_acquire_many(PARTING_MAX as u32).expect("nobody has left");
    let mut eve = server.connect(&format!("/rtc?access_token={}", to_join("eve"))).await.expect("in");
    let body = br#"{"room":"room","identity":"eve"}"#;
    server.call("RemoveParticipant", "application/json", &to_do_everything(), body).await;
    // All that comes is read from below the WebSocket, so no answer goes out.
    let mut rest = Vec::new();
    let end = eve.get_mut().read_to_end(&mut rest);
    tokio::time::timeout(PATIENCE, end).await.expect("in time").expect("in order");
    assert_eq!(rest[rest.len() - 2..], [0x88, 0], "a Close frame is last");
    drop(places);
    assert_eq!(server.hub.sizes().participants, 0);
}

#[tokio::test]
async fn why_somebody_is_not_let_in_is_told_to_pages_of_any_origin() {
    let server = Server::start(|settings| settings.auto_create = false).await;
    let cases = [
        ("/rtc/validate".to_owned(), "401"),
        ("/rtc/validate?access_token=forged".to_owned(), "401"),
        (format!("/rtc/validate?access_token={}", token("eve", VideoGrant::default())), "401"),
        (format!("/rtc/validate?access_token={}", to_join("eve")), "404"),
        (format!("/rtc/v1/validate?access_token={}", to_join("eve")), "400"),
        (format!("/rtc?access_token={}", to_join("eve")), "404"),
        ("/rtc/v7".to_owned(), "404"),
    ];
    for (path, status) in cases {
        let (head, body) = server.get(&path).await;
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{path}: {head}");
        assert!(head.contains("access-control-allow-origin: *"), "{path}: {head}");
        assert!(!body.is_empty(), "{path}");
    }
}

#[tokio::test]
async fn who_would_be_let_in_is_told_so() {
    let server = Server::start(|_| {}).await;
    let (head, body) = server.get(&format!("/rtc/validate?access_token={}", to_join("eve"))).await;
    assert!(head.starts_with("http/1.1 200") && body == "success");
    assert_eq!(server.hub.sizes().rooms, 0);
}

#[tokio::test]
async fn what_an_application_changes_is_a_line_and_what_it_asks_is_none() {
    let page = Page::default();
    let writer = page.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _writing = tracing::subscriber::set_default(subscriber);
    let server = Server::start(|_| {}).await;
    let (all, none) = (to_do_everything(), to_join("eve"));
    for (method, token, body) in [
        ("CreateRoom", &all, r#"{"name": "room"}"#),
        ("ListRooms", &all, "{}"),
        ("DeleteRoom", &none, r#"{"room": "room"}"#),
        ("RemoveParticipant", &all, r#"{"room": "room", "identity": "eve"}"#),
    ] {
        server.call(method, "application/json", token, body.as_bytes()).await;
    }
    let text = String::from_utf8(page.0.lock().expect("nobody panics").clone()).expect("text");
    let lines: Vec<&str> = text.lines().filter(|line| line.contains(" audit: ")).collect();
    let [made, removed] = lines[..] else { panic!("{text}") };
    assert!(made.ends_with(r#"action="CreateRoom" room="room" by="key" result=200"#), "{made}");
    let of_eve = r#"action="RemoveParticipant" room="room" participant="eve" by="key" result=404"#;
    assert!(removed.ends_with(of_eve), "{removed}");
}

#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Page {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("nobody panics").extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn other_keys_hold_for_who_comes_and_who_is_here_stays() {
    let server = Server::start(|_| {}).await;
    let mut eve = server.connect(&format!("/rtc?access_token={}", to_join("eve"))).await.expect("in");
    assert!(matches!(next(&mut eve).await, Message::Join(_)));
    server.hub.set_keys(keys("other"));
    assert_eq!(server.connect(&format!("/rtc?access_token={}", to_join("adam"))).await.err(), Some(401));
    eve.send(Frame::Binary(ping().encode_to_vec().into())).await.expect("sent");
    while !matches!(next(&mut eve).await, Message::PongResp(_)) {}
    let signed = server.hub.sign(Claims { exp: u64::MAX / 2, ..Claims::default() });
    assert!(server.hub.verify(&signed).is_ok_and(|claims| claims.iss == "other"));
}

#[tokio::test]
async fn an_address_with_a_slash_at_its_end_is_the_same() {
    let server = Server::start(|_| {}).await;
    let (head, _) = server.get(&format!("//rtc/validate?access_token={}", to_join("eve"))).await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let (path, token) = ("//twirp/livekit.RoomService/ListRooms", to_do_everything());
    let fields = format!("Content-Type: application/json\r\nAuthorization: Bearer {token}\r\n");
    let (head, _) = server.ask(&format!("POST {path} HTTP/1.1\r\n{fields}"), b"{}").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
}

#[tokio::test]
async fn a_page_of_another_origin_may_ask_beforehand() {
    let server = Server::start(|_| {}).await;
    let (head, _) = server.ask("OPTIONS /twirp/livekit.RoomService/ListRooms HTTP/1.1\r\n", b"").await;
    assert!(head.starts_with("http/1.1 204") && head.contains("access-control-allow-headers: authorization"));
}

#[tokio::test]
async fn more_connections_than_there_may_be_are_refused() {
    let server = Server::start(|settings| settings.connections_max = 1).await;
    let _eve = server.connect(&format!("/rtc?access_token={}", to_join("eve"))).await.expect("in");
    assert_eq!(server.connect(&format!("/rtc?access_token={}", to_join("adam"))).await.err(), Some(503));
}

#[tokio::test]
async fn a_server_that_takes_no_newcomers_says_so_and_keeps_those_it_has() {
    let takes = Arc::new(AtomicBool::new(true));
    let takes_newcomers = takes.clone();
    let server = Server::start_with(|_| {}, move || takes_newcomers.load(Ordering::Relaxed)).await;
    let mut eve = server.connect(&format!("/rtc?access_token={}", to_join("eve"))).await.expect("in");
    let Message::Join(join) = next(&mut eve).await else { panic!("she is told that she is in") };
    takes.store(false, Ordering::Relaxed);
    assert_eq!(server.connect(&format!("/rtc?access_token={}", to_join("adam"))).await.err(), Some(503));
    let (head, body) = server.get(&format!("/rtc/validate?access_token={}", to_join("adam"))).await;
    assert!(head.starts_with("http/1.1 503") && body == "the server is busy, or about to stop");
    let sid = join.participant.expect("herself").sid;
    let again = format!("/rtc?reconnect=1&sid={sid}&access_token={}", to_join("eve"));
    let mut eve = server.connect(&again).await.expect("in");
    assert!(matches!(next(&mut eve).await, Message::Reconnect(_)));
}

#[tokio::test]
async fn the_api_speaks_protobuf() {
    let server = Server::start(|_| {}).await;
    let request = CreateRoomRequest { name: "room".into(), metadata: "m".into(), ..CreateRoomRequest::default() };
    let (head, body) =
        server.call("CreateRoom", "application/protobuf", &to_do_everything(), &request.encode_to_vec()).await;
    assert!(head.starts_with("http/1.1 200") && head.contains("content-type: application/protobuf"), "{head}");
    assert_eq!(Room::decode(&*body).expect("a room").metadata, "m");
}

#[tokio::test]
async fn the_api_reads_json_in_either_style_and_writes_all_fields_as_the_proto_files_have_them() {
    let server = Server::start(|_| {}).await;
    for (name, number) in [("max_participants", 3), ("maxParticipants", 4)] {
        let request = json!({ "name": name, name: number }).to_string();
        let (_, body) = server.call("CreateRoom", "application/json", &to_do_everything(), request.as_bytes()).await;
        let room: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!((&room["max_participants"], &room["num_publishers"]), (&json!(number), &json!(0)));
        assert!(room["creation_time"].is_string());
    }
}

#[tokio::test]
async fn participants_are_listed_in_json() {
    let server = Server::start(|_| {}).await;
    let mut eve = server.connect(&format!("/rtc?access_token={}", to_join("eve"))).await.expect("in");
    next(&mut eve).await;
    let (_, body) =
        server.call("ListParticipants", "application/json", &to_do_everything(), br#"{"room":"room"}"#).await;
    let list: Value = serde_json::from_slice(&body).expect("JSON");
    let eve = &list["participants"][0];
    assert_eq!((&eve["identity"], &eve["state"], &eve["kind"]), (&json!("eve"), &json!("JOINED"), &json!("STANDARD")));
    assert_eq!(eve["permission"]["can_publish"], json!(true));
}

#[tokio::test]
async fn the_api_says_what_is_wrong_as_twirp_has_it() {
    let server = Server::start(|_| {}).await;
    let cases = [
        ("ListRooms", "text/plain", to_do_everything(), "", "404", "bad_route"),
        ("Nothing", "application/json", to_do_everything(), "{}", "404", "bad_route"),
        ("ListRooms", "application/json", to_do_everything(), "{", "400", "malformed"),
        ("ListRooms", "application/json", "forged".to_owned(), "{}", "401", "unauthenticated"),
        ("ListRooms", "application/json", to_join("eve"), "{}", "401", "unauthenticated"),
        ("DeleteRoom", "application/json", to_do_everything(), r#"{"room":"none"}"#, "404", "not_found"),
    ];
    for (method, media_type, token, body, status, code) in cases {
        let (head, answer) = server.call(method, media_type, &token, body.as_bytes()).await;
        let answer: Value = serde_json::from_slice(&answer).expect("JSON");
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{method} {body}: {head}");
        assert_eq!(answer["code"], code, "{method} {body}");
        assert!(answer["msg"].as_str().is_some_and(|message| !message.is_empty()));
    }
}

#[tokio::test]
async fn webhooks_are_signed_and_sent_again_when_they_are_not_taken() {
    let (sender, mut received) = mpsc::channel(100);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let url = format!("http://{}/hook", listener.local_addr().expect("bound"));
    let is_first = Arc::new(AtomicBool::new(true));
    let handler = move |headers: HeaderMap, body: Bytes| {
        let status = if is_first.swap(false, Ordering::Relaxed) { 503 } else { 200 };
        sender.try_send((headers, body)).expect("room");
        async move { StatusCode::from_u16(status).expect("a status") }
    };
    let router = axum::Router::new().route("/hook", post(handler));
    tokio::spawn(async move { axum::serve(listener, router).await });

    let server = Server::start(|settings| settings.webhook_urls = vec![url]).await;
    server.call("CreateRoom", "application/json", &to_do_everything(), br#"{"name":"room"}"#).await;
    let first = tokio::time::timeout(PATIENCE, received.recv()).await.expect("in time").expect("a webhook");
    let (headers, body) = tokio::time::timeout(PATIENCE, received.recv()).await.expect("in time").expect("a webhook");
    assert_eq!(first.1, body);
    let event: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!((&event["event"], &event["room"]["name"]), (&json!("room_started"), &json!("room")));
    let claims = server.hub.verify(headers["authorization"].to_str().expect("text")).expect("a token");
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &body);
    assert_eq!(claims.sha256, STANDARD.encode(digest));

    server.webhook_keys.set(keys("other"));
    server.call("DeleteRoom", "application/json", &to_do_everything(), br#"{"room":"room"}"#).await;
    let (headers, _) = tokio::time::timeout(PATIENCE, received.recv()).await.expect("in time").expect("a webhook");
    server.hub.set_keys(keys("other"));
    assert!(
        server.hub.verify(headers["authorization"].to_str().expect("text")).is_ok(),
        "it is signed with the other key"
    );
}

#[tokio::test]
async fn the_webhooks_of_one_room_come_in_order_and_wait_for_no_other_rooms() {
    let (sender, mut received) = mpsc::channel(100);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let url = format!("http://{}/hook", listener.local_addr().expect("bound"));
    let handler = move |body: Bytes| {
        let event: Value = serde_json::from_slice(&body).expect("JSON");
        let [event, room] =
            [&event["event"], &event["room"]["name"]].map(|text| text.as_str().expect("text").to_owned());
        let is_taken = room != "stuck";
        sender.try_send((event, room)).expect("room");
        async move { if is_taken { StatusCode::OK } else { std::future::pending().await } }
    };
    let router = axum::Router::new().route("/hook", post(handler));
    tokio::spawn(async move { axum::serve(listener, router).await });

    let server = Server::start(|settings| settings.webhook_urls = vec![url]).await;
    for room in ["stuck", "room"] {
        let body = format!(r#"{{"name":"{room}"}}"#);
        server.call("CreateRoom", "application/json", &to_do_everything(), body.as_bytes()).await;
        let body = format!(r#"{{"room":"{room}"}}"#);
        server.call("DeleteRoom", "application/json", &to_do_everything(), body.as_bytes()).await;
    }
    let mut came = Vec::new();
    while came.len() < 3 {
        came.push(tokio::time::timeout(PATIENCE, received.recv()).await.expect("in time").expect("a webhook"));
    }
    let of =
        |name| came.iter().filter(move |(_, room)| room == name).map(|(event, _)| event.as_str()).collect::<Vec<_>>();
    assert_eq!(of("room"), ["room_started", "room_finished"]);
    assert_eq!(of("stuck"), ["room_started"], "what is behind it waits");
}

#[tokio::test]
async fn a_client_that_never_reads_is_closed_and_nobody_else_notices() {
    let server = Server::start(|_| {}).await;
    let grant = VideoGrant { room_join: true, room: "room".into(), ..VideoGrant::default() };
    let slow = livekit::join::Join {
        claims: server.hub.verify(&token("slow", grant)).expect("a token"),
        ..livekit::join::Join::default()
    };
    // Nobody takes anything out of its queue.
    let (_connection, _outlet) = server.hub.join(slow).expect("in");
    let mut eve = server.connect(&format!("/rtc?access_token={}", to_join("eve"))).await.expect("in");
    next(&mut eve).await;
    let grant = VideoGrant { room_admin: true, room: "room".into(), ..VideoGrant::default() };
    for number in 0..=MESSAGES_MAX {
        let metadata = number.to_string();
        let request = UpdateRoomMetadataRequest { room: "room".into(), metadata: metadata.clone() };
        server.hub.admin(&grant, Admin::UpdateRoomMetadata(request)).expect("a room");
        let is_told = |message| match message {
            Message::RoomUpdate(update) => update.room.is_some_and(|room| room.metadata == metadata),
            _ => false,
        };
        while !is_told(next(&mut eve).await) {}
    }
    assert_eq!(server.hub.losses().0, 1);
    assert_eq!(server.hub.sizes().connections, 1);
}

#[tokio::test]
async fn who_is_too_slow_gets_nothing_of_what_waits() {
    for (is_slow, expected) in [(false, MESSAGES_MAX), (true, 0)] {
        let (inlet, mut outlet) = queue();
        while inlet.push(&Shared::new(Message::RefreshToken(String::new()))).is_ok() {}
        if is_slow {
            inlet.give_up()
        } else {
            drop(inlet)
        }
        let mut count = 0;
        while outlet.next().await.is_some() {
            count += 1;
        }
        assert_eq!(count, expected);
    }
}

#[tokio::test]
async fn a_queue_holds_so_many_bytes_and_at_least_one_message() {
    let (inlet, mut outlet) = queue();
    let long = || Shared::new(Message::RefreshToken("x".repeat(super::queue::BYTES_MAX)));
    assert!(inlet.push(&long()).is_ok());
    assert!(inlet.push(&long()).is_err());
    assert!(outlet.next().await.is_some());
    assert!(inlet.push(&long()).is_ok());
}
