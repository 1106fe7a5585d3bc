//! Who may watch a reflected stream, and what the access log says of him.

use std::fs;
use std::process::Command;

use crate::common::{Server, millrace, wait_until};
use crate::reflect::{Pusher, Viewer, shown, stream};

const KEYS: &str = "reflect.url_keys=a key that is long enough for whoever checks";

/// As `millrace sign` has it.
fn sign(url: &str, more: &[&str]) -> String {
    let output = millrace().args(["sign", "--set", KEYS, url]).args(more).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

#[test]
fn who_has_a_signed_address_watches_and_is_in_the_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let (log, moved) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
    let server = Server::start(&["reflect.streams=x", KEYS, &format!("reflect.access_log={}", log.display())]);
    let bytes = stream(2_000, 50);
    let mut pusher = Pusher::begin(&server, "x", &[]);
    pusher.push(&bytes);
    wait_until("it is known what it is", || !shown(&server, "x")["content_type"].is_null());

    let status = |path: &str| server.ask("HEAD", path, &[], "").status;
    let signed = sign("/live/x?join=newest", &[]);
    assert_eq!(
        (status(&signed), status("/live/x"), status(&sign("/live/y", &[]).replace("/y?", "/x?"))),
        (200, 403, 403)
    );
    assert_eq!(status(&sign("/live/x", &["--client", "127.0.0.0/8"])), 200);
    assert_eq!(status(&sign("/live/x", &["--client", "192.0.2.7"])), 403);
    assert_eq!(status("/live/x?expires=1"), 400);
    assert_eq!(server.ask("GET", "/live/x", &[], "").status, 403);

    let lines = |file| fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect::<Vec<_>>();
    let name = signed.strip_prefix("/live/").expect("its path");
    let agent = ["User-Agent: a \"player\"", "Referer: https://a.example/"];
    for (number, is_second) in [false, true].into_iter().enumerate() {
        drop(Viewer::begin_with(&server, name, is_second, &agent));
        wait_until("his line", || lines(&log).len() == number + 1);
    }
    for line in lines(&log) {
        assert!(line.starts_with("127.0.0.1 - - [") && line.contains("] \"GET /live/x?join=newest&expires="), "{line}");
        assert!(line.contains("&signature=- HTTP/1.1\" 200 "), "{line}");
        assert!(
            line.contains("\"https://a.example/\" \"a \\x22player\\x22\" ") && line.ends_with(" 0 closed"),
            "{line}"
        );
    }

    fs::rename(&log, &moved).expect("moved");
    let pid = server.pid().to_string();
    assert!(Command::new("kill").args(["-s", "HUP", &pid]).status().expect("kill runs").success());
    wait_until("it is there again", || log.exists());
    drop(Viewer::begin(&server, name, false));
    wait_until("his line", || lines(&log).len() == 1);
    assert_eq!((lines(&moved).len(), pusher.end()), (2, 204));
}

#[test]
fn what_the_kernel_has_not_is_refused_at_the_start() {
    let output = millrace().args(["serve", "--dev", "--set", "reflect.congestion=no_such"]).output().expect("it runs");
    let says = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{says}");
    assert!(
        says.contains("congestion control \"no_such\"") && says.contains("tcp_available_congestion_control"),
        "{says}"
    );
}

#[test]
fn a_configuration_of_cubemap_becomes_one_that_check_takes() {
    let folder = tempfile::tempdir().expect("a folder");
    let [theirs, ours] = ["cubemap.config", "millrace.toml"].map(|name| folder.path().join(name).display().to_string());
    fs::write(&theirs, "num_servers 2\nport 9094\nstream /a.ts src=http://127.0.0.1:9/a.ts\ndaemonize\n")
        .expect("written");
    let imported = millrace().args(["import", "cubemap", &theirs]).output().expect("it runs");
    fs::write(&ours, &imported.stdout).expect("written");
    let notes = String::from_utf8_lossy(&imported.stderr).into_owned();
    assert!(notes.starts_with(&format!("{theirs}:4: daemonize: ")) && notes.lines().count() == 1, "{notes}");
    let checked = millrace().args(["check", &ours]).output().expect("it runs");
    let [printed, says] = [&checked.stdout, &checked.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(checked.status.success() && printed.contains("/a.ts"), "{printed}{says}");
}
