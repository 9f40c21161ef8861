"""The size of the embedded model: every mechanism of K3, and files small enough to be kept."""

from __future__ import annotations

from demo_training.shape import END_OF_MESSAGE, END_OF_TEXT, RANKS, SHAPE, demo_config, raw_demo_config, raw_demo_generation_config

from lilliput.synth.shards import plan

LARGEST_SHARD, LARGEST_MODEL = 2_400_000, 8_000_000


def test_every_mechanism_is_there() -> None:
    config = demo_config()
    assert config.is_kda == (True, True, True, False, False)  # the released pattern, whose last two layers are MLA
    assert sum(i % config.attn_res_block_size == 0 for i in range(config.num_layers)) >= 3
    assert [config.is_moe(i) for i in range(config.num_layers)] == [False, True, True, True, True]
    assert (config.moe.latent_size, config.moe.latent_norm, config.moe.num_shared_experts, config.moe.renormalize) == (96, True, 2, True)
    assert config.moe.num_experts > 2 * config.moe.top_k  # a cache has something to choose
    assert config.kda.gate_lower_bound == -5.0
    assert config.kda.conv_kernel == 4
    assert config.mla.output_gate
    assert not config.tie_word_embeddings


def test_two_ids_end_a_generation() -> None:
    assert (END_OF_TEXT, END_OF_MESSAGE) == (RANKS + 1, RANKS + 2)
    raw = raw_demo_config()
    ends = [raw["eos_token_id"], raw["text_config"]["eos_token_id"], raw_demo_generation_config()["eos_token_id"]]
    assert ends == [[END_OF_TEXT, END_OF_MESSAGE]] * 3
    assert demo_config().eos_ids == (END_OF_TEXT, END_OF_MESSAGE)


def test_shards_are_small_and_at_least_two() -> None:
    shards = plan(demo_config(), vision=False)
    assert len(shards) >= 2
    assert all(shard.size <= LARGEST_SHARD for shard in shards)
    assert sum(shard.size for shard in shards) < LARGEST_MODEL
    assert {t.dtype for shard in shards for t in shard.tensors} == {"BF16", "F32", "U8"}


def test_vocabulary_is_ranks_and_the_added_tokens() -> None:
    assert SHAPE.vocab_size == RANKS + 256 == demo_config().vocab_size
