"""The file format between the exporter of cases and this package, and the tensors of one case.

A file is a sequence of records. A record is one JSON object on one line, then exactly `payload_bytes` raw bytes, little
endian. Float and block types travel as f32 (exact); `dtype` names the stored type.

Elements nobody wrote hold poison (a NaN with a payload), and must come back bit for bit. So a tensor keeps its elements
as 32-bit patterns, and float arithmetic sees only what an op reads.
"""

import json

import numpy as np

from .rounding import round_to_dtype

CANONICAL_NAN = np.uint32(0x7FC00000)  # every NaN that an op computes: never the poison
WRITTEN_ROLES = ("out", "inout", "host_out")
ENCODINGS = ("f32", "i32", "u32")


class GoldenError(Exception):
    """What is wrong with a file or a case, in one line."""


class Tensor:
    """One tensor of a case: `bits` is a uint32 array of its shape."""

    def __init__(self, name, role, dtype, encoding, bits):
        self.name = name
        self.role = role
        self.dtype = dtype
        self.encoding = encoding
        self.bits = bits

    @property
    def dims(self):
        return self.bits.shape

    def f32(self):
        """The elements as float32."""
        self._expect("f32")
        return self.bits.view(np.float32)

    def f64(self, index=...):
        """The elements (or those at `index`) as float64."""
        return self.f32()[index].astype(np.float64)

    def ints(self):
        """The elements of an integer tensor as int64."""
        if self.encoding == "u32":
            return self.bits.astype(np.int64)
        self._expect("i32")
        return self.bits.view(np.int32).astype(np.int64)

    def store(self, values, index=...):
        """Rounds float64 or float32 values to f32, then to the stored type, and writes them at `index`."""
        self._expect("f32")
        rounded = round_to_dtype(np.asarray(values).astype(np.float32), self.dtype)
        bits = np.ascontiguousarray(rounded).view(np.uint32).reshape(rounded.shape)
        self.bits[index] = np.where(np.isnan(rounded), CANONICAL_NAN, bits)

    def store_ints(self, values, index=...):
        """Writes integers at `index`."""
        if self.encoding not in ("i32", "u32"):
            raise GoldenError(f"tensor {self.name}: expected integers, not {self.encoding}")
        self.bits[index] = np.asarray(values, np.int64).astype(np.uint32)

    def _expect(self, encoding):
        if self.encoding != encoding:
            raise GoldenError(f"tensor {self.name}: expected encoding {encoding}, not {self.encoding}")


class Case:
    """One op with its parameters and tensors."""

    def __init__(self, op, params, tensors, name="", inputs=""):
        self.op = op
        self.params = params
        self.tensors = tensors  # by name
        self.name = name
        self.inputs = inputs

    def __getitem__(self, name):
        """The tensor of that name, which must be there."""
        if name not in self.tensors:
            raise GoldenError(f"tensor {name} is missing")
        return self.tensors[name]

    def __contains__(self, name):
        return name in self.tensors

    def param(self, name):
        if name not in self.params:
            raise GoldenError(f"parameter {name} is missing")
        return self.params[name]

    def real(self, name):
        """A parameter of type float: the f32 nearest to what the text says, as a Python float."""
        return float(np.float32(self.param(name)))

    def live(self, rows):
        """How many of `rows` rows count: the optional tensor `live`, held to [0, rows]."""
        if "live" not in self:
            return rows
        return int(np.clip(self["live"].ints()[0], 0, rows))

    def part(self, op, params, **renamed):
        """A case over some of this case's tensors, by their names there; those that are absent here stay absent."""
        tensors = {inner: self.tensors[outer] for inner, outer in renamed.items() if outer in self.tensors}
        return Case(op, params, tensors)


def read_cases(stream):
    """Yields the cases of a binary stream, one at a time."""
    number = 0
    while line := stream.readline():
        number += 1
        try:
            head = json.loads(line)
            size = int(head["payload_bytes"])
            payload = stream.read(size)
            if len(payload) != size:
                raise GoldenError(f"payload ends after {len(payload)} of {size} bytes")
            tensors = {entry["name"]: _read_tensor(entry, payload) for entry in head["tensors"]}
            yield Case(head["op"], head["params"], tensors, head["case"], head["inputs"])
        except GoldenError as error:
            raise GoldenError(f"record {number}: {error}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise GoldenError(f"record {number}: not a case: {type(error).__name__}: {error}") from error


def _read_tensor(entry, payload):
    name, encoding = entry["name"], entry["encoding"]
    if encoding not in ENCODINGS:
        raise GoldenError(f"tensor {name}: unknown encoding {encoding}")
    dims = tuple(int(d) for d in entry["dims"])
    count = int(np.prod(dims, dtype=np.int64))
    start, size = int(entry["offset"]), int(entry["bytes"])
    if size != 4 * count or start < 0 or start + size > len(payload):
        raise GoldenError(f"tensor {name}: {size} bytes at {start} do not hold {count} elements of the payload")
    bits = np.frombuffer(payload, np.dtype("<u4"), count, start).reshape(dims).astype(np.uint32)
    return Tensor(name, entry["role"], entry["dtype"], encoding, bits)


def sample_stride(count, sample):
    """1 where all `count` elements are kept, else ceil(count / sample) made odd."""
    if not sample or count <= sample:
        return 1
    return -(-count // sample) | 1


def write_answer(stream, case, sample=None):
    """Writes what the op left in every tensor it writes, scratch apart."""
    outputs, chunks, offset = [], [], 0
    for tensor in case.tensors.values():
        if tensor.role not in WRITTEN_ROLES:
            continue
        flat = tensor.bits.reshape(-1)
        stride = sample_stride(flat.size, sample)
        chunk = flat[::stride].astype("<u4").tobytes()
        outputs.append({"name": tensor.name, "encoding": tensor.encoding, "count": flat.size, "stride": stride,
                        "offset": offset, "bytes": len(chunk)})
        chunks.append(chunk)
        offset += len(chunk)
    head = {"op": case.op, "case": case.name, "inputs": case.inputs, "outputs": outputs, "payload_bytes": offset}
    stream.write(json.dumps(head, separators=(",", ":")).encode() + b"\n")
    stream.write(b"".join(chunks))
