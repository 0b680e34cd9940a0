"""WhatsApp for one number: through the Cloud API of Meta, or through a bridge to a personal number."""

from palaver.platforms.whatsapp import PLATFORM
from palaver.platforms.whatsapp.bridge import BridgeAdapter
from palaver.platforms.whatsapp.cloud import CloudAdapter
from palaver.platforms.whatsapp.options import WhatsAppOptions


class WhatsAppAdapter:
    platform = PLATFORM
    options = WhatsAppOptions

    @staticmethod
    def make(account: str, options: WhatsAppOptions) -> BridgeAdapter | CloudAdapter:
        return BridgeAdapter(account, options) if options.bridge_url else CloudAdapter(account, options)
