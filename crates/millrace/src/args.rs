//! What can be typed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

/// A media server: rooms and broadcasts by WebRTC, a TURN relay, MPEG transport streams by UDP, live streams by HTTP.
#[derive(Parser)]
#[command(version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Start here:
  millrace serve --demo                      a moving picture at http://127.0.0.1:8080/
  millrace serve --dev                       publish and watch in your browser, without tokens
  millrace check --reference > millrace.toml every setting with its default, to edit
  millrace load rooms --subscribers 500      watch with 500 viewers, and see what arrives
  millrace pump film.ts udp://127.0.0.1:5000  plays a transport stream out, each packet on time
  millrace relay --user alice:open-sesame    carries packets between who cannot reach each other (TURN)";

#[derive(Subcommand)]
pub enum Command {
    /// Runs the server until SIGTERM or Ctrl-C.
    Serve(Serve),
    /// Reads a configuration and prints what is in effect, or what is wrong with it.
    Check(Check),
    /// Looks at the host, and says what will hurt, how that is known, and what mends it.
    #[command(after_help = crate::examine::EXAMPLES)]
    Doctor(crate::examine::Doctor),
    /// Plays an MPEG transport stream to a UDP or RTP destination, each packet on time.
    #[command(after_help = PUMP_EXAMPLES)]
    Pump(crate::pump::Pump),
    /// Runs a TURN server alone until SIGTERM or Ctrl-C.
    #[command(after_help = crate::relay::EXAMPLES)]
    Relay(crate::relay::Relay),
    /// Makes a token that lets its bearer publish or watch.
    Token(Token),
    /// Signs the address of a stream, so that who has it may watch (reflect.url_keys).
    #[command(after_help = crate::sign::EXAMPLES)]
    Sign(crate::sign::Sign),
    /// Adds, lists and removes users of the relay in their file.
    #[command(after_help = crate::users::EXAMPLES)]
    Users(crate::users::Command),
    /// Makes settings of another server's configuration.
    Import {
        #[command(subcommand)]
        what: crate::import::Import,
    },
    /// Plays clients of a running server, and measures what they see.
    Load {
        #[command(subcommand)]
        what: Load,
    },
    /// Compares servers under the same load, and says what is real and what is noise.
    #[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = AB_EXAMPLES)]
    Ab(ab::Args),
    /// Compares ways of doing the same work, on this machine.
    Bench {
        #[command(subcommand)]
        what: Bench,
    },
    /// Writes manual pages of all commands.
    Manual(crate::manual::Manual),
    /// Prints completions of all commands for a shell.
    #[command(after_help = crate::manual::COMPLETIONS_EXAMPLES)]
    Completions(crate::manual::Completions),
    /// Predicts how many machines carry so many viewers, what gives out first, and why.
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(plan::Args),
}

/// Where settings come from: the file, the environment over it, --set over both.
#[derive(Args)]
pub struct Settings {
    /// TOML file with settings; see `millrace check --reference`.
    #[arg(long, short, value_name = "FILE", env = "MILLRACE_CONFIG")]
    pub config: Option<PathBuf>,
    /// Sets one setting, such as rooms.idle_timeout=10s. The environment has it as MILLRACE_ROOMS_IDLE_TIMEOUT.
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub set: Vec<String>,
}

#[derive(Args)]
#[command(after_help = SERVE_EXAMPLES)]
pub struct Serve {
    #[command(flatten)]
    pub settings: Settings,
    /// Publishes a built-in clip as the stream "demo"; implies --dev.
    #[arg(long)]
    pub demo: bool,
    /// Lets everybody publish and watch, without a token.
    #[arg(long)]
    pub dev: bool,
    /// Address and port of the HTTP server.
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<SocketAddr>,
}

const SERVE_EXAMPLES: &str = "\
Examples:
  millrace serve --demo
  millrace serve --dev --set workers.count=1
  millrace serve --config millrace.toml --listen 0.0.0.0:8080
  MILLRACE_AUTH_HS256_SECRET=$(openssl rand -base64 32) millrace serve

The first SIGTERM or Ctrl-C refuses new sessions and lets those that are there go on for http.drain_timeout,
the second one ends at once.";

#[derive(Args)]
#[command(after_help = CHECK_EXAMPLES)]
pub struct Check {
    /// The file to check. The environment counts too, as it does for serve.
    #[arg(value_name = "CONFIG")]
    config: Option<PathBuf>,
    /// The same, as serve has it.
    #[arg(long = "config", value_name = "CONFIG", conflicts_with = "config")]
    named: Option<PathBuf>,
    /// Sets one setting over the file.
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
    /// Prints all settings with their meaning and their defaults, as a file to start from.
    #[arg(long, conflicts_with_all = ["config", "named", "set"])]
    pub reference: bool,
}

