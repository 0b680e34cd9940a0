"""Files go to Tencent's cloud storage."""

from palaver.platforms.yuanbao.adapter import Place, file_part, sign
from palaver.protocols import Attachment, Label
from palaver.protocols.protobuf import decode, messages_of, number_of, text_of


def test_the_signature_of_the_documentation() -> None:
    """The example of a PUT in Tencent's description of the signature."""
    headers = {
        "content-length": "13",
        "content-md5": "mQ/fVh815F3k6TAUm8m0eg==",
        "content-type": "text/plain",
        "date": "Thu, 16 May 2019 06:45:51 GMT",
        "host": "examplebucket-1250000000.cos.ap-beijing.myqcloud.com",
        "x-cos-acl": "private",
        "x-cos-grant-read": 'uin="100000000011"',
    }
    given = ("1557989151;1557996351", "AKIDQjz3ltompVjBni5LitkWHFlFpwkn9U5q", "BQYIM75p8x0iWVFSIgqEKwFprpRSVHlz")
    signed = sign("/exampleobject(腾讯云)", headers, *given)
    assert signed.endswith("&q-url-param-list=&q-signature=3b8851a11a569213c17ba8fa7dcf2abec6935172")


def test_the_place_is_in_the_bucket_that_yuanbao_names() -> None:
    keys = {
        "encryptTmpSecretId": "i",
        "encryptTmpSecretKey": "k",
        "encryptToken": "t",
        "startTime": 1,
        "expiredTime": 2,
    }
    found = {**keys, "bucketName": "b-1", "region": "ap-x", "location": "up/a", "resourceUrl": "https://r"}
    place = Place.read(found, 3, None)
    assert (place.url, place.resource) == ("https://b-1.cos.ap-x.myqcloud.com/up/a", "https://r")
    assert place.headers["x-cos-security-token"] == "t"


def test_pictures_are_pictures_and_the_rest_are_files() -> None:
    for media_type, kind in (("image/png", "TIMImageElem"), ("text/plain", "TIMFileElem")):
        (part,) = file_part(Attachment(Label("a.b"), media_type), b"abc", "https://r")
        fields = decode(part)
        (content,) = messages_of(fields, 2)
        assert text_of(fields, 1) == kind
        assert text_of(content, 2) == "900150983cd24fb0d6963f7d28e17f72"
        shown = messages_of(content, 8)[0] if kind == "TIMImageElem" else content
        url, size = (5, 2) if kind == "TIMImageElem" else (10, 11)
        assert (text_of(shown, url), number_of(shown, size)) == ("https://r", 3)
