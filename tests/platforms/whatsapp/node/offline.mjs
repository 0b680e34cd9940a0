// No other host is found: nothing that runs in the tests may reach WhatsApp.

import dns from 'node:dns'

const { lookup } = dns
dns.lookup = (host, options, done) => {
  if (host === '127.0.0.1') return lookup(host, options, done)
  process.nextTick(done ?? options, Object.assign(new Error(`${host} is not looked up here`), { code: 'ENOTFOUND' }))
}