impl Check {
    pub fn settings(&self) -> Settings {
        Settings { config: self.config.clone().or_else(|| self.named.clone()), set: self.set.clone() }
    }
}

const CHECK_EXAMPLES: &str = "\
Examples:
  millrace check millrace.toml
  millrace check --reference > millrace.toml";

#[derive(Args)]
#[command(after_help = TOKEN_EXAMPLES)]
pub struct Token {
    #[command(flatten)]
    pub settings: Settings,
    /// Room of LiveKit's protocol that may be joined; signed with the first of livekit.keys.
    #[arg(long, value_name = "NAME", requires = "identity", conflicts_with_all = ["publish", "watch", "admin", "subject", "key"])]
    pub room: Option<String>,
    /// Who joins it: nobody else in the room is called so.
    #[arg(long, value_name = "WHO", requires = "room")]
    pub identity: Option<String>,
    /// How others see them.
    #[arg(long, value_name = "NAME", requires = "room")]
    pub name: Option<String>,
    /// Stream that may be published; a name that ends in * stands for all that begin so.
    #[arg(long, value_name = "NAME")]
    pub publish: Vec<String>,
    /// Stream that may be watched.
    #[arg(long, value_name = "NAME")]
    pub watch: Vec<String>,
    /// Lets its bearer do everything, also close streams of others.
    #[arg(long)]
    pub admin: bool,
    /// Who the token is for (the claim "sub").
    #[arg(long, value_name = "WHO")]
    pub subject: Option<String>,
    /// How long the token holds: a number with s, m or h.
    #[arg(long, value_name = "TIME", default_value = "12h", value_parser = duration)]
    pub expires: Duration,
    /// Ed25519 private key (PEM) to sign with, where the server has the public one; otherwise auth.hs256_secret is used.
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
}

const PUMP_EXAMPLES: &str = "\
Examples:
  millrace pump film.ts udp://127.0.0.1:5000
  millrace pump film.ts rtp://239.1.2.3:5004 --loop --ttl 4 --interface eth0
  millrace pump film.ts udp://192.0.2.7:5000 --start 10m --pad 6Mbps --burst 1
  millrace pump https://example.org/film.ts udp://127.0.0.1:5000
  millrace pump udp://@239.1.1.1:5000 rtp://192.0.2.7:5004            what comes in, evened out

Ctrl-C ends it. Watch with: ffplay udp://127.0.0.1:5000   or: vlc udp://@:5000";

const TOKEN_EXAMPLES: &str = "\
Examples:
  millrace token --config millrace.toml --publish studio
  millrace token --config millrace.toml --watch '*' --expires 24h --subject lobby-screen
  openssl genpkey -algorithm ed25519 -out key.pem && openssl pkey -in key.pem -pubout   # for auth.eddsa_public_key
  millrace token --key key.pem --publish 'event-*'
  millrace token --config millrace.toml --room standup --identity ada --name Ada

The token goes into the page's token field, to any WHIP client as its bearer token, or to LiveKit's clients.";

pub fn duration(text: &str) -> Result<Duration, String> {
    server::config::duration(text).ok_or_else(|| "a number with s, m or h, such as 90s or 12h".to_owned())
}

#[derive(Subcommand)]
pub enum Load {
    /// Publishes made-up video by WHIP and watches it by WHEP, or both in a LiveKit room, with as many viewers as asked for.
    #[command(after_help = LOAD_EXAMPLES)]
    Rooms(load::rooms::Args),
    /// Starts sessions of a title at a pump, or listens to any sender of MPEG-TS, and measures what arrives.
    #[command(after_help = PUMP_LOAD_EXAMPLES)]
    Pump(load::pump::Args),
    /// Plays clients of a TURN server and their peers: floods, a given rate, or allocations made and freed.
    #[command(after_help = RELAY_LOAD_EXAMPLES)]
    Relay(load::relay::Args),
    /// Watches one HTTP stream with thousands of viewers, and measures what they see; it can be the stream's source too.
    #[command(after_help = REFLECT_LOAD_EXAMPLES)]
    Reflect(load::reflect::Args),
    /// Sends a server what strangers may send: floods, forged packets, connections and offers that lead nowhere.
    #[command(after_help = ATTACK_EXAMPLES)]
    Attack(load::attack::Args),
}

const LOAD_EXAMPLES: &str = "\
Examples (each against a server that runs, such as `millrace serve --dev`):
  millrace load rooms --subscribers 500
  millrace load rooms --publishers 10 --subscribers 2000 --bitrate 800k --join-rate 300 --seconds 30
  millrace load rooms --subscribers 2000 --max-loss 0.001 --max-p99 20 --json     exit status 1 when not held
  millrace load rooms --subscribers 5000 --fill 250                               how many until quality breaks?
  millrace load rooms --livekit --api-key devkey --api-secret secret --publishers 3 --subscribers 100";

