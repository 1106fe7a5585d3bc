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
            let is_moved = mapped.seen.port() != mapped.local.port();
            let seen = format!("{} is seen as {}", mapped.local, mapped.seen);
            let (severity, says, mend) = match () {
                () if !told.contains(&ip) => (
                    Severity::Warning,
                    format!("others see this host at {ip}, of which clients are not told"),
                    Some(format!("set rtc.public_addresses = [\"{ip}\"]")),
                ),
                () if is_moved => (
                    Severity::Warning,
                    format!("the NAT before this host changes ports: clients that come to {ip} find nobody"),
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
        let mapped = Mapped { local: format!("{own}:20000").parse().unwrap(), seen: seen.parse().unwrap() };
        let public: Vec<IpAddr> = public.iter().map(|ip| ip.parse().unwrap()).collect();
        nat("stun.example.org:3478", Ok(mapped), &[own.parse().unwrap()], &public).severity
    }

    #[test]
    fn clients_must_be_told_of_the_address_that_others_see() {
        assert_eq!(severity("192.0.2.1:20000", "192.0.2.1", &[]), Severity::Ok);
        assert_eq!(severity("192.0.2.1:20000", "10.0.0.1", &[]), Severity::Warning);
        assert_eq!(severity("192.0.2.1:20000", "10.0.0.1", &["192.0.2.1"]), Severity::Ok);
        assert_eq!(severity("192.0.2.1:40123", "10.0.0.1", &["192.0.2.1"]), Severity::Warning, "another port");
        assert_eq!(severity("192.0.2.1:20000", "192.0.2.1", &["192.0.2.9"]), Severity::Warning);
        assert_eq!(nat("a:1", Err("timed out".to_owned()), &[], &[]).severity, Severity::Warning);
    }
}
