// Bundles src/ into dist/, which is checked in so that building the server needs Rust alone.
// `node build.mjs [OUTDIR]`; ./test builds into another folder and compares.
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { build } from "esbuild";

const out = process.argv[2] ?? "dist";
await mkdir(out, { recursive: true });
const settings = { bundle: true, format: "esm", target: "es2022", charset: "utf8" };
await build({ ...settings, entryPoints: ["src/app.ts"], outfile: `${out}/app.js`, external: ["./hls.js"] });
// Apart and small: it is loaded by who plays HLS.
const banner = { js: "/*! hls.js, https://github.com/video-dev/hls.js, Apache License 2.0 */" };
await build({ ...settings, entryPoints: ["src/hls.ts"], outfile: `${out}/hls.js`, minify: true, banner });
// The page of a room has a bundle of its own, and LiveKit's client beside it, so that the start page does not grow.
await build({ ...settings, entryPoints: ["src/room.ts"], outfile: `${out}/room.js`, external: ["./livekit.js"] });
const client = {
  js: `/*! livekit-client, https://github.com/livekit/client-sdk-js, Apache License 2.0, with @livekit/protocol and @livekit/mutex
(Apache-2.0), @bufbuild/protobuf (Apache-2.0, BSD-3-Clause), webrtc-adapter (BSD-3-Clause), events, jose, loglevel, machina, sdp,
sdp-transform and typed-emitter (MIT) */`,
};
await build({ ...settings, entryPoints: ["src/livekit.ts"], outfile: `${out}/livekit.js`, minify: true, banner: client });
// The dashboard, with uPlot in its script and its styles.
const plots = "/*! uPlot, https://github.com/leeoniya/uPlot, MIT */";
const dashboard = { ...settings, minify: true, banner: { js: plots, css: plots } };
await build({ ...dashboard, entryPoints: ["src/admin.ts"], outfile: `${out}/admin.js` });
await build({ ...dashboard, entryPoints: ["admin.css"], outfile: `${out}/admin.css` });
for (const style of ["style.css", "room.css"]) await build({ ...settings, entryPoints: [style], outfile: `${out}/${style}` });
// What all pages have stands once in shared/, and in their place as {head} and {brand}.
const part = async (name) => (await readFile(`shared/${name}`, "utf8")).trim();
const brand = await part("brand.svg");
// As a picture of its own it has a namespace, and no colours of a page.
const icon = brand.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"').replace("currentColor", "#b9771b").replace(/\s+/g, " ");
const head = (await part("head.html")).replace("{icon}", encodeURIComponent(icon));
for (const page of ["admin.html", "index.html", "room.html"]) {
  const text = (await readFile(page, "utf8")).replace("{head}", () => head).replace(/^( *)\{brand\}/m, (_, indent) => brand.replace(/^/gm, indent));
  await writeFile(`${out}/${page}`, text);
}
