"""Plausible mistakes, each as a change of text: in the float64 reference, and in the engine's own sources.

A change replaces a text that occurs exactly once in its file. `shows_on` names the checkpoint whose logits must give the mistake
away: an oracle, or one of `CHECKPOINTS` for what the released configuration hides (with the latent norm on, a common factor of the
router's weights cancels).
"""

from __future__ import annotations

from typing import Any

from mistakes import attention, moe, stream
from mistakes.table import Edit, Mistake

__all__ = ["CHECKPOINTS", "MISTAKES", "Edit", "Mistake"]

CHECKPOINTS: dict[str, dict[str, Any]] = {
    "bare": {
        "latent_moe_use_norm": False,
        "moe_renormalize": True,
        "routed_scaling_factor": 2.5,
        "num_experts_per_token": 3,
        "num_experts": 8,
        "num_shared_experts": 1,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "layers": "MKKMK",
        "attn_res_block_size": 2,
        "gate_lower_bound": -5.0,
        "tie_word_embeddings": False,
    },
    "top-1": {
        "latent_moe_use_norm": False,
        "moe_renormalize": True,
        "num_experts_per_token": 1,
        "num_experts": 8,
        "first_k_dense_replace": 0,
        "moe_layer_freq": 1,
        "layers": "KMK",
        "gate_lower_bound": None,
        "num_heads": 3,
        "head_dim": 8,
    },
}

MISTAKES = (*moe.MISTAKES, *attention.MISTAKES, *stream.MISTAKES)
