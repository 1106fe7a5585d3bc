//! The pump's API: sessions that play titles to UDP destinations. For admins only.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use pump::monitor::Report;
use pump::spec::{SessionId, SessionStats, Step, late_bound};
use serde::Deserialize;
use serde_json::{Value, json};
use titles::{Listed, Trouble};

use super::api::{page_count, part, read_query, with_filters};
use super::audit;
use super::live::input_json;
use super::story::Clock;
use super::{App, InPath, Problem};
use crate::pump::control::{Inspected, PumpControl, PumpError};
use crate::pump::destination::DestinationError;
use crate::pump::request::{ChangeRequest, OpenRequest, RequestError};
use crate::pump::sessions::Session;
use crate::rooms::control::{DRAIN_RETRY_SECONDS, OVERLOAD_RETRY_SECONDS};

pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/pump/sessions", get(list).post(open))
        .route("/pump/sessions/{session}", get(inspect).patch(change).delete(close))
        .route("/pump/titles", get(titles))
}

impl App {
    /// The pump, for those who may do everything.
    fn pump(&self, headers: &HeaderMap) -> Result<&Arc<PumpControl>, Problem> {
        if !self.rights(headers)?.admin {
            return Err(Problem::forbidden("use the pump (it lacks \"admin\")"));
        }
        self.pump.as_ref().ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, "this server has no pump"))
    }
}

/// `POST /pump/sessions`
async fn open(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> Result<Response, Problem> {
    let pump = app.pump(&headers)?;
    let body = app.read_body(&headers, body, "application/json").await?;
    let session = pump.open(&OpenRequest::from_json(&body)?).await?;
    let location = format!("sessions/{}", session.id.0);
    let wanted = Extension(audit::Wanted::of(&body));
    Ok((StatusCode::CREATED, wanted, [(header::LOCATION, location)], Json(session_json(&session))).into_response())
}

/// Which sessions are wanted.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    title: Option<String>,
    worker: Option<u16>,
    after: Option<u64>,
    limit: Option<usize>,
}

/// `GET /pump/sessions`: those that are open, and those that ended lately; all of them, or so many behind one.
async fn list(State(app): State<Arc<App>>, headers: HeaderMap, uri: Uri) -> Result<Response, Problem> {
    let pump = app.pump(&headers)?;
    let Wanted { title, worker, after, limit } = read_query(&uri)?;
    if (&title, worker, after, limit) == (&None, None, None, None) {
        return Ok(Json(list_all(pump)).into_response());
    }
    let (after, count) = (SessionId(after.unwrap_or(0)), page_count(limit));
    let is_wanted = |session: &Session| {
        title.as_ref().is_none_or(|title| **title == *session.name)
            && worker.is_none_or(|worker| worker == session.worker.0)
    };
    let (sessions, next) = pump.sessions_behind(after, count, is_wanted);
    let entries = sessions.iter().map(session_json).collect();
    let path = with_filters("sessions", &[("title", title), ("worker", worker.map(|worker| worker.to_string()))]);
    Ok(part(&path, entries, count, next.map(|id| id.0)).into_response())
}

/// All of them, a part at a time: what plays waits for no more than that.
fn list_all(pump: &PumpControl) -> Value {
    let (mut all, mut after) = (Vec::new(), Some(SessionId(0)));
    while let Some(behind) = after {
        let (sessions, next) = pump.sessions_behind(behind, page_count(None), |_| true);
        all.extend(sessions.iter().map(session_json));
        after = next;
    }
    all.into()
}

