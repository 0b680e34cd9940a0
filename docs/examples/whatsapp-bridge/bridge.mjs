// The server of the bridge: one gateway, the frames of docs/whatsapp-bridge.md, and a queue that survives restarts.

import { createHash, randomUUID, timingSafeEqual } from 'node:crypto'
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { WebSocketServer } from 'ws'
import { connectWhatsApp } from './whatsapp.mjs'

const { BRIDGE_SECRET: secret, BRIDGE_PORT: port = '8787', BRIDGE_DATA: folder = 'data' } = process.env
const MAX_FILE_BYTES = 100_000_000
const FILE_MILLISECONDS = 24 * 3600 * 1000
const HANDLE = /^[0-9a-f-]{36}$/

if (!secret) {
  console.error('Set BRIDGE_SECRET to a secret of your choice.')
  process.exit(2)
}
mkdirSync(join(folder, 'files'), { recursive: true })
chmodSync(folder, 0o700)

// The queue: frames that the gateway has not acknowledged, in order. Each is on disk before it is sent.

const queueFile = join(folder, 'queue.json')
const queue = existsSync(queueFile) ? JSON.parse(readFileSync(queueFile, 'utf8')) : { next: 1, frames: [] }

function saveQueue() {
  writeFileSync(`${queueFile}.new`, JSON.stringify(queue), { mode: 0o600, flush: true })
  renameSync(`${queueFile}.new`, queueFile)
}

function push(frame) {
  const numbered = { ...frame, seq: queue.next++ }
  queue.frames.push(numbered)
  saveQueue()
  tell(numbered)
}

function acknowledge(seq) {
  queue.frames = queue.frames.filter((frame) => frame.seq !== seq)
  saveQueue()
}

// Files: kept for a day under names of our own.

function keepFile(content) {
  const handle = randomUUID()
  writeFileSync(join(folder, 'files', handle), content, { mode: 0o600 })
  return handle
}

function readFile(handle) {
  const path = join(folder, 'files', handle)
  return HANDLE.test(handle) && existsSync(path) ? readFileSync(path) : null
}

function deleteOldFiles() {
  for (const name of readdirSync(join(folder, 'files'))) {
    const path = join(folder, 'files', name)
    if (Date.now() - statSync(path).mtimeMs > FILE_MILLISECONDS) rmSync(path)
  }
}

// The gateway: the newest connection counts.

let line = null
let state = { state: 'connecting' }

function tell(frame) {
  line?.send(JSON.stringify(frame))
}

function changeState(changed) {
  state = changed
  tell({ type: 'state', ...state })
}

function isAuthorized(request) {
  const [given, wanted] = [request.headers.authorization ?? '', `Bearer ${secret}`].map((text) =>
    createHash('sha256').update(text).digest()
  )
  return timingSafeEqual(given, wanted)
}

async function take(text) {
  const frame = JSON.parse(text)
  switch (frame.type) {
    case 'ack':
      return acknowledge(frame.seq)
    case 'send':
      return tell({ type: 'result', ref: frame.ref, ...(await whatsapp.send(frame, readFile)) })
    case 'read':
      return whatsapp.read(frame)
    case 'typing':
      return whatsapp.typing(frame)
  }
}

const server = createServer(async (request, response) => {
  const path = decodeURIComponent(new URL(request.url, 'http://bridge').pathname)
  const answer = (status, body = '', type = 'application/json') =>
    response.writeHead(status, { 'content-type': type }).end(body)
  if (!isAuthorized(request)) return answer(401)
  if (request.method === 'GET' && path === '/status') return answer(200, JSON.stringify(state))
  if (request.method === 'GET' && path.startsWith('/files/')) {
    const content = readFile(path.slice('/files/'.length))
    return content ? answer(200, content, 'application/octet-stream') : answer(404)
  }
  if (request.method === 'POST' && path === '/files') {
    const parts = []
    let size = 0
    for await (const part of request) {
      size += part.length
      if (size > MAX_FILE_BYTES) return answer(413)
      parts.push(part)
    }
    return answer(200, JSON.stringify({ handle: keepFile(Buffer.concat(parts)) }))
  }
  answer(404)
})

const sockets = new WebSocketServer({ noServer: true, maxPayload: 1 << 20 })
server.on('upgrade', (request, socket, head) => {
  const problem = !isAuthorized(request) ? '401 Unauthorized' : request.url !== '/v1' ? '404 Not Found' : null
  if (problem) return socket.end(`HTTP/1.1 ${problem}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n`)
  sockets.handleUpgrade(request, socket, head, (opened) => {
    line?.close()
    line = opened
    opened.on('message', (text) => take(text).catch((error) => console.error('a frame failed:', error.name)))
    opened.on('close', () => {
      if (line === opened) line = null
    })
    opened.on('error', () => opened.close())
    tell({ type: 'state', ...state })
    for (const frame of queue.frames) tell(frame)
  })
})

const whatsapp = await connectWhatsApp({ folder: join(folder, 'link'), push, tell, changeState, keepFile })
deleteOldFiles()
setInterval(deleteOldFiles, 3600 * 1000)
server.listen(Number(port), '127.0.0.1', () => console.log(`The bridge is at http://127.0.0.1:${server.address().port}`))
