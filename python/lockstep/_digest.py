"""XXH3-128 with seed 0, the digest of tensors in snapshots (docs/weight-sync.md), of numpy arrays. The package xxhash is used where it is installed."""
import numpy as np

try:
    import xxhash
except ImportError:
    xxhash = None

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")
_A, _B, _C = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_P = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
_M = (1 << 64) - 1
_BLOCK, _STRIPES, _CHUNK = 1024, 16, 4096  # bytes, stripes a block, blocks at a time


def _word(data, at, size=8):
    return int.from_bytes(data[at : at + size], "little")


def _shuffle(h):
    h = (h ^ h >> 37) * 0x165667919E3779F9 & _M
    return h ^ h >> 32


def _shuffle64(h):
    h = (h ^ h >> 33) * _P[1] & _M
    h = (h ^ h >> 29) * _P[2] & _M
    return h ^ h >> 32


def _fold(a, b):
    product = a * b
    return (product ^ product >> 64) & _M


def _swapped(value, size):
    return int.from_bytes(value.to_bytes(size, "little"), "big")


def _short(d):
    n, s = len(d), _SECRET
    if n == 0:
        return _shuffle64(_word(s, 64) ^ _word(s, 72)), _shuffle64(_word(s, 80) ^ _word(s, 88))
    if n < 4:
        low = d[0] << 16 | d[n >> 1] << 24 | d[-1] | n << 8
        turned = _swapped(low, 4)
        high = (turned << 13 | turned >> 19) & 0xFFFFFFFF
        return _shuffle64(low ^ _word(s, 0, 4) ^ _word(s, 4, 4)), _shuffle64(high ^ _word(s, 8, 4) ^ _word(s, 12, 4))
    if n < 9:
        key = _word(d, 0, 4) + (_word(d, n - 4, 4) << 32) ^ _word(s, 16) ^ _word(s, 24)
        product = key * (_P[0] + (n << 2))
        low, high = product & _M, product >> 64 & _M
        high = high + (low << 1) & _M
        low ^= high >> 3
        low = (low ^ low >> 35) * 0x9FB21C651E98DF25 & _M
        return low ^ low >> 28, _shuffle(high)
    first, last = _word(d, 0), _word(d, n - 8)
    product = (first ^ last ^ _word(s, 32) ^ _word(s, 40)) * _P[0]
    low, high = (product & _M) + (n - 1 << 54) & _M, product >> 64
    last ^= _word(s, 48) ^ _word(s, 56)
    high = high + last + (last & 0xFFFFFFFF) * (_B - 1) & _M
    product = (low ^ _swapped(high, 8)) * _P[1]
    return _shuffle(product & _M), _shuffle((product >> 64) + high * _P[1] & _M)


def _middle(d):
    n, s = len(d), _SECRET

    def mixed(acc, a, b, key):
        for i, (here, there) in enumerate(((a, b), (b, a))):
            k = key + 16 * i
            acc[i] = acc[i] + _fold(_word(d, here) ^ _word(s, k), _word(d, here + 8) ^ _word(s, k + 8)) & _M
            acc[i] ^= _word(d, there) + _word(d, there + 8) & _M

    acc = [n * _P[0] & _M, 0]
    if n <= 128:
        for at in range((n - 1) // 32 * 16, -1, -16):
            mixed(acc, at, n - at - 16, 2 * at)
    else:
        for at in range(0, 128, 32):
            mixed(acc, at, at + 16, at)
        acc = [_shuffle(a) for a in acc]
        for at in range(128, n - 31, 32):
            mixed(acc, at, at + 16, at - 125)
        mixed(acc, n - 16, n - 32, 103)
    low = acc[0] + acc[1] & _M
    high = acc[0] * _P[0] + acc[1] * _P[3] + n * _P[1] & _M
    return _shuffle(low), -_shuffle(high) & _M


def _sums(stripes, keys):
    """The sum that stripes of 8 words, (..., n, 8), add to the accumulators."""
    keyed = stripes ^ keys
    added = (keyed & np.uint64(0xFFFFFFFF)) * (keyed >> np.uint64(32))
    return (added + stripes[..., [1, 0, 3, 2, 5, 4, 7, 6]]).sum(axis=-2, dtype=np.uint64)


def _long(data):
    n, secret = data.size, np.frombuffer(_SECRET, np.uint64)
    keys = np.stack([secret[i : i + 8] for i in range(_STRIPES)])
    acc = np.array([_C, *_P[:4], _B, _P[4], _A], np.uint64)
    blocks, end, prime = (n - 1) // _BLOCK, secret[16:], np.uint64(_A)
    for begin in range(0, blocks, _CHUNK):
        count = min(_CHUNK, blocks - begin)
        piece = data[begin * _BLOCK : (begin + count) * _BLOCK].view(np.uint64).reshape(count, _STRIPES, 8)
        for added in _sums(piece, keys):
            acc += added
            acc ^= acc >> np.uint64(47)
            acc ^= end
            acc *= prime
    whole = (n - 1 - blocks * _BLOCK) // 64
    if whole:
        acc += _sums(data[blocks * _BLOCK : blocks * _BLOCK + 64 * whole].view(np.uint64).reshape(whole, 8), keys[:whole])
    acc += _sums(data[n - 64 :].copy().view(np.uint64).reshape(1, 8), np.frombuffer(_SECRET[121:185], np.uint64))
    words = [int(a) for a in acc]

    def merged(at, start):
        folds = (_fold(words[2 * i] ^ _word(_SECRET, at + 16 * i), words[2 * i + 1] ^ _word(_SECRET, at + 16 * i + 8)) for i in range(4))
        return _shuffle(start + sum(folds) & _M)

    return merged(11, n * _P[0] & _M), merged(117, ~(n * _P[1]) & _M)


def digest(data):
    """The digest of an array of uint8, as 32 hexadecimal digits."""
    if xxhash is not None:
        return xxhash.xxh3_128_hexdigest(data)
    if data.size > 240:
        with np.errstate(over="ignore"):
            low, high = _long(np.ascontiguousarray(data))
    else:
        low, high = (_short if data.size < 17 else _middle)(data.tobytes())
    return f"{high:016x}{low:016x}"
