//! Whether addresses that the server listens on are to be had.

use std::io::ErrorKind;
use std::net::SocketAddr;

use crate::{Finding, Severity};

/// Looks at what came of binding an address for a moment, by the setting that names it.
pub fn port(setting: &str, protocol: &str, addr: SocketAddr, bound: Result<(), ErrorKind>) -> Finding {
    let (severity, says, mend) = match bound {
        Ok(()) => (Severity::Ok, "is free", None),
        Err(ErrorKind::AddrInUse) => {
            (Severity::Fault, "is taken, perhaps by this server", Some(format!("ss -lnp 'sport = :{}'", addr.port())))
        }
        Err(ErrorKind::PermissionDenied) => {
            let mend =
                "setcap cap_net_bind_service=+ep millrace; with systemd: AmbientCapabilities=CAP_NET_BIND_SERVICE";
            (Severity::Fault, "is not allowed to this user", Some(mend.to_owned()))
        }
        Err(ErrorKind::AddrNotAvailable) => (Severity::Fault, "is none of this host's", Some("ip address".to_owned())),
        Err(_) => (Severity::Note, "could not be tried", None),
    };
    let seen =
        format!("bind({protocol} {addr}): {}", bound.map_or_else(|kind| kind.to_string(), |()| "done".to_owned()));
    Finding { check: "ports", severity, says: format!("{setting}: {addr} {says}"), seen, mend }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_had_is_a_fault() {
        let at = |bound| port("http.listen", "TCP", SocketAddr::from(([192, 0, 2, 1], 80)), bound).severity;
        assert_eq!(at(Ok(())), Severity::Ok);
        for kind in [ErrorKind::AddrInUse, ErrorKind::PermissionDenied, ErrorKind::AddrNotAvailable] {
            assert_eq!(at(Err(kind)), Severity::Fault, "{kind}");
        }
        assert_eq!(at(Err(ErrorKind::Other)), Severity::Note);
    }
}
