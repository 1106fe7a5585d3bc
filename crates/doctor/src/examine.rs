//! Looks at the host: reads, and has it judged.

use std::net::IpAddr;

use engine::sys::{BufferSide, card_features, clock_is_synchronized};

use crate::host::{cards, chosen, cpus, flows, holders, number, ports, sockets, stun, text};
use crate::ports::{held, is_ours, port};
use crate::wants::{Listen, Wants};
use crate::{Finding, clock, conntrack, cpus as of_cpus, descriptors, pages};
use crate::{buffer, interrupts, nat, offloads, queue, splitting};

/// What of this host hurts a server that wants this, and what does not, in the order in which it was looked at.
pub fn examine(wants: &Wants) -> Vec<Finding> {
    let release = text("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut findings = of_sockets(wants, &release);
    findings.extend(of_cards(wants, &release));
    findings.extend(of_processor(wants));
    if !wants.has_addresses {
        findings.extend(of_ports(&wants.listens));
    }
    if let Some(server) = &wants.stun {
        let first = wants.media_ports.first().map_or(0, |ports| *ports.start());
        let own = if_addrs::get_if_addrs().unwrap_or_default().iter().map(|own| own.ip()).collect::<Vec<_>>();
        let answers = stun::ask(server, first).into_iter().map(|answer| answer.map_err(|error| error.to_string()));
        findings.extend(answers.map(|answer| nat(server, answer, &own, &wants.public_addresses)));
    }
    findings
}

fn of_sockets(wants: &Wants, release: &str) -> Vec<Finding> {
    let bytes = wants.socket_buffer_bytes;
    let of_buffer = |(limit, side)| {
        let limit_bytes = number(&format!("/proc/sys/net/core/{limit}"));
        buffer(limit, limit_bytes, bytes as u64, sockets::granted_bytes(side, bytes))
    };
    let sides = [("rmem_max", BufferSide::Receive), ("wmem_max", BufferSide::Send)];
    let mut findings = sides.map(of_buffer).to_vec();
    findings.extend(sockets::open_files().map(|(soft, hard)| descriptors::descriptors(soft, hard, wants.files)));
    let can = sockets::splits_and_joins();
    findings.push(splitting(true, wants.gso, can.map(|(gso, _)| gso), release));
    findings.push(splitting(false, wants.gro, can.map(|(_, gro)| gro), release));
    let is_followed = flows::is_followed(&wants.media_ports);
    let own = flows::of_server_alone(&wants.media_ports);
    findings.push(conntrack::conntrack(number(flows::COUNT), number(flows::MAX), is_followed, &own));
    findings
}

fn of_cards(wants: &Wants, release: &str) -> Vec<Finding> {
    let bound: Vec<IpAddr> = wants.listens.iter().map(|listen| listen.addr.ip()).collect();
    let usual = text("/proc/sys/net/core/default_qdisc").unwrap_or_default();
    let cores = text("/sys/devices/system/cpu/online").unwrap_or_default();
    let mut findings = Vec::new();
    for link in cards::used(&bound) {
        // What cannot be read is no fault.
        let features = card_features(&link.name);
        let judge = |all: Vec<_>| offloads(&link.name, link.kind.is_some(), &all, release);
        findings.extend(features.map(judge).unwrap_or_default());
        findings.push(queue(&link, &usual));
        let found = cards::interrupts(&link);
        findings.extend((!found.is_empty()).then(|| interrupts(&link.name, &found, &cores)));
    }
    findings
}

fn of_ports(listens: &[Listen]) -> Vec<Finding> {
    let (mut findings, mut ours) = (Vec::new(), Vec::new());
    for listen in listens {
        let bound = ports::bind(listen).map_err(|error| error.kind());
        let holder = bound.err().and_then(|_| holders::holder(listen.is_udp, listen.addr));
        match holder {
            Some(holder) if is_ours(&holder) => ours.push((listen, holder)),
            holder => findings.push(port(listen, bound, holder.as_ref())),
        }
    }
    findings.extend(held(&ours));
    findings
}

fn of_processor(wants: &Wants) -> Vec<Finding> {
    let allowed = cpus::allowed();
    let mut findings = vec![of_cpus::quota(wants.workers, cpus::quota())];
    findings.extend(allowed.as_deref().map(|cpus| of_cpus::affinity(wants.workers, wants.pins, cpus)));
    findings.push(of_cpus::governor(allowed.as_deref().and_then(cpus::governor)));
    let available = text(clock::AVAILABLE).unwrap_or_default();
    findings.push(clock::clocksource(text(clock::CURRENT).as_deref(), &available));
    findings.push(clock::synchronized(clock_is_synchronized().ok()));
    findings.push(pages::huge_pages(chosen(pages::ENABLED).as_deref()));
    findings
}
