// Command peer is pion as a publisher or viewer for tests/interop.
//
//	peer publish URL VP8       publishes the demo clip until its input ends
//	peer watch FRAMES URL...   until each stream has so many whole frames, or its input ends
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pion/webrtc/v4"

	"millrace/tests/pion/client"
)

const (
	// assets is where the clip lies, as seen from tests/interop.
	assets = "../../assets/"
	// audioPackets is how many of each stream a watcher waits for: two seconds.
	audioPackets = 100
)

func main() {
	var err error
	if len(os.Args) < 4 {
		err = errors.New("publish URL CODEC, or watch FRAMES URL...")
	} else if os.Args[1] == "publish" {
		err = publish(os.Args[2])
	} else {
		err = watch(os.Args[2], os.Args[3:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// say writes one line of JSON for the runner.
func say(value any) { json.NewEncoder(os.Stdout).Encode(value) }

// ended is closed when the runner closes our input, or is gone itself.
func ended() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(done)
	}()
	return done
}

func newPeer() (*webrtc.PeerConnection, error) {
	settings := webrtc.SettingEngine{}
	settings.SetIncludeLoopbackCandidate(true)
	return webrtc.NewAPI(webrtc.WithSettingEngine(settings)).NewPeerConnection(webrtc.Configuration{})
}

func publish(endpoint string) error {
	clip, err := client.ReadClip(assets)
	if err != nil {
		return err
	}
	pc, err := newPeer()
	if err != nil {
		return err
	}
	connected := client.Connected(pc)
	video, err := addTrack(pc, webrtc.MimeTypeVP8, "video")
	if err != nil {
		return err
	}
	audio, err := addTrack(pc, webrtc.MimeTypeOpus, "audio")
	if err != nil {
		return err
	}
	location, err := client.Exchange(pc, endpoint)
	if err != nil {
		return err
	}
	defer client.End(location)
	select {
	case <-connected:
	case <-time.After(15 * time.Second):
		return errors.New("no connection within 15 s")
	}
	go client.Play(video, clip.Frames, client.FrameDuration, nil)
	go client.Play(audio, clip.Audio, client.AudioDuration, nil)
	say(map[string]string{"publishing": endpoint})
	<-ended()
	return nil
}

func addTrack(pc *webrtc.PeerConnection, mime, id string) (*webrtc.TrackLocalStaticSample, error) {
	track, sender, err := client.AddTrack(pc, mime, id, "clip")
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			if _, _, err := sender.ReadRTCP(); err != nil {
				return
			}
		}
	}()
	return track, nil
}

// count is what came of one track.
type count struct {
	Codec   string `json:"codec,omitempty"`
	Packets int    `json:"packets"`
	// Lost is how many have not come, nor come again.
	Lost int `json:"lost"`
	// Frames of which no packet is missing.
	Frames int `json:"frames"`

	last    uint16
	whole   bool
	missing map[uint16]bool
}

func (c *count) take(seq uint16, marker bool) {
	gap := seq - c.last - 1
	if c.Packets == 0 {
		gap, c.whole, c.missing = 0, true, map[uint16]bool{}
	}
	if gap > 1<<15 {
		// It was sent again, or is late.
		delete(c.missing, seq)
		c.Lost = len(c.missing)
		return
	}
	for back := gap; back > 0; back-- {
		c.missing[seq-back] = true
	}
	c.Lost = len(c.missing)
	c.whole = c.whole && gap == 0
	c.last = seq
	c.Packets++
	if marker {
		if c.whole {
			c.Frames++
		}
		c.whole = true
	}
}

// viewer is one stream that is watched.
type viewer struct {
	mutex    sync.Mutex
	location string

	URL     string `json:"url"`
	Refused int    `json:"refused,omitempty"`
	Video   count  `json:"video"`
	Audio   count  `json:"audio"`
}

func (v *viewer) start() error {
	pc, err := newPeer()
	if err != nil {
		return err
	}
	for _, kind := range []webrtc.RTPCodecType{webrtc.RTPCodecTypeVideo, webrtc.RTPCodecTypeAudio} {
		direction := webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionRecvonly}
		if _, err := pc.AddTransceiverFromKind(kind, direction); err != nil {
			return err
		}
	}
	pc.OnTrack(func(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) { v.collect(track) })
	v.location, err = client.Exchange(pc, v.URL)
	var refused *client.Refused
	if errors.As(err, &refused) {
		v.Refused = refused.Status
		return nil
	}
	return err
}

func (v *viewer) collect(track *webrtc.TrackRemote) {
	to := &v.Audio
	if track.Kind() == webrtc.RTPCodecTypeVideo {
		to = &v.Video
	}
	for {
		packet, _, err := track.ReadRTP()
		if err != nil {
			return
		}
		v.mutex.Lock()
		to.Codec = strings.TrimPrefix(track.Codec().MimeType, track.Kind().String()+"/")
		to.take(packet.SequenceNumber, packet.Marker)
		v.mutex.Unlock()
	}
}

func (v *viewer) hasEnough(frames int) bool {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	return v.Refused != 0 || v.Video.Frames >= frames && v.Audio.Packets >= audioPackets
}

func watch(wanted string, urls []string) error {
	frames, err := strconv.Atoi(wanted)
	if err != nil {
		return err
	}
	var viewers []*viewer
	for _, endpoint := range urls {
		if _, err := url.Parse(endpoint); err != nil {
			return err
		}
		v := &viewer{URL: endpoint}
		if err := v.start(); err != nil {
			return err
		}
		viewers = append(viewers, v)
	}
	done := ended()
	for waiting := true; waiting; {
		waiting = false
		for _, v := range viewers {
			waiting = waiting || !v.hasEnough(frames)
		}
		select {
		case <-done:
			waiting = false
		case <-time.After(50 * time.Millisecond):
		}
	}
	for _, v := range viewers {
		v.mutex.Lock()
		defer v.mutex.Unlock()
		if v.location != "" {
			defer client.End(v.location)
		}
	}
	say(map[string]any{"received": viewers})
	return nil
}
