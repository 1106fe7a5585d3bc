//! Which panics end the process: all but those of libraries that can only be about one session or one HTTP connection.
//!
//! A panic of our own means that nobody knows what else is wrong, and it may be under a lock that all need.

use std::panic::PanicHookInfo;

tokio::task_local! {
    static ANSWERING: ();
}

/// Does work that a panic of a library may end, and nobody else's. It has to be in a task of its own.
pub(crate) async fn answering<T>(work: impl Future<Output = T>) -> T {
    ANSWERING.scope((), work).await
}

/// For whoever has panics end the process, by a hook: whether this one is to.
pub fn ends_process(panic: &PanicHookInfo<'_>) -> bool {
    let is_ours = panic.location().is_none_or(|at| at.file().starts_with("crates/"));
    let is_answering = ANSWERING.try_with(|()| ()).is_ok();
    !webrtc::is_guarded() && (is_ours || !is_answering)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    use axum::body::Bytes;

    use super::*;

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
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            let ended = runtime.block_on(async {
                match which.to_str() {
                    Some("a library's") => tokio::spawn(answering(librarys)).await,
                    Some("our own") => tokio::spawn(answering(async { panic!("on purpose") })).await,
                    _ => tokio::spawn(librarys).await,
                }
            });
            assert!(ended.is_err_and(|error| error.is_panic()));
            return;
        }
        let name = "guard::tests::a_panic_of_a_library_ends_the_connection_that_it_is_about_and_others_end_the_process";
        let itself = std::env::current_exe().expect("a path");
        for (which, signal) in [("a library's", None), ("our own", Some(6)), ("a library's elsewhere", Some(6))] {
            let run = Command::new(&itself).args(["--exact", name, "--nocapture"]).env(PANICS, which).output();
            let run = run.expect("it runs");
            assert_eq!((run.status.signal(), run.status.success()), (signal, signal.is_none()), "{which}: {run:?}");
        }
    }
}
