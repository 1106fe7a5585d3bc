// What the page has of hls.js, in a file of its own.

export { default as Hls, Events } from "hls.js/light";
