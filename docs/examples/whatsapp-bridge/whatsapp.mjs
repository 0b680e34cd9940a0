// WhatsApp through Baileys: messages become frames, and sends become messages.

import { createHash } from 'node:crypto'
import makeWASocket, {
  DisconnectReason,
  downloadMediaMessage,
  getContentType,
  normalizeMessageContent,
  useMultiFileAuthState
} from 'baileys'
import qrcode from 'qrcode-terminal'

const MEDIA = { imageMessage: 'image.jpg', videoMessage: 'video.mp4', audioMessage: 'audio.ogg', documentMessage: 'document', stickerMessage: 'sticker.webp' }
const SENT_AS = { image: 'image', video: 'video', audio: 'audio' }
const REVOKE = 0
const EDIT = 14
const MAX_KNOWN = 1000
const RECONNECT_MILLISECONDS = 3000

export async function connectWhatsApp({ folder, push, tell, changeState, keepFile }) {
  const { state: auth, saveCreds } = await useMultiFileAuthState(folder)
  const known = new Map() // The last messages, both ways: to quote them, and to send them again if a phone asks.
  const sent = new Map() // Ids of what was sent, by key.
  const groups = new Map()
  let socket = null
  let isOpen = false
  let incoming = Promise.resolve()

  function connect() {
    socket = makeWASocket({ auth, getMessage: async ({ id }) => known.get(id)?.message })
    socket.ev.on('creds.update', saveCreds)
    socket.ev.on('connection.update', changed)
    socket.ev.on('lid-mapping.update', ({ lid, pn }) => tell({ type: 'alias', ids: [lid, pn] }))
    // Both kinds: `append` has what came while we were offline. One after the other, or files would change the order.
    socket.ev.on('messages.upsert', ({ messages }) => {
      for (const message of messages) {
        incoming = incoming.then(() => receive(message)).catch((error) => console.error('skipped a message:', error.name))
      }
    })
  }

  function changed({ connection, lastDisconnect, qr }) {
    if (qr) {
      qrcode.generate(qr, { small: true })
      changeState({ state: 'unlinked' })
    }
    if (connection === 'open') {
      isOpen = true
      changeState({ state: 'open', ids: [socket.user.id, socket.user.lid].filter(Boolean), name: socket.user.name })
    }
    if (connection === 'close') {
      isOpen = false
      const isUnlinked = lastDisconnect?.error?.output?.statusCode === DisconnectReason.loggedOut
      changeState({ state: isUnlinked ? 'unlinked' : 'connecting' })
      if (isUnlinked) console.error('The phone has unlinked this bridge. Delete its link folder and start it again.')
      else setTimeout(connect, RECONNECT_MILLISECONDS)
    }
  }

  // Incoming

  async function receive(message) {
    const { key } = message
    const content = normalizeMessageContent(message.message)
    if (!content || key.fromMe || key.remoteJid === 'status@broadcast') return
    remember(message)
    const group = key.remoteJid.endsWith('@g.us') ? key.remoteJid : undefined
    const from = group ? key.participant : key.remoteJid
    const who = { from, from_alt: (group ? key.participantAlt : key.remoteJidAlt) || undefined, name: message.pushName || undefined }
    const about = { ...who, group, group_name: group && (await groupName(group)), at: Number(message.messageTimestamp) }
    const change = content.protocolMessage
    if (change?.type === REVOKE) {
      push({ type: 'change', id: change.key.id, version: key.id, deleted: true, text: '', ...about })
    } else if (change?.type === EDIT) {
      push({ type: 'change', id: change.key.id, version: key.id, text: textOf(normalizeMessageContent(change.editedMessage)), ...about })
    } else if (content.reactionMessage?.key?.id) {
      push({ type: 'reaction', id: content.reactionMessage.key.id, emoji: content.reactionMessage.text || '', ...about })
    } else if (!change && !content.reactionMessage && getContentType(content)) {
      push({ type: 'message', id: key.id, ...about, ...(await contentOf(message, content)) })
    }
  }

  async function contentOf(message, content) {
    const kind = getContentType(content)
    const context = content[kind]?.contextInfo ?? {}
    const file = kind in MEDIA ? await fileOf(message, content[kind], MEDIA[kind]) : null
    const lost = kind in MEDIA && !file ? '[a file that could not be downloaded]' : ''
    return {
      text: [textOf(content), lost].filter(Boolean).join('\n'),
      files: file ? [file] : undefined,
      mentions: context.mentionedJid?.length ? context.mentionedJid : undefined,
      forwarded: context.isForwarded || undefined,
      reply_to: context.stanzaId || undefined,
      quote: context.stanzaId
        ? { from: context.participant, text: textOf(normalizeMessageContent(context.quotedMessage)) }
        : undefined
    }
  }

  async function fileOf(message, media, name) {
    try {
      const bytes = await downloadMediaMessage(message, 'buffer', {}, { reuploadRequest: socket.updateMediaMessage })
      return { handle: keepFile(bytes), name: media.fileName || name, type: media.mimetype, size: bytes.length }
    } catch (error) {
      console.error('a file could not be downloaded:', error.name)
      return null
    }
  }

  async function groupName(id) {
    if (!groups.has(id)) groups.set(id, await socket.groupMetadata(id).then((found) => found.subject, () => undefined))
    return groups.get(id)
  }

  function remember(message) {
    known.set(message.key.id, message)
    if (known.size > MAX_KNOWN) known.delete(known.keys().next().value)
  }

  // Outgoing

  async function send({ key, to, text, file, reply_to: answered }, readFile) {
    if (sent.has(key)) return { id: sent.get(key) }
    if (!isOpen) return { error: 'down', words: 'not connected' }
    const content = file ? mediaOf(file, text, readFile(file.handle)) : { text }
    if (!content) return { error: 'refused', words: 'the file is gone' }
    // The same key is the same message, also after a restart: phones show one id once.
    const messageId = `3EB0${createHash('sha256').update(key).digest('hex').slice(0, 18).toUpperCase()}`
    try {
      const made = await socket.sendMessage(jidOf(to), content, { messageId, quoted: known.get(answered) })
      remember(made)
      sent.set(key, made.key.id)
      if (sent.size > MAX_KNOWN) sent.delete(sent.keys().next().value)
      return { id: made.key.id }
    } catch (error) {
      return problemOf(error)
    }
  }

  connect()
  return {
    send,
    read: async ({ chat, from, id }) => {
      const participant = chat === from ? undefined : from
      await socket.readMessages([known.get(id)?.key ?? { remoteJid: jidOf(chat), participant, id }])
    },
    typing: ({ to }) => socket.sendPresenceUpdate('composing', jidOf(to))
  }
}

