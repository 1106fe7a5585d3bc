//! What systemd is told of the service (sd_notify(3)).

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use crate::common::{Service, millrace};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is told where nobody reflects a stream.
const READY: &str = "READY=1\nSTATUS=restart for a new version: no stream is reflected\n";

/// A service and what it tells.
struct Watched {
    service: Service,
    socket: UnixDatagram,
    _folder: tempfile::TempDir,
}

impl Watched {
    fn start(watchdog_usec: Option<&str>, settings: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time");
        let mut command = millrace();
        command.env("NOTIFY_SOCKET", &path);
        if let Some(usec) = watchdog_usec {
            command.env("WATCHDOG_USEC", usec);
        }
        Watched { service: Service::start_as(command, &[], settings), socket, _folder: folder }
    }

    fn told(&self) -> String {
        let mut text = [0; 128];
        let len = self.socket.recv(&mut text).expect("it tells");
        String::from_utf8_lossy(&text[..len]).into_owned()
    }
}

#[test]
fn it_is_told_of_the_start_a_reload_and_the_end() {
    let watched = Watched::start(None, &[]);
    assert_eq!(watched.told(), READY);
    watched.service.tell("HUP");
    let reloading = watched.told();
    let at = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").and_then(|at| at.trim_end().parse::<u64>().ok());
    assert!(at.is_some_and(|at| at > 0), "{reloading:?}");
    assert_eq!(watched.told(), READY);
    watched.service.tell("TERM");
    assert_eq!(watched.told(), "STOPPING=1\n");
}

#[test]
fn who_asks_for_a_sign_of_life_gets_one_again_and_again() {
    let watched = Watched::start(Some("1000000"), &[]);
    let told: Vec<String> = (0..5).map(|_| watched.told()).collect();
    assert_eq!(told.iter().filter(|text| *text == READY).count(), 1, "{told:?}");
    assert_eq!(told.iter().filter(|text| *text == "WATCHDOG=1\n").count(), 4, "{told:?}");
}

#[test]
fn its_status_says_how_a_new_version_comes_to_run() {
    let stream = "reflect.streams=x";
    let status = |settings: &[&str]| Watched::start(None, settings).told();
    assert_eq!(status(&[stream]), "READY=1\nSTATUS=SIGUSR2 has a new version take over\n");
    let with_relay = status(&[stream, "relay.listen=127.0.0.1:0", "relay.users=u:password"]);
    assert!(with_relay.starts_with("READY=1\nSTATUS=restart for a new version: there is a relay"), "{with_relay:?}");
}
