//! What RTSP counts, and where it is told.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use server::auth::Auth;
use server::config;
use server::http::{App, router};
use server::rooms::control::RoomsControl;
use server::rooms::directory;
use server::rtsp::Transports;
use tokio::io::AsyncReadExt as _;
use tower::ServiceExt as _;

use super::harness::Server;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_requests_and_connections_are_counted() {
    let (server, mut client) = Server::with_client().await;
    let (_socket, port) = client.receiver();
    let session = client.setup("RTP/AVP/TCP;unicast;interleaved=0-1").await;
    client.setup(&format!("RTP/AVP;unicast;client_port={port}-{}", port ^ 1)).await;
    client.setup(&format!("RAW/RAW/UDP;unicast;client_port={port}")).await;
    assert_eq!(client.ask("PLAY", &session).await.code, 200);
    assert_eq!(client.ask("PAUSE", "\r\nSession: none").await.code, 454);
    client.interleaved().await;
    let mut other = server.connect().await;
    assert_eq!(other.send("HELLO\r\n\r\n").await.code, 400);

    let page = metrics(&server).await;
    for line in [
        "millrace_rtsp_connections_accepted_total 2",
        "millrace_rtsp_connections_refused_total 0",
        "millrace_rtsp_sessions{transport=\"rtp\"} 1",
        "millrace_rtsp_sessions{transport=\"raw\"} 1",
        "millrace_rtsp_sessions{transport=\"interleaved\"} 1",
        "millrace_rtsp_requests_total{method=\"SETUP\",status=\"2xx\"} 3",
        "millrace_rtsp_requests_total{method=\"PLAY\",status=\"2xx\"} 1",
        "millrace_rtsp_requests_total{method=\"PAUSE\",status=\"4xx\"} 1",
        "millrace_rtsp_requests_total{method=\"PAUSE\",status=\"2xx\"} 0",
        "millrace_rtsp_requests_total{method=\"malformed\",status=\"4xx\"} 1",
        "millrace_rtsp_interleaved_lost_total 0",
    ] {
        assert!(page.contains(&format!("\n{line}\n")), "{line} in {page}");
    }
    server.until("what came is counted", |server| server.rtsp.stats().carried > 0).await;

    drop((client, other));
    server.until("the connections are gone", |server| server.rtsp.stats().connections == 0).await;
    let sessions = server.rtsp.stats().sessions;
    assert_eq!(
        sessions,
        Transports { rtp: 1, raw: 1, interleaved: 0 },
        "those that are not interleaved outlive their connection"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_a_thousand_connections_gets_no_more() {
    engine::sys::raise_open_files_max().expect("this test needs 2,000 open files");
    let server = Server::start("127.0.0.0/8", 100_000).await;
    let mut clients = Vec::new();
    for _ in 0..1_000 {
        clients.push(server.connect().await);
    }
    // The last one is being served, so all before it are.
    clients[999].ask_for("OPTIONS", "*", "").await;

    let mut refused = server.connect().await;
    assert_eq!(refused.stream.read(&mut [0]).await.expect("closed"), 0);
    let stats = server.rtsp.stats();
    assert_eq!((stats.connections, stats.accepted, stats.refused), (1_000, 1_000, 1));
}

/// The page of a server that has nothing but RTSP.
async fn metrics(server: &Server) -> String {
    let settings = directory::Settings { reconnect_grace: Duration::ZERO, sessions_max: 0, ..Default::default() };
    let rooms = Arc::new(RoomsControl::new(server.pump.plane().clone(), Vec::new(), settings));
    let auth = Auth::new(&config::Auth { dev: true, ..config::Auth::default() }).expect("no key needed");
    let service = App { rtsp: Some(server.rtsp.clone()), ..App::new(rooms, auth) };
    let request = Request::get("/metrics").body(Body::empty()).expect("a request");
    let response = router(Arc::new(service)).oneshot(request).await.expect("an answer");
    let bytes = to_bytes(response.into_body(), 1 << 20).await.expect("a body");
    String::from_utf8(bytes.into()).expect("text")
}
