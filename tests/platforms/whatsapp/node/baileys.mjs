// Baileys without its connection: events come from standard input, calls go to standard output, one JSON object a line.

import { EventEmitter } from 'node:events'
import { createInterface } from 'node:readline'

export { DisconnectReason, getContentType, normalizeMessageContent, useMultiFileAuthState } from 'real-baileys'

const sockets = []
const tell = (name, ...given) => console.log(JSON.stringify({ call: name, given }))

createInterface({ input: process.stdin }).on('line', (line) => {
  const { event, data } = JSON.parse(line)
  sockets.at(-1).ev.emit(event, data)
})

export async function downloadMediaMessage(message) {
  if (message.lost) throw new Error('gone')
  return Buffer.from(message.bytes)
}

export default function makeWASocket() {
  const socket = {
    ev: new EventEmitter(),
    user: { id: '4930123456:7@s.whatsapp.net', lid: '987654321:7@lid', name: 'Helper' },
    groupMetadata: async () => ({ subject: 'Dev' }),
    readMessages: async (keys) => tell('read', ...keys),
    sendPresenceUpdate: async (kind, jid) => tell(kind, jid),
    sendMessage: async (jid, content, { messageId, quoted }) => {
      const [, status] = /^fail ([0-9]+)$/.exec(content.text) ?? []
      if (status) throw Object.assign(new Error('no'), { output: { statusCode: Number(status) } })
      const shown = Object.fromEntries(Object.entries(content).map(([name, value]) => [name, Buffer.isBuffer(value) ? value.toString() : value]))
      tell('send', jid, shown, messageId, quoted?.key.id ?? null)
      return { key: { id: messageId, remoteJid: jid, fromMe: true }, message: {} }
    }
  }
  sockets.push(socket)
  return socket
}
