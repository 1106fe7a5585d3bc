// SDP fragments of an ICE restart (RFC 9725 §4.3.2, RFC 8840 §9): credentials and candidates without the rest.

/** What `sdp` says of ICE, for the body of a PATCH. All sections are bundled, so the first stands for all. */
export function fragmentOf(sdp: string): string {
  const [session = "", first = ""] = sections(sdp);
  const wanted = /^(m=|a=(mid|ice-ufrag|ice-pwd|candidate):|a=end-of-candidates)/;
  const group = lines(session).filter((line) => line.startsWith("a=group:") || line.startsWith("a=ice-"));
  return [...group, ...lines(first).filter((line) => wanted.test(line)), ""].join("\r\n");
}

/** The answer of before, with the credentials and candidates of the server's fragment. */
export function answerWith(answer: string, fragment: string): string {
  const fresh = (name: string) => lines(fragment).find((line) => line.startsWith(`a=${name}:`)) ?? "";
  const candidates = lines(fragment).filter((line) => line.startsWith("a=candidate:"));
  let placed = false;
  const result = lines(answer).flatMap((line) => {
    if (line.startsWith("a=candidate:") || line === "a=end-of-candidates") return [];
    if (line.startsWith("a=ice-ufrag:")) return [fresh("ice-ufrag")];
    if (!line.startsWith("a=ice-pwd:")) return [line];
    if (placed) return [fresh("ice-pwd")];
    placed = true;
    return [fresh("ice-pwd"), ...candidates];
  });
  return [...result, ""].join("\r\n");
}

/** The session part, then each media section. */
function sections(sdp: string): string[] {
  return sdp.split(/^(?=m=)/m);
}

function lines(text: string): string[] {
  return text.split(/\r?\n/).filter((line) => line !== "");
}