/// `GET /pump/sessions/{session}`: with statistics.
async fn inspect(
    State(app): State<Arc<App>>,
    InPath(session): InPath<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Problem> {
    let inspected = app.pump(&headers)?.inspect(id_of(&session)?).await?;
    Ok(Json(inspected_json(&inspected)))
}

/// `PATCH /pump/sessions/{session}`: the session as it is then.
async fn change(
    State(app): State<Arc<App>>,
    InPath(session): InPath<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<impl IntoResponse, Problem> {
    let pump = app.pump(&headers)?;
    let body = app.read_body(&headers, body, "application/json").await?;
    let changed = pump.change(id_of(&session)?, ChangeRequest::from_json(&body)?).await?;
    Ok((Extension(audit::Wanted::of(&body)), Json(session_json(&changed))))
}

/// `DELETE /pump/sessions/{session}`
async fn close(
    State(app): State<Arc<App>>,
    InPath(session): InPath<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    app.pump(&headers)?.close(id_of(&session)?)?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /pump/titles`: those of the folder, and live inputs.
async fn titles(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<Json<Value>, Problem> {
    let pump = app.pump(&headers)?;
    let inputs = pump.live_inputs();
    Ok(Json(pump.library().list().iter().map(title_json).chain(inputs.iter().map(input_json)).collect()))
}

fn id_of(text: &str) -> Result<SessionId, Problem> {
    text.parse().map(SessionId).map_err(|_| PumpError::NoSession.into())
}

fn session_json(session: &Session) -> Value {
    let (state, reason) = match &session.end {
        None => ("open", None),
        Some((why, _)) => ("ended", Some(why.to_string())),
    };
    json!({
        "id": session.id.0.to_string(),
        "title": &*session.name,
        "destination": &*session.destination,
        "address": session.remote,
        "rate": session.content.rate.bps(),
        "worker": session.worker.0,
        "state": state,
        "paused": session.is_paused,
        "scale": f64::from(session.scale_permille) / 1_000.0,
        "lease": session.lease.map(|lease| lease.as_secs_f64()),
        "reason": reason,
    })
}

fn inspected_json(inspected: &Inspected) -> Value {
    let Inspected { session, stats, at, trouble } = inspected;
    let mut value = session_json(session);
    value["statistics"] = stats_json(stats);
    value["position"] = json!(at.as_secs_f64());
    let clock = Clock::now();
    let step =
        |step: &Step| json!({"at": clock.at(step.at), "event": <&str>::from(step.activity), "packet": step.position});
    value["story"] = stats.steps.iter().map(step).collect();
    let pad = (stats.pad_late >= PAD_LATE).then(|| json!({"error": "the title has more than pad leaves room for"}));
    value["trouble"] = trouble.as_ref().map(trouble_json).or(pad).unwrap_or_default();
    value
}

/// A title that is padded may be as late at times.
const PAD_LATE: Duration = Duration::from_millis(200);

fn trouble_json(trouble: &Trouble) -> Value {
    json!({"seconds": trouble.since.as_secs_f64(), "error": trouble.error.to_string()})
}

fn stats_json(stats: &SessionStats) -> Value {
    json!({
        "activity": <&str>::from(stats.activity),
        "packet": stats.position,
        "datagrams": stats.datagrams,
        "bytes": stats.bytes,
        "fec_datagrams": stats.fec_datagrams,
        "underruns": stats.underruns,
        "starved_ms": stats.starved.as_secs_f64() * 1e3,
        "null_packets": stats.nulls,
        "shifts": stats.shifts,
        "clock_jumps": stats.clock_jumps,
        "pad_late_ms": stats.pad_late.as_secs_f64() * 1e3,
        "late_max_ms": stats.late_max.as_secs_f64() * 1e3,
        "lateness": lateness_json(stats),
        "delay_factor_ms": stats.delay_factor.as_secs_f64() * 1e3,
        "delay_factor_max_ms": stats.delay_factor_max.as_secs_f64() * 1e3,
        "lost_packets": stats.lost,
        "media_loss_rate": if stats.age.is_zero() { 0.0 } else { stats.lost as f64 / stats.age.as_secs_f64() },
        "continuity_errors": stats.continuity_errors,
        "monitor": stats.report.as_deref().map(report_json),
    })
}

/// Bursts that were no later than so many milliseconds, and later than the bound before; the last have no bound.
fn lateness_json(stats: &SessionStats) -> Value {
    let bound = |index| late_bound(index).map(|bound| bound.as_secs_f64() * 1e3);
    let counted = stats.lateness.iter().enumerate().filter(|(_, count)| **count > 0);
    counted.map(|(index, count)| json!({"ms": bound(index), "bursts": count})).collect()
}

fn report_json(report: &Report) -> Value {
    let ms = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e6);
    let errors = &report.priorities;
    json!({
        "packets": report.packets,
        "null_packets": report.nulls,
        "references": report.references,
        "lost_packets": report.lost,
        "media_loss_rate_max": report.loss_rate_max,
        "delay_factor_ms": ms(report.delay_factor_mean_ns),
        "delay_factor_max_ms": ms(report.delay_factor_max_ns),
        "pcr_jitter_max_ms": report.pcr_jitter_max_ns as f64 / 1e6,
        "pcr_accuracy_max_ns": report.pcr_accuracy_max_ns,
        "interval_max_ms": report.interval_max_ns as f64 / 1e6,
        "tr_101_290": {
            "1.1_sync_loss": errors.sync_loss,
            "1.2_sync_byte": errors.sync_byte,
            "1.3_pat": errors.pat,
            "1.4_continuity": errors.continuity,
            "1.5_pmt": errors.pmt,
            "1.6_pid": errors.pid,
            "2.1_transport": errors.transport,
            "2.2_crc": errors.crc,
            "2.3a_pcr_repetition": errors.pcr_repetition,
            "2.3b_pcr_discontinuity": errors.pcr_discontinuity,
            "2.4_pcr_accuracy": errors.pcr_accuracy,
            "2.5_pts": errors.pts,
            "2.6_cat": errors.cat,
        },
    })
}

fn title_json(title: &Listed) -> Value {
    let modified = title.modified.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    json!({
        "name": title.name,
        "bytes": title.bytes,
        "modified": modified.map(|at| at.as_secs()),
        "duration": title.duration.map(|duration| duration.as_secs_f64()),
    })
}

impl From<RequestError> for Problem {
    fn from(error: RequestError) -> Self {
        Problem::new(StatusCode::BAD_REQUEST, error.to_string())
    }
}

impl From<PumpError> for Problem {
    fn from(error: PumpError) -> Self {
        let detail = error.to_string();
        let status = match error {
            PumpError::Draining => return Problem::unavailable(detail, DRAIN_RETRY_SECONDS),
            PumpError::Busy | PumpError::Slow | PumpError::NoSignal => return Problem::unavailable(detail, 1),
            PumpError::Overloaded => return Problem::unavailable(detail, OVERLOAD_RETRY_SECONDS),
            PumpError::Destination(DestinationError::Syntax(_)) => StatusCode::BAD_REQUEST,
            PumpError::Destination(DestinationError::NotAllowed(_)) => StatusCode::FORBIDDEN,
            PumpError::Destination(DestinationError::Unknown(_) | DestinationError::NoSocket(_))
            | PumpError::NoClock
            | PumpError::Empty
            | PumpError::Live(_)
            | PumpError::Rename(_)
            | PumpError::PadTooLow { .. }
            | PumpError::NoOutput(_) => StatusCode::UNPROCESSABLE_ENTITY,
            PumpError::NoSession => StatusCode::NOT_FOUND,
            PumpError::Ended => StatusCode::CONFLICT,
            PumpError::Title(titles::Error::NotFound { .. }) => StatusCode::NOT_FOUND,
            PumpError::Title(titles::Error::Refused { .. }) => StatusCode::FORBIDDEN,
            PumpError::Title(titles::Error::Title { .. }) => StatusCode::UNPROCESSABLE_ENTITY,
            PumpError::Title(titles::Error::Changed { .. }) => StatusCode::CONFLICT,
            PumpError::Title(titles::Error::Http { .. }) => StatusCode::BAD_GATEWAY,
            PumpError::Title(titles::Error::Stopped) => StatusCode::SERVICE_UNAVAILABLE,
            PumpError::Title(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Problem::new(status, detail)
    }
}
