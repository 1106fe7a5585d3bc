//! Who is let into LiveKit's rooms by WHIP, and out of them by WHEP.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use livekit::token::{Claims, Keys, VideoGrant};
use server::auth::{self, Auth, Rights, SigningKey, mint};
use server::config::{self, Secret};
use server::http::{App, router};
use server::livekit::control::Control;
use server::livekit::ice::IceServers;
use server::livekit::{self as rooms, Settings};
use server::plane::workers::Workers;
use server::plane::{Plane, placement};
use server::rooms::control::RoomsControl;
use server::rooms::directory;
use tower::ServiceExt as _;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A server without a worker, so who is let in is told that it is busy, or what is wrong with the offer.
fn service() -> Router {
    let plane = Plane::new(Workers::new(Vec::new()), placement::Settings { busy_max: 1.0, near_max: 0.0 });
    let control = Arc::new(RoomsControl::new(plane, Vec::new(), directory::Settings::default()));
    let settings = rooms::Settings { keys: vec![("key".to_owned(), "secret".to_owned())], ..Settings::default() };
    let livekit = Control::start(control.clone(), &settings, 10, IceServers::default()).expect("a key");
    let keys = config::Auth { hs256_secret: Some(Secret(SECRET.to_owned())), ..config::Auth::default() };
    let app = App { livekit: Some(livekit), ..App::new(control, Auth::new(&keys).expect("a key")) };
    router(Arc::new(app))
}

async fn post(service: &Router, path: &str, token: &str) -> StatusCode {
    let request = Request::post(path).header("content-type", "application/sdp");
    let request = if token.is_empty() { request } else { request.header("authorization", format!("Bearer {token}")) };
    let request = request.body(Body::from("v=0\r\n")).expect("a request");
    service.clone().oneshot(request).await.expect("an answer").status()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("later").as_secs()
}

fn of_livekit(identity: &str, room: &str, change: impl FnOnce(&mut VideoGrant)) -> String {
    let mut video = VideoGrant { room_join: true, room: room.to_owned(), ..VideoGrant::default() };
    change(&mut video);
    let keys = Keys::new([("key".to_owned(), "secret".to_owned())]).expect("a key");
    keys.sign(Claims { sub: identity.to_owned(), exp: now() + 60, video: Some(video), ..Claims::default() })
}

fn ours(publish: &[&str], watch: &[&str], admin: bool) -> String {
    let [publish, watch] = [publish, watch].map(|names| names.iter().map(|name| (*name).to_owned()).collect());
    let millrace = Rights { publish, watch, admin };
    let claims = auth::Claims { exp: now() + 60, millrace, ..auth::Claims::default() };
    mint(&claims, SigningKey::Hs256(SECRET)).expect("signed")
}

#[tokio::test]
async fn a_token_of_livekit_s_is_for_its_room_and_its_identity() {
    let service = service();
    let eve = |change: fn(&mut VideoGrant)| of_livekit("eve", "room", change);
    let forged = eve(|_| {}).replace('.', ".A").replacen(".A", ".", 1);
    let cases = [
        ("/whip/room/eve", String::new(), 401),
        ("/whip/room/eve", forged, 401),
        ("/whip/room/eve", eve(|_| {}), 400),
        ("/whip/room/adam", eve(|_| {}), 403),
        ("/whip/other/eve", eve(|_| {}), 403),
        ("/whip/room/eve", eve(|video| video.room_join = false), 403),
        ("/whip/room/eve", eve(|video| video.can_publish = Some(false)), 403),
        ("/whep/room/adam", eve(|_| {}), 404),
        ("/whep/other/adam", eve(|_| {}), 403),
        ("/whep/room/adam", eve(|video| video.can_subscribe = Some(false)), 403),
        ("/whip/stream", eve(|_| {}), 401),
    ];
    for (path, token, status) in cases {
        assert_eq!(post(&service, path, &token).await.as_u16(), status, "{path} {token}");
    }
}

#[tokio::test]
async fn a_token_of_ours_names_rooms_and_who_is_in_them() {
    let service = service();
    let cases = [
        ("/whip/room/cam-1", ours(&["room/cam-*"], &[], false), 400),
        ("/whip/room/eve", ours(&["room/cam-*"], &[], false), 403),
        ("/whip/other/cam-1", ours(&["room/cam-*"], &[], false), 403),
        ("/whip/room/cam-1", ours(&["*", "room*", "room/"], &["*/*"], false), 403),
        ("/whip/room/cam-1", ours(&[], &[], true), 400),
        ("/whep/room/cam-1", ours(&[], &["*/*"], false), 404),
        ("/whep/room/cam-1", ours(&["*/cam-1"], &[], false), 404),
        ("/whep/room/cam-1", ours(&["*"], &["*"], false), 403),
    ];
    for (path, token, status) in cases {
        assert_eq!(post(&service, path, &token).await.as_u16(), status, "{path} {token}");
    }
}
