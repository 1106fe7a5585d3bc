// Command peer is pion as a publisher or viewer for tests/interop.
//
//	peer publish URL VP8       publishes the demo clip until its input ends
//	peer watch FRAMES URL...   until each stream has so many whole frames, or its input ends
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pion/webrtc/v4"
	"github.com/pion/webrtc/v4/pkg/media"
	"github.com/pion/webrtc/v4/pkg/media/ivfreader"

	"millrace/tests/pion/ogg"
)

const (
	// assets is where the clip lies, as seen from tests/interop.
	assets        = "../../assets/"
	frameDuration = time.Second / 30
	audioDuration = 20 * time.Millisecond
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

// refused is the status of an answer that is none.
type refused int

func (r refused) Error() string { return fmt.Sprintf("status %d", int(r)) }

// connect exchanges offer and answer; it returns the session's address.
func connect(pc *webrtc.PeerConnection, endpoint string) (string, error) {
	offer, err := pc.CreateOffer(nil)
	if err != nil {
		return "", err
	}
	gathered := webrtc.GatheringCompletePromise(pc)
	if err := pc.SetLocalDescription(offer); err != nil {
		return "", err
	}
	<-gathered
	response, err := http.Post(endpoint, "application/sdp", strings.NewReader(pc.LocalDescription().SDP))
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusCreated {
		return "", refused(response.StatusCode)
	}
	location, err := response.Request.URL.Parse(response.Header.Get("Location"))
	if err != nil {
		return "", err
	}
	return location.String(), pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: string(answer)})
}

func closeSession(location string) {
	if request, err := http.NewRequest(http.MethodDelete, location, nil); err == nil {
		if response, err := http.DefaultClient.Do(request); err == nil {
			response.Body.Close()
		}
	}
}

func newPeer() (*webrtc.PeerConnection, error) {
	settings := webrtc.SettingEngine{}
	settings.SetIncludeLoopbackCandidate(true)
	return webrtc.NewAPI(webrtc.WithSettingEngine(settings)).NewPeerConnection(webrtc.Configuration{})
}

func publish(endpoint string) error {
	frames, err := ivfFrames()
	if err != nil {
		return err
	}
	sound, err := os.ReadFile(assets + "demo.ogg")
	if err != nil {
		return err
	}
	packets := ogg.Packets(sound)
	pc, err := newPeer()
	if err != nil {
		return err
	}
	connected := make(chan struct{})
	pc.OnConnectionStateChange(func(state webrtc.PeerConnectionState) {
		if state == webrtc.PeerConnectionStateConnected {
			close(connected)
		}
	})
	video, err := addTrack(pc, webrtc.MimeTypeVP8, "video")
	if err != nil {
		return err
	}
	audio, err := addTrack(pc, webrtc.MimeTypeOpus, "audio")
	if err != nil {
		return err
	}
	location, err := connect(pc, endpoint)
	if err != nil {
		return err
	}
	defer closeSession(location)
	select {
	case <-connected:
	case <-time.After(15 * time.Second):
		return errors.New("no connection within 15 s")
	}
	go play(video, frames, frameDuration)
	go play(audio, packets, audioDuration)
	say(map[string]string{"publishing": endpoint})
	<-ended()
	return nil
}

func addTrack(pc *webrtc.PeerConnection, mime, id string) (*webrtc.TrackLocalStaticSample, error) {
	track, err := webrtc.NewTrackLocalStaticSample(webrtc.RTPCodecCapability{MimeType: mime}, id, "clip")
	if err != nil {
		return nil, err
	}
	sender, err := pc.AddTrack(track)
	if err != nil {
		return nil, err
	}
	// pion answers NACKs while somebody reads RTCP.
	go func() {
		for {
			if _, _, err := sender.ReadRTCP(); err != nil {
				return
			}
		}
	}()
	return track, nil
}

// play sends the units over and over, each when it is due.
func play(track *webrtc.TrackLocalStaticSample, units [][]byte, duration time.Duration) {
	ticker := time.NewTicker(duration)
	for index := 0; ; index++ {
		<-ticker.C
		if track.WriteSample(media.Sample{Data: units[index%len(units)], Duration: duration}) != nil {
			return
		}
	}
}

func ivfFrames() ([][]byte, error) {
	file, err := os.ReadFile(assets + "demo.ivf")
	if err != nil {
		return nil, err
	}
	reader, _, err := ivfreader.NewWith(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	var frames [][]byte
	for {
		frame, _, err := reader.ParseNextFrame()
		if errors.Is(err, io.EOF) {
			return frames, nil
		}
		if err != nil {
			return nil, err
		}
		frames = append(frames, frame)
	}
}

// count is what came of one track.
type count struct {
	Codec   string `json:"codec,omitempty"`
	Packets int    `json:"packets"`
	Lost    int    `json:"lost"`
	// Frames of which no packet is missing.
	Frames int `json:"frames"`

	last  uint16
	whole bool
}

func (c *count) take(seq uint16, marker bool) {
	gap := seq - c.last - 1
	if c.Packets == 0 {
		gap, c.whole = 0, true
	}
	if gap > 1<<15 {
		return // sent again, or late
	}
	c.Lost += int(gap)
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
	v.location, err = connect(pc, v.URL)
	var status refused
	if errors.As(err, &status) {
		v.Refused = int(status)
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
		defer closeSession(v.location)
	}
	say(map[string]any{"received": viewers})
	return nil
}
