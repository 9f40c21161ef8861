"""Bytes that the model's own code takes while it runs, read off `model/` and `src/core`: what the plan counts before anything is allocated.

Every number here follows from a line of code elsewhere. Whoever changes what a layer keeps alive changes it here too;
tests/test_footprint.py measures the layers and fails when the two part.
"""

from __future__ import annotations

from lilliput import _core
from lilliput.model.config import Config
from lilliput.model.state import JOURNAL_TOKENS, State
from lilliput.weights.chosen import HELD_RESULTS
from lilliput.weights.layout import EMBEDDING, HEAD, Layout

F32 = 4
LANES = 16
PADDING = 128  # columns a kernel pads rows to
BLOCK_POSITIONS = 128


def kda_state_bytes(config: Config) -> int:
    """Recurrent matrices and convolution tails of one sequence, all layers; they do not grow."""
    return State.nbytes(config, 0)


def latent_bytes(config: Config, positions: int) -> int:
    """Latents of one sequence of `positions` tokens, in whole blocks, all layers."""
    return State.nbytes(config, positions) - State.nbytes(config, 0)


def journal_bytes(config: Config) -> int:
    """What a short span leaves behind per token for `commit`: convolution inputs of q, k, v, then k, v, alpha and beta, all KDA layers."""
    kda = config.kda
    return F32 * sum(config.is_kda) * (6 * kda.num_heads * kda.head_dim + kda.num_heads)


def change_bytes(config: Config, chunk: int) -> int:
    """What a pass over up to `chunk` tokens of one sequence keeps beside its state until it is committed: journals, or a second state."""
    journals = min(chunk, JOURNAL_TOKENS) * journal_bytes(config)
    return max(journals, kda_state_bytes(config)) if chunk > JOURNAL_TOKENS else journals


def token_bytes(config: Config) -> int:
    """The most that the activations of a pass take per token, at the widest point of the widest layer.

    The block sums with the running one; what `Model.forward` holds around a layer (the mixture, the norm before it, and the one from
    the half layer before); and what the layer itself has alive at once.
    """
    size, d = config.attn_res_block_size, config.hidden_size
    most = 0
    for layer, kda in enumerate(config.is_kda):
        frozen = 0 if size is None else layer // size + 1
        running = 0 if size is not None and layer % size == 0 else 1  # at a boundary nothing has been added yet
        attention = (frozen + running) * d + (_kda(config) if kda else _mla(config))
        mlp = (frozen + 1) * d + (_moe(config) if config.is_moe(layer) else _dense(config))
        most = max(most, attention, mlp)
    return F32 * (most + 3 * d)


def _kda(config: Config) -> int:
    kda = config.kda
    wide = kda.num_heads * kda.head_dim
    # q, k, v projections, decay before and after, gate, output; inside the recurrence the three convolutions and one norm's source,
    # after it the normed output and the last product
    return 7 * wide + max(4 * wide, wide + config.hidden_size) + 2 * kda.num_heads + kda.head_dim


def _mla(config: Config) -> int:
    mla = config.mla
    heads, latent, rest = mla.num_heads, mla.kv_lora_rank, mla.qk_rope_head_dim
    kept = heads * (mla.qk_nope_head_dim + rest) + latent + rest  # queries, latents
    kept += heads * (latent + rest) + heads * latent + heads * mla.v_head_dim  # absorbed queries, sums over latents, values
    return kept + max(heads * mla.v_head_dim if mla.output_gate else 0, config.hidden_size)


def _dense(config: Config) -> int:
    return 2 * config.intermediate_size + config.hidden_size


def _moe(config: Config) -> int:
    moe, d = config.moe, config.hidden_size
    latent = moe.latent_size or d
    shared = 2 * moe.num_shared_experts * moe.intermediate_size + d if moe.num_shared_experts else 0
    # router, choices, latent input; then the shared MLP at work, or its result beside the sum, its norm and the last product
    # (four experts' results may wait for their turn, each for all tokens at worst)
    return moe.num_experts + 4 * moe.top_k + latent + max(shared, d + latent + max(HELD_RESULTS * latent, latent + d))


def scratch_bytes(config: Config, tokens: int, threads: int) -> int:
    """Working memory that the kernels keep per thread (src/core/scratch.h), for passes of up to `tokens` tokens."""
    at_once = min(tokens, _core.MOST_TOKENS)
    moe = any(config.is_moe(i) for i in range(config.num_layers))
    latent = config.moe.latent_size or config.hidden_size
    expert = config.moe.intermediate_size
    widest = max(_widths(config))
    lot = min(tokens * config.moe.top_k, _core.MOST_TOKENS) if moe else 0  # tokens of several experts that are applied together
    caller = F32 * max(at_once * _padded(widest), lot * _padded(max(latent, expert)))  # permuted activations
    caller += F32 * lot * (2 * expert + latent)  # the experts' hidden layers and results
    mla = config.mla
    attend = F32 * (-(-mla.num_heads // LANES) * LANES) * (2 * mla.kv_lora_rank + mla.qk_rope_head_dim + BLOCK_POSITIONS + 2)
    each = max(attend, F32 * 64 * config.kda.head_dim)
    each += at_once * F32 * _padded(mla.kv_lora_rank)  # values are taken off the latents by every thread for itself
    each += 2 * mla.qk_nope_head_dim * mla.kv_lora_rank  # key rows decoded from the packed form
    each += F32 * _core.DOT_SCRATCH if tokens > 1 else 0
    return caller + threads * each


def _widths(config: Config) -> set[int]:
    """Columns of the tape's matrices."""
    mla, kda, moe = config.mla, config.kda, config.moe
    wide = {config.hidden_size, mla.kv_lora_rank, mla.num_heads * mla.v_head_dim, kda.head_dim, kda.num_heads * kda.head_dim}
    wide |= {mla.q_lora_rank} if mla.q_lora_rank is not None else set()
    if any(not config.is_moe(i) for i in range(config.num_layers)):
        wide.add(config.intermediate_size)
    if any(config.is_moe(i) for i in range(config.num_layers)):
        wide |= {moe.num_shared_experts * moe.intermediate_size, moe.latent_size or 0}
    return wide


def _padded(columns: int) -> int:
    return -(-columns // PADDING) * PADDING


def result_bytes(config: Config, rows: int) -> int:
    """`rows` rows of logits, those of the pass before which somebody still looks at, and what sampling one row needs."""
    sampling = config.vocab_size * (4 + 8 + 8)  # weights, order, cumulative sums (src/core/sampling.cpp)
    return 2 * rows * F32 * config.vocab_size + sampling


PIECE_OBJECTS = 900  # bytes of objects per piece: its place, its view here and in the core, its turn


def bookkeeping_bytes(config: Config, pieces: int) -> int:
    """What tape and expert cache keep about their contents: three rates and a score per expert; objects per piece."""
    layers = sum(config.is_moe(i) for i in range(config.num_layers))
    return layers * config.moe.num_experts * 4 * 8 + pieces * PIECE_OBJECTS + mixer_bytes(config)


def mixer_bytes(config: Config) -> int:
    """The depth mixers' weights, made of two resident vectors each."""
    return 0 if config.attn_res_block_size is None else F32 * (2 * config.num_layers + 1) * config.hidden_size


def resident_bytes(layout: Layout) -> int:
    """Everything of the trunk that is neither on the tape nor in the embedding, as float32."""
    return F32 * sum(t.parameters for t in layout.trunk if not t.is_matrix and t.name not in (EMBEDDING, HEAD))
