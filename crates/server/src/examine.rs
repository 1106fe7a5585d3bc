//! What of this host will hurt a server with these settings: `millrace doctor`, and the same for one that runs.
//!
//! In: a `Config`. Out: findings of the crate `doctor`, which reads the host.

use std::time::SystemTime;

use doctor::{Files, Finding, Listen, Wants};

use crate::config::{CertificateFiles, Config};
use crate::needs;
use crate::tls::Certificates;

/// Looks at the host. `stun` is a server that is asked for the host's address; `has_addresses` when the server runs already, and
/// has all that it listens at.
///
/// # Errors
/// When the settings cannot be.
pub fn examine(config: &Config, stun: Option<String>, has_addresses: bool) -> anyhow::Result<Vec<Finding>> {
    let mut findings = doctor::examine(&Wants { has_addresses, ..wants(config, stun)? });
    findings.extend(config.tls.certificates.iter().map(of_certificate));
    Ok(findings)
}

fn wants(config: &Config, stun: Option<String>) -> anyhow::Result<Wants> {
    let (workers, (needed, wanted)) = (&config.workers, needs::open_files(config));
    let listen = |address: needs::Address| {
        let needs::Address { setting, is_udp, addr, only_v6 } = address;
        Listen { setting, is_udp, addr, only_v6 }
    };
    Ok(Wants {
        workers: needs::workers_count(config),
        pins: workers.pin,
        socket_buffer_bytes: workers.socket_buffer.0,
        gso: workers.gso,
        gro: workers.gro,
        files: Files { needed, wanted },
        listens: needs::listens(config)?.into_iter().map(listen).collect(),
        has_addresses: false,
        media_ports: needs::media_ports(config)?,
        public_addresses: config.rtc.public_addresses.clone(),
        stun,
    })
}

fn of_certificate(files: &CertificateFiles) -> Finding {
    let read = Certificates::read(std::slice::from_ref(files)).map_err(|error| format!("{error:#}"));
    let until = read.and_then(|read| Ok(read.expiries().first().ok_or("its end cannot be told")?.1));
    doctor::certificate(&files.certificate.display().to_string(), until, SystemTime::now())
}
