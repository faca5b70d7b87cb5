"""Each term of the roofline against figures worked by hand from the shapes of a model and a data sheet."""

from math import inf

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualplan.model import roofline as rl
from dualplan.model.kv import kv_total_bytes_per_token
from dualplan.model.service_times import ServiceTimes, step_time
from dualplan.model.sources import from_roofline
from dualplan.plan.ratio import pass_time
from dualplan.spec.constants import Constants, roofline_constants
from dualplan.spec.hardware import Hardware, read_hardware
from dualplan.spec.layers import Latent
from dualplan.spec.model import Model, load_model, shipped_models
from dualplan.spec.parallel import Parallel
from dualplan.spec.precision import with_precision
from dualplan.spec.scenario import Scenario, Settings
from dualplan.spec.workload import Workload

# one of everything, so that a term shows by itself
PLAIN = Constants(
    kernel_time=1e-5,
    older_kernel_factor=2.0,
    sequence_time=1e-4,
    reduce_latency=1e-6,
    network_latency=1e-4,
    exchange_latency=1e-5,
    hbm_share=1.0,
    unpack_share=0.5,
    nic_share=0.5,
    compute_share=0.5,
    hidden_vectors=10.0,
    expert_prefill_share=0.5,
    attention_prefill_share=0.25,
    host_launch_time=5e-5,
    queue_share=0.1,
)
H100, B200, GB200 = (read_hardware(name) for name in ("dgx-h100", "dgx-b200", "gb200-nvl72"))
HBM_H100, HBM_B200 = 0.9 * 3.35e12, 0.9 * 8e12  # what streams reach
REACHED_H100, REACHED_B200 = 0.71, 0.76  # of the peak, by large matrix products
V3, LLAMA, OSS = (load_model(name) for name in ("deepseek-v3", "llama-3.1-70b", "gpt-oss-120b"))


def side(model: Model, hardware: Hardware, form: str = "fp8", **degrees: int) -> rl.Rank:
    return rl.rank(model, hardware, Parallel(**degrees), form)


def test_kernels_of_a_layer():
    """Llama fp8 12, bf16 8; gpt-oss 14; Qwen3-235B fp8 16; V3 24 (dense layers 20), V3.2 six more for its indexer."""
    assert rl.kernel_count(LLAMA) == 80 * 8
    assert rl.kernel_count(with_precision(LLAMA, "fp8")) == 80 * 12
    assert rl.kernel_count(OSS) == 36 * 14
    assert rl.kernel_count(with_precision(load_model("qwen3-235b-a22b"), "fp8")) == 94 * 16
    assert rl.kernel_count(V3) == 58 * (10 + 7 + 3 + 2 + 2) + 3 * (10 + 3 + 2 + 2)
    assert rl.kernel_count(load_model("deepseek-v3.2")) == rl.kernel_count(V3) + 61 * 6


def test_kernels_of_qwen35():
    """45 gated delta nets of 9, 15 attention layers of 5, experts of 7 with a shared one of 3; fp4 experts 2 more."""
    model = load_model("qwen3.5-397b-a17b")
    assert rl.kernel_count(model) == 45 * 9 + 15 * 5 + 60 * 10
    assert rl.kernel_count(with_precision(model, "nvfp4-ffn")) == 45 * 9 + 15 * 5 + 60 * 12


def test_launch_takes_longer_on_gpus_without_fp4():
    """960 kernels of 10 us, twice that on Hopper."""
    model = with_precision(LLAMA, "fp8")
    assert rl.launch_time(side(model, B200, tp=8), PLAIN) == pytest.approx(9.6e-3)
    assert rl.launch_time(side(model, H100, tp=8), PLAIN) == pytest.approx(19.2e-3)


def test_latent_attention_runs_unabsorbed_in_prefill():
    """128 heads: 2 * 128 * (128 + 64 + 128) = 81,920 FLOP a key; absorbed 2 * 128 * (2 * 512 + 64) = 278,528."""
    latent = V3.layers[0].attention
    assert isinstance(latent, Latent)
    assert rl.prefill_key_flops(latent) == 81_920
    assert rl.per_key_flops(latent) == 278_528
    _, decode, prefill = rl.attention_curves(V3, "fp8", 1)
    assert prefill.value(1) == 61 * 81_920
    assert decode.value(1) == 61 * 278_528


def test_sparse_latent_attention_runs_absorbed_up_to_its_top_k():
    """278,528 FLOP for each of the 2,048 chosen keys, and 2 * 64 * 128 of the indexer for every key."""
    _, _, prefill = rl.attention_curves(load_model("deepseek-v3.2"), "fp8", 1)
    assert prefill.value(10_000) == 61 * (2_048 * 278_528 + 10_000 * 2 * 64 * 128)


