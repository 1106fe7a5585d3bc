//! `millrace load pump`: receives what a pump sends, and measures it as a set-top box would feel it.
//!
//! In: a server's URL and a title, or ports on which any sender's streams arrive. Out: losses by the continuity counters,
//! content, spacing of datagrams, delay factor, clock jitter, start times, underruns; the server's CPU.
//! Arrivals have the kernel's times, so that this program's own lateness is not in the numbers. On loopback every session
//! has an address of its own behind one socket. It can be the origin of the titles too, or the source of a live input, let
//! others come while it counts, and break their titles: nobody else should notice.
//! Cost: one system call per 64 messages, and a look at each packet; some 20 KiB per session.
//! Source: RFC 4445 (delay factor), ETSI TR 101 290 (errors by priority).

mod args;
mod feed;
mod guests;
mod metrics;
mod origin;
mod original;
mod places;
mod receive;
mod receiver;
mod report;
mod rtsp;
mod sessions;
mod watch;

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressStyle};

pub use args::{Args, Limits};
pub use metrics::Served;
pub use report::Report;

use original::Original;
use places::{Addrs, Places};
use receiver::{Receiver, Totals};
use sessions::{Opened, Server};

use crate::clients::{count_down, mark};
use measure::cpu::CpuTime;

/// Runs the load and prints the report. False when the asked-for quality was not held.
///
/// # Errors
/// When the server cannot be reached, refuses a session, or a socket cannot be had.
pub fn run(args: &Args) -> Result<bool> {
    let report = measure(args)?;
    measure::report::print(args.json, &report)?;
    let failures = report.failures(&args.limits);
    for failure in &failures {
        eprintln!("not held: {failure}");
    }
    Ok(failures.is_empty())
}

/// Runs the load.
///
/// # Errors
/// As `run`.
pub fn measure(args: &Args) -> Result<Report> {
    args.check()?;
    let origin = args.start_origin()?;
    let feed = args.start_feed()?;
    let original = match (&args.file, &feed, &origin) {
        (Some(file), ..) => Some(Original::read(file)?),
        (None, Some(feed), _) => Original::of(feed.stream()),
        (None, None, Some((_, title))) => Original::of(title),
        (None, None, None) => None,
    };
    let original = original.map(Arc::new);
    let places = Places::open(args)?;
    let addrs = Addrs::of(args, &places);
    let threads = places.start(args, original.as_ref())?;
    let server = args.server()?;
    if let (Some(server), Some(_)) = (&server, &feed) {
        server.wait_for_input(&args.title_of(0))?;
    }
    let opened = match &server {
        Some(server) => open(args, server, &addrs)?,
        None => Vec::new(),
    };
    let counted = count(args, &threads, server.as_ref(), &opened, &addrs);
    let by_api = server.as_ref().filter(|_| args.rtsp.is_none());
    let underruns = by_api.map(|server| server.underruns_of_all(&opened));
    if let Some(server) = &server {
        server.close_all(&opened);
    }
    let (totals, mut context) = counted?;
    context.underruns = underruns.and_then(|underruns| match underruns {
        Ok(underruns) => Some(underruns),
        Err(error) => {
            eprintln!("underruns are not known: {error:#}");
            None
        }
    });
    Ok(Report::new(&totals, context))
}

/// Opens all that are there before it counts, the received ones spread evenly among the others.
fn open(args: &Args, server: &Server, addrs: &Addrs) -> Result<Vec<Opened>> {
    let all = [&addrs.received[..], &addrs.unreceived].concat();
    let order = spread(addrs.received.len(), addrs.unreceived.len());
    let receivers: Vec<SocketAddrV4> = order.iter().map(|number| all[*number]).collect();
    let progress = if args.json { ProgressBar::hidden() } else { ProgressBar::new(all.len() as u64) };
    progress.set_style(ProgressStyle::with_template("starting [{bar:40}] {pos}/{len}")?.progress_chars("=> "));
    let opened = server.open_all(|turn| args.title_of(order[turn]), &receivers, args.starts_per_second, &progress);
    progress.finish_and_clear();
    let mut opened: Vec<(usize, Opened)> = order.into_iter().zip(opened?).collect();
    opened.sort_unstable_by_key(|(number, _)| *number);
    Ok(opened.into_iter().map(|(_, opened)| opened).collect())
}

/// The numbers from zero to `few + many`, so that the first `few` of them stand evenly among the others.
fn spread(few: usize, many: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..few + many).collect();
    // Each one's place between 0 and 1 in its own row; both sides are multiplied by the lengths of both rows.
    order.sort_by_key(|number| match number.checked_sub(few) {
        None => (2 * number + 1) * many.max(1),
        Some(index) => (2 * index + 1) * few.max(1),
    });
    order
}

/// Waits for the warm-up, then counts.
fn count(
    args: &Args,
    threads: &[Receiver],
    server: Option<&Server>,
    opened: &[Opened],
    addrs: &Addrs,
) -> Result<(Vec<Totals>, report::Context)> {
    let guests = addrs.guests(args);
    if server.is_none() {
        wait_for_streams(args, threads)?;
    }
    thread::sleep(Duration::from_secs_f64(args.warm_up));
    let served = || match server {
        Some(server) => Served::read(&server.agent, &server.url, args.server_pid),
        None => args.server_pid.and_then(Served::of_process),
    };
    threads.iter().try_for_each(Receiver::reset)?;
    mark(args.marks, "begin");
    let (started, served_before, load_before) = (Instant::now(), served(), CpuTime::own());
    thread::scope(|scope| {
        let visits = guests.each_ref().map(|guests| {
            let server = server.filter(|_| !guests.sessions.is_empty())?;
            Some(scope.spawn(move || guests.visit(server, started)))
        });
        count_down(args.json, started, started + Duration::from_secs_f64(args.seconds));
        mark(args.marks, "end");
        let (served_after, load_after) = (served(), CpuTime::own());
        let span = started.elapsed();
        let totals = threads.iter().map(Receiver::totals).collect::<Result<_>>()?;
        let [newcomers, faulty] = visits.map(|visit| visit.and_then(|visit| visit.join().ok()).unwrap_or_default());
        let asked = opened.iter().take(args.session_count()).map(Some).chain(newcomers.iter().map(Option::as_ref));
        let asked_ns: Vec<Option<u64>> = asked.map(|opened| opened.map(|opened| opened.asked_ns)).collect();
        let of_thread = |thread| asked_ns.iter().copied().skip(thread).step_by(threads.len()).collect();
        let context = report::Context {
            sessions_wanted: args.session_count(),
            unreceived: args.unreceived,
            span,
            asked_ns: (0..threads.len()).map(of_thread).collect(),
            faulty: faulty.iter().flatten().count(),
            underruns: None,
            served: served_before.zip(served_after).map(|(before, after)| after.since(&before)),
            load_cpu: load_after.since(load_before),
        };
        Ok((totals, context))
    })
}

/// Waits until something of every session has arrived, or of some when the time is over.
fn wait_for_streams(args: &Args, threads: &[Receiver]) -> Result<()> {
    let begun = || threads.iter().map(Receiver::begun).sum::<u64>();
    let end = Instant::now() + Duration::from_secs_f64(args.wait);
    while begun() < args.session_count() as u64 {
        if Instant::now() >= end {
            if begun() == 0 {
                bail!("nothing arrived within {} s", args.wait);
            }
            return Ok(());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
