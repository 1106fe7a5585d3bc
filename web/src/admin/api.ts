// What is asked of the server. The token is a header of each request and never part of an address.

const TOKEN_KEY = "millrace.admin-token";
/** Entries of a list that are loaded at most: what is behind them is for the API. */
export const ROWS_MAX = 50_000;

/** Why a request was not answered as asked. */
export class Refused extends Error {
  readonly status: number;

  constructor(status: number, detail: string) {
    super(detail);
    this.status = status;
  }
}

export function token(): string {
  return sessionStorage.getItem(TOKEN_KEY) ?? "";
}

export function keepToken(value: string): void {
  if (value) sessionStorage.setItem(TOKEN_KEY, value);
  else sessionStorage.removeItem(TOKEN_KEY);
}

/** A response whose status is good. */
export async function ask(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (token()) headers.set("authorization", `Bearer ${token()}`);
  const response = await fetch(path, { ...init, headers });
  if (response.ok) return response;
  const problem = (await response.json().catch(() => ({}))) as { detail?: string };
  throw new Refused(response.status, problem.detail ?? `${response.status} ${response.statusText}`);
}

export async function read<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await ask(path, { signal: signal ?? null })).json()) as T;
}

export async function change(method: string, path: string, body?: unknown): Promise<void> {
  const init: RequestInit = { method };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { "content-type": "application/json" };
  }
  await ask(path, init);
}

/** All entries of a list that comes in parts, of which each leads to the next. */
export async function list<T>(path: string, signal: AbortSignal): Promise<T[]> {
  const all: T[] = [];
  let next: string | null = path;
  while (next && all.length < ROWS_MAX) {
    const response: Response = await ask(next, { signal });
    for (const entry of (await response.json()) as T[]) all.push(entry);
    const link: string | undefined = /<([^>]*)>; rel="next"/.exec(response.headers.get("link") ?? "")?.[1];
    next = link ? new URL(link, new URL(next, location.href)).href : null;
  }
  return all;
}

/** A path from its parts, each of which may have any character, and what stands behind the `?`. */
export function path(parts: string[], query: Record<string, string | undefined> = {}): string {
  const given = Object.entries(query).filter((pair): pair is [string, string] => pair[1] !== undefined);
  const search = new URLSearchParams(given).toString();
  return `/${parts.map(encodeURIComponent).join("/")}${search ? `?${search}` : ""}`;
}