def test_cache_is_split_over_heads_and_a_latent_is_not():
    """Llama: 8 KV heads of 2 * 128 bytes a layer; at tp 16 each head is on two GPUs. A latent is whole on each."""
    assert side(LLAMA, H100, tp=1).cache.value(1) == 80 * 8 * 256
    assert side(LLAMA, H100, tp=8).cache.value(1) == 80 * 256
    assert side(LLAMA, H100, tp=16).cache.value(1) == 80 * 256
    assert side(V3, H100, "fp8-tensor", tp=8).cache.value(1) == 61 * 576


def test_windows_stop_growing():
    """gpt-oss: 18 full layers and 18 of 128 tokens, 8 heads of 2 * 64 bytes."""
    cache = side(OSS, H100).cache
    assert cache.value(1000) == 18 * 1024 * 1000 + 18 * 1024 * 128
    assert set(cache.spans) == {128.0, inf}


def test_recurrent_states_are_read_and_written():
    """45 states of 64 * 128 * 128 in fp32, both ways, and 15 layers of 2 heads with 2 * 256 bytes."""
    cache = side(load_model("qwen3.5-397b-a17b"), B200).cache
    assert cache.value(0) == 45 * 2 * 64 * 128 * 128 * 4
    assert cache.value(1) - cache.value(0) == 15 * 2 * 512


def test_share_of_experts_touched():
    """4 tokens of top-8 of 256 touch at most 32 of them: 1 - (31/32)^4 = 0.1193; many touch all."""
    assert rl.touched(8 / 256, 4) == pytest.approx(0.11926, abs=1e-5)
    assert rl.touched(8 / 256, 1) == 8 / 256
    assert rl.touched(8 / 256, 5_000) == pytest.approx(1, abs=1e-9)


def test_experts_of_a_gpu():
    """58 * 256 experts of 3 * 7168 * 2048 in fp8: 1/32 under EP32, 1/8 under TP8, 1/4 under TP4 EP2."""
    whole = 58 * 256 * 3 * 7168 * 2048 * (1 + 4 / 128**2)
    assert side(V3, H100, ep=32, dp=32).experts == pytest.approx(whole / 32)
    assert side(V3, H100, tp=8).experts == pytest.approx(whole / 8)
    assert side(V3, B200, tp=4, ep=2).experts == pytest.approx(whole / 4)


def test_four_bit_experts_are_widened_where_there_are_no_fp4_units():
    """Half the HBM rate in PLAIN, and the bf16 peak."""
    hopper, blackwell = side(OSS, H100), side(OSS, B200)
    assert (hopper.packed, blackwell.packed) == (1, 0)
    assert rl.expert_read_time(hopper, PLAIN) == pytest.approx(2 * hopper.experts / HBM_H100)
    assert rl.expert_read_time(blackwell, PLAIN) == pytest.approx(blackwell.experts / HBM_B200)
    chosen = 2 * 36 * 4 * 3 * 2880 * 2880
    assert hopper.expert_time == pytest.approx(chosen / 989e12 / REACHED_H100)
    assert blackwell.expert_time == pytest.approx(chosen / 9000e12 / REACHED_B200)


def test_integer_weights_run_in_bf16_everywhere():
    model = with_precision(load_model("kimi-k2"), "int4-experts")
    assert rl.matrix_type(model.part_bytes.routed_experts, model) == "int4"
    assert side(model, B200, tp=8).packed == 1
    assert rl.matrix_peak(B200, "int4") == 2250e12


def test_attention_in_bf16_beside_fp4_experts():
    """NVIDIA's FP4 checkpoint of DeepSeek leaves attention in bf16: 2 B and the bf16 peak."""
    model = with_precision(V3, "nvfp4-ffn")
    assert rl.matrix_type(model.part_bytes.attention, model) == "bf16"
    assert rl.matrix_type(model.part_bytes.routed_experts, model) == "fp4"


def test_no_all_reduce_without_tensor_parallelism():
    one = side(LLAMA, H100, tp=1)
    assert rl.reduce_latency(one, PLAIN) == 0
    assert rl.reduce_time(one, PLAIN) == 0


