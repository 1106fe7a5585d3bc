// Package livekit has LiveKit's own SDK for Go, unmodified, in rooms of millrace.
package livekit

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/webrtc/v4"
	"github.com/pion/webrtc/v4/pkg/media"
)

// watched is a track that somebody gets: what has come of it.
type watched struct {
	packets  atomic.Int64
	mutex    sync.Mutex
	first    int64
	last     int64
	seen     map[uint16]int64
	repeated int64
}

// take notes a packet; numbers are extended as RFC 3550 has it.
func (w *watched) take(number uint16) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.packets.Add(1) == 1 {
		w.first, w.last = int64(number)+1<<16, int64(number)+1<<16
		w.seen = map[uint16]int64{number: w.last}
		return
	}
	extended := w.last + int64(int16(number-uint16(w.last)))
	if w.seen[number] == extended {
		w.repeated++
	}
	w.seen[number] = extended
	w.last = max(w.last, extended)
	w.first = min(w.first, extended)
}

// missing is how many packets between the first and the last have not come, a second ago's and older.
func (w *watched) missing() int64 {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.last - w.first + 1 + w.repeated - w.packets.Load()
}

// member is somebody in a room.
type member struct {
	room   *lksdk.Room
	mutex  sync.Mutex
	tracks map[string]*watched
	data   chan string
	gone   chan struct{}
}

func (m *member) track(sid string) *watched {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.tracks[sid]
}

func (m *member) counts() (tracks int, packets, missing int64) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for _, track := range m.tracks {
		packets += track.packets.Load()
		missing += track.missing()
	}
	return len(m.tracks), packets, missing
}

// forget is for a track that has ended, if there is no other of its name yet.
func (m *member) forget(sid string, track *watched) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.tracks[sid] == track {
		delete(m.tracks, sid)
	}
}

