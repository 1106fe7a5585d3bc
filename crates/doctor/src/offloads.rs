//! Whether network cards do what is cheaper there.

use engine::sys::Feature;

use crate::{Finding, Severity};

/// Looks at what a card does (`ethtool -k`), under a kernel of this release. What a virtual one gets, another has joined before.
pub fn offloads(card: &str, is_virtual: bool, features: &[Feature], release: &str) -> Vec<Finding> {
    let find = |name: &str| features.iter().find(|feature| feature.name == name);
    let is_off = |name| find(name).is_some_and(|feature| !feature.is_on && feature.can_change);
    let seen = |name: &str| format!("ethtool -k {card}: {name}: off");
    let finding = |severity, says: &str, name: &str, option: &str| Finding {
        check: "offloads",
        severity,
        says: format!("{card} {says}"),
        seen: seen(name),
        mend: Some(format!("ethtool -K {card} {option} on")),
    };
    let mut findings = Vec::new();
    let checksums = ["tx-checksum-ip-generic", "tx-checksum-ipv4"];
    if checksums.iter().any(|name| is_off(name)) && !checksums.iter().any(|name| find(name).is_some_and(|it| it.is_on))
    {
        let says = match refuses_gso_without_checksums(release) {
            true => "makes no checksums, so that this kernel refuses GSO",
            false => "makes no checksums: the processor does",
        };
        findings.push(finding(Severity::Warning, says, "tx-checksumming", "tx"));
    }
    if is_off("rx-gro") && !is_virtual {
        let says = "gives the kernel no packets joined: each has a way of its own through it";
        findings.push(finding(Severity::Warning, says, "generic-receive-offload", "gro"));
    }
    if is_off("tx-generic-segmentation") {
        let says = "has what TCP sends cut into packets early: each has a way of its own through the kernel";
        findings.push(finding(Severity::Warning, says, "generic-segmentation-offload", "gso"));
    }
    if is_off("tx-udp-segmentation") {
        let says = "could split what is sent with GSO, and the kernel does";
        findings.push(finding(Severity::Note, says, "tx-udp-segmentation", "tx-udp-segmentation"));
    }
    if findings.is_empty() {
        let (says, seen) = (
            format!("{card} does what it could be told to"),
            format!("ethtool -k {card}: {} features", features.len()),
        );
        findings.push(Finding { check: "offloads", severity: Severity::Ok, says, seen, mend: None });
    }
    findings
}

/// Linux 6.11 makes them itself ("udp: Allow GSO transmit from devices with no checksum offload").
fn refuses_gso_without_checksums(release: &str) -> bool {
    let mut numbers = release.split('.').map_while(|part| part.parse::<u32>().ok());
    matches!((numbers.next(), numbers.next()), (Some(major), Some(minor)) if (major, minor) < (6, 11))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(off: &[&str]) -> Vec<Feature> {
        let names =
            ["tx-checksum-ip-generic", "tx-checksum-ipv4", "rx-gro", "tx-generic-segmentation", "tx-udp-segmentation"];
        let feature = |name: &str| {
            // A card that makes checksums of everything has none for IPv4 alone.
            let (is_on, can_change) = (!off.contains(&name), name != "tx-checksum-ipv4");
            Feature { name: name.to_owned(), is_on: is_on && can_change, can_change }
        };
        names.map(feature).to_vec()
    }

    fn found(off: &[&str], release: &str) -> Vec<(Severity, Option<String>)> {
        offloads("eth0", false, &card(off), release)
            .into_iter()
            .map(|finding| (finding.severity, finding.mend))
            .collect()
    }

    #[test]
    fn what_is_off_and_can_be_switched_on_is_found() {
        assert_eq!(found(&[], "6.18.1"), [(Severity::Ok, None)]);
        let gro = found(&["rx-gro"], "6.18.1");
        assert_eq!(gro, [(Severity::Warning, Some("ethtool -K eth0 gro on".to_owned()))]);
        assert_eq!(offloads("veth0", true, &card(&["rx-gro"]), "6.18.1")[0].severity, Severity::Ok);
        assert_eq!(found(&["tx-udp-segmentation"], "6.18.1")[0].0, Severity::Note);
        assert_eq!(offloads("eth0", false, &[], "6.18.1")[0].severity, Severity::Ok, "nothing is known");
    }

    #[test]
    fn without_checksums_old_kernels_refuse_gso() {
        let says = |release| offloads("eth0", true, &card(&["tx-checksum-ip-generic"]), release)[0].says.clone();
        assert!(says("6.10.3-amd64").ends_with("refuses GSO"));
        assert!(says("6.11.0").ends_with("the processor does"));
    }
}
