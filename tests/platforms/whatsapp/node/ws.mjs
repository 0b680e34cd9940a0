// A stand-in for ws: as much of RFC 6455 as the bridge needs, for messages in one frame.

import { createHash } from 'node:crypto'
import { EventEmitter } from 'node:events'

class Socket extends EventEmitter {
  constructor(stream, head) {
    super()
    this.stream = stream
    this.bytes = head
    stream.on('data', (part) => {
      this.bytes = Buffer.concat([this.bytes, part])
      while (this.next());
    })
    stream.on('error', () => stream.destroy())
    stream.on('close', () => this.emit('close'))
  }

  next() {
    if (this.bytes.length < 2) return false
    const [first, second] = this.bytes
    let [length, at] = [second & 127, 2]
    if (length === 126) [length, at] = [this.bytes.length < 4 ? Infinity : this.bytes.readUInt16BE(2), 4]
    if (length === 127) [length, at] = [this.bytes.length < 10 ? Infinity : Number(this.bytes.readBigUInt64BE(2)), 10]
    if (this.bytes.length < at + 4 + length) return false
    const mask = this.bytes.subarray(at, at + 4)
    const body = Buffer.from(this.bytes.subarray(at + 4, at + 4 + length)).map((byte, index) => byte ^ mask[index % 4])
    this.bytes = this.bytes.subarray(at + 4 + length)
    if ((first & 15) === 1) this.emit('message', Buffer.from(body))
    if ((first & 15) === 8) this.close()
    return true
  }

  write(first, body) {
    const head = Buffer.alloc(body.length < 126 ? 2 : 4)
    head[0] = first
    head[1] = body.length < 126 ? body.length : 126
    if (body.length >= 126) head.writeUInt16BE(body.length, 2)
    if (this.stream.writable) this.stream.write(Buffer.concat([head, body]))
  }

  send(text) {
    this.write(0x81, Buffer.from(text))
  }

  close() {
    this.write(0x88, Buffer.alloc(0))
    this.stream.end()
  }
}

export class WebSocketServer {
  handleUpgrade(request, stream, head, opened) {
    const key = request.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
    const accept = createHash('sha1').update(key).digest('base64')
    const lines = ['HTTP/1.1 101 Switching Protocols', 'Upgrade: websocket', 'Connection: Upgrade', `Sec-WebSocket-Accept: ${accept}`]
    stream.write(lines.join('\r\n') + '\r\n\r\n')
    opened(new Socket(stream, head))
  }
}
