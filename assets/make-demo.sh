#!/usr/bin/env bash
# Makes the clip that `millrace serve --demo` plays in a loop: a mill wheel that turns over running water, with a
# clock, a frame counter and a melody. Everything is drawn and played by ffmpeg's own generators, so that the clip
# is ours. Loops without a seam: all motion has a period that divides the ten seconds, and so has the melody.
#
# In:  nothing. Needs ffmpeg with libvpx, libopus and libx264, and the font DejaVu Sans Mono (fonts-dejavu-core).
# Out: demo.ivf (VP8, 640x360, 30 frames/s, 300 frames, a keyframe each second),
#      demo.ogg (Opus, mono, 20 ms packets),
#      demo.ts (the same as a transport stream: H.264 without B frames, AAC), all beside this script.
set -euo pipefail
cd "$(dirname "$0")"

seconds=10
font=/usr/share/fonts/truetype/dejavu/DejaVuSansMono-Bold.ttf

# The wheel: a rim, twelve spokes and a hub round (320, 170); one turn in ten seconds. ld/st keep radius and angle.
turn="2*PI*T/$seconds"
radius="hypot(X-320,Y-170)"
angle="(atan2(Y-170,X-320)+$turn)"
spokes="lt(abs(sin(6*$angle))*$radius,24)*between($radius,18,112)"
rim="between($radius,98,108)+between($radius,60,65)"
paddles="between($radius,108,126)*gt(cos(12*$angle),0.45)"
hub="lt($radius,20)"
wheel="min(1,$spokes+$rim+$paddles+$hub)"
# The water: two waves that run to the right, in front of the wheel's lower edge.
water="gt(Y,262+6*sin(X/640*2*PI*3-3*$turn)+3*sin(X/640*2*PI*7-7*$turn))"
shimmer="(8*sin(X/640*2*PI*9+Y/9-9*$turn))"

picture="geq=r='if($water,16+$shimmer,if($wheel,236,30+Y/6))'"
picture+=":g='if($water,98+$shimmer-(Y-262)/3,if($wheel,178,44+Y/4))'"
picture+=":b='if($water,150+$shimmer-(Y-262)/3,if($wheel,92,84+Y/3))'"
caption="drawtext=fontfile=$font:text=millrace:x=24:y=20:fontsize=34:fontcolor=white"
clock="drawtext=fontfile=$font:text='%{pts\:hms}':x=24:y=h-40:fontsize=22:fontcolor=white"
counter="drawtext=fontfile=$font:text='frame %{n}':x=w-tw-24:y=h-40:fontsize=22:fontcolor=white"

mill="color=size=640x360:rate=30:duration=$seconds,format=gbrp,$picture,$caption,$clock,$counter"
ffmpeg -hide_banner -loglevel error -y \
  -f lavfi -i "$mill" \
  -pix_fmt yuv420p -c:v libvpx -b:v 800k -maxrate 1000k -bufsize 800k -g 30 -keyint_min 30 \
  -auto-alt-ref 0 -lag-in-frames 0 -error-resilient 1 -deadline good -cpu-used 1 -threads 1 \
  -flags +bitexact -f ivf demo.ivf

# The melody: half-second plucked notes of a pentatonic scale, an octave lower every second note, 20 notes in all.
note="st(0,floor(t*2)); st(1,mod(ld(0)*7,5)+5*mod(ld(0),2))"
scale="st(2,220*pow(2,(2*ld(1)+if(gt(mod(ld(1),5),1),1,0)+2*floor(ld(1)/5))/12))"
pluck="exp(-5*mod(t,0.5))*min(1,200*mod(t,0.5))"
voice="0.25*$pluck*(sin(2*PI*ld(2)*t)+0.4*sin(4*PI*ld(2)*t)+0.15*sin(6*PI*ld(2)*t))"
melody="aevalsrc=exprs='$note; $scale; $voice':s=48000:d=$seconds"
ffmpeg -hide_banner -loglevel error -y \
  -f lavfi -i "$melody" \
  -c:a libopus -b:a 48k -frame_duration 20 -application audio -flags +bitexact -f ogg demo.ogg

# A clock reference before each picture: by these it is played. The sound is 468 frames of 1,024 samples, and so 16 ms short of
# ten seconds, which no player notices between two notes.
ffmpeg -hide_banner -loglevel error -y -f lavfi -i "$mill" -f lavfi -i "$melody" \
  -pix_fmt yuv420p -c:v libx264 -preset veryslow -profile:v main -bf 0 -b:v 600k -maxrate 800k -bufsize 800k -g 30 \
  -keyint_min 30 -sc_threshold 0 -threads 1 -c:a aac -b:a 64k -frames:a 468 -flags +bitexact -fflags +bitexact \
  -muxdelay 0 -muxpreload 0 -pcr_period 30 -f mpegts demo.ts

ls -l demo.ivf demo.ogg demo.ts
