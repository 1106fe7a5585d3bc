//! From the start to the end of a server's life.
//!
//! Start: bind all sockets, start the workers, then answer HTTP. End: SIGTERM or SIGINT drains (new sessions are refused,
//! those that are there go on until the drain's time is over), a second signal ends at once. SIGUSR1 drains as well, for as
//! long as it takes. SIGHUP has files read again, and the settings (`reload`). SIGUSR2 has a new process take over
//! (`upgrade`).

mod handover;
mod reload;

use std::fmt::Display;
use std::future::pending;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use acme::Keeper;
use anyhow::{Context as _, ensure};
use livekit::token::{Claims, VideoGrant};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::auth::Auth;
use crate::config::{self, Config};
use crate::demo;
use crate::door::{self, Door, Entrance, Hosts, Opened, TurnClient};
use crate::host::host_addresses;
use crate::http::admin::{LogFilter, keep_sampling};
use crate::http::{self, Admin, App, Connections, Limits, Metrics, MetricsSettings, Proxies, Site};
use crate::livekit::weak_keys;
use crate::machine::{self, Machine, Running};
use crate::owner::ROOMS;
use crate::reflect::control::Away;
use crate::relay::control::RelayControl;
use crate::relay::handshakes::NO_IDENTITY;
use crate::relay::setup as relay_setup;
use crate::rooms::client::Client;
use crate::rtsp::{self, Rtsp};
use crate::signals::{Ends, Wish, Wishes};
use crate::supervisor;
use crate::tls::{self, Certificates, Sources};
use crate::upgrade::{Failed, Successor};
use handover::{Doors, Inherited, Shared, Silent, hand_over, hindrance, pass_on};
use reload::Reload;

/// The stream that the demo publishes.
pub const DEMO_STREAM: &str = "demo";

/// The room of LiveKit's protocol in which it is, and who it is there.
pub const DEMO_ROOM: &str = "demo";
/// See `DEMO_ROOM`.
pub const DEMO_IDENTITY: &str = "clip";

/// How often what is due in the control plane is done.
const CONTROL_TICK: Duration = Duration::from_millis(250);

/// How long goodbyes may take once the last session was told to end.
const GOODBYE: Duration = Duration::from_millis(200);
/// What each session of rooms may take in addition: its negotiator comes behind everybody else on a busy machine.
const GOODBYE_PER_SESSION: Duration = Duration::from_micros(200);
/// How often it is looked whether they are gone.
const LOOK: Duration = Duration::from_millis(5);
/// The end is not waited for any longer, however many there are.
const GOODBYE_MAX: Duration = Duration::from_secs(5);

/// Connections of TURN that wait to be given to a worker, which takes no time.
const TURN_CLIENTS_MAX: usize = 256;

/// Refuses what the server would refuse at its start, as far as that can be told without opening a socket, so that `millrace
/// check` says so. Returned is what the server would only warn of.
///
/// # Errors
/// What cannot be, by the names of the settings.
pub fn check(config: &Config) -> anyhow::Result<Vec<String>> {
    relay_setup::check(config)?;
    tls::check(config)?;
    Entrance::merge(entrances(config))?;
    machine::check(config)?;
    let obtained = config.acme.settings()?;
    if let Some(settings) = &obtained {
        settings.check().context("[acme]")?;
    }
    // Nothing is made in the folder that another user may not change.
    let certificates = certificates(config, None)?;
    let lacks_identity = certificates.as_ref().is_some_and(|certificates| certificates.identity().is_none());
    // One that is obtained will have a key that does.
    ensure!(config.relay.dtls_listen.is_empty() || !lacks_identity || obtained.is_some(), NO_IDENTITY);
    let faults = certificates.iter().flat_map(|certificates| certificates.faults(SystemTime::now()));
    let is_met = entrances(config).any(|(at, entrance)| entrance.is_tls && at.port() == acme::PORT);
    let unmet = (obtained.is_some() && !is_met).then(|| {
        "acme.domains: the directory comes to port 443, and neither http.tls_listen nor relay.tls_listen is there; it has to \
         be passed on to one of them"
            .to_owned()
    });
    let faults = faults.map(|fault| format!("tls.certificates: {fault}"));
    Ok(faults.chain(unmet).chain(weak_keys(config)).collect())
}

