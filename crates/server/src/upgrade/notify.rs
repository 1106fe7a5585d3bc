//! What systemd is told (sd_notify(3)).

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Tells whoever watches over the service, if there is such, that it is there.
pub(crate) fn tell_ready() {
    tell("READY=1\n");
}

/// The same, that another process is it from now on.
pub(crate) fn tell_main_process(id: u32) {
    tell(&format!("MAINPID={id}\nREADY=1\n"));
}

fn tell(text: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(path.as_bytes(), text) {
        tracing::warn!(%error, "NOTIFY_SOCKET");
    }
}

fn send(path: &[u8], text: &str) -> io::Result<()> {
    let addr = match path.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
    };
    UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &addr).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_with_a_name_and_one_with_a_path_are_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let by_path = UnixDatagram::bind(&path).expect("bound");
        let name = format!("millrace-test-{}", std::process::id());
        let by_name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).expect("a name")).expect("bound");
        let paths = [path.as_os_str().as_bytes().to_vec(), format!("@{name}").into_bytes()];
        for (path, socket) in paths.iter().zip([by_path, by_name]) {
            send(path, "MAINPID=7\n").expect("sent");
            let mut text = [0; 32];
            let len = socket.recv(&mut text).expect("it comes");
            assert_eq!(&text[..len], b"MAINPID=7\n");
        }
    }
}
