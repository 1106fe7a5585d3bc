//! `[acme]`: certificates that the server obtains by itself.

use titles::Url;

use super::section::section;
use super::value::{Secret, any};

section! {
    /// Certificates that the server obtains by itself, and renews (ACME, RFC 8555), where it is reached by names and at port 443.
    Acme as "acme" {
        /// Names to have a certificate for, one each, such as "live.example.org". The directory comes to port 443 of each to see
        /// that it is this server (tls-alpn-01). No wildcards. Empty: there is nothing to obtain.
        domains: Vec<String> = Vec::new(), domain_names;
        /// Has to be true: you have read the terms of the directory's operator, and agree to them.
        agree_to_terms: bool = false, any;
        /// Mail address that the directory's operator may write to.
        contact: Option<String> = None, mail_address;
        /// URL of the directory. Let's Encrypt's for tests, whose certificates nobody trusts, is
        /// https://acme-staging-v02.api.letsencrypt.org/directory
        directory: Url = ::acme::LETS_ENCRYPT.parse().expect("it is one"), https;
        /// Account at the directory's operator that this server belongs to, where the operator wants one (external account
        /// binding): "ID KEY", the key in Base64.
        external_account: Option<Secret> = None, external_account;
        /// PEM file of certificates that are trusted in addition to the system's when the directory is asked.
        ca_file: Option<String> = None, any;
        /// Folder where the account's key and the certificates with their keys are kept. It is made where it is missing, for this
        /// user alone. Has to be set, and to be there after a restart: directories give only so many certificates a week.
        folder: Option<String> = None, any;
    }
}

/// RFC 1123 §2.1, with a dot in it.
#[allow(clippy::ptr_arg, reason = "it is called with the setting itself")]
fn domain_names(names: &Vec<String>) -> Result<(), String> {
    let is_label = |label: &str| {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=63).contains(&label.len()) && label.bytes().all(fits) && !label.starts_with('-') && !label.ends_with('-')
    };
    for (index, name) in names.iter().enumerate() {
        if name.starts_with("*.") {
            return Err(format!("got {name:?}; wildcards cannot be proved at port 443: allowed are single names"));
        }
        let last = name.rsplit('.').next().unwrap_or_default();
        let is_name = name.len() <= 253 && name.contains('.') && name.split('.').all(is_label);
        if !is_name || last.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(format!(
                "got {name:?}; allowed: names such as \"live.example.org\", in lower case, no addresses"
            ));
        }
        if names[..index].contains(name) {
            return Err(format!("got {name:?} twice; allowed: each name once"));
        }
    }
    Ok(())
}

fn mail_address(contact: &Option<String>) -> Result<(), String> {
    let is_one = |text: &str| {
        let fits = text.bytes().all(|byte| byte.is_ascii_graphic() && !b",?\"<>:".contains(&byte));
        fits && text.split_once('@').is_some_and(|(user, host)| !user.is_empty() && host.contains('.'))
    };
    match contact {
        Some(text) if !is_one(text) => Err(format!("got {text:?}; allowed: one address such as \"admin@example.org\"")),
        _ => Ok(()),
    }
}

fn https(url: &Url) -> Result<(), String> {
    if url.scheme() == "https" { Ok(()) } else { Err(format!("got \"{url}\"; allowed: an https URL")) }
}

fn external_account(secret: &Option<Secret>) -> Result<(), String> {
    match secret {
        Some(secret) if account(secret).is_none() => {
            Err("got something else; allowed: \"ID KEY\", the key in Base64".to_owned())
        }
        _ => Ok(()),
    }
}

/// Reads "ID KEY". Operators write the key with the letters of URLs and without padding, or as everybody else.
fn account(Secret(text): &Secret) -> Option<::acme::ExternalAccount> {
    use base64::Engine as _;
    use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD};
    let (id, key) = text.trim().split_once(char::is_whitespace)?;
    let key = key.trim().trim_end_matches('=');
    let key = BASE64_URL_SAFE_NO_PAD.decode(key).or_else(|_| BASE64_STANDARD_NO_PAD.decode(key)).ok()?;
    (!key.is_empty()).then(|| ::acme::ExternalAccount { id: id.to_owned(), key })
}

impl Acme {
    /// What is to be obtained. `None`: nothing.
    ///
    /// # Errors
    /// What is missing, by the name of the setting.
    pub fn settings(&self) -> anyhow::Result<Option<::acme::Settings>> {
        if self.domains.is_empty() {
            return Ok(None);
        }
        let terms = "acme.agree_to_terms: set it to true when you agree to the terms of the directory's operator";
        anyhow::ensure!(self.agree_to_terms, terms);
        let Some(folder) = &self.folder else {
            anyhow::bail!("acme.folder: set it to a folder where certificates are kept, such as /var/lib/millrace/acme")
        };
        Ok(Some(::acme::Settings {
            names: self.domains.clone(),
            directory: self.directory.to_string(),
            contact: self.contact.as_ref().map(|address| format!("mailto:{address}")),
            external_account: self.external_account.as_ref().and_then(account),
            ca_file: self.ca_file.as_ref().map(Into::into),
            folder: folder.into(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_can_be_proved_at_port_443() {
        let check = |names: &[&str]| domain_names(&names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(check(&["live.example.org", "xn--bcher-kva.example", "1.example.org"]), Ok(()));
        let long = format!("{}.org", "a".repeat(64));
        for name in ["*.example.org", "", "localhost", "192.0.2.1", "::1", "a..b", "-a.org", "a_b.org", "A.org", &long]
        {
            assert!(check(&[name]).is_err(), "{name}");
        }
        assert!(check(&["a.org", "a.org"]).is_err());
    }

    #[test]
    fn contacts_and_accounts_are_read_as_operators_write_them() {
        assert_eq!(mail_address(&Some("admin@example.org".to_owned())), Ok(()));
        for text in ["admin", "@example.org", "a@b", "mailto:a@b.org", "a@b.org,c@d.org", "a b@c.org"] {
            assert!(mail_address(&Some(text.to_owned())).is_err(), "{text}");
        }
        let read = |text: &str| account(&Secret(text.to_owned()));
        let expected = ::acme::ExternalAccount { id: "kid-1".to_owned(), key: vec![0xfb, 0xff] };
        for text in ["kid-1 -_8", "kid-1 +/8=", " kid-1\t-_8 "] {
            assert_eq!(read(text), Some(expected.clone()), "{text}");
        }
        for text in ["kid-1", "kid-1 ", "kid-1 %%", ""] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
