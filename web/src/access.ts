// How a page comes by a token for its room: out of its address (`?token=`), from who opens it, or from the server, which
// gives one to whoever may do everything there.

/** Why there is none, in words for who waits for it. */
export class NoToken extends Error {}

/** Asks the server. */
export async function askForToken(room: string, name: string): Promise<string> {
  const response = await fetch("/api/livekit/tokens", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ room, name, identity: identityFor(name) }),
  });
  if (response.ok) return ((await response.json()) as { token: string }).token;
  if (response.status === 401) throw new NoToken("This server lets in who has a token. Paste yours, or open the link that has it.");
  const problem = (await response.json().catch(() => ({}))) as { detail?: string };
  throw new NoToken(`The server gives out no token here: ${problem.detail ?? `HTTP ${response.status}`}`);
}

/** Two of the same name are two: the room knows them by this. */
function identityFor(name: string): string {
  const random = [...crypto.getRandomValues(new Uint8Array(6))].map((byte) => byte.toString(16).padStart(2, "0"));
  return `${name}-${random.join("")}`;
}

/** The name that a token gives its bearer; empty: none, or it is no token. */
export function nameOf(token: string): string {
  try {
    const text = atob((token.split(".")[1] ?? "").replace(/-/g, "+").replace(/_/g, "/"));
    const claims = JSON.parse(new TextDecoder().decode(Uint8Array.from(text, (c) => c.charCodeAt(0)))) as { name?: string };
    return claims.name ?? "";
  } catch {
    return "";
  }
}

/** Why the server does not let its bearer in, in its own words; null: it does, or cannot be asked. */
export async function refusal(token: string): Promise<string | null> {
  const response = await fetch(`/rtc/validate?access_token=${encodeURIComponent(token)}`).catch(() => null);
  return response && !response.ok ? await response.text() : null;
}
