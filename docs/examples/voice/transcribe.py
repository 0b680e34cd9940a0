"""Print what is said in a recording: python transcribe.py < voice.ogg"""

import subprocess
import sys
import tempfile
from array import array

from moonshine_voice import ModelArch, Transcriber
from moonshine_voice.utils import get_model_path

RATE = 16_000

with tempfile.NamedTemporaryFile() as recording:  # some formats cannot be read from a pipe
    recording.write(sys.stdin.buffer.read())
    recording.flush()
    # It comes from a stranger: nothing that it names is fetched.
    read = ["ffmpeg", "-nostdin", "-v", "error", "-protocol_whitelist", "file", "-i", recording.name]
    write = ["-f", "f32le", "-ac", "1", "-ar", str(RATE), "-protocol_whitelist", "pipe", "-"]
    samples = array("f", subprocess.run([*read, *write], check=True, stdout=subprocess.PIPE).stdout)

transcriber = Transcriber(str(get_model_path("tiny-en")), ModelArch.TINY)
print(" ".join(line.text for line in transcriber.transcribe_without_streaming(samples.tolist(), RATE).lines))
