// WHIP (RFC 9725) and WHEP are the same exchange: an SDP offer goes up by POST, the answer comes back with the
// address of a resource that lives as long as the session.

import { answerWith, fragmentOf } from "./fragment.js";

/** How long candidates are gathered before the offer goes out. The server's own candidates are in its answer. */
const GATHER_MS = 500;

/** An answer with a status that is no success, in the server's own words where it has some. */
export class HttpError extends Error {
  constructor(
    readonly status: number,
    message: string,
    /** What the server asks us to wait before the next attempt. */
    readonly retryAfterMs: number | null,
  ) {
    super(message);
  }
}

/** A session that the server knows by its URL. */
export class Session {
  private constructor(
    readonly pc: RTCPeerConnection,
    readonly url: string,
    private answer: string,
    private readonly token: string,
  ) {
    // A network that changed, say, from Wi-Fi to mobile: the session goes on over another path.
    pc.addEventListener("iceconnectionstatechange", () => {
      if (pc.iceConnectionState === "disconnected") void this.restartIce().catch(() => undefined);
    });
  }

  /** Sends the offer of `pc` to `endpoint` and applies the answer. */
  static async open(pc: RTCPeerConnection, endpoint: string, token: string, signal: AbortSignal): Promise<Session> {
    await pc.setLocalDescription();
    await gathered(pc, GATHER_MS);
    const response = await request(endpoint, token, {
      method: "POST",
      headers: { "Content-Type": "application/sdp" },
      body: pc.localDescription?.sdp ?? "",
      signal,
    });
    const location = response.headers.get("Location");
    if (!location) throw new Error("the answer names no resource (Location)");
    const answer = await response.text();
    const session = new Session(pc, new URL(location, response.url).href, answer, token);
    await pc.setRemoteDescription({ type: "answer", sdp: answer });
    return session;
  }

  /** Looks for a path anew; keys and streams stay as they are. */
  async restartIce(): Promise<void> {
    const { pc } = this;
    pc.restartIce();
    await pc.setLocalDescription();
    await gathered(pc, GATHER_MS);
    const response = await request(this.url, this.token, {
      method: "PATCH",
      headers: { "Content-Type": "application/trickle-ice-sdpfrag", "If-Match": "*" },
      body: fragmentOf(pc.localDescription?.sdp ?? ""),
    });
    this.answer = answerWith(this.answer, await response.text());
    await pc.setRemoteDescription({ type: "answer", sdp: this.answer });
  }

  /** What the server says about this session, or null when it has forgotten it. */
  async stats(): Promise<ServerStats | null> {
    try {
      return (await (await request(`${this.url}/stats`, this.token, {})).json()) as ServerStats;
    } catch (error) {
      if (error instanceof HttpError && (error.status === 404 || error.status === 410)) return null;
      throw error;
    }
  }

  /** Limits what the server sends; null is no limit. */
  async limit(spatialMax: number | null, temporalMax: number | null = null): Promise<void> {
    await request(`${this.url}/layer`, this.token, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ spatial_max: spatialMax, temporal_max: temporalMax }),
    });
  }

  /** Ends the session here and on the server; `keepalive` lets the request outlive the page. */
  async close(): Promise<void> {
    this.pc.close();
    await request(this.url, this.token, { method: "DELETE", keepalive: true }).catch(() => undefined);
  }
}

/** The answer of `GET {resource}/stats`. */
export interface ServerStats {
  layers?: LayerStats[];
  /** Bandwidth estimate towards this viewer in bits per second. */
  estimate?: number | null;
  /** Share of packets lost on the way here, 0 to 1. */
  loss?: number;
  round_trip_ms?: number | null;
}

export interface LayerStats {
  mid: string;
  current: number | null;
  target: number;
  layer_count: number;
  rid: string | null;
  temporal_max: number;
}

/** One entry of `GET /api/streams`. */
export interface Stream {
  name: string;
  state: string;
  viewers: number;
  tracks: { kind: string; codec: string; rids: string[] }[];
}

export async function streams(token: string): Promise<Stream[]> {
  return (await (await request("/api/streams", token, {})).json()) as Stream[];
}

/** One entry of `GET /api/reflect/streams`. */
export interface Reflected {
  name: string;
  path: string;
  /** Its playlist, where it is served as HLS. */
  hls: string | null;
  content_type: string | null;
  live: boolean;
  rate: number;
  viewers: number;
}

/** Streams that go out by HTTP; none where the server reflects nothing. */
export async function reflected(token: string): Promise<Reflected[]> {
  try {
    return (await (await request("/api/reflect/streams", token, {})).json()) as Reflected[];
  } catch (error) {
    if (error instanceof HttpError && error.status === 404) return [];
    throw error;
  }
}

async function request(url: string, token: string, init: RequestInit): Promise<Response> {
  const headers = new Headers(init.headers);
  if (token) headers.set("Authorization", `Bearer ${token}`);
  const response = await fetch(url, { ...init, headers });
  if (response.ok) return response;
  const seconds = Number(response.headers.get("Retry-After") ?? NaN);
  throw new HttpError(response.status, await reason(response), Number.isFinite(seconds) ? seconds * 1000 : null);
}

/** The detail of a problem document (RFC 9457), or what the status says. */
async function reason(response: Response): Promise<string> {
  const text = await response.text().catch(() => "");
  try {
    const problem = JSON.parse(text) as { detail?: string; title?: string };
    return problem.detail ?? problem.title ?? `HTTP ${response.status}`;
  } catch {
    return text.slice(0, 200) || `HTTP ${response.status} ${response.statusText}`;
  }
}

function gathered(pc: RTCPeerConnection, capMs: number): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      if (pc.iceGatheringState !== "complete") return;
      clearTimeout(timer);
      resolve();
    };
    const timer = setTimeout(resolve, capMs);
    pc.addEventListener("icegatheringstatechange", done);
    done();
  });
}
