"""Makes weights in MX formats: mx.py quantize TARGET, or mx.py FORM SOURCE TARGET.

quantize writes matrices of made-up weights with the codes and scales that MLX's quantize gives them in the modes mxfp4
and mxfp8 on a GPU, for the tests of passes/quantize. FORM is mlx, compressed-tensors-mxfp4 or compressed-tensors-nvfp4:
it copies the checkpoint SOURCE to TARGET with its matrices (but for mlx those of its layers) in that form, for the tests
of loaders; mlx has one of each mode. TARGET/sha256.json has the SHA-256 of the float32 values that each of them
stands for. It is written for itself, after the definitions of the formats (OCP Microscaling Formats 1.0) and of MLX's
kernel (mlx/backend/metal/kernels/fp_quantized.h), with Python's standard library alone."""
import bisect, hashlib, json, math, os, random, struct, sys


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def small(bits, exponents, bias, code):
    """The value of a small float with that many bits, of which so many are of the exponent."""
    mantissas = bits - 1 - exponents
    exponent, mantissa = code >> mantissas & (1 << exponents) - 1, code & (1 << mantissas) - 1
    if exponent == 0:
        value = mantissa / (1 << mantissas) * 2.0 ** (1 - bias)
    else:
        value = (1 + mantissa / (1 << mantissas)) * 2.0 ** (exponent - bias)
    return -value if code >> bits - 1 else value


E2M1 = [small(4, 2, 1, c) for c in range(8)]
E4M3 = [small(8, 4, 7, c) for c in range(127)]


def nearest(table, x):
    """The nearest code; of two that are as near, the even one. What is beyond the table is its end."""
    a = min(abs(x), table[-1])
    i = bisect.bisect_left(table, a)
    if i > 0:
        down, up = a - table[i - 1], table[i] - a
        if down < up or down == up and (i - 1) % 2 == 0:
            i -= 1
    return i


def signed(table, sign, x):
    return nearest(table, x) | (sign if math.copysign(1, x) < 0 else 0)


MODES = {"mxfp4": (4, 32, E2M1), "mxfp8": (8, 32, E4M3), "nvfp4": (4, 16, E2M1)}


def quantize_group(mode, group):
    """The byte of the scale and the codes of a group, as MLX's kernel has them, and the values."""
    bits, _, table = MODES[mode]
    largest = f32(max(abs(x) for x in group) / table[-1])
    if mode == "nvfp4":
        scale = nearest(E4M3, largest)
        step = E4M3[scale]
    else:
        exponent = -127
        if largest > 0:
            log = f32(math.log2(largest))
            exponent = int(math.copysign(math.floor(abs(log) + 0.5), log))  # halves away from zero
        scale = min(max(exponent, -127), 127) + 127
        step = 2.0 ** (scale - 127)
    codes = [signed(table, 1 << bits - 1, f32(x / step) if step else 0.0) for x in group]
    values = [f32(table[c & (1 << bits - 1) - 1] * (-1 if c >> bits - 1 else 1) * step) for c in codes]
    return scale, codes, values


def quantize_rows(mode, shape, weights):
    """Scales, packed bytes (the first code in the lowest bits) and values of a matrix."""
    bits, size, _ = MODES[mode]
    scales, codes, values = bytearray(), bytearray(), []
    for at in range(0, len(weights), size):
        scale, c, v = quantize_group(mode, weights[at:at + size])
        scales.append(scale)
        codes += bytes(c) if bits == 8 else bytes(a | b << 4 for a, b in zip(c[::2], c[1::2]))
        values += v
    return bytes(scales), bytes(codes), values


def load(path):
    with open(path, "rb") as f:
        data = f.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (h["dtype"], h["shape"], data[8 + size + h["data_offsets"][0]:8 + size + h["data_offsets"][1]]) for name, h in header.items()}


