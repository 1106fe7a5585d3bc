//! Until when certificates are good.

use std::time::{Duration, SystemTime};

use crate::{Finding, Severity};

/// Who renews by hand needs some days for it.
const SOON: Duration = Duration::from_secs(14 * 86_400);

/// Looks at a certificate in a file, which is good until then, or could not be used for a reason.
pub fn certificate(file: &str, until: Result<SystemTime, String>, now: SystemTime) -> Finding {
    let (severity, says, seen) = match until.map(|until| until.duration_since(now)) {
        Err(why) => (Severity::Fault, format!("{file} cannot be used"), why),
        Ok(Err(_)) => (Severity::Fault, format!("{file} is out of date"), "notAfter is over".to_owned()),
        Ok(Ok(left)) => {
            let severity = if left < SOON { Severity::Warning } else { Severity::Ok };
            let hours = left.as_secs() / 3_600;
            (severity, format!("{file} is good for {} days", hours / 24), format!("notAfter is in {hours} hours"))
        }
    };
    let mend = (severity > Severity::Note).then(|| "renew it; the server reads the file again by itself".to_owned());
    Finding { check: "certificates", severity, says, seen: format!("{file}: {seen}"), mend }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_warned_of_two_weeks_before_its_end() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 30);
        let day = Duration::from_secs(86_400);
        let at = |until| certificate("a.pem", until, now).severity;
        assert_eq!(at(Ok(now + day * 15)), Severity::Ok);
        assert_eq!(at(Ok(now + day)), Severity::Warning);
        assert_eq!(at(Ok(now - day)), Severity::Fault);
        assert_eq!(at(Err("no such file".to_owned())), Severity::Fault);
    }
}