def test_all_reduce_inside_a_node():
    """160 of 1 us, each 4 * 8192 * 7/8 bytes a token at 0.85 of 450 GB/s."""
    eight = side(LLAMA, H100, tp=8)
    assert rl.reduce_latency(eight, PLAIN) == pytest.approx(160e-6)
    assert rl.reduce_time(eight, PLAIN) == pytest.approx(160 * 4 * 8192 * 7 / 8 / (0.85 * 450e9))


def test_all_reduce_over_two_nodes():
    """160 of 100 us, at half of a 400 Gb/s NIC; 72 GPUs of a NVLink domain need no NIC for it."""
    sixteen = side(LLAMA, H100, tp=16)
    assert rl.reduce_latency(sixteen, PLAIN) == pytest.approx(160e-4)
    assert rl.reduce_time(sixteen, PLAIN) == pytest.approx(160 * 4 * 8192 * 15 / 16 / 25e9)
    assert side(LLAMA, GB200, tp=16).reduce_remote == 0


def test_dispatch_and_combine():
    """fp8 one way, bf16 the other, 3 * 7168 B a copy in each of 58 layers.

    32 GPUs in 4 nodes: decode 8 * 3/4 = 6 copies over NICs; prefill one to each other node with a chosen expert, 2.20
    for 4 kept groups of 8. 32 GPUs of one domain: 31 * (1 - (31/32)^8) = 6.95 over NVLink.
    """
    nodes, domain = side(V3, H100, ep=32, dp=32), side(V3, GB200, ep=32, dp=32)
    copy = 58 * 3 * 7168
    assert nodes.decode_exchange_bytes == pytest.approx(6 * copy)
    assert nodes.prefill_exchange_bytes == pytest.approx(2.20 * copy, rel=2e-3)
    assert domain.prefill_exchange_bytes == domain.decode_exchange_bytes == pytest.approx(6.9533 * copy, rel=1e-3)
    assert (nodes.exchange_remote, domain.exchange_remote) == (1, 0)
    assert rl.exchange_latency(nodes, PLAIN) == pytest.approx(58 * 1.1e-4)
    assert rl.exchange_latency(domain, PLAIN) == pytest.approx(58 * 1e-5)
    assert side(V3, H100, tp=8, ep=8).exchanges == 0


def test_prefill_hides_the_all_to_all_and_not_the_all_reduce():
    """The longer of compute and all-to-all, and the all-reduce on top of it."""
    base = rl.prefill_pass(side(V3, H100, ep=32, dp=32), PLAIN)
    hidden = msgspec.structs.replace(base, per_token_hidden=1.0, per_token_link=0.25, per_request=0.0)
    assert rl.prompt_time(hidden, 8) == pytest.approx(8 * 1.25)
    quick = msgspec.structs.replace(hidden, per_token_hidden=0.0, per_token_link=0.0)
    assert rl.prompt_time(quick, 8, 100) == pytest.approx(8 * (base.per_token + base.attention.value(104)))


def test_latents_lead_to_whole_matrices_on_each_gpu():
    """q_a and kv_a of V3 have no heads to split: 61 * 7168 * (1536 + 576) parameters on each of 8 GPUs."""
    whole, parts = rl._attention_parameters(V3, 1), rl._attention_parameters(V3, 8)
    replicated = 61 * 7168 * (1536 + 576)
    assert parts == pytest.approx(replicated + (whole - replicated) / 8)


def test_decode_step_of_a_dense_model_by_hand():
    """Llama-3.1-70B in bf16 on one B200 (as if it fitted): kernels, weights, and n sequences at 1,000 tokens."""
    n, context = 4, 1000
    attention, mlp = 8192 * 8192 * 2 + 2 * 8192 * 1024, 3 * 8192 * 28672
    matrices = 80 * (attention + mlp)
    head = 8192 * 128256
    base = 640 * 1e-5 + 2 * (matrices + head) / HBM_B200
    flops = 2 * (matrices + head) / 2250e12 / REACHED_B200 / 0.5
    vectors = 10 * 80 * 2 * 8192 / HBM_B200
    cache = 80 * 8 * 256 * 2 * context / HBM_B200 + 80 * 4 * 64 * 128 * context / 2250e12 / REACHED_B200 / 0.5
    found = rl.step_time(rl.decode_step(side(LLAMA, B200, "bf16"), PLAIN), n, context)
    assert found == pytest.approx(base + n * (1e-4 + flops + vectors + cache), rel=1e-6)


