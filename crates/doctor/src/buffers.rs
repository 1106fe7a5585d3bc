//! Whether sockets get the buffers that they ask for.

use crate::{Finding, Severity};

/// Looks at one limit of the kernel, such as "rmem_max", where each socket asks for `wanted_bytes`. `None`: it cannot be read.
/// `forces`: the process may go beyond it (CAP_NET_ADMIN), as the server then does.
pub fn buffer(limit: &str, limit_bytes: Option<u64>, wanted_bytes: u64, forces: bool) -> Finding {
    let name = format!("net.core.{limit}");
    let file = format!("/proc/sys/net/core/{limit}");
    let (severity, says, mend) = match limit_bytes {
        None => (Severity::Note, format!("{name} is not known"), None),
        Some(bytes) if bytes >= wanted_bytes => (Severity::Ok, format!("{name} is large enough"), None),
        Some(_) if forces => {
            (Severity::Ok, format!("{name} is smaller than what is asked for, and does not hold"), None)
        }
        Some(_) => {
            let says = format!("sockets ask for {wanted_bytes} bytes, and {name} gives fewer: bursts are lost");
            (Severity::Warning, says, Some(format!("sysctl -w {name}={wanted_bytes}")))
        }
    };
    let value = limit_bytes.map_or("unreadable".to_owned(), |bytes| bytes.to_string());
    Finding { check: "buffers", severity, says, seen: format!("{file}: {value}"), mend }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_below_what_is_asked_for_is_a_warning_unless_it_does_not_hold() {
        let small = buffer("rmem_max", Some(212_992), 8 << 20, false);
        assert_eq!(small.severity, Severity::Warning);
        assert_eq!(small.mend.as_deref(), Some("sysctl -w net.core.rmem_max=8388608"));
        assert_eq!(small.seen, "/proc/sys/net/core/rmem_max: 212992");
        assert_eq!(buffer("rmem_max", Some(212_992), 8 << 20, true).severity, Severity::Ok);
        assert_eq!(buffer("wmem_max", Some(8 << 20), 8 << 20, false).severity, Severity::Ok);
        assert_eq!(buffer("wmem_max", None, 8 << 20, false).severity, Severity::Note);
    }
}