/// Reads the settings again, from where they came.
pub type Reread<'a> = &'a dyn Fn() -> anyhow::Result<Config>;

/// Runs the server until it is told to stop. `reread` is asked when whoever runs it says so; an admin may change `log_filter`.
///
/// # Errors
/// When an address cannot be bound, a key cannot be read, or a thread fails.
pub fn run(
    config: &Config,
    (reread, log_filter): (Reread<'_>, Option<Arc<dyn LogFilter>>),
    with_demo: bool,
) -> anyhow::Result<()> {
    let before = Inherited::find(config)?;
    // Each TCP link and each HTTP connection takes one.
    let files_max = engine::sys::raise_open_files_max().unwrap_or_else(|error| {
        tracing::warn!(%error, "the limit of open files stays as it is");
        FILES_MAX_USUAL
    });
    if config.http.tls_listen.is_some() {
        tls::tell_who_seals();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("control")
        // Below the workers, which must not wait for HTTP on a busy machine.
        .on_thread_start(|| drop(engine::sys::set_nice(CONTROL_NICE)))
        .enable_all()
        .build()
        .context("starting the control threads")?;
    runtime.block_on(serve(config, before, (reread, log_filter), files_max, with_demo))
}

/// Open files that a process may have where nobody knows better: getrlimit(2) of most systems.
const FILES_MAX_USUAL: u64 = 1_024;

const CONTROL_NICE: i32 = 5;

async fn serve(
    config: &Config,
    mut before: Inherited,
    (reread, log_filter): (Reread<'_>, Option<Arc<dyn LogFilter>>),
    files_max: u64,
    with_demo: bool,
) -> anyhow::Result<()> {
    let mut wishes = Wishes::new()?;
    tls::check(config)?;
    let keeper = config.acme.settings()?.map(Keeper::new).transpose().context("[acme]")?;
    let certificates = certificates(config, keeper)?;
    let auth = Auth::of(config).context("reading the keys of [auth]")?;
    let opened = open_all(config, &mut before, certificates.as_ref())?;
    // Where the system chose ports, these are what everybody is told.
    let relay = with_ports(&config.relay, &opened)?;
    let given = config;
    let config = &Config { relay, reflect: reflected(config, with_demo), ..config.clone() };
    let mut listener =
        |setting, addr: Option<SocketAddr>| addr.map(|addr| before.open(setting, addr, false)).transpose();
    let rtsp_listener = listener("pump.rtsp_listen", config.pump.rtsp_listen)?;
    let metrics_listener = listener("http.metrics_listen", config.http.metrics_listen)?;
    ensure!(!with_demo || !config.workers.bind.is_empty(), "the demo needs rooms (see workers.bind)");
    let mut machine = Machine::bind(config, files_max, before.sockets())?;
    let context = machine.context();
    if hindrance(config).is_none() {
        before.share(machine.share()?);
    }
    let sockets = before.ready()?;
    let running = machine.run(config, certificates.as_ref())?;
    let mut silent = before.take_up(&running, config)?;
    let rtsp = rtsp_listener.map(|listener| {
        let rtsp = Rtsp::new(running.pump.clone(), rtsp_limits(config));
        (Arc::new(rtsp), listener)
    });
    let app = App {
        rtsp: rtsp.as_ref().map(|(rtsp, _)| rtsp.clone()),
        certificates: certificates.clone(),
        admin: Admin::default().with_checks(config.clone()).with_log_filter(log_filter),
        ..application(config, &running, auth)
    };
    let app = Arc::new(app);
    let addr = opened[0].local_addr()?;
    let by_tls = opened.iter().find(|opened| opened.setting() == "http.tls_listen");
    let tls_addr = by_tls.map(Opened::local_addr).transpose()?;
    let mut doors = Doors::new();
    let metrics_addr = metrics_listener.as_ref().map_or(Ok(addr), TcpListener::local_addr)?;
    // Who accepts at addresses of their own.
    let mut apart = Vec::new();
    if let Some(listener) = metrics_listener {
        apart.push(tokio::spawn(http::serve_metrics(app.clone(), listener)));
    }
    let hosts = Hosts {
        site: Site::new(app.clone()),
        turn: running.relay.clone().map(|relay| turn_clients(relay, app.door.clone())),
    };
    for mut entrance in opened {
        tracing::info!(listen = %entrance.local_addr()?, "{}", entrance.setting());
        silent.return_to(&mut entrance);
        doors.open(&app.door, entrance, &hosts);
    }
    drop(silent);
    // The directory comes to one of these.
    apart.extend(certificates.iter().flat_map(Certificates::start));
    apart.push(tokio::spawn(keep_sampling(app.clone())));
    if let Some((rtsp, listener)) = rtsp {
        tracing::info!(listen = %listener.local_addr()?, "RTSP");
        apart.push(tokio::spawn(rtsp::listener::serve(rtsp, listener)));
    }
    if with_demo {
        start_demo(&context, &running).await?;
    }
    // From here on whoever started it may tell it to stop.
    let mut ends = Ends::new()?;
    announce((addr, tls_addr), metrics_addr, config, &running, with_demo);
    supervisor::tell_ready(&upgrades(config, &running));
    let reload = Reload::new(given, reread, certificates.as_deref(), with_demo);
    let serving =
        Serving { config, reload, running: &running, app: &app, hosts: &hosts, certificates: certificates.as_ref() };
    let over = serving.attend(doors, sockets, &mut ends, &mut wishes).await?;
    app.admin.end();
    if let Some((away, sockets)) = over {
        apart.iter().for_each(JoinHandle::abort);
        // Who comes is to be refused when the new process is gone, and not to wait for this one.
        drop(sockets);
        say_goodbye_to_others(&running).await;
        pass_on(away, &running, &app.connections, &mut ends, &mut wishes).await;
    }
    app.connections.end().await;
    let plane = running.plane.clone();
    // What is traced is sent by another thread, for which this waits.
    Ok(tokio::task::spawn_blocking(move || plane.traces().stop()).await?)
}

/// Listens at all addresses that the door has.
fn open_all(
    config: &Config,
    before: &mut Inherited,
    certificates: Option<&Arc<Certificates>>,
) -> anyhow::Result<Vec<Opened>> {
    // Of TURN's addresses, which are a list, an IPv6 one takes IPv6 alone, as by UDP; HTTP has just one, for both.
    let open = |(addr, entrance): (SocketAddr, Entrance)| {
        Opened::with(before.open(entrance.setting, addr, entrance.turn)?, entrance, certificates)
    };
    Entrance::merge(entrances(config))?.into_iter().map(open).collect()
}

/// What HTTP knows, but for RTSP and certificates.
fn application(config: &Config, running: &Running, auth: Auth) -> App {
    App {
        session_grace: config.auth.session_grace,
        cors_origins: config.http.cors_origins.clone(),
        ice_servers: config.rtc.ice_servers.clone(),
        connections: Arc::new(Connections::new(limits(config))),
        proxies: Proxies { networks: config.http.trusted_proxies.clone(), by: config.http.forwarded_by },
        metrics: Metrics::new(MetricsSettings {
            is_apart: config.http.metrics_listen.is_some(),
            token: config.http.metrics_token.clone(),
            age_max: config.http.metrics_age_max,
        }),
        has_rooms: !config.workers.bind.is_empty(),
        livekit: running.livekit.clone(),
        pump: (!config.pump.bind.is_empty()).then(|| running.pump.clone()),
        relay: running.relay.clone(),
        reflect: Some(running.reflect.clone()),
        door: Door::new(newcomers(config)),
        ..App::new(running.rooms.clone(), auth)
    }
}

/// What serves.
struct Serving<'a> {
    config: &'a Config,
    reload: Reload<'a>,
    running: &'a Running,
    app: &'a App,
    hosts: &'a Hosts,
    certificates: Option<&'a Arc<Certificates>>,
}

impl Serving<'_> {
    /// Until the server is to end, and has drained, or another process has taken over.
    async fn attend(
        &self,
        mut doors: Doors,
        sockets: Shared,
        ends: &mut Ends,
        wishes: &mut Wishes,
    ) -> anyhow::Result<Option<(Away, Shared)>> {
        while let Some(successor) = self.go_on(&sockets, ends, wishes).await? {
            match hand_over(successor, self.running, doors, &self.app.door).await {
                Ok(away) => return Ok(Some((away, sockets))),
                Err((Failed::Within(error), _)) => return Err(error),
                Err((Failed::Before(error), silent)) => {
                    go_on_after(&error);
                    doors = self.reopen(&sockets, silent)?;
                }
            }
        }
        drain(self.config, self.running, ends).await;
        drop((doors, sockets));
        Ok(None)
    }

    /// Listens again.
    fn reopen(&self, sockets: &Shared, mut silent: Silent) -> anyhow::Result<Doors> {
        let mut doors = Doors::new();
        for (addr, entrance) in Entrance::merge(entrances(self.config))? {
            let found = sockets.iter().find(|other| other.name == entrance.setting && other.addr == addr);
            let descriptor = found.context("a listener is lost")?.descriptor.try_clone()?;
            let mut opened = Opened::with(TcpListener::from_std(descriptor.into())?, entrance, self.certificates)?;
            silent.return_to(&mut opened);
            doors.open(&self.app.door, opened, self.hosts);
        }
        Ok(doors)
    }

    /// Does what is due, and what signals say, until it is to end, or there is a process that is ready to take over.
    async fn go_on(&self, sockets: &Shared, ends: &mut Ends, wishes: &mut Wishes) -> anyhow::Result<Option<Successor>> {
        let Serving { config, reload, running, app, .. } = self;
        let mut tick = tokio::time::interval(CONTROL_TICK);
        let (mut is_leaving, mut starting) = (false, None);
        while !is_leaving || running.has_receivers() {
            tokio::select! {
                _ = tick.tick() => running.handle_timeout(Instant::now()),
                () = ends.next() => break,
                reply = app.admin.reload_is_wanted() => {
                    let reloaded = reload.run(&"an admin", config, running, app);
                    // Who has asked may have gone.
                    reply.send(reloaded.map_err(|error| format!("{error:#}"))).ok();
                }
                () = app.admin.drain_is_wanted() => is_leaving = leave(&"an admin", running),
                started = started(&mut starting) => match started {
                    Ok(successor) => return Ok(Some(successor)),
                    Err(error) => go_on_after(&error),
                },
                wish = wishes.next() => match wish {
                    Wish::User2 if starting.is_some() => tracing::warn!("{wish}: a new process is being started already"),
                    Wish::User2 if is_leaving => tracing::warn!("{wish}: the server is draining, and is not replaced"),
                    Wish::User2 if running.reflect.has_streams() => match hindrance(config) {
                        None => {
                            tracing::info!("{wish}: a new process is started");
                            starting = start(sockets);
                        }
                        Some(hindrance) => {
                            tracing::warn!("{wish}: this server is not replaced by a new process: {hindrance}");
                            drop(reload.run(&wish, config, running, app));
                        }
                    },
                    Wish::HangUp | Wish::User2 => drop(reload.run(&wish, config, running, app)),
                    Wish::User1 => is_leaving = leave(&wish, running),
                },
            }
            anyhow::ensure!(running.is_whole(), "a worker or another thread has failed");
        }
        Ok(None)
    }
}

/// A process that was started and is waited for, if one was.
type Starting = Option<JoinHandle<anyhow::Result<Successor>>>;

/// Starts a process that is to take over, and has it waited for elsewhere.
fn start(sockets: &Shared) -> Starting {
    let sockets = sockets.clone();
    let successor = Successor::start().inspect_err(go_on_after).ok()?;
    Some(tokio::task::spawn_blocking(move || successor.wait_until_ready(&sockets)))
}

/// A new process has failed, and has changed nothing.
fn go_on_after(error: &anyhow::Error) {
    tracing::error!("{error:#}; the server goes on as before");
    supervisor::tell_ready(&format!("restart for a new version: {error:#}"));
}

/// Takes nobody new from now on. True: the server is to end with the last of those who are there.
fn leave(says: &dyn Display, running: &Running) -> bool {
    tracing::info!("{says}: draining; the server ends with the last of those who are there");
    running.plane.start_drain();
    true
}

/// The process that was to be started, if one was.
async fn started(starting: &mut Starting) -> anyhow::Result<Successor> {
    let Some(task) = starting else { return pending().await };
    let started = task.await;
    *starting = None;
    started?
}

/// The reflector's settings, with the demo's clip as a stream unless another one is called so, or is where it would be.
fn reflected(config: &Config, with_demo: bool) -> config::Reflect {
    let demo = config::ReflectStream {
        name: DEMO_STREAM.to_owned(),
        source: vec![config::ReflectSource::Demo],
        hls: true,
        hls_segment: Duration::from_secs(1),
        ..config::ReflectStream::default()
    };
    let mut reflect = config.reflect.clone();
    let is_taken = reflect.streams.iter().any(|stream| stream.name == demo.name || stream.path() == demo.path());
    reflect.streams.extend(Some(demo).filter(|_| with_demo && !is_taken));
    reflect
}

/// The relay's settings with the addresses at which its connections come in.
fn with_ports(relay: &config::Relay, opened: &[Opened]) -> anyhow::Result<config::Relay> {
    let of_turn = |is_tls| opened.iter().filter(move |opened| opened.speaks_turn(is_tls)).map(Opened::local_addr);
    let [tcp_listen, tls_listen] = [false, true].map(|is_tls| of_turn(is_tls).collect::<io::Result<Vec<_>>>());
    Ok(config::Relay { tcp_listen: tcp_listen?, tls_listen: tls_listen?, ..relay.clone() })
}

/// How a new version comes to run. A package that brings one goes by the first word.
fn upgrades(config: &Config, running: &Running) -> String {
    let hindrance = if running.reflect.has_streams() { hindrance(config) } else { Some("no stream is reflected") };
    match hindrance {
        None => "SIGUSR2 has a new version take over".to_owned(),
        Some(hindrance) => format!("restart for a new version: {hindrance}"),
    }
}

/// What is listened at by TCP, and what is spoken there. The first is HTTP's.
fn entrances(config: &Config) -> impl Iterator<Item = (SocketAddr, Entrance)> {
    let (http, relay) = (&config.http, &config.relay);
    let of_http = |setting, is_tls| Entrance {
        setting,
        is_tls,
        http: true,
        http2: http.http2,
        turn: false,
        proxied_from: http.proxy_protocol_from.clone(),
    };
    let of_relay = |setting, is_tls| Entrance {
        setting,
        is_tls,
        http: false,
        http2: false,
        turn: true,
        proxied_from: relay.proxy_protocol_from.clone(),
    };
    let plain = [(http.listen, of_http("http.listen", false))];
    let pages = plain.into_iter().chain(http.tls_listen.map(|at| (at, of_http("http.tls_listen", true))));
    let turn = relay.tcp_listen.iter().map(move |at| (*at, of_relay("relay.tcp_listen", false)));
    let turns = relay.tls_listen.iter().map(move |at| (*at, of_relay("relay.tls_listen", true)));
    pages.chain(turn).chain(turns)
}

/// Takes connections to a relay, as fast as its workers take them.
fn turn_clients(relay: Arc<RelayControl>, door: Arc<Door>) -> mpsc::Sender<TurnClient> {
    let (sender, mut clients) = mpsc::channel(TURN_CLIENTS_MAX);
    tokio::spawn(async move {
        while let Some(client) = clients.recv().await {
            if !relay.add_client(client) {
                door.count_refused();
            }
        }
    });
    sender
}

/// Those of the configuration, and one of our own if that is wanted and there is no other.
fn certificates(config: &Config, keeper: Option<Keeper>) -> anyhow::Result<Option<Arc<Certificates>>> {
    let files = config.tls.certificates.clone();
    let self_signed = match config.tls.self_signed && files.is_empty() {
        false => None,
        true => {
            let hosts = host_addresses(config)?;
            let names = ["localhost".to_owned(), Ipv4Addr::LOCALHOST.to_string()];
            Some(names.into_iter().chain(hosts.iter().map(IpAddr::to_string)).collect())
        }
    };
    if files.is_empty() && keeper.is_none() && self_signed.is_none() {
        return Ok(None);
    }
    Certificates::new(Sources { files, keeper, self_signed }).context("tls.certificates").map(Some)
}

fn newcomers(config: &Config) -> door::Limits {
    door::Limits {
        time: config.tls.handshake_timeout,
        newcomers_max: config.tls.newcomers_max,
        newcomers_per_client: config.tls.newcomers_per_client,
        handshakes_per_client: config.tls.handshakes_per_client,
    }
}

fn limits(config: &Config) -> Limits {
    Limits {
        connections_max: config.http.connections_max,
        connections_per_client: config.http.connections_per_client,
        request_timeout: config.http.request_timeout,
        ..Limits::default()
    }
}

fn rtsp_limits(config: &Config) -> rtsp::Limits {
    rtsp::Limits { sessions_per_client: config.pump.rtsp_sessions_per_client, ..rtsp::Limits::default() }
}

/// Publishes the clip as a stream, and as a participant of a room, so that nobody is alone there.
async fn start_demo(context: &webrtc::Context, running: &Running) -> anyhow::Result<()> {
    let (rooms, runtime) = (running.rooms.clone(), tokio::runtime::Handle::current());
    play_demo(context, move |offer| {
        Ok(runtime.block_on(rooms.publish(DEMO_STREAM, &offer, Client::default()))?.answer.sdp)
    })
    .await?;
    let Some(livekit) = &running.livekit else { return Ok(()) };
    let (guests, runtime) = (livekit.guests().clone(), tokio::runtime::Handle::current());
    play_demo(context, move |offer| {
        let video = VideoGrant { room_join: true, room: DEMO_ROOM.to_owned(), ..VideoGrant::default() };
        let (sub, name) = (DEMO_IDENTITY.to_owned(), "the demo's clip".to_owned());
        let claims = Claims { sub, name, video: Some(video), ..Claims::default() };
        Ok(runtime.block_on(guests.publish(claims, offer))?.answer.sdp)
    })
    .await
}

async fn play_demo(
    context: &webrtc::Context,
    publish: impl FnOnce(String) -> anyhow::Result<String> + Send + 'static,
) -> anyhow::Result<()> {
    let context = context.clone();
    let started = move || demo::publisher::start(&context, DEMO_STREAM, publish);
    tokio::task::spawn_blocking(started).await.context("starting the demo")??;
    Ok(())
}

/// What a person wants to know who started this in a terminal.
fn announce(
    (addr, tls): (SocketAddr, Option<SocketAddr>),
    metrics: SocketAddr,
    config: &Config,
    running: &Running,
    with_demo: bool,
) {
    let line = |what: &str, at: String| format!("  {what:<18}{at}\n");
    let mut text = format!("millrace listens at http://{addr}/\n");
    text.extend(tls.map(|addr| line("the same by TLS", format!("https://{addr}/"))));
    if with_demo {
        text += &line("watch the demo", format!("http://{addr}/?watch={DEMO_STREAM}"));
    }
    if !config.workers.bind.is_empty() {
        text += &line("publish (WHIP)", format!("http://{addr}/whip/NAME"));
        text += &line("watch (WHEP)", format!("http://{addr}/whep/NAME"));
    }
    if running.livekit.is_some() {
        text += &line("rooms (LiveKit)", format!("ws://{addr}"));
        text += &line("meet", format!("http://{addr}/room/{}", if with_demo { DEMO_ROOM } else { "NAME" }));
    }
    if !config.pump.bind.is_empty() {
        text += &line("pump", format!("http://{addr}/pump/sessions"));
    }
    for stream in running.reflect.streams() {
        let playlist = if stream.has_hls { "  (HLS: /index.m3u8 behind it)" } else { "" };
        text += &line("reflected stream", format!("http://{addr}{}{playlist}", stream.path));
    }
    text += &line("dashboard", format!("http://{addr}/admin"));
    text += &line("metrics, health", format!("http://{metrics}/metrics  http://{addr}/healthz"));
    if let Some(relay) = &running.relay {
        relay.listen().iter().for_each(|listen| tracing::info!(%listen, "relay.listen"));
        for (addresses, transport) in [
            (relay.listen(), "UDP"),
            (relay.dtls_listen(), "DTLS"),
            (relay.tcp_listen(), "TCP"),
            (relay.tls_listen(), "TLS"),
        ] {
            text.extend(addresses.iter().map(|listen| line("relay (TURN)", format!("{listen} by {transport}"))));
        }
        text += &line("the relay's API", format!("http://{addr}/api/relay"));
    }
    if config.auth.dev {
        text += &line("who may do what", "whoever reaches HTTP may do everything (auth.dev)".to_owned());
    } else if config.auth.hs256_secret.is_none() && config.auth.eddsa_public_key.is_none() {
        let who = match config.livekit.keys.is_empty() {
            true => "closed to all, as no token can be good: set auth.hs256_secret",
            false => "with tokens of livekit.keys into rooms; for all else set auth.hs256_secret",
        };
        text += &line("WHIP, WHEP, API", who.to_owned());
    }
    // Nobody has to read it.
    std::io::stdout().write_all(text.as_bytes()).ok();
}

/// Refuses newcomers and waits for those who are there. Allocations of the relay may have more time than sessions.
async fn drain(config: &Config, running: &Running, ends: &mut Ends) {
    supervisor::tell_stopping();
    running.plane.start_drain();
    let (began, timeout) = (Instant::now(), config.http.drain_timeout);
    let relay_timeout = config.relay.drain_timeout.unwrap_or(timeout);
    tracing::info!(?timeout, ?relay_timeout, "draining; another signal ends at once");
    let is_over = wait(running, ends, began + timeout, || running.has_sessions()).await;
    say_goodbye(running).await;
    if !is_over {
        wait(running, ends, began + relay_timeout, || running.has_allocations()).await;
    }
    let allocations = running.relay.as_ref().map_or(0, |relay| relay.count());
    tracing::info!(allocations, "the drain is over");
}

/// Waits for as long as somebody is there, and no longer than `until`. True when a signal said not to.
async fn wait(running: &Running, ends: &mut Ends, until: Instant, is_there: impl Fn() -> bool) -> bool {
    let mut tick = tokio::time::interval(CONTROL_TICK);
    while Instant::now() < until && is_there() {
        tokio::select! {
            _ = tick.tick() => running.handle_timeout(Instant::now()),
            () = ends.next() => return true,
        }
    }
    false
}

/// Ends the sessions that are left.
async fn say_goodbye(running: &Running) {
    let mut tick = tokio::time::interval(CONTROL_TICK);
    let sessions = running.rooms.negotiator_counters().map(|(_, counters)| counters.sessions).sum();
    running.close_all();
    tokio::time::sleep(GOODBYE).await;
    let until = Instant::now() + goodbye(sessions);
    while Instant::now() < until && running.rooms.negotiator_counters().any(|(_, counters)| counters.sessions > 0) {
        tick.tick().await;
        running.handle_timeout(Instant::now());
    }
}

/// Ends what did not go over to another process, which has all sockets of the workers by now.
async fn say_goodbye_to_others(running: &Running) {
    let sessions = running.rooms.negotiator_counters().map(|(_, counters)| counters.sessions).sum();
    running.plane.start_drain();
    if running.has_sessions() {
        tracing::info!(sessions, "sessions of rooms and pump end with this process");
        running.close_others();
        let until = Instant::now() + GOODBYE + goodbye(sessions);
        while Instant::now() < until && running.has_sessions() {
            running.handle_timeout(Instant::now());
            tokio::time::sleep(LOOK).await;
        }
    }
    running.plane.workers().close_sockets(ROOMS).await;
}

/// How long so many sessions of rooms may take to say goodbye, beyond what everybody has.
fn goodbye(sessions: u64) -> Duration {
    GOODBYE_PER_SESSION.saturating_mul(u32::try_from(sessions).unwrap_or(u32::MAX)).min(GOODBYE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goodbyes_have_time_by_their_number_and_not_without_end() {
        assert_eq!(goodbye(0), Duration::ZERO);
        assert_eq!(goodbye(20_000), Duration::from_secs(4));
        assert_eq!(goodbye(u64::MAX), Duration::from_secs(5));
    }

    #[test]
    fn limits_of_an_empty_file_are_those_that_stand_beside_them() {
        let config = Config::default();
        assert_eq!(limits(&config), Limits::default());
        assert_eq!(newcomers(&config), door::Limits::default());
        assert_eq!(rtsp_limits(&config), rtsp::Limits::default());
    }
}
