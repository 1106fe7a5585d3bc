//! Settings that change while the server runs.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::common::{Server, millrace};

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
