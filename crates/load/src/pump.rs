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
mod origin;
mod original;
mod places;
mod receive;
mod receiver;
mod report;
mod rtsp;
mod sessions;
mod watch;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

pub use crate::clients::Served;
pub use args::{Args, Limits};
pub use report::Report;

use original::Original;
use places::Places;
use receiver::Receiver;
use sessions::{Opened, Server, Wanted};

/// How long a newcomer is there: a short time each, so that there are the same number all the while.
const STAY: Duration = Duration::from_secs(2);

/// Runs the load and prints the report. False when the asked-for quality was not held.
///
/// # Errors
/// When the server cannot be reached, refuses a session, or a socket cannot be had.
pub fn run(args: &Args) -> Result<bool> {
    let report = measure(args)?;
    args.common.basics.print(&report, &report.failures(&args.limits))
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
        (None, Some(feed), _) => Original::of(&feed.stream),
        (None, None, Some((_, title))) => Original::of(title),
        (None, None, None) => None,
    };
    let places = Places::open(args)?;
    let plan = Plan::new(args, &places);
    let threads = places.start(original.map(Arc::new).as_ref())?;
    let Some(server) = args.server()? else {
        wait_for_streams(args, &threads)?;
        return count(args, &threads, None, &plan, &[]);
    };
    if feed.is_some() {
        server.wait_for_input(&args.title_of(0))?;
    }
    let progress = args.common.progress(plan.initial.len() as u64, "starting");
    let opened = server.open_all(&plan.initial, args.starts_per_second, &progress)?;
    progress.finish_and_clear();
    let report = count(args, &threads, Some(&server), &plan, &opened);
    let underruns = args.rtsp.is_none().then(|| server.underruns_of_all(&opened));
    server.close_all(&opened);
    let underruns = underruns
        .and_then(|underruns| underruns.inspect_err(|error| eprintln!("underruns are not known: {error:#}")).ok());
    Ok(Report { underruns, ..report? })
}

/// Who is to be sent what, and where to. Sessions have numbers: those that are received come first, then newcomers.
struct Plan {
    /// Those that are there before it counts: the received ones spread evenly among the others.
    initial: Vec<Wanted>,
    /// Of those, by their place in that order, their numbers; who is not received has one behind all that are.
    numbers: Vec<usize>,
    /// Those that come while it counts, for a short time.
    newcomers: Vec<Wanted>,
    /// Those that come while it counts, and whose titles break.
    faulty: Vec<Wanted>,
}

impl Plan {
    fn new(args: &Args, places: &Places<'_>) -> Plan {
        let (received, newcomers) = (args.session_count(), args.newcomer_count());
        let numbers = spread(received, args.unreceived);
        let initial = numbers.iter().map(|number| match number.checked_sub(received) {
            None => (args.title_of(*number), places.addr(*number)),
            Some(index) => (args.title_of(*number), args.sink_of(index)),
        });
        let newcomer = |index| (args.title_of(received + args.unreceived + index), places.addr(received + index));
        let faulty = |index| (origin::faulty_title(index), places.addr(received + newcomers + index));
        Plan {
            initial: initial.collect(),
            newcomers: (0..newcomers).map(newcomer).collect(),
            faulty: (0..args.faulty).map(faulty).collect(),
            numbers,
        }
    }
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
fn count(args: &Args, threads: &[Receiver], server: Option<&Server>, plan: &Plan, opened: &[Opened]) -> Result<Report> {
    let common = &args.common;
    thread::sleep(common.warm_up);
    threads.iter().try_for_each(Receiver::reset)?;
    thread::scope(|scope| {
        let visit = |wanted, stay| scope.spawn(move || Some(server?.visit(wanted, common.basics.seconds, stay)));
        let visits = || Ok([visit(&plan.newcomers, STAY), visit(&plan.faulty, common.basics.seconds)]);
        let (visits, counted) = common.count(server.map(|server| &server.api), visits)?;
        let parts = threads.iter().map(Receiver::totals).collect::<Result<Vec<_>>>()?;
        let [newcomers, faulty] = visits.map(|visit| visit.join().ok().flatten().unwrap_or_default());
        let mut asked_ns = vec![None; args.session_count()];
        for (number, opened) in plan.numbers.iter().zip(opened) {
            if let Some(asked) = asked_ns.get_mut(*number) {
                *asked = Some(opened.asked_ns);
            }
        }
        asked_ns.extend(newcomers);
        Ok(Report {
            sessions_wanted: args.session_count(),
            unreceived: args.unreceived,
            seconds: counted.seconds,
            faulty: faulty.iter().flatten().count(),
            served: counted.served,
            load_cpu: counted.load_cpu,
            ..Report::of_sessions(&parts, &asked_ns)
        })
    })
}

/// Waits until something of every session has arrived, or of some when the time is over.
fn wait_for_streams(args: &Args, threads: &[Receiver]) -> Result<()> {
    let end = Instant::now() + args.wait;
    loop {
        let begun = threads.iter().map(Receiver::begun).sum::<Result<usize>>()?;
        let is_over = Instant::now() >= end;
        ensure!(begun > 0 || !is_over, "nothing arrived within {} s", args.wait.as_secs_f64());
        if begun >= args.session_count() || is_over {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests;
