package pion

import (
	"encoding/binary"
	"strings"
	"sync"

	"github.com/pion/interceptor"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"
)

// dropper loses every twentieth packet of each video stream between pion and the network, once: what is sent again
// for it comes through.
type dropper struct {
	interceptor.NoOp
	outgoing bool
	mutex    sync.Mutex
	lost     map[uint16]bool
}

const (
	lossEvery = 20
	// vp8PayloadType is what pion offers for VP8; its retransmissions have a stream and a payload type of their own.
	vp8PayloadType = 96
)

// dropperFactory makes pion's registry use one dropper, so that the test can ask it.
type dropperFactory struct{ *dropper }

func newDropper(outgoing bool) dropperFactory {
	return dropperFactory{&dropper{outgoing: outgoing, lost: map[uint16]bool{}}}
}

func (f dropperFactory) NewInterceptor(string) (interceptor.Interceptor, error) {
	return f.dropper, nil
}

// loses tells whether the packet with this sequence number is lost now.
func (d *dropper) loses(seq uint16) bool {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if seq%lossEvery != 0 || d.lost[seq] {
		return false
	}
	d.lost[seq] = true
	return true
}

func (d *dropper) count() int {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return len(d.lost)
}

func isVideo(info *interceptor.StreamInfo) bool {
	return strings.EqualFold(info.MimeType, webrtc.MimeTypeVP8)
}

func (d *dropper) BindLocalStream(info *interceptor.StreamInfo, next interceptor.RTPWriter) interceptor.RTPWriter {
	if !d.outgoing || !isVideo(info) {
		return next
	}
	return interceptor.RTPWriterFunc(func(header *rtp.Header, payload []byte, attributes interceptor.Attributes) (int, error) {
		if header.SSRC == info.SSRC && d.loses(header.SequenceNumber) {
			return len(payload), nil
		}
		return next.Write(header, payload, attributes)
	})
}

func (d *dropper) BindRemoteStream(info *interceptor.StreamInfo, next interceptor.RTPReader) interceptor.RTPReader {
	if d.outgoing || !isVideo(info) {
		return next
	}
	return interceptor.RTPReaderFunc(func(buf []byte, attributes interceptor.Attributes) (int, interceptor.Attributes, error) {
		for {
			n, attributes, err := next.Read(buf, attributes)
			if err != nil || n < 4 || buf[1]&0x7f != vp8PayloadType || !d.loses(binary.BigEndian.Uint16(buf[2:])) {
				return n, attributes, err
			}
		}
	})
}
