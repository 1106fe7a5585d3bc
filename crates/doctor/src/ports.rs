//! Whether addresses that the server listens on are to be had.

use std::io::ErrorKind;

use crate::host::holders::Holder;
use crate::{Finding, Listen, Severity};

/// What a server of our own is called.
const OURS: &str = "millrace";

/// Looks at what came of binding an address for a moment, and who holds it, if that is known.
pub fn port(listen: &Listen, bound: Result<(), ErrorKind>, holder: Option<&Holder>) -> Finding {
    let Listen { setting, is_udp, addr, .. } = listen;
    let ss = || Some(format!("ss -{}lnp 'sport = :{}'", if *is_udp { "u" } else { "t" }, addr.port()));
    let (severity, says, mend) = match (bound, holder) {
        (Ok(()), _) => (Severity::Ok, "is free".to_owned(), None),
        (Err(ErrorKind::AddrInUse), Some(Holder { process: Some((pid, name)) })) => (
            Severity::Fault,
            format!("is taken by {name}, process {pid}"),
            Some(format!("stop {name}, or change {setting}")),
        ),
        // With capabilities that we lack: it may be the server that is asked about.
        (Err(ErrorKind::AddrInUse), Some(Holder { process: None })) => {
            (Severity::Note, "is taken by a process of this user, which may not be looked at".to_owned(), ss())
        }
        (Err(ErrorKind::AddrInUse), None) => (Severity::Fault, "is taken".to_owned(), ss()),
        (Err(ErrorKind::PermissionDenied), _) => {
            let mend = "setcap cap_net_bind_service=+ep $(readlink -f $(command -v millrace)), or with systemd: \
                        AmbientCapabilities=CAP_NET_BIND_SERVICE";
            (Severity::Fault, "is not allowed to this user".to_owned(), Some(mend.to_owned()))
        }
        (Err(ErrorKind::AddrNotAvailable), _) => {
            (Severity::Fault, "is none of this host's".to_owned(), Some("ip address".to_owned()))
        }
        (Err(_), _) => (Severity::Note, "could not be tried".to_owned(), None),
    };
    let protocol = if *is_udp { "UDP" } else { "TCP" };
    let answer = bound.map_or_else(|kind| kind.to_string(), |()| "done".to_owned());
    let (says, seen) = (format!("{setting}: {addr} {says}"), format!("bind({protocol} {addr}): {answer}"));
    Finding { check: "ports", severity, says, seen, mend }
}

/// Whether that is a server of our own.
pub fn is_ours(holder: &Holder) -> bool {
    holder.process.as_ref().is_some_and(|(_, name)| name.starts_with(OURS))
}

/// What is to be said of the addresses that servers of our own hold, if there are any: one that runs may be the one that is asked
/// about.
pub fn held(all: &[(&Listen, Holder)]) -> Option<Finding> {
    let ((listen, holder), others) = all.split_first()?;
    let (pid, _) = holder.process.as_ref()?;
    let others = match others.len() {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    let says = format!("{}: {}{others}: held by a millrace that runs", listen.setting, listen.addr);
    let seen = format!("bind: {}; /proc/{pid}/fd", ErrorKind::AddrInUse);
    Some(Finding { check: "ports", severity: Severity::Note, says, seen, mend: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTEN: Listen = Listen {
        setting: "http.listen",
        is_udp: false,
        addr: std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 80),
        only_v6: false,
    };

    #[test]
    fn an_address_that_cannot_be_had_is_a_fault() {
        let at = |bound| port(&LISTEN, bound, None).severity;
        assert_eq!(at(Ok(())), Severity::Ok);
        for kind in [ErrorKind::AddrInUse, ErrorKind::PermissionDenied, ErrorKind::AddrNotAvailable] {
            assert_eq!(at(Err(kind)), Severity::Fault, "{kind}");
        }
        assert_eq!(at(Err(ErrorKind::Other)), Severity::Note);
    }

    fn holder(name: &str) -> Holder {
        Holder { process: Some((7, name.to_owned())) }
    }

    #[test]
    fn who_holds_it_is_named() {
        let taken = port(&LISTEN, Err(ErrorKind::AddrInUse), Some(&holder("nginx")));
        assert_eq!(taken.says, "http.listen: 127.0.0.1:80 is taken by nginx, process 7");
        assert_eq!(
            (taken.severity, taken.mend.as_deref()),
            (Severity::Fault, Some("stop nginx, or change http.listen"))
        );
        let hidden = port(&LISTEN, Err(ErrorKind::AddrInUse), Some(&Holder { process: None }));
        assert_eq!(hidden.severity, Severity::Note);
    }

    #[test]
    fn a_server_of_our_own_may_hold_them() {
        assert!(is_ours(&holder("millrace")) && is_ours(&holder("millrace-0.9")) && !is_ours(&holder("nginx")));
        assert_eq!(held(&[]), None);
        let held = held(&[(&LISTEN, holder("millrace")), (&LISTEN, holder("millrace"))]).expect("there are two");
        assert_eq!(held.says, "http.listen: 127.0.0.1:80 and 1 more: held by a millrace that runs");
        assert_eq!(held.severity, Severity::Note);
    }
}
