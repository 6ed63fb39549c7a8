"""Integer vectors in `.npy` files, read without trusting what their header claims.

Belongs here: bytes to a vector. Does not belong here: what the numbers mean.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt


def int_vector(data: bytes) -> npt.NDArray[np.int64]:
    """The one-dimensional integers in the bytes of a `.npy` file.

    Raises:
        ValueError: no such file, other contents, or fewer or more bytes than its header says.
    """
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = reader(file)
    except (ValueError, EOFError, TypeError, SyntaxError) as error:
        raise ValueError(f"no .npy file: {error}") from error
    found: Any = dtype
    if len(shape) != 1 or found.kind not in "iu":
        raise ValueError(f"integers of one dimension are expected, found {dtype} of shape {shape}")
    rest = data[file.tell() :]
    if len(rest) != shape[0] * found.itemsize:
        raise ValueError(f"{len(rest)} bytes follow the header, {shape[0] * found.itemsize} are expected")
    return np.frombuffer(rest, found).astype(np.int64)
