// Package pion holds tests in which a WebRTC stack that shares no code with ours, pion, publishes and watches.
package pion

import (
	"net/http"
	"testing"
	"time"

	"github.com/pion/dtls/v3"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"
)

// A viewer gets each frame and each audio packet byte by byte, in order, in sequence numbers without a gap.
func TestViewerGetsEveryFrameUnchanged(t *testing.T) {
	c := readClip(t)
	publish(t, "pion-whole", c, peerOptions{})
	v := watch(t, "pion-whole", newPeer(t, peerOptions{}))

	video, audio := v.receives(t, c, 120, 200)
	assertNoGap(t, "video", video)
	assertNoGap(t, "audio", audio)
	indices := c.frameIndices(t, video)
	for i := 1; i < len(indices); i++ {
		if indices[i] != (indices[i-1]+1)%len(c.Frames) {
			t.Fatalf("frame %d comes after frame %d", indices[i], indices[i-1])
		}
	}
	known := map[string]bool{}
	for _, packet := range c.Audio {
		known[string(packet)] = true
	}
	for _, packet := range audio {
		if !known[string(packet.Payload)] {
			t.Fatalf("an audio packet of %d bytes is none of the clip's", len(packet.Payload))
		}
	}
}

// The picture starts with a keyframe, soon after the connection stands, although the publisher sends one per second.
func TestLateViewerStartsWithAKeyframe(t *testing.T) {
	c := readClip(t)
	publish(t, "pion-late", c, peerOptions{})
	time.Sleep(1500 * time.Millisecond)

	v := watch(t, "pion-late", newPeer(t, peerOptions{}))
	start := time.Now()
	for {
		video, _ := v.received()
		if indices := c.frameIndices(t, video); len(indices) > 0 {
			t.Logf("first frame %d ms after the connection stood", time.Since(start).Milliseconds())
			if indices[0]%30 != 0 {
				t.Fatalf("the first frame is number %d, which is no keyframe", indices[0])
			}
			return
		}
		if time.Since(start) > patience {
			t.Fatalf("no frame; %d packets", len(video))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Each profile of SRTP alone carries media, both ways.
func TestEachProtectionProfileCarriesMedia(t *testing.T) {
	c := readClip(t)
	publish(t, "pion-profiles", c, peerOptions{})
	for name, profile := range map[string]dtls.SRTPProtectionProfile{
		"AEAD_AES_128_GCM":       dtls.SRTP_AEAD_AES_128_GCM,
		"AEAD_AES_256_GCM":       dtls.SRTP_AEAD_AES_256_GCM,
		"AES128_CM_HMAC_SHA1_80": dtls.SRTP_AES128_CM_HMAC_SHA1_80,
	} {
		t.Run(name, func(t *testing.T) {
			v := watch(t, "pion-profiles", newPeer(t, peerOptions{profiles: []dtls.SRTPProtectionProfile{profile}}))
			v.receives(t, c, 40, 80)
		})
	}
}

// Where the network lets no UDP through, media goes over TCP (RFC 6544).
func TestViewerWithoutUDPIsServedByTCP(t *testing.T) {
	c := readClip(t)
	publish(t, "pion-tcp", c, peerOptions{})
	v := watch(t, "pion-tcp", newPeer(t, peerOptions{network: webrtc.NetworkTypeTCP4}))

	video, _ := v.receives(t, c, 60, 100)
	assertNoGap(t, "video", video)
}

// What is lost on the way to a viewer is asked for by NACK and comes again by RTX.
func TestLossTowardsTheViewerIsRepaired(t *testing.T) {
	c := readClip(t)
	publish(t, "pion-loss-down", c, peerOptions{})
	lossy := newDropper(false)
	v := watch(t, "pion-loss-down", newPeer(t, peerOptions{nearNetwork: lossy}))

	video, _ := v.receives(t, c, 150, 0)
	assertRepaired(t, c, video, lossy.count())
}

// What is lost on the way from the publisher is asked for by the server, so that viewers get every frame.
func TestLossFromThePublisherIsRepaired(t *testing.T) {
	c := readClip(t)
	lossy := newDropper(true)
	p := publish(t, "pion-loss-up", c, peerOptions{nearNetwork: lossy})
	v := watch(t, "pion-loss-up", newPeer(t, peerOptions{}))

	video, _ := v.receives(t, c, 150, 0)
	assertRepaired(t, c, video, lossy.count())
	if _, nacks := p.requests(); nacks == 0 {
		t.Fatal("the server sent no NACK")
	}
}

// However often a viewer asks for keyframes, the publisher hears of it seldom.
func TestKeyframeRequestsAreThrottled(t *testing.T) {
	c := readClip(t)
	p := publish(t, "pion-pli", c, peerOptions{})
	v := watch(t, "pion-pli", newPeer(t, peerOptions{}))
	time.Sleep(time.Second)
	before, _ := p.requests()

	for range 100 {
		v.requestKeyframe(t)
		time.Sleep(20 * time.Millisecond)
	}

	after, _ := p.requests()
	if got := after - before; got < 1 || got > 10 {
		t.Fatalf("100 requests in 2 s became %d, wanted 1 to 10", got)
	}
}

// DELETE ends a viewer at once, and the end of the publisher ends its viewers.
func TestDeleteEndsSessions(t *testing.T) {
	c := readClip(t)
	p := publish(t, "pion-delete", c, peerOptions{})
	first := watch(t, "pion-delete", newPeer(t, peerOptions{}))
	second := watch(t, "pion-delete", newPeer(t, peerOptions{}))

	if status := first.close(t); status != http.StatusOK && status != http.StatusNoContent {
		t.Fatalf("DELETE: status %d", status)
	}
	if !first.gone(2 * time.Second) {
		t.Fatal("the viewer's resource is still there")
	}
	p.close(t)
	if !second.gone(5 * time.Second) {
		t.Fatal("the publisher is gone, its viewer is not")
	}
	if status := second.close(t); status != http.StatusNotFound {
		t.Fatalf("DELETE of what is gone: status %d", status)
	}
}

// assertNoGap fails when sequence numbers, in order of arrival, do not count up by one.
func assertNoGap(t *testing.T, what string, packets []*rtp.Packet) {
	t.Helper()
	for i := 1; i < len(packets); i++ {
		if packets[i].SequenceNumber != packets[i-1].SequenceNumber+1 {
			t.Fatalf("%s: packet %d comes after %d", what, packets[i].SequenceNumber, packets[i-1].SequenceNumber)
		}
	}
}

// assertRepaired fails unless every frame came, but for the last half second, where repair may be under way.
func assertRepaired(t *testing.T, c *clip, video []*rtp.Packet, lost int) {
	t.Helper()
	if lost < 10 {
		t.Fatalf("only %d packets were lost, which proves nothing", lost)
	}
	indices := c.frameIndices(t, video)
	t.Logf("%d packets lost once, %d frames whole", lost, len(indices))
	for i := 1; i < len(indices)-15; i++ {
		if indices[i] != (indices[i-1]+1)%len(c.Frames) {
			t.Fatalf("frame %d comes after frame %d; missing of %d packets: %v",
				indices[i], indices[i-1], len(video), missing(video))
		}
	}
}

// missing returns the places of the packets that did not come, counted from the first one.
func missing(video []*rtp.Packet) []uint16 {
	var places []uint16
	for i := 1; i < len(video); i++ {
		for seq := video[i-1].SequenceNumber + 1; seq != video[i].SequenceNumber && seq != video[i].SequenceNumber+1; seq++ {
			places = append(places, seq-video[0].SequenceNumber)
		}
	}
	return places
}
