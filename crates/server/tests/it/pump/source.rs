//! What the pump plays, as the source of a reflected stream.

use std::sync::Arc;
use std::time::Duration;

use server::config::ReflectSource;
use server::reflect::source::{Around, Patience, Sink, Stop, start};
use tokio::sync::watch;
use tokio::time::timeout;

use super::harness::{Harness, assert_continues, eventually, padded};

/// Far more than it takes, as the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Keeps what it is given.
#[derive(Clone)]
struct Kept {
    bytes: Arc<watch::Sender<Vec<u8>>>,
}

impl Sink for Kept {
    fn name(&self) -> &str {
        "test"
    }

    fn begin(&self, content_type: Option<&str>) {
        assert_eq!(content_type, Some("video/mp2t"));
    }

    async fn write(&self, bytes: &[u8]) -> Result<(), Stop> {
        self.bytes.send_modify(|all| all.extend(bytes));
        Ok(())
    }

    fn break_off(&self) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_title_is_played_over_and_over_until_nobody_wants_it() {
    // Nothing else may be sent to loopback.
    let test = Harness::start(|settings| settings.destinations = Some(server::pump::destination::Allowed::new(&[])));
    let title = test.title("short.ts", 25);
    let around = Around::new(None, Some(test.pump().clone()), Patience::default()).expect("certificates");
    let kept = Kept { bytes: Arc::new(watch::Sender::new(Vec::new())) };
    let sources: [ReflectSource; 1] = ["pump:short.ts".parse().expect("a source")];
    let running = start(kept.clone(), &sources, &around);
    let wanted = padded(&title).len() * 5 / 2;
    let mut bytes = kept.bytes.subscribe();
    timeout(PATIENCE, bytes.wait_for(|bytes| bytes.len() >= wanted)).await.expect("it plays").expect("it is kept");
    assert_continues(&kept.bytes.borrow());
    drop(running);
    eventually("the session ends with it", || async {
        test.pump().sessions().iter().all(|session| session.end.is_some())
    })
    .await;
}
