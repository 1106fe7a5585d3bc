//! What packets wait in before they leave.

use crate::host::netlink::Link;
use crate::{Finding, Severity};

/// A burst of the server's to many receivers is some hundred messages.
const QUEUE_LEAST: u32 = 500;

/// Looks at the queue of an interface. Below "mq" each queue of a card has one of the kind that is `usual` (net.core.default_qdisc).
pub fn queue(link: &Link, usual: &str) -> Finding {
    let Link { name, qdisc, queue_len, kind, .. } = link;
    let asks_len = |qdisc: &str| ["pfifo_fast", "pfifo", "bfifo"].contains(&qdisc);
    let below = if qdisc == "mq" { usual } else { qdisc };
    let (severity, says, mend) = match &**qdisc {
        "noqueue" if kind.is_none() => (
            Severity::Warning,
            "has no queue: what the card does not take at once is lost",
            Some(format!("tc qdisc replace dev {name} root fq")),
        ),
        "netem" => (
            Severity::Warning,
            "makes believe that the network is worse",
            Some(format!("tc qdisc del dev {name} root")),
        ),
        "tbf" | "htb" | "hfsc" => (Severity::Note, "holds back what is sent faster than its rules say", None),
        _ if asks_len(below) && *queue_len < QUEUE_LEAST => (
            Severity::Warning,
            "has a short queue: bursts to many receivers are lost in it",
            Some(match below {
                "pfifo_fast" => format!("ip link set dev {name} txqueuelen 1000"),
                // These took the length when they were made.
                _ => format!("tc qdisc replace dev {name} root fq"),
            }),
        ),
        "pfifo_fast" | "pfifo" | "bfifo" => (
            Severity::Note,
            "has one queue for all; fq keeps flows apart, and paces TCP at less cost",
            Some(format!("tc qdisc replace dev {name} root fq")),
        ),
        "noqueue" => (Severity::Ok, "needs no queue of the kernel's", None),
        _ => (Severity::Ok, "has a queue", None),
    };
    let seen = format!("RTM_GETLINK {name}: qdisc {qdisc}, txqueuelen {queue_len}");
    Finding { check: "queues", severity, says: format!("{name} {says}"), seen, mend }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn severity(qdisc: &str, queue_len: u32, kind: Option<&str>, usual: &str) -> Severity {
        let kind = kind.map(str::to_owned);
        queue(&Link { name: "eth0".into(), index: 2, qdisc: qdisc.into(), queue_len, kind }, usual).severity
    }

    #[test]
    fn a_card_needs_a_queue_that_holds_a_burst() {
        assert_eq!(severity("noqueue", 1_000, None, "fq"), Severity::Warning);
        assert_eq!(severity("noqueue", 1_000, Some("veth"), "fq"), Severity::Ok);
        assert_eq!(severity("pfifo_fast", 32, None, "fq"), Severity::Warning);
        assert_eq!(severity("pfifo_fast", 1_000, None, "fq"), Severity::Note);
        assert_eq!(severity("mq", 1_000, None, "pfifo_fast"), Severity::Ok);
        assert_eq!(severity("mq", 32, None, "pfifo_fast"), Severity::Warning);
        assert_eq!(severity("mq", 32, None, "fq_codel"), Severity::Ok, "it has a limit of its own");
        assert_eq!(severity("netem", 1_000, Some("veth"), "fq"), Severity::Warning);
    }
}
