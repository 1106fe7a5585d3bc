//! WHIP into LiveKit's rooms, and WHEP out of them.

use std::time::{SystemTime, UNIX_EPOCH};

use livekit::token::{Claims, Keys, VideoGrant};
use serde_json::{Value, json};

use crate::common::{Publisher, Server, Viewer, Way, restart_from_another_address, wait_until};

#[test]
fn a_publisher_by_whip_is_a_participant_of_whom_viewers_by_whep_get_every_packet() {
    let server = Server::start(&[]);
    let mut publisher = Publisher::join(&server, "meeting/camera", Way::Udp4, 1);
    let mut viewers = [(); 4].map(|()| Viewer::join(&server, "meeting/camera", Way::Udp4));
    let mut all: Vec<&mut Viewer> = viewers.iter_mut().collect();

    publisher.play(&mut all, 300);
    restart_from_another_address(&server, &mut publisher.client);
    publisher.play(&mut all, 300);
    // What came from the new address before it was nominated is not taken, but asked for again.
    publisher.finish_with_repairs(&mut all);

    viewers.iter().for_each(|viewer| viewer.assert_whole(0, &publisher));
    let members = participants(&server, "meeting");
    let camera = members.iter().find(|member| member["identity"] == "camera").expect("it is a participant");
    assert_eq!(
        (&camera["kind"], &camera["state"], &camera["is_publisher"]),
        (&json!("INGRESS"), &json!("ACTIVE"), &json!(true))
    );
    let track = &camera["tracks"][0];
    assert_eq!((&track["source"], &track["mime_type"]), (&json!("CAMERA"), &json!("video/VP8")));
    let hidden = members.iter().filter(|member| member["permission"]["hidden"] == true);
    assert_eq!((hidden.count(), members.len()), (4, 5), "nobody sees who watches so");
    let stats = server.ask("GET", &format!("{}/stats", viewers[0].client.resource), &[], "").body;
    assert_eq!(serde_json::from_str::<Value>(&stats).expect("JSON")["connected"], true);
}

#[test]
fn who_is_removed_from_the_room_is_told_and_so_are_its_viewers() {
    let server = Server::start(&[]);
    let mut publisher = Publisher::join(&server, "meeting/camera", Way::Udp4, 1);
    let mut viewer = Viewer::join(&server, "meeting/camera", Way::Udp4);
    publisher.play(&mut [&mut viewer], 50);

    call(&server, "RemoveParticipant", "meeting", &json!({ "room": "meeting", "identity": "camera" }));

    wait_until("both are told", || {
        publisher.listen();
        viewer.pump();
        publisher.client.has_ended && viewer.client.has_ended
    });
    wait_until("nobody is left", || participants(&server, "meeting").is_empty());
    for path in [&publisher.client.resource, &viewer.client.resource] {
        wait_until("their resources are gone", || server.ask("DELETE", path, &[], "").status == 404);
    }
}

#[test]
fn who_deletes_its_resource_has_left_the_room() {
    let server = Server::start(&[]);
    let mut publisher = Publisher::join(&server, "meeting/camera", Way::Udp4, 1);
    let mut one = Viewer::join(&server, "meeting/camera", Way::Udp4);
    let mut other = Viewer::join(&server, "meeting/camera", Way::Udp4);
    publisher.play(&mut [&mut one, &mut other], 50);

    one.client.leave(&server);
    wait_until("goodbye is said", || {
        one.pump();
        one.client.has_ended
    });
    assert_eq!(server.ask("DELETE", &one.client.resource, &[], "").status, 404);
    publisher.play(&mut [&mut other], 50);
    publisher.client.leave(&server);

    wait_until("who is left is told", || {
        publisher.listen();
        other.pump();
        publisher.client.has_ended && other.client.has_ended
    });
    wait_until("nobody is left", || participants(&server, "meeting").is_empty());
    // What became of them is told afterwards.
    let ask = |path: &str| -> Value {
        let answer = server.ask("GET", path, &[], "");
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        serde_json::from_str(&answer.body).expect("JSON")
    };
    wait_until("their workers have told all", || {
        let ended = ask("/api/sessions/ended?stream=meeting");
        let ended = ended.as_array().expect("a list");
        let camera = ended.iter().find(|session| session["subject"] == "camera").expect("it is known");
        assert_eq!(
            (ended.len(), &camera["role"], &camera["ended"]["why"]),
            (3, &json!("participant"), &json!("asked"))
        );
        let story = ask(&format!("/api/sessions/{}/story", camera["session"].as_str().expect("a text")));
        story["events"][0]["event"] == "path"
    });
}

#[test]
fn what_cannot_be_watched_is_not_found() {
    let server = Server::start(&[]);
    let _publisher = Publisher::join(&server, "meeting/camera", Way::Udp4, 1);
    let sdp = "Content-Type: application/sdp";
    for path in ["/whep/meeting/nobody", "/whep/nowhere/camera", "/whep/meeting/camera?track=microphone"] {
        let answer = server.ask("POST", path, &[sdp], "v=0\r\n");
        assert_eq!(answer.status, 404, "{path}: {}", answer.body);
    }
    for path in ["/whip/meeting/other", "/whep/meeting/camera"] {
        let answer = server.ask("POST", path, &[sdp], "v=0\r\n");
        assert_eq!(answer.status, 400, "{path}: {}", answer.body);
    }
    assert_eq!(participants(&server, "meeting").len(), 1, "what is no offer lets nobody in");
}

fn participants(server: &Server, room: &str) -> Vec<Value> {
    let answer = call(server, "ListParticipants", room, &json!({ "room": room }));
    answer["participants"].as_array().cloned().unwrap_or_default()
}

/// Calls a method of RoomService, as an admin of the room.
fn call(server: &Server, method: &str, room: &str, request: &Value) -> Value {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).expect("later").as_secs();
    let video = VideoGrant { room_admin: true, room: room.to_owned(), ..VideoGrant::default() };
    let keys = Keys::new([("devkey".to_owned(), "secret".to_owned())]).expect("a key");
    let token = keys.sign(Claims { exp: unix + 600, video: Some(video), ..Claims::default() });
    let headers = ["Content-Type: application/json", &format!("Authorization: Bearer {token}")];
    let path = format!("/twirp/livekit.RoomService/{method}");
    serde_json::from_str(&server.ask("POST", &path, &headers, &request.to_string()).body).expect("JSON")
}
