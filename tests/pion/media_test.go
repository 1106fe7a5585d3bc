package pion

import (
	"crypto/sha256"
	"slices"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/rtp/codecs"
	"github.com/pion/webrtc/v4"

	"millrace/tests/pion/client"
)

// clip is the demo clip: what is published, and what must arrive byte by byte.
type clip struct{ *client.Clip }

func readClip(t *testing.T) *clip {
	t.Helper()
	read, err := client.ReadClip("../../assets")
	check(t, err)
	return &clip{read}
}

// publisher plays the clip in a loop until the test ends.
type publisher struct {
	*session
	mutex            sync.Mutex
	keyframeRequests int
	nacks            int
}

func publish(t *testing.T, name string, c *clip, options peerOptions) *publisher {
	t.Helper()
	pc := newPeer(t, options)
	video, videoSender, err := client.AddTrack(pc, webrtc.MimeTypeVP8, "video", name)
	check(t, err)
	audio, audioSender, err := client.AddTrack(pc, webrtc.MimeTypeOpus, "audio", name)
	check(t, err)
	p := &publisher{session: open(t, pc, "/whip/"+name)}
	go p.countRequests(videoSender)
	go p.countRequests(audioSender)
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	go client.Play(video, c.Frames, client.FrameDuration, stop)
	go client.Play(audio, c.Audio[:500], client.AudioDuration, stop)
	waitForStream(t, name)
	return p
}

func (p *publisher) countRequests(sender *webrtc.RTPSender) {
	for {
		packets, _, err := sender.ReadRTCP()
		if err != nil {
			return
		}
		p.mutex.Lock()
		for _, packet := range packets {
			switch packet.(type) {
			case *rtcp.PictureLossIndication, *rtcp.FullIntraRequest:
				p.keyframeRequests++
			case *rtcp.TransportLayerNack:
				p.nacks++
			}
		}
		p.mutex.Unlock()
	}
}

// requests returns how often keyframes and lost packets were asked for.
func (p *publisher) requests() (keyframes, nacks int) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.keyframeRequests, p.nacks
}

// viewer collects what arrives.
type viewer struct {
	*session
	mutex sync.Mutex
	video []*rtp.Packet
	audio []*rtp.Packet
	track *webrtc.TrackRemote
}

func watch(t *testing.T, name string, pc *webrtc.PeerConnection) *viewer {
	t.Helper()
	v := &viewer{}
	for _, kind := range []webrtc.RTPCodecType{webrtc.RTPCodecTypeVideo, webrtc.RTPCodecTypeAudio} {
		_, err := pc.AddTransceiverFromKind(kind, webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionRecvonly})
		check(t, err)
	}
	pc.OnTrack(func(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) { v.collect(track) })
	v.session = open(t, pc, "/whep/"+name)
	return v
}

func (v *viewer) collect(track *webrtc.TrackRemote) {
	for {
		packet, _, err := track.ReadRTP()
		if err != nil {
			return
		}
		v.mutex.Lock()
		if track.Kind() == webrtc.RTPCodecTypeVideo {
			v.video = append(v.video, packet)
			v.track = track
		} else {
			v.audio = append(v.audio, packet)
		}
		v.mutex.Unlock()
	}
}

// received returns copies of what has arrived until now.
func (v *viewer) received() (video, audio []*rtp.Packet) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	return append(video, v.video...), append(audio, v.audio...)
}

// patience is how long a busy machine may take for what takes a few seconds.
const patience = time.Minute

// receives waits until so many whole frames and audio packets have come, and returns copies of what has.
func (v *viewer) receives(t *testing.T, c *clip, frames, sounds int) (video, audio []*rtp.Packet) {
	t.Helper()
	for start := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		video, audio = v.received()
		whole := len(c.frameIndices(t, video))
		if whole >= frames && len(audio) >= sounds {
			return video, audio
		}
		if time.Since(start) > patience {
			t.Fatalf("%d frames and %d audio packets, wanted %d and %d", whole, len(audio), frames, sounds)
		}
	}
}

func (v *viewer) videoSSRC() uint32 {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	if v.track == nil {
		return 0
	}
	return uint32(v.track.SSRC())
}

// requestKeyframe sends one PLI.
func (v *viewer) requestKeyframe(t *testing.T) {
	t.Helper()
	check(t, v.pc.WriteRTCP([]rtcp.Packet{&rtcp.PictureLossIndication{MediaSSRC: v.videoSSRC()}}))
}

// frameIndices puts video packets together and returns the place of each whole frame in the clip, in order of
// sequence numbers. A frame that is not in the clip fails the test.
func (c *clip) frameIndices(t *testing.T, packets []*rtp.Packet) []int {
	t.Helper()
	places := map[[32]byte]int{}
	for index, frame := range c.Frames {
		places[sha256.Sum256(frame)] = index
	}
	sort.SliceStable(packets, func(i, j int) bool {
		return int16(packets[i].SequenceNumber-packets[j].SequenceNumber) < 0
	})
	// pion's NACK generator asks again for what RTX has brought, so that it comes twice.
	packets = slices.CompactFunc(slices.Clone(packets), func(a, b *rtp.Packet) bool { return a.SequenceNumber == b.SequenceNumber })
	var indices []int
	var frame []byte // nil while no frame is begun or a packet of it is missing
	for i, packet := range packets {
		if i > 0 && packet.SequenceNumber != packets[i-1].SequenceNumber+1 {
			frame = nil
		}
		if len(packet.Payload) == 0 {
			continue // padding only: a probe for bandwidth
		}
		var payload codecs.VP8Packet
		data, err := payload.Unmarshal(packet.Payload)
		check(t, err)
		if payload.S == 1 && payload.PID == 0 {
			frame = []byte{}
		}
		if frame != nil {
			frame = append(frame, data...)
		}
		if frame == nil || !packet.Marker {
			continue
		}
		index, known := places[sha256.Sum256(frame)]
		if !known {
			t.Fatalf("a frame of %d bytes is none of the clip's", len(frame))
		}
		indices = append(indices, index)
		frame = nil
	}
	return indices
}
