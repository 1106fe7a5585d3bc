//! Whether the kernel follows flows, and how full its table is.

use crate::{Finding, Severity};

/// Looks at the flows that are followed, and how many may be. `None`: there is no such file, as without the module.
pub fn conntrack(count: Option<u64>, max: Option<u64>, media_ports: &str) -> Finding {
    let mend = || {
        Some(format!(
            "nft 'add table inet media; \
             add chain inet media in {{ type filter hook prerouting priority raw; }}; \
             add chain inet media out {{ type filter hook output priority raw; }}; \
             add rule inet media in udp dport {media_ports} notrack; \
             add rule inet media out udp sport {media_ports} notrack'"
        ))
    };
    let (severity, says, mend) = match (count, max) {
        (None, _) | (_, None) => (Severity::Ok, "flows are not followed".to_owned(), None),
        (Some(0), Some(_)) => {
            (Severity::Note, "no flow is followed now; whether one would be is not known".to_owned(), None)
        }
        (Some(count), Some(max)) if u128::from(count) * 10 >= u128::from(max) * 9 => (
            Severity::Fault,
            format!("{count} of {max} flows: beyond the last, newcomers' packets are dropped"),
            mend(),
        ),
        (Some(count), Some(max)) => {
            (Severity::Warning, format!("flows are followed, {count} of {max}: each packet costs a look-up"), mend())
        }
    };
    let of = |value: Option<u64>| value.map_or("none".to_owned(), |value| value.to_string());
    let seen = format!("/proc/sys/net/netfilter/nf_conntrack_count, _max: {}, {}", of(count), of(max));
    Finding { check: "conntrack", severity, says, seen, mend }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_that_are_followed_are_a_warning_and_a_table_that_is_nearly_full_a_fault() {
        assert_eq!(conntrack(None, None, "20000-20003").severity, Severity::Ok);
        assert_eq!(conntrack(Some(0), Some(1_000), "20000-20003").severity, Severity::Note);
        let followed = conntrack(Some(10), Some(1_000), "20000-20003");
        assert_eq!(followed.severity, Severity::Warning);
        assert!(followed.mend.is_some_and(|mend| mend.contains("udp dport 20000-20003 notrack")));
        assert_eq!(conntrack(Some(900), Some(1_000), "20000").severity, Severity::Fault);
    }
}
