//! Joins publishers and viewers of one room by LiveKit's signalling, each with a token of its own.
//!
//! In: a server's URL, an API key and its secret. Out: clients, handed to the load threads when they have a server to connect
//! to; of a viewer also what it gets, as long as it is there.
//! Cost: a task and a WebSocket per client, all on one thread.

mod signalling;

use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use engine::Mailbox;
use livekit::proto::{ClientInfo, ConnectionSettings, JoinRequest, WrappedJoinRequest};
use livekit::token::{Claims, Keys, VideoGrant};
use prost::Message as _;
use tokio::runtime::{self, Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use wire::codec::MediaKind;

use super::join::Video;
use super::service::{Message, Part};
use super::viewer::Check;
use signalling::Signalling;

/// How to join by LiveKit's signalling.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Joins by LiveKit's signalling: all are in one room, and each viewer gets the streams of all publishers.
    #[arg(long, requires_all = ["api_key", "api_secret"], conflicts_with_all = ["whip_url", "whep_url"])]
    pub livekit: bool,
    /// API key of the LiveKit server, to make tokens with.
    #[arg(long, value_name = "KEY", env = "LIVEKIT_API_KEY")]
    pub api_key: Option<String>,
    /// Secret of the API key.
    #[arg(long, value_name = "SECRET", env = "LIVEKIT_API_SECRET", hide_env_values = true)]
    pub api_secret: Option<String>,
    /// Name of the room that all join with --livekit.
    #[arg(long, default_value = "load")]
    pub room: String,
}

/// How long a client may take until it has all that it waits for.
const JOIN_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a goodbye may take.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long tokens hold: whoever has joined gets new ones from the server.
const TOKEN_HOLDS: Duration = Duration::from_secs(3_600);

/// The version of the protocol that clients speak.
const PROTOCOL: i32 = 16;

/// Lets clients into a room.
pub struct Lobby {
    runtime: Runtime,
    keys: Keys,
    /// For instance "ws://127.0.0.1:7880/rtc".
    url: String,
    room: String,
    context: webrtc::Context,
}

/// Where a client is played.
pub struct Seat {
    pub client: usize,
    /// Of its thread.
    pub inlet: Mailbox<Message>,
    /// How the server sees it.
    pub addr: SocketAddr,
}

/// A client's signalling connection, which is there until it leaves.
pub struct Guest {
    leave: oneshot::Sender<()>,
    task: JoinHandle<()>,
    runtime: Handle,
}

/// What a client waits for until it has joined.
#[derive(Clone, Copy)]
enum Wish {
    Publish(Video),
    /// Until so many of a kind come.
    Watch(Check, MediaKind, usize),
}

impl Lobby {
    /// `url` is the server's, such as "http://127.0.0.1:7880".
    ///
    /// # Errors
    /// Without a key; when no thread can be started.
    pub fn new(url: &str, options: &Options, context: webrtc::Context) -> Result<Self> {
        let Options { api_key, api_secret, room, .. } = options;
        let key = api_key.clone().zip(api_secret.clone()).context("--livekit needs --api-key and --api-secret")?;
        let mut runtime = runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).thread_name("signalling").enable_all().build();
        let url = url.strip_prefix("http://").context("only http:// is understood here")?;
        Ok(Lobby {
            runtime: runtime.context("start a thread")?,
            keys: Keys::new([key])?,
            url: format!("ws://{url}/rtc"),
            room: room.clone(),
            context,
        })
    }

    /// Publishes a video as `identity`. When this returns, the client has its server's answer and has gone to its thread.
    pub fn publish(&self, seat: Seat, identity: &str, video: Video) -> Result<Guest> {
        let grant = VideoGrant { can_subscribe: Some(false), ..VideoGrant::default() };
        self.join(seat, identity, grant, Wish::Publish(video))
    }

    /// Watches the room as `identity`. When this returns, the client has gone to its thread and knows of so many tracks of the kind
    /// that it is for, or more.
    pub fn watch(&self, seat: Seat, identity: &str, check: Check, (kind, count): (MediaKind, usize)) -> Result<Guest> {
        let grant = VideoGrant { can_publish: Some(false), can_publish_data: Some(false), ..VideoGrant::default() };
        self.join(seat, identity, grant, Wish::Watch(check, kind, count))
    }

    fn join(&self, seat: Seat, identity: &str, grant: VideoGrant, wish: Wish) -> Result<Guest> {
        let part = match wish {
            Wish::Publish(video) => Part::Publish(video),
            Wish::Watch(check, ..) => Part::Watch(check),
        };
        let kind = match wish {
            Wish::Publish(Video { speaks: Some(_), .. }) => MediaKind::Audio,
            Wish::Publish(_) => MediaKind::Video,
            Wish::Watch(_, kind, _) => kind,
        };
        let url = self.address(wish, self.token(identity, grant)?);
        let (context, identity) = (self.context.clone(), identity.to_owned());
        let ((leave, left), (joined, has_joined)) = (oneshot::channel(), mpsc::sync_channel(1));
        let task = self.runtime.spawn(async move {
            let joining = async {
                let mut signalling = Signalling::open(&url, seat, part, kind, context).await?;
                match wish {
                    Wish::Publish(video) => signalling.publish(video, &identity).await?,
                    Wish::Watch(_, _, count) => signalling.watch(count).await?,
                }
                anyhow::Ok(signalling)
            };
            let in_vain = || anyhow!("not there after {} s", JOIN_TIMEOUT.as_secs());
            match timeout(JOIN_TIMEOUT, joining).await.unwrap_or_else(|_| Err(in_vain())) {
                Ok(signalling) => {
                    // Who waits for it goes on waiting.
                    let _ = joined.send(Ok(()));
                    signalling.attend(left).await;
                }
                Err(error) => drop(joined.send(Err(error.context(format!("joining as {identity}"))))),
            }
        });
        has_joined.recv().context("a task has ended early")??;
        Ok(Guest { leave, task, runtime: self.runtime.handle().clone() })
    }

    /// Where somebody joins. Who publishes does so by v1, so that it has one peer connection, and is offered none to watch by.
    fn address(&self, wish: Wish, token: String) -> String {
        let url = &self.url;
        match wish {
            Wish::Publish(_) => {
                let request = JoinRequest {
                    client_info: Some(ClientInfo { protocol: PROTOCOL, ..ClientInfo::default() }),
                    connection_settings: Some(ConnectionSettings::default()),
                    ..JoinRequest::default()
                };
                let join_request = request.encode_to_vec();
                let wrapped = WrappedJoinRequest { join_request, ..WrappedJoinRequest::default() };
                format!("{url}/v1?access_token={token}&join_request={}", URL_SAFE.encode(wrapped.encode_to_vec()))
            }
            Wish::Watch(..) => format!("{url}?access_token={token}&protocol={PROTOCOL}&auto_subscribe=1"),
        }
    }

    fn token(&self, identity: &str, grant: VideoGrant) -> Result<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock stands before 1970")?;
        let video = Some(VideoGrant { room_join: true, room: self.room.clone(), ..grant });
        let exp = (now + TOKEN_HOLDS).as_secs();
        Ok(self.keys.sign(Claims { sub: identity.to_owned(), exp, video, ..Claims::default() }))
    }
}

impl Guest {
    /// Says goodbye, and waits until it is said.
    pub fn leave(self) {
        // Whoever has ended already does not hear it.
        let _ = self.leave.send(());
        let _ = self.runtime.block_on(async { timeout(LEAVE_TIMEOUT, self.task).await });
    }
}
