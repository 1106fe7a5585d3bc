//! Replays the fuzz corpora of the configuration's and the tokens' readers, of viewers' requests, of the HTTP server and
//! of the negotiator.

#[path = "../../../../fuzz/entry/server.rs"]
mod entry;
#[path = "../../../../fuzz/entry/http.rs"]
mod http;
#[path = "../../../../fuzz/entry/negotiator.rs"]
mod negotiator;
#[path = "../../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../../fuzz/entry/request.rs"]
mod request;

use replay::replay;

#[test]
fn config_corpus_holds() {
    replay("../../fuzz/corpus/config", 300, entry::config);
}

#[test]
fn token_corpus_holds() {
    replay("../../fuzz/corpus/token", 1_000, entry::token);
}

#[test]
fn http_corpus_holds() {
    replay("../../fuzz/corpus/http", 60, http::http);
}

#[test]
fn request_corpus_holds() {
    replay("../../fuzz/corpus/request", 200, request::request);
}

#[test]
fn negotiator_corpus_holds() {
    replay("../../fuzz/corpus/negotiator", 40, negotiator::negotiator);
}