def test_prefill_pass_of_a_dense_model_by_hand():
    """2,000 tokens of Llama-3.1-70B in bf16 on a B200, attention over 1,000 keys at a quarter of what is reached."""
    matrices = 80 * (8192 * 8192 * 2 + 2 * 8192 * 1024 + 3 * 8192 * 28672)
    head = 8192 * 128256
    token = (
        2 * matrices / 2250e12 / REACHED_B200 / 0.5
        + 10 * 80 * 2 * 8192 / HBM_B200
        + 80 * 4 * 64 * 128 * 1000 / 2250e12 / REACHED_B200 / 0.25
    )
    p = rl.prefill_pass(side(LLAMA, B200, "bf16"), PLAIN)
    assert rl.prompt_time(p, 2000) == pytest.approx(2000 * token + 2 * head / 2250e12 / REACHED_B200 / 0.5, rel=1e-6)
    assert rl.pass_time(p, 2000) == pytest.approx(640 * 5e-5 + 2 * (matrices + head) / HBM_B200, rel=1e-6)


def test_tiles_of_experts_are_half_empty():
    """64 more rows of each of the 128 * 36 experts of gpt-oss, at the fp4 peak."""
    rows = 2 * 64 * 128 * 36 * 3 * 2880 * 2880 / 9000e12 / REACHED_B200
    assert rl.padding_time(side(OSS, B200), PLAIN) == pytest.approx(rows / 0.25)


def test_kv_format_of_engines():
    assert rl.serving_kv_format(LLAMA) == "bf16"
    assert rl.serving_kv_format(with_precision(LLAMA, "fp8")) == "fp8"
    assert rl.serving_kv_format(OSS) == "fp8"
    assert rl.serving_kv_format(V3) == "fp8-tensor"
    assert rl.serving_kv_format(load_model("deepseek-v3.2")) == "fp8"


def test_memory_bounds_a_closed_loop():
    """Llama-3.1-70B fp8 on an H200: 0.95 * 141 GB less 4.17 and 72.7 GB, 163,840 B a token: 38 of 9,216 tokens."""
    model = with_precision(LLAMA, "fp8")
    h200 = side(model, read_hardware("dgx-h200"))
    assert rl.resident_sequences(h200, 9216) == pytest.approx(37.7, abs=0.3)


def test_interference_of_prefill():
    """7 others start once in 100 steps, each 0.5 s of prefill: 35 ms on a step of 20 ms."""
    assert rl.aggregated_tpot(0.02, 8, 100, 0.5) == pytest.approx(0.055)
    assert rl.aggregated_tpot(0.02, 1, 100, 0.5) == 0.02


def test_decode_gets_what_prefill_makes():
    """A step that does not depend on the batch: rate * generated * step / ranks = 2 * 1000 * 0.02 / 4 = 10 of 64."""
    d = rl.decode_step(side(LLAMA, B200, "bf16"), PLAIN)
    flat = msgspec.structs.replace(d, base=0.02, slope=0.0, experts=0.0, cache=rl.Curve())
    assert rl.closed_loop_sequences(flat, 64, 2.0, 1000, 4, 1000) == pytest.approx(10)
    assert rl.closed_loop_sequences(flat, 64, 1e9, 1000, 4, 1000) == 64


def test_ttft_of_one_client():
    """A pass of 20 ms, 1,000 tokens of 0.1 ms; of 11 clients each other one adds a tenth. 16,384 tokens: 2 passes."""
    p = rl.prefill_pass(side(LLAMA, B200, "bf16"), PLAIN)
    p = msgspec.structs.replace(p, base=0.02, experts=0.0, per_request=0.0, per_token=1e-4, attention=rl.Curve())
    assert rl.unloaded_ttft(p, PLAIN, 1000, 1) == pytest.approx(0.12)
    assert rl.unloaded_ttft(p, PLAIN, 1000, 11) == pytest.approx(0.22)
    assert rl.unloaded_ttft(p, PLAIN, 16_384, 1) == pytest.approx(0.04 + 1.6384)


def test_handover_repeats_heads_and_uses_all_nics():
    """Qwen3-235B in bf16 with 4 KV heads at tp 8: 32,768 tokens are 6.31 GB, and 12.6 GB move; measured in 76.8 ms.

    8 GPUs on 4 NICs of 400 Gb/s at 0.75: 150 GB/s, 84 ms.
    """
    model, h20 = load_model("qwen3-235b-a22b"), read_hardware("h20-hgx")
    parallel = Parallel(tp=8)
    moved = rl.handover_bytes(model, "bf16", parallel, 32_768)
    assert moved == pytest.approx(12.62e9, rel=1e-3)
    engine = rl.rank(model, h20, parallel, "bf16")
    assert rl.handover_time(moved, moved, engine, engine) == pytest.approx(76.8e-3, rel=0.1)
    slow = msgspec.structs.replace(engine, nic=engine.nic / 2)
    assert rl.handover_time(moved, moved, slow, engine) == rl.handover_time(moved, moved, engine, slow)


