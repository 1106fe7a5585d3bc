//! What became of a session is told while it lasts, and afterwards.

use serde_json::Value;

use crate::common::{Publisher, Server, Viewer, Way, wait_until};

#[test]
fn what_became_of_a_viewer_is_told_while_it_watches_and_when_it_is_gone() {
    let server = Server::start(&[]);
    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let mut viewer = Viewer::join(&server, "news", Way::Udp4);
    publisher.play(&mut [&mut viewer], 100);
    let get = |path: &str| -> Value {
        let answer = server.ask("GET", path, &[], "");
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        serde_json::from_str(&answer.body).expect("JSON")
    };
    let sessions = get("/api/sessions");
    let id = |role: &str| {
        let session = sessions.as_array().and_then(|all| all.iter().find(|session| session["role"] == role));
        session.and_then(|session| session["id"].as_str()).expect("it is there").to_owned()
    };
    let (of_viewer, of_publisher) =
        (format!("/api/sessions/{}/story", id("viewer")), format!("/api/sessions/{}/story", id("publisher")));
    let names = |path: &str| {
        let events = get(path)["events"].as_array().expect("a list").clone();
        events.iter().map(|event| event["event"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };

    wait_until("its first second is over", || {
        publisher.play(&mut [&mut viewer], 10);
        names(&of_viewer).contains(&"layer".to_owned()) && names(&of_publisher).contains(&"sends".to_owned())
    });
    let told = get(&of_viewer);
    assert_eq!((&told["stream"], &told["role"], &told["ended"]), (&"news".into(), &"viewer".into(), &Value::Null));
    let [path, ..] = &told["events"].as_array().expect("a list")[..] else { panic!("{told}") };
    assert_eq!((&path["event"], &path["protocol"]), (&"path".into(), &"udp".into()));
    let layer = told["events"].as_array().and_then(|all| all.iter().find(|event| event["event"] == "layer"));
    let layer = layer.expect("it has a picture");
    assert_eq!((&layer["from"], &layer["to"], &layer["why"]), (&Value::Null, &0.into(), &"begins".into()));
    assert!(layer["at"].as_f64() >= path["at"].as_f64(), "{told}");

    // Its picture stands still, as nothing comes.
    wait_until("that is noted", || {
        publisher.listen();
        viewer.pump();
        names(&of_viewer).contains(&"freeze".to_owned())
    });
    let told = get(&of_viewer);
    let freeze = told["events"].as_array().and_then(|all| all.iter().find(|event| event["event"] == "freeze"));
    assert_eq!(freeze.expect("it is there")["cause"], "publisher");

    viewer.client.leave(&server);
    wait_until("its worker has told all of it", || {
        let told = get(&of_viewer);
        told["ended"]["why"] == "asked" && names(&of_viewer).contains(&"freeze".to_owned())
    });
    let ended = get("/api/sessions/ended?stream=news");
    assert_eq!(ended.as_array().map(Vec::len), Some(1), "{ended}");
    assert_eq!((&ended[0]["session"], &ended[0]["ended"]["why"]), (&id("viewer").into(), &"asked".into()));
    assert_eq!(get("/api/sessions/ended?stream=other"), Value::Array(Vec::new()));
    assert_eq!(server.ask("GET", "/api/sessions/4711/story", &[], "").status, 404);
}