function textOf(content) {
  if (!content) return ''
  const kind = getContentType(content)
  const found = content[kind]
  if (kind === 'conversation') return found
  if (kind === 'locationMessage') return `[location ${found.degreesLatitude}, ${found.degreesLongitude}]`
  if (kind === 'contactMessage') return `[contact ${JSON.stringify(found.displayName ?? '')}]`
  return found?.text ?? found?.caption ?? (kind in MEDIA ? '' : `[${kind ?? 'unknown message'}, which cannot be shown here]`)
}

function mediaOf({ name, type }, caption, bytes) {
  if (!bytes) return null
  const kind = SENT_AS[type.split('/')[0]] ?? 'document'
  return { [kind]: bytes, mimetype: type, fileName: name, ...(caption ? { caption } : {}) }
}

function jidOf(id) {
  return /^[0-9]+$/.test(id) ? `${id}@s.whatsapp.net` : id
}

function problemOf(error) {
  const status = error?.output?.statusCode ?? error?.data
  if (status === 429) return { error: 'busy', after: 30, words: 'rate-overlimit' }
  if ([403, 404].includes(status)) return { error: 'gone', words: String(status) }
  if (status === DisconnectReason.connectionClosed) return { error: 'unclear', words: 'connection closed' }
  return status >= 400 && status < 500 && status !== 408
    ? { error: 'refused', words: String(status) }
    : { error: 'unclear', words: error?.name ?? 'error' }
}