def test_latents_move_to_every_gpu():
    """A latent of 61 * 576 bytes is whole on each of 8 GPUs."""
    assert rl.handover_bytes(V3, "fp8-tensor", Parallel(tp=8), 1000) == pytest.approx(8 * 1000 * 61 * 576)


@given(st.integers(1, 512), st.integers(1, 100_000))
def test_steps_grow_with_batch_and_context(sequences: int, context: int):
    d = rl.decode_step(side(V3, H100, ep=32, dp=32), roofline_constants())
    now = rl.step_time(d, sequences, context)
    assert now > 0
    assert rl.step_time(d, sequences + 1, context) > now
    assert rl.step_time(d, sequences, context + 1) > now


@pytest.mark.parametrize("name", shipped_models())
def test_every_model_has_times_on_every_vendor(name: str):
    """Service times of a scenario predict what the functions of runs do: a step, a prompt, its pass."""
    model, parallel, c = load_model(name), Parallel(tp=8), roofline_constants()
    for profile in ("dgx-a100", "dgx-h200", "mi355x-8", "l40s-8-pcie", "gb300-nvl72"):
        found, engine = times_of(model, profile, parallel), side(model, read_hardware(profile), model.kv_format, tp=8)
        d, p = rl.decode_step(engine, c), rl.prefill_pass(engine, c)
        cache, experts = 16 * found.decode_cache.value(9_000), found.decode_experts * rl.touched(found.expert_share, 16)
        step = step_time(found.decode_base, found.decode_slope, 0.0, 16, experts, cache)
        assert step == pytest.approx(rl.step_time(d, 16, 9_000), rel=1e-12)
        assert found.turn_work(2_000, 500) == pytest.approx(rl.prompt_time(p, 2_000, 500), rel=1e-12)
        assert found.pass_base + found.experts_time(2_000) == pytest.approx(rl.pass_time(p, 2_000), rel=1e-12)


def times_of(model: Model, profile: str, parallel: Parallel) -> ServiceTimes:
    hardware = read_hardware(profile)
    workload = Workload(turns=1, context=0, append=1000, generated=100)
    scenario = Scenario(
        settings=Settings(), hardware=hardware, decode_hardware=hardware, model=model, workload=workload
    )
    return from_roofline(scenario, parallel, parallel)


def test_hand_over_by_all_nics_of_an_engine():
    """The time of handover_time: Qwen3-235B with 4 KV heads on 8 GPUs moves each twice, a latent on each of 8 GPUs."""
    for model in (load_model("qwen3-235b-a22b"), V3):
        parallel, engine = Parallel(tp=8), side(model, H100, model.kv_format, tp=8)
        moved = rl.handover_bytes(model, model.kv_format, parallel, 10_000)
        whole = kv_total_bytes_per_token(model, model.kv_format) * 10_000
        time = whole / times_of(model, "dgx-h100", parallel).handover_rate
        assert time == pytest.approx(rl.handover_time(moved, moved, engine, engine), rel=1e-9)


def test_an_engine_computes_what_its_source_measured():
    """SGLang, DeepSeek-V3 on H100 nodes under EP32: 57.7k and 54.5k prompt tokens/s a node for prompts of 1 and 2
    thousand tokens, in passes of 16,384 tokens a GPU (LMSYS, 5 May 2025).
    """
    times = times_of(V3, "dgx-h100", Parallel(ep=32, dp=32))
    for tokens, published in ((1024, 57_700), (2048, 54_500)):
        batch = 16_384 / tokens
        rate = 8 * 16_384 / pass_time(times, batch, tokens, 0)
        assert rate == pytest.approx(published, rel=0.07)


def test_steps_of_a_node_keep_a_tight_slo():
    """DeepSeek-R1 in fp8 under TP8 on H200, measured: 10.3 to 13.8 ms at 4 sequences, 15.9 to 20.4 ms at 16."""
    times = times_of(V3, "dgx-h200", Parallel(ep=8, tp=8))
    for sequences, (low, high) in ((4, (10.3e-3, 13.8e-3)), (16, (15.9e-3, 20.4e-3))):
        cache = sequences * times.decode_cache.value(1024 + 4096)
        experts = times.decode_experts * rl.touched(times.expert_share, sequences)
        step = step_time(times.decode_base, times.decode_slope, 0.0, sequences, experts, cache)
        assert low * 0.95 < step < high