// join lets somebody in.
func join(t *testing.T, room, identity string, options ...lksdk.ConnectOption) *member {
	t.Helper()
	m, err := enter(t, room, identity, options...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// enter is join where a test has several goroutines.
func enter(t *testing.T, room, identity string, options ...lksdk.ConnectOption) (*member, error) {
	m := &member{tracks: map[string]*watched{}, data: make(chan string, 64), gone: make(chan struct{})}
	callback := lksdk.NewRoomCallback()
	callback.OnDisconnected = func() { close(m.gone) }
	callback.OnTrackSubscribed = func(track *webrtc.TrackRemote, publication *lksdk.RemoteTrackPublication, _ *lksdk.RemoteParticipant) {
		w := &watched{}
		m.mutex.Lock()
		m.tracks[publication.SID()] = w
		m.mutex.Unlock()
		go func() {
			for {
				packet, _, err := track.ReadRTP()
				if err != nil {
					// Who gives up a subscription is told by the track alone.
					m.forget(publication.SID(), w)
					return
				}
				w.take(packet.SequenceNumber)
			}
		}()
	}
	callback.OnDataPacket = func(packet lksdk.DataPacket, from lksdk.DataReceiveParams) {
		if user, ok := packet.(*lksdk.UserDataPacket); ok {
			m.data <- fmt.Sprintf("%s: %s", from.SenderIdentity, user.Payload)
		}
	}
	info := lksdk.ConnectInfo{APIKey: "devkey", APISecret: "secret", RoomName: room, ParticipantIdentity: identity}
	joined, err := lksdk.ConnectToRoom("ws://"+address, info, callback, options...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", identity, err)
	}
	m.room = joined
	t.Cleanup(joined.Disconnect)
	return m, nil
}

// publish has somebody send pictures or sound, until the test ends: a keyframe each second, 1.4 Mbit/s.
func (m *member) publish(t *testing.T, mime string, options *lksdk.TrackPublicationOptions) *lksdk.LocalTrackPublication {
	t.Helper()
	track, err := lksdk.NewLocalSampleTrack(webrtc.RTPCodecCapability{MimeType: mime})
	if err != nil {
		t.Fatal(err)
	}
	publication, err := m.room.LocalParticipant.PublishTrack(track, options)
	if err != nil {
		t.Fatal(err)
	}
	duration := time.Second / 30
	if mime == webrtc.MimeTypeOpus {
		duration = 20 * time.Millisecond
	}
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	go func() {
		ticker := time.NewTicker(duration)
		defer ticker.Stop()
		for index := 0; ; index++ {
			select {
			case <-stop:
				return
			case <-ticker.C:
			}
			track.WriteSample(media.Sample{Data: frame(mime, index%30 == 0), Duration: duration}, nil)
		}
	}()
	return publication
}

// frame is one that forwarders read as what it is to be.
func frame(mime string, isKey bool) []byte {
	switch {
	case mime == webrtc.MimeTypeOpus:
		return make([]byte, 80)
	case mime == webrtc.MimeTypeH264 && isKey:
		parameters := []byte{0, 0, 0, 1, 0x67, 0x42, 0xc0, 0x1f, 0x0f, 0xd9, 0, 0, 0, 1, 0x68, 0x87, 0xcb, 0x83, 0, 0, 0, 1, 0x65}
		return append(parameters, filler(6_000)...)
	case mime == webrtc.MimeTypeH264:
		return append([]byte{0, 0, 0, 1, 0x41}, filler(6_000)...)
	case isKey:
		return append([]byte{0x10, 0x02, 0x00, 0x9d, 0x01, 0x2a, 0x08, 0x00, 0x08, 0x00}, filler(6_000)...)
	default:
		return append([]byte{0x11, 0x02, 0x00}, filler(6_000)...)
	}
}

func filler(size int) []byte {
	data := make([]byte, size)
	for index := range data {
		data[index] = 0x55
	}
	return data
}

// until waits for something to be so.
func until(t *testing.T, what string, isSo func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !isSo(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func TestTracksOfEachCodecArriveWhole(t *testing.T) {
	for _, mime := range []string{webrtc.MimeTypeVP8, webrtc.MimeTypeH264, webrtc.MimeTypeOpus} {
		t.Run(mime, func(t *testing.T) {
			alice := join(t, t.Name(), "alice")
			bob := join(t, t.Name(), "bob")
			publication := alice.publish(t, mime, &lksdk.TrackPublicationOptions{Name: "track"})
			until(t, "a hundred packets", func() bool {
				track := bob.track(publication.SID())
				return track != nil && track.packets.Load() > 100
			})
			until(t, "none is missing", func() bool { return bob.track(publication.SID()).missing() == 0 })
		})
	}
}

// pion tells of a track with its first packet, and of a muted one nothing comes but padding.
func TestATrackThatIsMutedIsSubscribedToAndArrivesWholeWhenItIsNot(t *testing.T) {
	for _, mime := range []string{webrtc.MimeTypeVP8, webrtc.MimeTypeOpus} {
		t.Run(mime, func(t *testing.T) {
			alice, carol := join(t, t.Name(), "alice"), join(t, t.Name(), "carol")
			publication := alice.publish(t, mime, &lksdk.TrackPublicationOptions{Name: "track"})
			publication.SetMuted(true)
			until(t, "all know that it is muted", func() bool {
				for _, remote := range carol.room.GetRemoteParticipants() {
					for _, track := range remote.TrackPublications() {
						return track.IsMuted()
					}
				}
				return false
			})
			bob := join(t, t.Name(), "bob")
			until(t, "bob gets it", func() bool { return bob.track(publication.SID()) != nil })
			publication.SetMuted(false)
			until(t, "a hundred packets", func() bool { return bob.track(publication.SID()).packets.Load() > 100 })
			until(t, "none is missing", func() bool { return bob.track(publication.SID()).missing() == 0 })
		})
	}
}

func TestWhoComesLateGetsWhatThereIsAndLosesWhatEnds(t *testing.T) {
	alice := join(t, t.Name(), "alice")
	picture := alice.publish(t, webrtc.MimeTypeVP8, &lksdk.TrackPublicationOptions{Name: "picture"})
	alice.publish(t, webrtc.MimeTypeOpus, &lksdk.TrackPublicationOptions{Name: "sound"})
	bob := join(t, t.Name(), "bob")
	until(t, "two tracks", func() bool { tracks, packets, _ := bob.counts(); return tracks == 2 && packets > 100 })
	if err := alice.room.LocalParticipant.UnpublishTrack(picture.SID()); err != nil {
		t.Fatal(err)
	}
	until(t, "one track", func() bool { tracks, _, _ := bob.counts(); return tracks == 1 })
	again := alice.publish(t, webrtc.MimeTypeVP8, &lksdk.TrackPublicationOptions{Name: "another"})
	until(t, "another track", func() bool {
		track := bob.track(again.SID())
		return track != nil && track.packets.Load() > 100
	})
}

func TestASubscriptionThatIsGivenUpAndTakenAgain(t *testing.T) {
	alice := join(t, t.Name(), "alice")
	sid := alice.publish(t, webrtc.MimeTypeVP8, &lksdk.TrackPublicationOptions{Name: "picture"}).SID()
	bob := join(t, t.Name(), "bob")
	until(t, "packets", func() bool { track := bob.track(sid); return track != nil && track.packets.Load() > 50 })
	var publication *lksdk.RemoteTrackPublication
	for _, remote := range bob.room.GetRemoteParticipants() {
		publication = remote.TrackPublications()[0].(*lksdk.RemoteTrackPublication)
	}
	for round := range 3 {
		if err := publication.SetSubscribed(false); err != nil {
			t.Fatal(err)
		}
		until(t, fmt.Sprintf("no track, %d", round), func() bool { return bob.track(sid) == nil })
		if err := publication.SetSubscribed(true); err != nil {
			t.Fatal(err)
		}
		until(t, fmt.Sprintf("packets again, %d", round), func() bool {
			track := bob.track(sid)
			return track != nil && track.packets.Load() > 50
		})
	}
}

func TestDataGoesToAllOrToWhomItIsFor(t *testing.T) {
	alice, bob, carol := join(t, t.Name(), "alice"), join(t, t.Name(), "bob"), join(t, t.Name(), "carol")
	send := func(text string, options ...lksdk.DataPublishOption) {
		if err := alice.room.LocalParticipant.PublishDataPacket(lksdk.UserData([]byte(text)), options...); err != nil {
			t.Fatal(err)
		}
	}
	active(t, t.Name(), 3)
	send("for bob", lksdk.WithDataPublishReliable(true), lksdk.WithDataPublishDestination([]string{"bob"}))
	send("for all", lksdk.WithDataPublishReliable(true))
	for _, expected := range []string{"alice: for bob", "alice: for all"} {
		if heard := hear(t, bob); heard != expected {
			t.Fatalf("bob heard %q, not %q", heard, expected)
		}
	}
	if heard := hear(t, carol); heard != "alice: for all" {
		t.Fatalf("carol heard %q", heard)
	}
	send("lossy")
	if heard := hear(t, carol); heard != "alice: lossy" {
		t.Fatalf("carol heard %q", heard)
	}
}

// Nobody takes bob's messages at first, so his SDK does not read either, and what comes for him waits at the server. Then so does alice.
// All of it has room in what his SDK takes unread and in what may wait for him: so nothing is lost however long this test takes.
func TestReliableDataWaitsForWhoReadsItSlowly(t *testing.T) {
	const count = 180
	alice, bob := join(t, t.Name(), "alice"), join(t, t.Name(), "bob")
	active(t, t.Name(), 2)
	before := holds(t)
	go func() {
		padding := strings.Repeat(".", 15_000)
		for number := range count {
			text := lksdk.UserData(fmt.Appendf(nil, "%d %s", number, padding))
			if err := alice.room.LocalParticipant.PublishDataPacket(text, lksdk.WithDataPublishReliable(true)); err != nil {
				return
			}
		}
	}()
	until(t, "alice waits", func() bool { return holds(t) > before })
	for number := range count {
		if heard := hear(t, bob); !strings.HasPrefix(heard, fmt.Sprintf("alice: %d ", number)) {
			t.Fatalf("bob heard %.20q, not message %d", heard, number)
		}
	}
}

// holds is how often nothing was read of somebody's data for a while.
func holds(t *testing.T) (count int) {
	t.Helper()
	answer, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	const name = "\nmillrace_livekit_data_holds_total "
	_, value, _ := strings.Cut(string(text), name)
	if _, err := fmt.Sscan(value, &count); err != nil {
		t.Fatalf("no%s: %v", name, err)
	}
	return count
}

// active waits until so many are in a room to whom data can be sent.
func active(t *testing.T, room string, count int) {
	t.Helper()
	service := lksdk.NewRoomServiceClient("http://"+address, "devkey", "secret")
	until(t, "all are active", func() bool {
		list, err := service.ListParticipants(t.Context(), &livekit.ListParticipantsRequest{Room: room})
		if err != nil {
			t.Fatal(err)
		}
		isOther := func(member *livekit.ParticipantInfo) bool { return member.State != livekit.ParticipantInfo_ACTIVE }
		return len(list.Participants) == count && !slices.ContainsFunc(list.Participants, isOther)
	})
}

func hear(t *testing.T, m *member) string {
	t.Helper()
	select {
	case heard := <-m.data:
		return heard
	case <-time.After(30 * time.Second):
		t.Fatal("nothing is heard")
		return ""
	}
}

func TestSimulcastLayersAreChosenByQuality(t *testing.T) {
	alice, bob := join(t, t.Name(), "alice"), join(t, t.Name(), "bob")
	var tracks []*lksdk.LocalTrack
	for index, quality := range []livekit.VideoQuality{livekit.VideoQuality_LOW, livekit.VideoQuality_MEDIUM, livekit.VideoQuality_HIGH} {
		layer := &livekit.VideoLayer{Quality: quality, Width: 320 << index, Height: 180 << index}
		track, err := lksdk.NewLocalSampleTrack(webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeVP8}, lksdk.WithSimulcast("simulcast", layer))
		if err != nil {
			t.Fatal(err)
		}
		tracks = append(tracks, track)
	}
	if _, err := alice.room.LocalParticipant.PublishSimulcastTrack(tracks, &lksdk.TrackPublicationOptions{Name: "layers"}); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	for index, track := range tracks {
		go send(track, 500<<index, stop)
	}
	until(t, "a track", func() bool { tracks, packets, _ := bob.counts(); return tracks == 1 && packets > 50 })
	var publication *lksdk.RemoteTrackPublication
	for _, remote := range bob.room.GetRemoteParticipants() {
		publication = remote.TrackPublications()[0].(*lksdk.RemoteTrackPublication)
	}
	// By packets a second: of the layers' frames one takes one packet, and the largest two.
	for _, step := range []struct {
		quality livekit.VideoQuality
		fits    func(rate int64) bool
	}{
		{livekit.VideoQuality_LOW, func(rate int64) bool { return rate < 45 }},
		{livekit.VideoQuality_HIGH, func(rate int64) bool { return rate > 50 }},
	} {
		if err := publication.SetVideoQuality(step.quality); err != nil {
			t.Fatal(err)
		}
		until(t, step.quality.String(), func() bool {
			_, before, _ := bob.counts()
			time.Sleep(time.Second)
			_, after, _ := bob.counts()
			return after > before && step.fits(after-before)
		})
	}
}

func send(track *lksdk.LocalTrack, size int, stop <-chan struct{}) {
	ticker := time.NewTicker(time.Second / 30)
	defer ticker.Stop()
	for index := 0; ; index++ {
		select {
		case <-stop:
			return
		case <-ticker.C:
		}
		data := append(frame(webrtc.MimeTypeVP8, index%30 == 0)[:10], filler(size)...)
		track.WriteSample(media.Sample{Data: data, Duration: time.Second / 30}, nil)
	}
}
