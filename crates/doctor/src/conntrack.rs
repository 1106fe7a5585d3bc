//! Whether the kernel follows flows, and how full its table is.

use std::ops::RangeInclusive;

use crate::{Finding, Severity};

/// Looks at the flows that are followed, and how many may be. `None`: there is no such file, as without the module. Whether
/// flows of the server's UDP ports are (`is_followed`) was tried; `None`: it could not be.
pub fn conntrack(
    count: Option<u64>,
    max: Option<u64>,
    is_followed: Option<bool>,
    media_ports: &[RangeInclusive<u16>],
) -> Finding {
    let mend = || notrack(media_ports);
    let (severity, says, mend) = match (count, max) {
        (None, _) | (_, None) => (Severity::Ok, "flows are not followed".to_owned(), None),
        // Where there may be none, there is no limit.
        (Some(count), Some(max)) if max > 0 && u128::from(count) * 10 >= u128::from(max) * 9 => {
            let is_of_media = is_followed != Some(false);
            let more = || Some(format!("sysctl -w net.netfilter.nf_conntrack_max={}", max.saturating_mul(4)));
            (
                if is_of_media { Severity::Fault } else { Severity::Warning },
                format!("{count} of {max} flows: beyond the last, packets of those that are followed are dropped"),
                if is_of_media { mend().or_else(more) } else { more() },
            )
        }
        (Some(count), Some(max)) if is_followed == Some(true) => (
            Severity::Warning,
            format!("flows of media are followed, {count} of {max}: each packet costs a look-up, each client a place"),
            mend(),
        ),
        (Some(0), Some(_)) if is_followed == Some(false) => (Severity::Ok, "flows are not followed".to_owned(), None),
        (Some(_), Some(_)) if is_followed == Some(false) => {
            (Severity::Ok, "flows are followed, and those of media are not".to_owned(), None)
        }
        (Some(_), Some(_)) => (
            Severity::Note,
            "whether flows of media are followed could not be tried: their ports are taken".to_owned(),
            None,
        ),
    };
    let of = |value: Option<u64>| value.map_or("none".to_owned(), |value| value.to_string());
    let seen = format!("/proc/sys/net/netfilter/nf_conntrack_count, _max: {}, {}", of(count), of(max));
    Finding { check: "conntrack", severity, says, seen, mend }
}

/// Has flows of these UDP ports left alone, as nft(8) reads it. Where the system chooses ports there is no such rule.
fn notrack(ports: &[RangeInclusive<u16>]) -> Option<String> {
    let range = |ports: &RangeInclusive<u16>| match (ports.start(), ports.end()) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first}-{last}"),
    };
    let ports = ports.iter().map(range).collect::<Vec<_>>().join(", ");
    (!ports.is_empty()).then(|| {
        format!(
            "nft 'add table inet millrace; \
             add chain inet millrace in {{ type filter hook prerouting priority raw; }}; \
             add chain inet millrace out {{ type filter hook output priority raw; }}; \
             add rule inet millrace in udp dport {{ {ports} }} notrack; \
             add rule inet millrace out udp sport {{ {ports} }} notrack'"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_that_are_followed_are_a_warning_and_a_table_that_is_nearly_full_a_fault() {
        let at = |count, max, is_followed| conntrack(count, max, is_followed, &[20_000..=20_003, 3_478..=3_478]);
        assert_eq!(at(None, None, None).severity, Severity::Ok);
        assert_eq!(at(Some(0), Some(1_000), Some(false)).severity, Severity::Ok);
        assert_eq!(at(Some(7), Some(1_000), Some(false)).severity, Severity::Ok, "others' flows");
        assert_eq!(at(Some(0), Some(1_000), None).severity, Severity::Note);
        let followed = at(Some(10), Some(1_000), Some(true));
        assert_eq!(followed.severity, Severity::Warning);
        assert!(followed.mend.is_some_and(|mend| mend.contains("udp dport { 20000-20003, 3478 } notrack")));
        assert_eq!(at(Some(900), Some(1_000), Some(true)).severity, Severity::Fault);
        let others = at(Some(900), Some(1_000), Some(false));
        assert_eq!(others.severity, Severity::Warning, "connections by TCP find no place");
        assert!(others.mend.is_some_and(|mend| mend.starts_with("sysctl")));
    }

    #[test]
    fn ports_that_the_system_chooses_can_be_in_no_rule() {
        assert_eq!(conntrack(Some(10), Some(1_000), Some(true), &[]).mend, None);
        let full = conntrack(Some(1_000), Some(1_000), Some(true), &[]);
        assert_eq!(full.mend.as_deref(), Some("sysctl -w net.netfilter.nf_conntrack_max=4000"));
    }
}