def store(path, out):
    sizes = {"F32": 4, "I64": 8, "U32": 4, "BF16": 2}
    header, data = {}, b""
    for name in sorted(out, key=lambda n: (-sizes.get(out[n][0], 1), n)):
        dtype, shape, raw = out[name]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def bf16(raw):
    return list(struct.unpack("<%df" % (len(raw) // 2), b"".join(b"\0\0" + raw[i:i + 2] for i in range(0, len(raw), 2))))


def made_up(target):
    random.seed(4)
    groups = [[0.0] * 32, [0.0] * 31 + [-0.0], [2.0 ** -130] + [2.0 ** -133] * 31, [3.0e38] * 32]
    groups.append([(-1) ** i * x for i, x in enumerate([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0] * 4)])  # ties
    groups.append([448.0, 2.0 ** -10, 3 * 2.0 ** -10, 2.0 ** -6] + [17.0, 19.0, 21.0, 23.0] * 7)
    for largest in [8.46875, 8.484375, 8.5, 8.53125, 633.0, 634.0]:  # around 6 and 448 times the root of 2
        groups.append([largest] + [random.gauss(0, largest / 4) for _ in range(31)])
    for _ in range(52):
        scale = 2.0 ** random.uniform(-20, 4)
        groups.append([random.gauss(0, scale) for _ in range(32)])
    flat = [f32(x) for g in groups for x in g]
    out = {"weights": ("F32", [16, 128], struct.pack("<2048f", *flat))}
    for mode in "mxfp4", "mxfp8":
        scales, codes, values = quantize_rows(mode, None, flat)
        out[mode + ".scales"] = ("U8", [16, 4], scales)
        out[mode + ".packed"] = ("U32", [16, len(codes) // 64], codes)
        out[mode + ".values"] = ("F32", [16, 128], struct.pack("<2048f", *values))
    store(target, out)


def affine8(shape, weights):
    """MLX's mode affine with 8 bits in groups of 64: codes, scales and biases in bf16, and values. The scale is the extent
    over 255, so that no weight is cut off; it is not MLX's own choice, which the tests of loaders do not need."""
    codes, scales, biases, values = bytearray(), b"", b"", []
    for at in range(0, len(weights), 64):
        group = weights[at:at + 64]
        low = struct.pack("<f", min(group) - 1e-3)[2:]
        step = struct.pack("<f", (max(group) - min(group) + 2e-3) / 255 * 1.01)[2:]
        b, a = bf16(low)[0], bf16(step)[0]
        q = [min(max(round((x - b) / a), 0), 255) for x in group]
        codes += bytes(q)
        scales, biases = scales + step, biases + low
        values += [f32(f32(a * c) + b) for c in q]
    return bytes(codes), scales, biases, values


def convert(form, source, target):
    tensors = {}
    for name in sorted(os.listdir(source)):
        if name.endswith(".safetensors"):
            tensors.update(load(os.path.join(source, name)))
    out, sums, section = {}, {}, {}
    if form == "mlx":
        section = {"group_size": 32, "bits": 4, "mode": "mxfp4"}
    else:
        mode = form.split("-")[-1]
        section = {"quant_method": "compressed-tensors", "format": mode + "-pack-quantized", "ignore": ["lm_head"], "quantization_status": "compressed",
                   "config_groups": {"group_0": {"targets": ["Linear"], "format": mode + "-pack-quantized", "weights":
                                                 {"num_bits": 4, "type": "float", "strategy": "group", "symmetric": True, "group_size": MODES[mode][1]}}}}
    for name, (dtype, shape, raw) in tensors.items():
        if len(shape) != 2 or ".layers." not in name and form != "mlx":
            out[name] = (dtype, shape, raw)
            continue
        module = name[:-len(".weight")]
        weights = bf16(raw)
        if form == "mlx":
            if "o_proj" in name:
                section[module] = {"group_size": 64, "bits": 8}  # no mode: affine
                codes, scales, biases, values = affine8(shape, weights)
                out[name] = ("U32", [shape[0], shape[1] // 4], codes)
                out[module + ".scales"] = ("BF16", [shape[0], shape[1] // 64], scales)
                out[module + ".biases"] = ("BF16", [shape[0], shape[1] // 64], biases)
                sums[name] = hashlib.sha256(struct.pack("<%df" % len(values), *values)).hexdigest()
                continue
            mode = "mxfp8" if "embed" in name else "nvfp4" if "v_proj" in name else "mxfp4"
            if mode != "mxfp4":
                section[module] = {"group_size": MODES[mode][1], "bits": MODES[mode][0], "mode": mode}
            scales, codes, values = quantize_rows(mode, shape, weights)
            out[name] = ("U32", [shape[0], shape[1] * MODES[mode][0] // 32], codes)
            out[module + ".scales"] = ("U8", [shape[0], shape[1] // MODES[mode][1]], scales)
        else:
            factor = 0.25 if mode == "nvfp4" else 1.0
            scales, codes, values = quantize_rows(mode, shape, [x * factor for x in weights])
            values = [v / factor for v in values]
            out[name + "_packed"] = ("U8", [shape[0], shape[1] // 2], codes)
            out[name + "_scale"] = ("U8" if mode == "mxfp4" else "F8_E4M3", [shape[0], shape[1] // MODES[mode][1]], scales)
            if mode == "nvfp4":
                out[name + "_global_scale"] = ("F32", [1], struct.pack("<f", factor))
        sums[name] = hashlib.sha256(struct.pack("<%df" % len(values), *values)).hexdigest()
    os.makedirs(target)
    store(os.path.join(target, "model.safetensors"), out)
    with open(os.path.join(source, "config.json")) as f:
        config = json.load(f)
    config["quantization_config"] = section
    if form == "mlx":
        config["quantization"] = section
    for name, what in ("config.json", config), ("sha256.json", sums):
        with open(os.path.join(target, name), "w") as f:
            json.dump(what, f, indent=1)
            f.write("\n")


if sys.argv[1] == "quantize":
    made_up(sys.argv[2])
else:
    convert(*sys.argv[1:])
