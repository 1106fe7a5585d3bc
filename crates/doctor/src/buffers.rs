//! Whether sockets get the buffers that they ask for.

use crate::{Finding, Severity};

/// Looks at one limit of the kernel, such as "rmem_max", where each socket asks for `wanted_bytes` and got `granted_bytes` when
/// that was tried: beyond the limit, with CAP_NET_ADMIN. `None`: it is not known.
pub fn buffer(limit: &str, limit_bytes: Option<u64>, wanted_bytes: u64, granted_bytes: Option<u64>) -> Finding {
    let name = format!("net.core.{limit}");
    let enlarge = || Some(format!("sysctl -w {name}={wanted_bytes}"));
    let (severity, says, mend) = match granted_bytes {
        None => (Severity::Note, "what sockets get could not be tried".to_owned(), None),
        Some(granted) if granted < wanted_bytes => {
            let says = format!("sockets ask for {wanted_bytes} bytes, and get {granted}: bursts are lost");
            (Severity::Warning, says, enlarge())
        }
        Some(_) if limit_bytes.is_some_and(|limit| limit < wanted_bytes) => (
            Severity::Note,
            format!("{name} is smaller than what sockets ask for, and only who has CAP_NET_ADMIN gets that"),
            enlarge(),
        ),
        Some(_) => (Severity::Ok, format!("{name} is large enough"), None),
    };
    let known = |bytes: Option<u64>| bytes.map_or("unreadable".to_owned(), |bytes| bytes.to_string());
    let seen = format!("/proc/sys/net/core/{limit}: {}; tried: {}", known(limit_bytes), known(granted_bytes));
    Finding { check: "buffers", severity, says, seen, mend }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_below_what_is_asked_for_is_a_warning_or_a_note_for_who_need_not_keep_it() {
        let small = buffer("rmem_max", Some(212_992), 8 << 20, Some(212_992));
        assert_eq!(small.severity, Severity::Warning);
        assert_eq!(small.mend.as_deref(), Some("sysctl -w net.core.rmem_max=8388608"));
        assert_eq!(small.seen, "/proc/sys/net/core/rmem_max: 212992; tried: 212992");
        assert_eq!(buffer("rmem_max", Some(212_992), 8 << 20, Some(8 << 20)).severity, Severity::Note, "it was forced");
        assert_eq!(buffer("rmem_max", Some(8 << 20), 8 << 20, Some(8 << 20)).severity, Severity::Ok);
        assert_eq!(buffer("wmem_max", None, 8 << 20, Some(8 << 20)).severity, Severity::Ok);
        assert_eq!(buffer("wmem_max", Some(8 << 20), 8 << 20, None).severity, Severity::Note);
    }
}
