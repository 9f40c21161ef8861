"""Between the network's parameters and the released tensors: names, stacking, rounding, and the reading back that checks them.

Reading goes through `tools/reference.py`, which shares no code with the engine or with the writer below.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from reference import Reference, mxfp4
from torch import Tensor

from demo_training.mxfp4 import quantised
from demo_training.network import Network
from lilliput.model.config import Config, read_config
from lilliput.synth.values import bf16

Read = Callable[[str], NDArray[np.generic]]


def tensors(network: Network) -> dict[str, NDArray[np.generic]]:
    """Released name (without `language_model.`) → array in the stored type; bfloat16 as uint16. A_log is not padded yet."""
    found: dict[str, NDArray[np.generic]] = {}
    for name, value in network.state_dict().items():
        array = value.detach().numpy()
        layer, _, which = name.rpartition(".experts.")
        if layer:
            width = array.shape[1] // 2 if which == "w13" else 0
            parts = {"w1": array[:, :width], "w3": array[:, width:]} if width else {"w2": array}
            for part, stack in parts.items():
                for e, one in enumerate(stack):
                    packed, scale = quantised(one)
                    found[f"{layer}.experts.{e}.{part}.weight_packed"] = packed
                    found[f"{layer}.experts.{e}.{part}.weight_scale"] = scale
        elif _is_float32(name):
            found[name] = array.astype("<f4")
        else:
            found[name] = bf16(array)
    return found


def _is_float32(name: str) -> bool:
    return name.endswith(("conv1d.weight", "A_log", "dt_bias", "o_norm.weight", "e_score_correction_bias"))


def load_release(directory: Path) -> Network:
    """A network with a checkpoint's weights, experts decoded, in float32."""
    reference = Reference(directory)
    return _filled(read_config(directory), lambda name: reference.tensors[name])


def _filled(config: Config, read: Read) -> Network:
    network = Network(config)
    with torch.no_grad():
        for name, value in network.state_dict().items():
            layer, _, which = name.rpartition(".experts.")
            if layer:
                parts = ("w1", "w3") if which == "w13" else ("w2",)
                stacks = [
                    np.concatenate([_expert(read, f"{layer}.experts.{e}.{part}") for part in parts]) for e in range(config.moe.num_experts)
                ]
                value.copy_(torch.from_numpy(np.stack(stacks)))
            else:
                value.copy_(torch.from_numpy(read(name).reshape(-1)[: value.numel()].reshape(value.shape)))
    return network


def _expert(read: Read, name: str) -> NDArray[np.float64]:
    return mxfp4(read(f"{name}.weight_packed"), read(f"{name}.weight_scale"))


def rounded(network: Network, *, trunk: bool = True, experts: bool = True) -> Network:
    """A copy whose trunk is rounded as stored in bfloat16, and whose experts as stored in MXFP4: to measure what each costs."""
    stored = tensors(network)
    copy = Network(network.config)
    copy.load_state_dict(network.state_dict())
    with torch.no_grad():
        for name, value in copy.state_dict().items():
            layer, _, which = name.rpartition(".experts.")
            if layer and experts:
                parts = ("w1", "w3") if which == "w13" else ("w2",)
                for e in range(len(value)):
                    value[e] = torch.from_numpy(
                        np.concatenate([_expert(stored.__getitem__, f"{layer}.experts.{e}.{part}") for part in parts])
                    )
            elif not layer and trunk and not _is_float32(name):
                value.copy_(_widened(stored[name]))
    return copy


def _widened(bits: NDArray[np.generic]) -> Tensor:
    return torch.from_numpy((bits.astype(np.uint32) << 16).view(np.float32))
