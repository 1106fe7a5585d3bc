//! Which panics end the process: all but those of libraries that can only be about one session, one connection, one
//! request for a part of a title, or one question about a user.
//!
//! A panic of our own means that nobody knows what else is wrong, and it may be under a lock that all need.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::task::Poll;

use tokio::runtime::{EnterGuard, Runtime};

tokio::task_local! {
    static ANSWERING: ();
}

thread_local! {
    static IS_APART: Cell<bool> = const { Cell::new(false) };
}

/// Does work for one client that a panic of a library may end, and nobody else's. `None`: it has.
///
/// It has a box of its own: what an `async` function is given lies in its future twice, and that of a connection has kilobytes.
pub(crate) fn answering<T>(work: impl Future<Output = T>) -> impl Future<Output = Option<T>> {
    let mut work = Box::pin(work);
    let caught = poll_fn(move |context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
        Ok(poll) => poll.map(Some),
        Err(_) => Poll::Ready(None),
    });
    ANSWERING.scope((), caught)
}

/// A thread for a library that begins tasks of its own, in which nobody else could catch a panic: there it ends the task.
#[derive(Debug)]
pub(crate) struct Apart {
    /// `None` when it is dropped.
    runtime: Option<Runtime>,
}

impl Apart {
    /// # Errors
    /// When there is no thread to be had.
    pub(crate) fn new(name: &str) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name(name)
            .on_thread_start(|| IS_APART.set(true))
            .enable_all()
            .build()?;
        Ok(Apart { runtime: Some(runtime) })
    }

    /// What is made meanwhile is the thread's.
    pub(crate) fn enter(&self) -> Option<EnterGuard<'_>> {
        self.runtime.as_ref().map(Runtime::enter)
    }

    /// Does work there, to its end whether or not that is waited for. `None`: it has panicked.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        self.runtime.as_ref()?.spawn(work).await.ok()
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Who drops it may be a task, which must not wait for threads.
            runtime.shutdown_background();
        }
    }
}

/// For whoever has panics end the process, by a hook: whether this one is to.
pub fn ends_process(panic: &PanicHookInfo<'_>) -> bool {
    let is_ours = panic.location().is_none_or(|at| at.file().starts_with("crates/"));
    let is_caught = titles::is_guarded() || dtls::is_guarded() || IS_APART.get() || ANSWERING.try_with(|()| ()).is_ok();
    !webrtc::is_guarded() && (is_ours || !is_caught)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;
    use std::time::Duration;

    use axum::body::Bytes;
    use titles::{Error, ErrorKind, Library, Settings};

    use super::*;

    /// Asks an origin for a title with so much patience that the standard library panics, which knows no such time.
    async fn fetch() -> Error {
        let origins = vec!["http://127.0.0.1:1/".parse().expect("a URL")];
        let settings = Settings { origins, connect_timeout: Duration::MAX, ..Settings::default() };
        let library = Library::new(settings).expect("a library");
        library.open("a.ts").await.expect_err("nobody is there")
    }

    /// Does work in a task that somebody else has begun.
    async fn apart(work: impl Future<Output = ()> + Send + 'static) -> Option<()> {
        let apart = Apart::new("apart").expect("a thread");
        let done = apart.run(async { tokio::spawn(work).await.ok() }).await.expect("what waits for it goes on");
        assert_eq!(apart.run(async { 1 }).await, Some(1), "the thread goes on");
        done
    }

    /// The test runs itself once more, as a process that panics.
    #[test]
    fn a_panic_of_a_library_ends_the_connection_that_it_is_about_and_others_end_the_process() {
        const PANICS: &str = "MILLRACE_TEST_PANICS_IN_A_TASK";
        if let Some(which) = std::env::var_os(PANICS) {
            std::panic::set_hook(Box::new(|panic| {
                if ends_process(panic) {
                    std::process::abort();
                }
            }));
            let librarys = async { drop(Bytes::new().slice(1..)) };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                match which.to_str() {
                    Some("a library's") => assert_eq!(answering(librarys).await, None),
                    Some("a library's over a request") => assert_eq!(fetch().await.kind(), ErrorKind::Panicked),
                    Some("a library's in a task of its own") => assert_eq!(apart(librarys).await, None),
                    Some("our own in such a task") => assert_eq!(apart(async { panic!("on purpose") }).await, None),
                    Some("our own") => assert_eq!(answering(async { panic!("on purpose") }).await, None),
                    _ => librarys.await,
                }
            });
            return;
        }
        let name = "guard::tests::a_panic_of_a_library_ends_the_connection_that_it_is_about_and_others_end_the_process";
        let itself = std::env::current_exe().expect("a path");
        let (lives, ends) = (None, Some(6));
        for (which, signal) in [
            ("a library's", lives),
            ("a library's over a request", lives),
            ("a library's in a task of its own", lives),
            ("our own in such a task", ends),
            ("our own", ends),
            ("a library's elsewhere", ends),
        ] {
            let run = Command::new(&itself).args(["--exact", name, "--nocapture"]).env(PANICS, which).output();
            let run = run.expect("it runs");
            assert_eq!((run.status.signal(), run.status.success()), (signal, signal.is_none()), "{which}: {run:?}");
        }
    }
}
