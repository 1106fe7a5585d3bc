package livekit

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/webrtc/v4"
)

// Loads as `lk load-test` has them, as many as are named in the environment, or few.
func TestLoadsArriveWhole(t *testing.T) {
	for _, load := range []struct {
		name                      string
		video, audio, subscribers int
	}{
		{"video", number("VIDEO", 1), 0, number("VIDEO_SUBSCRIBERS", 5)},
		{"audio", 0, number("AUDIO", 3), number("AUDIO_SUBSCRIBERS", 5)},
		{"meeting", number("MEETING", 3), number("MEETING", 3), number("MEETING_SUBSCRIBERS", 3)},
	} {
		t.Run(load.name, func(t *testing.T) {
			for index := range max(load.video, load.audio) {
				publisher := join(t, t.Name(), fmt.Sprintf("publisher %d", index), lksdk.WithAutoSubscribe(false))
				if index < load.video {
					publisher.publish(t, webrtc.MimeTypeH264, &lksdk.TrackPublicationOptions{Name: "picture"})
				}
				if index < load.audio {
					publisher.publish(t, webrtc.MimeTypeOpus, &lksdk.TrackPublicationOptions{Name: "sound"})
				}
			}
			subscribers, failures := make([]*member, load.subscribers), make([]error, load.subscribers)
			var joining sync.WaitGroup
			for index := range subscribers {
				joining.Go(func() {
					subscribers[index], failures[index] = enter(t, t.Name(), fmt.Sprintf("subscriber %d", index))
				})
				time.Sleep(20 * time.Millisecond)
			}
			joining.Wait()
			if err := errors.Join(failures...); err != nil {
				t.Fatal(err)
			}
			for _, subscriber := range subscribers {
				until(t, "all tracks", func() bool {
					tracks, packets, _ := subscriber.counts()
					return tracks == load.video+load.audio && packets > 0
				})
			}
			time.Sleep(time.Duration(number("SECONDS", 3)) * time.Second)
			var packets, missing int64
			for _, subscriber := range subscribers {
				// What was lost on the way is asked for, and may come still.
				until(t, "nothing is missing", func() bool { _, _, missing := subscriber.counts(); return missing == 0 })
				_, got, lacks := subscriber.counts()
				packets, missing = packets+got, missing+lacks
			}
			t.Logf("%d video, %d audio, %d subscribers: %d packets, %d missing", load.video, load.audio, load.subscribers, packets, missing)
		})
	}
}

func number(name string, usual int) int {
	if number, err := strconv.Atoi(os.Getenv("MILLRACE_TEST_" + name)); err == nil {
		return number
	}
	return usual
}
