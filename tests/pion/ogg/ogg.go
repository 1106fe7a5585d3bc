// Package ogg reads the demo's sound.
package ogg

// Packets reads the packets of a file (RFC 3533 §6), behind Opus's two headers (RFC 7845 §3), by the lacing values of each
// page: pion's reader gives a page as one payload.
func Packets(file []byte) [][]byte {
	var packets [][]byte
	var packet []byte
	for len(file) > 0 {
		count := int(file[26])
		lacing, body := file[27:27+count], file[27+count:]
		for _, size := range lacing {
			packet = append(packet, body[:size]...)
			body = body[size:]
			if size < 255 {
				packets = append(packets, packet)
				packet = nil
			}
		}
		file = body
	}
	return packets[2:]
}
