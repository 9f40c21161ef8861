"""The embedded model's size: Kimi K3's machine with every mechanism, in 4.9 million parameters."""

from __future__ import annotations

from typing import Any

from lilliput.model.config import Config, config_from_json
from lilliput.synth.shapes import Shape, raw_config
from lilliput.synth.shards import pretty

RANKS = 2048  # of tiktoken.model; the 256 added tokens of the release follow
END_OF_TEXT, END_OF_MESSAGE = RANKS + 1, RANKS + 2  # [EOS] ends a plain document, <|end_of_msg|> a message
CONTEXT = 4096

SHAPE = Shape(
    name="demo",
    vocab_size=RANKS + 256,
    hidden_size=192,
    num_layers=5,
    block_size=2,
    intermediate_size=512,
    num_heads=6,
    q_lora_rank=96,
    kv_lora_rank=64,
    num_experts=32,
    top_k=4,
    expert_width=64,
    latent_size=96,
    context=CONTEXT,
    ranks=RANKS,
)


def raw_demo_config() -> dict[str, Any]:
    """config.json as a dict: a `Shape`'s, with narrower heads and two ids that end a generation."""
    raw = raw_config(SHAPE)
    text = raw["text_config"]
    text |= {"qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32}
    text["linear_attn_config"]["head_dim"] = 32
    for level in (raw, text):
        level["eos_token_id"] = [END_OF_TEXT, END_OF_MESSAGE]
    return raw


def raw_demo_generation_config() -> dict[str, Any]:
    """generation_config.json: the two fields the release has."""
    return {"max_length": CONTEXT, "eos_token_id": [END_OF_TEXT, END_OF_MESSAGE]}


def demo_config() -> Config:
    """What the engine reads from that config.json; the network is built from the same."""
    return config_from_json(pretty(raw_demo_config()), "config.json")