const PUMP_LOAD_EXAMPLES: &str = "\
Examples:
  millrace load pump --title film.ts --sessions 1000
  millrace load pump --title film.ts --file film.ts --sessions 500 --starts-per-second 100 --max-loss 0 --max-delay-factor 12
  millrace load pump --title film.ts --sessions 200 --unreceived 3300 --sink 198.18.0.0:5000 --json
  millrace load pump --title live/news --feed udp://127.0.0.1:9000 --sessions 1000     for a server with this input
  millrace load pump --title film.ts --rtsp 127.0.0.1:554 --sessions 1000
  millrace load pump --listen udp://127.0.0.1:20000 --sessions 20     streams of another sender, a port each
  millrace load pump --listen udp://@239.1.1.1:5000 --seconds 60";

const RELAY_LOAD_EXAMPLES: &str = "\
Examples (each against a TURN server that runs and lets clients have peers on loopback):
  millrace load relay --secret north
  millrace load relay --clients 500 --peers 50 --rate 50 --max-loss 0 --max-p99 5
  millrace load relay --transport tls --server 127.0.0.1:5349 --clients 40 --rate 500
  millrace load relay --indications --length 1100 --in-flight 64 --json
  millrace load relay --clients 100 --rate 100 --strangers 200000     what others do to them who ask from a million addresses
  millrace load relay --allocate --clients 64 --server-pid 4711     tells what an allocation costs that process";

const REFLECT_LOAD_EXAMPLES: &str = "\
Examples (each against a server that runs):
  millrace load reflect --origin 127.0.0.1:9000 --viewers 1000     for a server whose stream \"load\" has this source
  millrace load reflect --push /live/load --viewers 5000 --rate 4M --read-every 20
  millrace load reflect --push /live/load --viewers 500 --slow 10@500k --deaf 2 --churn 50 --max-faults 0
  millrace load reflect --push /live/load --viewers 3000 --at-once --max-first-byte 300
  millrace load reflect --stream http://127.0.0.1:9094/live.ts --viewers 100     any server's stream, by its bytes alone";

const ATTACK_EXAMPLES: &str = "\
Examples (against a server of your own, while `millrace load rooms` watches it):
  millrace load attack --seconds 20
  millrace load attack --kinds slow --held 20000 --byte-interval 8
  millrace load attack --stream studio --kinds stun,ufrag,dtls --rate 50000

The server is to lose nothing of what it sends to others meanwhile.";

#[derive(Subcommand)]
pub enum Bench {
    /// Seals one stream for many viewers and sends it to sinks, by five ways of sharing the work among threads.
    #[command(after_help = BENCH_EXAMPLES)]
    Fanout(bench::fanout::Args),
    /// Measures what the bare kernel path costs: sends by batch size, receives, sendfile, SRTP.
    #[command(after_help = FLOOR_EXAMPLES)]
    Floor(bench::floor::Args),
    /// Is a relay without rules, to be loaded by `millrace load relay`: what a relay's datagrams cost at least.
    #[command(after_help = RELAY_BENCH_EXAMPLES)]
    Relay(bench::relay::Args),
    /// Hands one video to all who watch, and nothing else, to be loaded by `millrace load rooms`: what that costs at least.
    #[command(after_help = ROOMS_BENCH_EXAMPLES)]
    Rooms(bench::rooms::Args),
    /// Sends one HTTP stream to all who ask, and nothing else, to be loaded by `millrace load reflect`: what that costs at
    /// least.
    #[command(after_help = REFLECT_BENCH_EXAMPLES)]
    Reflect(bench::reflect::Args),
    /// Makes thousands of the relay's allocations and lets all end at once: what they take, and what packets notice.
    #[command(after_help = ALLOCATIONS_EXAMPLES)]
    Allocations(bench::allocations::Args),
    /// Sends thousands of paced streams in three ways, beside the bare loop: what each costs, and how late it is.
    #[command(after_help = PUMP_BENCH_EXAMPLES)]
    Pump(bench::pump::Args),
}

const ROOMS_BENCH_EXAMPLES: &str = "\
Examples (for measurements only: whoever asks is let in):
  millrace bench rooms
  millrace load rooms --url http://127.0.0.1:8090     loads it";

const REFLECT_BENCH_EXAMPLES: &str = "\
Examples:
  millrace bench reflect --source 127.0.0.1:9000 --window 20
  millrace bench reflect --source 127.0.0.1:9000 --window 10 --way copy
  millrace load reflect --stream http://127.0.0.1:19098/ --origin 127.0.0.1:9000     loads it";

