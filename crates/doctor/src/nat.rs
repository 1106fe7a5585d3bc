//! Whether clients find the host where they are told.

use std::net::IpAddr;

use crate::host::stun::Mapped;
use crate::{Finding, Severity};

/// Looks at what a STUN server has seen of this host, which has the addresses `own`, and tells clients of `public` in their
/// place if there are any.
pub fn nat(server: &str, mapped: Result<Mapped, String>, own: &[IpAddr], public: &[IpAddr]) -> Finding {
    let (severity, says, seen, mend) = match mapped {
        Err(why) => (
            Severity::Warning,
            format!("{server} does not answer by UDP, or is not found"),
            why,
            Some("let UDP through the firewall, or ask another STUN server".to_owned()),
        ),
        Ok(mapped) => {
            let ip = mapped.seen.ip();
            let told = if public.is_empty() { own } else { public };
            let is_moved = mapped.is_media_port && mapped.seen.port() != mapped.local.port();
            let all = public.iter().chain([&ip]).map(|ip| format!("\"{ip}\"")).collect::<Vec<_>>().join(", ");
            let seen = format!("{} is seen as {}", mapped.local, mapped.seen);
            let (severity, says, mend) = match () {
                () if !told.contains(&ip) => (
                    Severity::Warning,
                    format!("others see this host at {ip}, of which clients are not told"),
                    Some(format!("set rtc.public_addresses = [{all}]")),
                ),
                () if is_moved => (
                    Severity::Note,
                    format!("the NAT before this host changes ports: clients find {ip} only by ports that it forwards"),
                    Some("forward the UDP ports of workers.udp_port in the NAT, each to the same number".to_owned()),
                ),
                () => (Severity::Ok, format!("clients are told of {ip}, as others see this host"), None),
            };
            (severity, says, seen, mend)
        }
    };
    Finding { check: "address", severity, says, seen: format!("STUN {server}: {seen}"), mend }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn severity(seen: &str, own: &str, public: &[&str]) -> Severity {
        finding(seen, own, public, true).severity
    }

    fn finding(seen: &str, own: &str, public: &[&str], is_media_port: bool) -> Finding {
        let local = format!("{own}:20000").parse().unwrap();
        let mapped = Mapped { local, seen: seen.parse().unwrap(), is_media_port };
        let public: Vec<IpAddr> = public.iter().map(|ip| ip.parse().unwrap()).collect();
        nat("stun.example.org:3478", Ok(mapped), &[own.parse().unwrap()], &public)
    }

    #[test]
    fn clients_must_be_told_of_the_address_that_others_see() {
        assert_eq!(severity("192.0.2.1:20000", "192.0.2.1", &[]), Severity::Ok);
        assert_eq!(severity("192.0.2.1:20000", "10.0.0.1", &[]), Severity::Warning);
        assert_eq!(severity("192.0.2.1:20000", "10.0.0.1", &["192.0.2.1"]), Severity::Ok);
        assert_eq!(severity("192.0.2.1:40123", "10.0.0.1", &["192.0.2.1"]), Severity::Note, "another port");
        let from_any = finding("192.0.2.1:40123", "10.0.0.1", &["192.0.2.1"], false);
        assert_eq!(from_any.severity, Severity::Ok, "it says nothing of the media port");
        let second = finding("192.0.2.1:20000", "10.0.0.1", &["192.0.2.9"], true);
        assert_eq!(second.mend.as_deref(), Some("set rtc.public_addresses = [\"192.0.2.9\", \"192.0.2.1\"]"));
        assert_eq!(severity("192.0.2.1:20000", "192.0.2.1", &["192.0.2.9"]), Severity::Warning);
        assert_eq!(nat("a:1", Err("timed out".to_owned()), &[], &[]).severity, Severity::Warning);
    }
}
