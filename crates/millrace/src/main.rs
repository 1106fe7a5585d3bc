//! The binary: what was typed becomes what is meant, and is done.
#![forbid(unsafe_code)]

mod args;
mod examine;
mod import;
mod logging;
mod manual;
mod pump;
mod relay;
mod sign;
mod token;
mod users;

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::Parser;
use server::auth::{Auth, KeyError};
use server::config::Config;
use server::http::admin::LogFilter;

use args::{Bench, Check, Cli, Command, Load, Serve, Settings};

/// An allocator that asks for huge pages, as `.cargo/config.toml` tells it when it is built. Each viewer's state lies in a
/// few places of its own, and each frame visits all of them for all viewers: with pages of 4 KiB the processor's table of
/// addresses (TLB) is too small from some hundred viewers on. glibc asks for them on its main heap only, and only when it
/// is told to before the process starts; the workers' heaps are others. It is C's allocator too: keys lie with aws-lc.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    end_at_panics();
    let done = match Cli::parse().command {
        Command::Serve(args) => serve(&args),
        Command::Check(args) => check(&args),
        Command::Doctor(args) => load(&args.settings).and_then(|config| args.run(&config)),
        Command::Pump(args) => args.run().map(|()| true),
        Command::Relay(args) => relay(&args),
        Command::Token(args) => token::print(&args),
        Command::Sign(args) => args.run(),
        Command::Users(args) => args.run(),
        Command::Import { what } => what.run(),
        Command::Load { what: Load::Rooms(args) } => load::rooms::run(&args),
        Command::Load { what: Load::Pump(args) } => load::pump::run(&args),
        Command::Load { what: Load::Relay(args) } => load::relay::run(&args),
        Command::Load { what: Load::Reflect(args) } => load::reflect::run(&args),
        Command::Load { what: Load::Attack(args) } => load::attack::run(&args),
        Command::Ab(args) => ab::execute(&args),
        Command::Bench { what: Bench::Fanout(args) } => bench::fanout::execute(&args).map(|()| true),
        Command::Bench { what: Bench::Floor(args) } => bench::floor::execute(&args).map(|()| true),
        Command::Bench { what: Bench::Relay(args) } => bench::relay::execute(&args).map(|never| match never {}),
        Command::Bench { what: Bench::Rooms(args) } => bench::rooms::execute(&args).map(|never| match never {}),
        Command::Bench { what: Bench::Reflect(args) } => bench::reflect::execute(&args).map(|never| match never {}),
        Command::Bench { what: Bench::Allocations(args) } => bench::allocations::execute(&args).map(|()| true),
        Command::Bench { what: Bench::Pump(args) } => bench::pump::execute(&args).map(|()| true),
        Command::Manual(args) => args.run(),
        Command::Completions(args) => args.run(),
        Command::Plan(args) => plan::execute(&args).map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("millrace: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn serve(args: &Serve) -> anyhow::Result<bool> {
    let read = || -> anyhow::Result<Config> {
        let mut config = load(&args.settings)?;
        config.auth.dev |= args.dev || args.demo;
        if let Some(listen) = args.listen {
            config.http.listen = listen;
        }
        Ok(config)
    };
    let config = read()?;
    let log_filter = start_logging(&config, &args.settings)?;
    server::run::run(&config, (&read, Some(log_filter)), args.demo)?;
    Ok(true)
}

fn relay(args: &relay::Relay) -> anyhow::Result<bool> {
    let config = args.config(environment())?;
    let log_filter = start_logging(&config, &args.settings)?;
    server::run::run(&config, (&|| args.config(environment()), Some(log_filter)), false)?;
    Ok(true)
}

/// A panic ends the process, on whatever thread, but where it can only be about one session or connection.
fn end_at_panics() {
    let say = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        say(panic);
        if server::guard::ends_process(panic) {
            std::process::abort();
        }
    }));
}

