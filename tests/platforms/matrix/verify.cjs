// A person's client with the encryption of Element. For each verdict it asks for the verification of a device,
// shows the emoji it sees, and says that they are the same, or different.
const crypto = require("@matrix-org/matrix-sdk-crypto-wasm");

const { HOMESERVER, USER, DEVICE, TOKEN, OTHER_USER, OTHER_DEVICE, VERDICTS } = process.env;
let since, machine;

async function ask(method, path, body) {
  const headers = { Authorization: `Bearer ${TOKEN}`, "Content-Type": "application/json" };
  const response = await fetch(`${HOMESERVER}/_matrix/client/v3${path}`, { method, headers, body });
  const text = await response.text();
  if (!response.ok) throw new Error(`${path}: ${text}`);
  return text;
}

const PATHS = new Map([
  [crypto.RequestType.KeysUpload, "/keys/upload"],
  [crypto.RequestType.KeysQuery, "/keys/query"],
  [crypto.RequestType.KeysClaim, "/keys/claim"],
  [crypto.RequestType.SignatureUpload, "/keys/signatures/upload"],
]);

async function send(request) {
  const answer =
    request.type === crypto.RequestType.ToDevice
      ? await ask("PUT", `/sendToDevice/${request.event_type}/${request.txn_id}`, request.body)
      : await ask("POST", PATHS.get(request.type), request.body);
  if (request.id) await machine.markRequestAsSent(request.id, request.type, answer);
}

async function look() {
  for (const request of await machine.outgoingRequests()) await send(request);
  const news = JSON.parse(await ask("GET", `/sync?timeout=1000${since ? `&since=${since}` : ""}`));
  since = news.next_batch;
  const changed = (news.device_lists?.changed ?? []).map((user) => new crypto.UserId(user));
  await machine.receiveSyncChanges(
    JSON.stringify(news.to_device?.events ?? []),
    new crypto.DeviceLists(changed, []),
    new Map(Object.entries(news.device_one_time_keys_count)),
    new Set(news.device_unused_fallback_key_types),
    new crypto.DecryptionSettings(crypto.TrustRequirement.Untrusted),
  );
  for (const request of await machine.outgoingRequests()) await send(request);
}

async function until(condition) {
  for (let n = 0; n < 20 && !(await condition()); n += 1) await look();
}

const otherDevice = () => machine.getDevice(new crypto.UserId(OTHER_USER), new crypto.DeviceId(OTHER_DEVICE));

async function verify(verdict) {
  const [request, asking] = (await otherDevice()).requestVerification([crypto.VerificationMethod.SasV1]);
  await send(asking);
  await until(() => request.isReady() || request.isCancelled());
  const [sas, start] = await request.startSas();
  await send(start);
  await until(() => sas.canBePresented() || sas.isCancelled());
  const emoji = sas.emoji()?.map((each) => each.symbol);
  const words = verdict === "same" ? await sas.confirm() : [sas.cancelWithCode("m.mismatched_sas")];
  for (const each of words) await send(each);
  await until(() => request.isDone() || request.isCancelled());
  await send(machine.queryKeysForUsers([new crypto.UserId(OTHER_USER)]));
  const device = await otherDevice();
  return { emoji, done: request.isDone(), verified: device.isVerified(), signed: device.isCrossSignedByOwner() };
}

async function main() {
  await crypto.initAsync();
  machine = await crypto.OlmMachine.initialize(new crypto.UserId(USER), new crypto.DeviceId(DEVICE));
  await look();
  if (USER === OTHER_USER) {
    const made = await machine.bootstrapCrossSigning(true);
    await ask("POST", "/keys/device_signing/upload", made.uploadSigningKeysRequest.body);
    await send(made.uploadSignaturesRequest);
  }
  await send(machine.queryKeysForUsers([new crypto.UserId(OTHER_USER)]));
  const shown = [];
  for (const verdict of VERDICTS.split(",")) shown.push(await verify(verdict));
  console.log(JSON.stringify(shown));
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
