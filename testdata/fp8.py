"""Makes a checkpoint in 8-bit floating point of one in bf16: fp8.py SOURCE TARGET.

Every matrix of a layer but routers and norms becomes E4M3 with a scale for each block of 128 x 128, as the published
checkpoints of Qwen have it. TARGET/sha256.json has the SHA-256 of the float32 values that each of them stands for. It is
written for itself, after the definition of the format, with Python's standard library alone."""
import bisect, hashlib, json, os, shutil, struct, sys

BLOCK = 128


def e4m3(code):
    sign, exponent, mantissa = code >> 7, code >> 3 & 15, code & 7
    if code & 127 == 127:
        return float("nan")
    value = mantissa / 8 * 2.0 ** -6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -value if sign else value


POSITIVE = [e4m3(c) for c in range(127)]  # ascending


def encode(x):
    """The nearest code; of two that are as near, the even one."""
    a = min(abs(x), POSITIVE[-1])
    i = bisect.bisect_left(POSITIVE, a)
    if i > 0 and (i == len(POSITIVE) or a - POSITIVE[i - 1] < POSITIVE[i] - a or a - POSITIVE[i - 1] == POSITIVE[i] - a and (i - 1) % 2 == 0):
        i -= 1
    return i | (128 if x < 0 else 0)


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def load(path):
    with open(path, "rb") as f:
        data = f.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {n: (t["dtype"], t["shape"], data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]]) for n, t in header.items()}


def quantize(shape, raw):
    n, k = shape
    w = [struct.unpack("<f", b"\0\0" + raw[i:i + 2])[0] for i in range(0, len(raw), 2)]
    codes, scales, values = bytearray(n * k), [], [0.0] * (n * k)
    for top in range(0, n, BLOCK):
        for left in range(0, k, BLOCK):
            at = [r * k + c for r in range(top, min(top + BLOCK, n)) for c in range(left, min(left + BLOCK, k))]
            scale = f32(max(abs(w[i]) for i in at) / POSITIVE[-1])
            scales.append(scale)
            for i in at:
                codes[i] = encode(w[i] / scale)
                values[i] = f32(e4m3(codes[i]) * scale)
    return bytes(codes), scales, values


def main(source, target):
    tensors = {}
    for name in sorted(os.listdir(source)):
        if name.endswith(".safetensors"):
            tensors.update(load(os.path.join(source, name)))
    out, sums = {}, {}
    for name, (dtype, shape, raw) in tensors.items():
        if ".layers." not in name or len(shape) != 2 or name.endswith("mlp.gate.weight"):
            out[name] = (dtype, shape, raw)
            continue
        codes, scales, values = quantize(shape, raw)
        out[name] = ("F8_E4M3", shape, codes)
        out[name + "_scale_inv"] = ("F32", [-(-d // BLOCK) for d in shape], struct.pack("<%df" % len(scales), *scales))
        sums[name] = hashlib.sha256(struct.pack("<%df" % len(values), *values)).hexdigest()
    header, data = {}, b""
    for name in sorted(out, key=lambda n: ({"F32": 0, "BF16": 1}.get(out[n][0], 2), n)):
        dtype, shape, raw = out[name]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    os.makedirs(target)
    with open(os.path.join(target, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)
    with open(os.path.join(source, "config.json")) as f:
        config = json.load(f)
    config["quantization_config"] = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                                     "modules_to_not_convert": ["lm_head", "model.embed_tokens"], "weight_block_size": [BLOCK, BLOCK]}
    with open(os.path.join(target, "config.json"), "w") as f:
        json.dump(config, f, indent=2)
        f.write("\n")
    with open(os.path.join(target, "sha256.json"), "w") as f:
        json.dump(sums, f, indent=0)
        f.write("\n")


main(*sys.argv[1:])
