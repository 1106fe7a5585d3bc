//! Settings that change while the server runs.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::common::{Echo, Server, TurnClient, millrace};

/// A file of settings with this key, and what else it says.
fn write(file: &Path, key: char, rest: &str) {
    let secret: String = std::iter::repeat_n(key, 40).collect();
    fs::write(file, format!("[auth]\nhs256_secret = \"{secret}\"\n{rest}")).expect("written");
}

/// The header of an admin, by the key that the file has now.
fn admin(file: &Path) -> String {
    let made = millrace().args(["token", "--admin", "--config"]).arg(file).output().expect("it runs");
    assert!(made.status.success(), "{made:?}");
    format!("Authorization: Bearer {}", String::from_utf8(made.stdout).expect("text").trim())
}

#[test]
fn what_can_change_does_at_once_and_what_cannot_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("millrace.toml");
    write(&file, 'a', "");
    let path = file.to_str().expect("text");
    let server = Server::start_with_keys(&["--config", path], &[]);
    let old = admin(&file);
    let reload = |token: &str| server.ask("POST", "/api/admin/reload", &[token], "");
    let said = |answer: crate::common::Answer| -> Value {
        assert_eq!(answer.status, 200, "{}", answer.body);
        serde_json::from_str(&answer.body).expect("JSON")
    };
    assert_eq!(said(reload(&old)), json!({"taken": [], "restart": []}), "nothing has changed");

    // Something is wrong: all stays as it was.
    let twice = "[[reflect.streams]]\nname = \"a\"\n".repeat(2);
    for rest in ["[rooms]\nviewers_per_stream = 0\n", "eddsa_public_key = \"none\"\n", "[nothing]\n", &twice] {
        write(&file, 'b', rest);
        let answer = reload(&old);
        assert_eq!(answer.status, 422, "{rest}: {}", answer.body);
        assert!(answer.body.contains("detail"), "it says what: {}", answer.body);
    }

    write(&file, 'b', "[rooms]\nviewers_per_stream = 3\ngather = \"7ms\"\n[workers]\npatience = \"30ms\"\n");
    let new = admin(&file);
    assert_eq!(reload(&new).status, 401, "its key is not known yet");
    let taken = json!(["auth", "rooms.viewers_per_stream"]);
    let restart = json!(["workers.patience", "rooms.gather"]);
    assert_eq!(said(reload(&old)), json!({"taken": taken, "restart": restart}));
    assert_eq!(reload(&old).status, 401, "its key is not known any more");
    assert_eq!(said(reload(&new)), json!({"taken": [], "restart": restart}), "it still takes a restart");
    assert_eq!(server.ask("POST", "/api/admin/reload", &[], "").status, 401);
}

/// What the relay, the pump and LiveKit's rooms let in; who is there keeps what may still be.
#[test]
fn who_and_what_is_let_in_changes_while_others_are_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("millrace.toml");
    let relay = "[relay]\nlisten = [\"127.0.0.1:0\"]\nusers = [\"alice:open-sesame\"]\n";
    let rooms = |key: &str| format!("[livekit]\nkeys = [\"{key}: {}\"]\n", "s".repeat(40));
    let settings = |limits: &str, key: &str, others: &str| format!("{relay}{limits}{}{others}", rooms(key));
    let before = settings("allowed_peers = [\"127.0.0.0/8\"]\n", "first", "[pump]\ndestinations = [\"127.0.0.0/8\"]\n");
    write(&file, 'a', &before);
    let server = Server::start_with_keys(&["--config", file.to_str().expect("text")], &[]);
    let token = admin(&file);
    let get =
        |path: &str| -> Value { serde_json::from_str(&server.ask("GET", path, &[&token], "").body).expect("JSON") };
    let reload = || server.ask("POST", "/api/admin/reload", &[&token], "");
    let joins = |by: &str| server.ask("GET", &format!("/rtc/validate?access_token={by}"), &[], "").status;
    let to_room = || {
        let made = millrace().args(["token", "--room", "r", "--identity", "eve", "--config"]).arg(&file).output();
        String::from_utf8(made.expect("it runs").stdout).expect("text").trim().to_owned()
    };
    let send = r#"{"title": "none.ts", "destination": "udp://127.0.0.1:9"}"#;
    let plays = || {
        let json = "Content-Type: application/json";
        server.ask("POST", "/pump/sessions", &[&token, json], send).status
    };

    let echo = Echo::start();
    let at = get("/api/relay")["listen"][0].as_str().and_then(|addr| addr.parse().ok()).expect("an address");
    let mut client = TurnClient::new(at);
    client.allocate();
    assert_eq!(client.bind(0x4000, echo.addr), 0);
    client.echo_on(0x4000, b"before");
    let first = to_room();
    assert_eq!((joins(&first), plays()), (200, 404), "there is no such title, but it may go there");

    // One thing is wrong, and none of the others holds.
    let limits = "denied_peers = [\"127.0.0.0/8\"]\nallocations_per_user = 1\n";
    for wrong in ["[reflect]\naccess_log = \"/none/at/all\"\n", "[pump]\nburst = 0\n"] {
        write(&file, 'b', &settings(limits, "second", wrong));
        assert_eq!(reload().status, 422, "{wrong}");
    }
    assert_eq!((joins(&first), plays()), (200, 404));
    client.echo_on(0x4000, b"still");

    write(&file, 'a', &settings(limits, "second", "[pump]\ndestinations = []\n"));
    let answer = reload();
    let said: Value = serde_json::from_str(&answer.body).expect("JSON");
    let taken = [
        "livekit.keys",
        "pump.destinations",
        "relay.allocations_per_user",
        "relay.allowed_peers",
        "relay.denied_peers",
    ];
    assert_eq!((answer.status, said), (200, json!({"taken": taken, "restart": []})));
    assert_eq!((joins(&first), joins(&to_room()), plays()), (401, 200, 403));
    let allocations = get("/api/relay/allocations");
    let id = allocations[0]["id"].as_str().expect("it is still there");
    assert_eq!((&allocations[0]["permissions"], &allocations[0]["channels"]), (&json!(0), &json!(0)));
    let story = get(&format!("/api/relay/allocations/{id}/story"));
    let denied = story["events"].as_array().and_then(|all| all.iter().find(|event| event["event"] == "denied"));
    assert_eq!(
        denied.map(|event| (&event["permissions"], &event["channels"])),
        Some((&json!(1), &json!(1))),
        "{story}"
    );
    assert_eq!((client.permit(echo.addr), client.refresh(600).code), (403, 0));
    assert_eq!(TurnClient::new(at).ask_for_allocation().code, 486, "she has one");
}