const ALLOCATIONS_EXAMPLES: &str = "\
Examples:
  millrace bench allocations
  millrace bench allocations --sockets       one socket each, as far as the limit of open files goes";

const BENCH_EXAMPLES: &str = "\
Examples:
  millrace bench fanout
  millrace bench fanout --down-tracks 10,500,2000 --profiles gcm128 --svg fanout.svg";

const FLOOR_EXAMPLES: &str = "\
Examples:
  millrace bench floor
  millrace bench floor --size 1316 --rounds 12 --seconds 0.5 --json
  millrace bench floor --to 10.9.0.2:9       to an address that drops, such as in a namespace behind veth";

const RELAY_BENCH_EXAMPLES: &str = "\
Examples (for measurements only: it asks for no credentials):
  millrace bench relay
  millrace bench relay --listen 127.0.0.1:3478 --way plain";

const PUMP_BENCH_EXAMPLES: &str = "\
Examples:
  millrace bench pump
  millrace bench pump --streams 50,1000,3500 --burst 2,4 --netns --svg pump.svg
  millrace bench pump --rate 1M,4.5M,20M --streams 1000 --ways ours,floor --tick 100 --reference";

const AB_EXAMPLES: &str = "\
Examples:
  millrace ab plan.toml --rounds 12
  millrace ab --a ./old.sh --b ./new.sh --ready tcp:127.0.0.1:8080 --load ./load.sh --seconds 10s
  millrace ab --a ./old.sh --b ./new.sh --ready log:listening --load ./load.sh --server-cpus 0 --load-cpus 1 --judge p99
  millrace ab report bench-results/rooms-2026-01-31-120000

A plan has two subjects or more; a point is where on the x axis:
  rounds = 8                                 seconds, warm_up, judge, server_cpus, load_cpus as the flags
  points = [10, 100]                         axis = \"viewers\" says what they count
  jobs = [\"send\", \"receive\"]              or what points 1 and 2 are, where they are kinds of work
  steal_max = 1.0                            percent; others_max = 5.0 for other programs. Who has more is disturbed,
  repeats = 2                                and is repeated so often at most. ready_timeout = \"20s\", load_timeout = \"60s\"
  [[subject]]
  name = \"mine\"
  command = \"millrace serve --dev\"
  ready = \"tcp:127.0.0.1:8080\"
  version = \"millrace --version\"            may be left out, as may cleanup
  vars = { url = \"http://127.0.0.1:8080\" }  is put in the place of {url}
  only = [10]                                may be left out: the points at which it is measured
  [load]
  command = \"millrace load rooms --json --marks --url {url} --subscribers {point} --seconds {seconds}\"

The load prints what arrived as its last line:
  {\"packets\":N,\"bytes\":N,\"seconds\":S,\"lost\":N,\"latency_ms\":{\"p50\":MS,\"p99\":MS},\"values\":{\"NAME\":X}}
all but the first two may be left out. Where it joins or warms up at first, it says when it measures, by the lines
  {\"mark\":\"begin\"} and {\"mark\":\"end\"}";

const PLAN_EXAMPLES: &str = "\
Examples:
  millrace plan --viewers 1e6 --bitrate 2M
  millrace plan --viewers 50_000 --bitrate 800k --rooms 500 --publishers 2 --cores 8 --memory 32G --nic 10G
  millrace plan --viewers 20000 --costs mine.toml --headroom 0.5 --json
  millrace plan --check bench-results/rooms-2026-01-31-120000      the prediction beside what was measured

The costs that are built in were measured on one machine; see docs/bench/costs.toml.";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn examples_in_the_help_can_be_typed() {
        let texts = helps(&Cli::command());
        let commands = texts.iter().flat_map(|text| text.lines()).filter_map(|line| line.strip_prefix("  millrace "));
        let mut count = 0;
        for command in commands {
            // What comes behind two blanks or a > is said about the command.
            let typed = command.split("  ").next().unwrap_or_default().split(" > ").next().unwrap_or_default();
            let words = typed.split_whitespace().map(|word| word.trim_matches('\''));
            let parsed = Cli::try_parse_from(std::iter::once("millrace").chain(words));
            assert!(parsed.is_ok(), "{command}: {}", parsed.err().map(|error| error.to_string()).unwrap_or_default());
            count += 1;
        }
        assert!(count > 30, "{count}");
    }

    /// What stands below the help of a command and of all commands in it.
    fn helps(command: &clap::Command) -> Vec<String> {
        let own = command.get_after_help().map(ToString::to_string);
        own.into_iter().chain(command.get_subcommands().flat_map(helps)).collect()
    }
}
