//! Until when certificates are good.

use std::time::{Duration, SystemTime};

use crate::{Finding, Severity};

/// Who renews by hand needs some days for it.
const SOON: Duration = Duration::from_secs(14 * 86_400);

/// Looks at a certificate in a file, which is good until then, or could not be used for a reason: it or its key is missing, may
/// not be read, or is another's.
pub fn certificate(file: &str, until: Result<SystemTime, String>, now: SystemTime) -> Finding {
    let renew = || Some(format!("renew {file}; a server that runs reads it again by itself"));
    let (severity, says, seen, mend) = match until.map(|until| until.duration_since(now)) {
        Err(why) => {
            let mend = "name files in tls.certificates that belong together, and that the server's user may read";
            (Severity::Fault, "cannot be used".to_owned(), why, Some(mend.to_owned()))
        }
        Ok(Err(past)) => {
            let days = past.duration().as_secs() / 86_400;
            (Severity::Fault, "is out of date".to_owned(), format!("notAfter was {days} days ago"), renew())
        }
        Ok(Ok(left)) => {
            let hours = left.as_secs() / 3_600;
            let (severity, mend) = if left < SOON { (Severity::Warning, renew()) } else { (Severity::Ok, None) };
            let says = match hours / 24 {
                0 => format!("is good for {hours} hours"),
                1 => "is good for one day".to_owned(),
                days => format!("is good for {days} days"),
            };
            (severity, says, format!("notAfter is in {hours} hours"), mend)
        }
    };
    Finding { check: "certificates", severity, says: format!("{file} {says}"), seen: format!("{file}: {seen}"), mend }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_warned_of_two_weeks_before_its_end() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 30);
        let day = Duration::from_secs(86_400);
        let at = |until| certificate("a.pem", until, now);
        assert_eq!(at(Ok(now + day * 15)).severity, Severity::Ok);
        assert_eq!(at(Ok(now + day)).severity, Severity::Warning);
        assert_eq!(at(Ok(now + day)).says, "a.pem is good for one day");
        assert_eq!(at(Ok(now - day)).severity, Severity::Fault);
        assert_eq!(at(Err("no such file".to_owned())).severity, Severity::Fault);
    }
}
