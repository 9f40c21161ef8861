"""Tokenizers of our own in the files of the release; the one without merges is what synthetic checkpoints carry."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence

from lilliput.errors import UsageError
from lilliput.text.vocabulary import NAMES_FILE, RANKS_FILE

# Names of the added tokens in the release, by distance from the first added id (163,584 there).
RELEASED_NAMES = {
    0: "[BOS]",
    1: "[EOS]",
    2: "<|end_of_msg|>",
    3: "<|open|>",
    4: "<|close|>",
    5: "<|sep|>",
    6: "[start_header_id]",
    7: "[end_header_id]",
    9: "[EOT]",
    18: "<|media_begin|>",
    19: "<|media_content|>",
    20: "<|media_end|>",
    21: "<|media_pad|>",
    65: "<osagent_mode>",
    254: "[UNK]",
    255: "[PAD]",
}


def byte_level_files(vocab_size: int) -> dict[str, bytes]:
    """File name → content of a tokenizer whose id b is the byte b, for b below 256.

    Added tokens follow from id 256 with the release's names at the release's distances, as far as `vocab_size` allows
    (512 holds them all). Raises UsageError below 256.
    """
    if vocab_size < 256:
        raise UsageError(f"a byte-level tokenizer needs a vocabulary of at least 256, found {vocab_size}")
    return tokenizer_files([bytes((byte,)) for byte in range(256)], vocab_size)


def tokenizer_files(tokens: Sequence[bytes], vocab_size: int) -> dict[str, bytes]:
    """File name → content of the tokenizer with these tokens in order of rank, and the release's added tokens behind them."""
    ranks = b"".join(b"%s %d\n" % (b64encode(token), rank) for rank, token in enumerate(tokens))
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    first = len(tokens)
    added = {str(first + offset): {"content": name, **flags} for offset, name in RELEASED_NAMES.items() if first + offset < vocab_size}
    return {RANKS_FILE: ranks, NAMES_FILE: json.dumps({"added_tokens_decoder": added}, indent=2).encode() + b"\n"}