/// Prints what is in effect, or the reference.
fn check(args: &Check) -> anyhow::Result<bool> {
    if args.reference {
        return say(&Config::reference());
    }
    let settings = args.settings();
    let config = load(&settings)?;
    logging::filter(&config)?;
    if let Some(exposed) = settings.config.as_deref().and_then(Config::exposed) {
        eprintln!("millrace: note: {exposed}");
    }
    for warning in server::run::check(&config)? {
        eprintln!("millrace: warning: {warning}");
    }
    // It may be meant for another machine.
    if let Err(error) = server::relay::setup::probe(&config) {
        eprintln!("millrace: note: {error:#}");
    }
    match Auth::of(&config) {
        // The file may be meant for `serve --dev`, or the key comes from the environment there.
        Err(error @ KeyError::NoKey) => eprintln!("millrace: note: `millrace serve` would refuse, as {error}"),
        result => drop(result?),
    }
    say(&config.to_string())
}

/// Prints what was asked for. Who has read enough of it has what they wanted.
fn say(text: &str) -> anyhow::Result<bool> {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error).context("printing"),
        _ => Ok(true),
    }
}

fn load(settings: &Settings) -> anyhow::Result<Config> {
    Ok(Config::load(settings.config.as_deref(), environment(), &settings.set)?)
}

/// A variable that is not UTF-8 is none of ours.
fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| name.into_string().ok().zip(value.into_string().ok()))
}

fn start_logging(config: &Config, settings: &Settings) -> anyhow::Result<Arc<dyn LogFilter>> {
    let log_filter = logging::start(config)?;
    if let Some(exposed) = settings.config.as_deref().and_then(Config::exposed) {
        tracing::warn!("{exposed}");
    }
    Ok(log_filter)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use tracing::Level;

    use super::*;

    /// The test runs itself once more, as a process that panics.
    #[test]
    fn a_panic_on_any_thread_is_said_and_ends_the_process() {
        const PANICS: &str = "MILLRACE_TEST_PANICS";
        if std::env::var_os(PANICS).is_some() {
            end_at_panics();
            drop(std::thread::spawn(|| panic!("on purpose")).join());
            return;
        }
        let name = "tests::a_panic_on_any_thread_is_said_and_ends_the_process";
        let itself = std::env::current_exe().expect("a path");
        let run =
            Command::new(itself).args(["--exact", name, "--nocapture"]).env(PANICS, "").output().expect("it runs");
        assert_eq!(run.status.signal(), Some(6), "SIGABRT");
        assert!(String::from_utf8_lossy(&run.stderr).contains("on purpose"), "{run:?}");
    }

    #[test]
    fn what_a_peer_makes_a_library_say_is_not_written() {
        let filter = logging::filter(&Config::default()).expect("a filter");
        let subscriber = tracing_subscriber::fmt().with_env_filter(filter).finish();
        tracing::subscriber::with_default(subscriber, || {
            assert!(!tracing::enabled!(target: "dimpl::dtls12::engine", Level::WARN));
            assert!(!tracing::enabled!(target: "str0m", Level::WARN));
            assert!(!tracing::enabled!(target: "is::agent", Level::WARN));
            assert!(!tracing::enabled!(target: "sctp_proto::association", Level::WARN));
            assert!(!tracing::enabled!(target: "h2::proto::ping_pong", Level::WARN));
            assert!(!tracing::enabled!(target: "hyper::proto::h2::server", Level::WARN));
            assert!(!tracing::enabled!(target: "rustls::conn", Level::WARN));
            assert!(tracing::enabled!(target: "dimpl", Level::ERROR));
            assert!(tracing::enabled!(target: "millrace", Level::INFO));
            assert!(tracing::enabled!(target: "server::run", Level::INFO));
            assert!(tracing::enabled!(target: "engine::worker", Level::INFO));
            assert!(tracing::enabled!(target: "titles::library", Level::INFO));
            assert!(tracing::enabled!(target: "acme::keeper", Level::INFO));
            assert!(tracing::enabled!(target: "audit", Level::INFO));
        });
    }
}
