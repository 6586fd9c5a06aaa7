"""What the time of a step rests on: recomputation, measured figures and which fits, and shares of a GPU's peak."""

from __future__ import annotations

from pathlib import Path

import pytest

from pretrainctl import catalog
from pretrainctl.cli.main import app
from pretrainctl.errors import InputError
from pretrainctl.workflows.plan import make_plan
from pretrainctl.workflows.plan.speed import ASSUMED_SHARE, PEAKS

MINE = ("cluster.account.name=ab12",)


def plan(*set_values, recipe="llama-8b", cluster="jupiter"):
    families = ("cluster.families=[ehpc]",) if cluster == "marenostrum5" else ()
    return make_plan(recipe, cluster, set_values=[*MINE, *families, *set_values], directory=Path("/home/you"))


def figure(**keys):
    written = {"gpu_flops": "300T", "model": "x", "source": "y", "as_of": "2026-11", **keys}
    return "{" + ", ".join(f"{key}: {value}" for key, value in written.items()) + "}"


def flops_counted(made):
    """Operations a token behind the time of a step, in those of the PaLM paper's formula."""
    estimate, geometry = made.estimate, made.geometry
    done = estimate.seconds_per_step * geometry.world_size * estimate.speed.gpu_flops
    return done / geometry.tokens_per_step / estimate.flops_per_token


@pytest.mark.parametrize(
    ("figures", "recomputed", "kept"),
    [
        ("unknown", 4 / 3, 1),
        ("100T", 4 / 3, 1),
        (figure(), 4 / 3, 1),
        (figure(recompute="no"), 4 / 3, 1),
        (figure(recompute="yes"), 1, 3 / 4),
    ],
)
def test_recomputation_is_a_forward_pass_more_unless_the_figure_has_it(figures, recomputed, kept):
    value = f"cluster.node.gpu_flops={figures}"
    assert flops_counted(plan(value, "training.recompute=true")) == pytest.approx(recomputed)
    assert flops_counted(plan(value, "training.recompute=false")) == pytest.approx(kept)


def test_recomputation_costs_jobs_and_node_hours_and_is_said():
    recomputed, kept = plan("training.recompute=true").estimate, plan("training.recompute=false").estimate
    assert recomputed.jobs > kept.jobs
    assert recomputed.node_hours / kept.node_hours == pytest.approx(4 / 3, rel=0.01)
    assert "a third more operations are counted for training.recompute" in str(recomputed.speed)
    assert "recompute" not in str(kept.speed)
    for recompute, says in (("true", "recomputation is in that figure already"), ("false", "a quarter fewer")):
        made = plan(f"cluster.node.gpu_flops={figure(recompute='yes')}", f"training.recompute={recompute}")
        assert says in str(made.estimate.speed)
    own = plan("resources.seconds_per_step=2").estimate
    assert (own.seconds_per_step, own.speed.recompute) == (2, "none")


@pytest.mark.parametrize(
    ("kind", "peak"),
    [
        ("A100 64 GB", 312),
        ("H100 64 GB", 989),
        ("NVIDIA GH200 96 GB", 989),
        ("H200-141GB", 989),
        ("MI250X", 191.5),
    ],
)
def test_an_assumption_is_a_share_of_what_this_gpu_can(kind, peak):
    speed = plan("cluster.node.gpu_flops=unknown", f"cluster.node.gpu_type={kind}").estimate.speed
    assert (speed.basis, speed.gpu_flops) == ("assumed", pytest.approx(0.3 * peak * 1e12))
    assert f"30% of the {peak:.3g}T in dense bf16" in str(speed)
    assert f"what one {kind.removeprefix('NVIDIA ').replace('-', ' ').split()[0]} can" in str(speed)


@pytest.mark.parametrize("kind", ["null", "XH100", "B300"])
def test_of_a_gpu_that_is_not_known_little_is_assumed_and_it_is_said(kind):
    speed = plan("cluster.node.gpu_flops=unknown", f"cluster.node.gpu_type={kind}").estimate.speed
    assert speed.gpu_flops == ASSUMED_SHARE * min(PEAKS["A100"], PEAKS["H100"])
    assert "since the peak of the GPUs here is not known" in str(speed)


def test_a_measured_figure_counts_for_models_of_its_size_and_the_nearest_number_of_gpus():
    figures = ", ".join(
        (
            figure(parameters="8B", gpus=32, gpu_flops="400T"),
            figure(parameters="8B", gpus=256, gpu_flops="350T"),
            figure(parameters="8B", gpus=4096, gpu_flops="200T"),
            figure(parameters="15B", gpus=128, gpu_flops="100T"),
            figure(parameters="40B", gpus=128, gpu_flops="250T"),
        )
    )
    several = f"cluster.node.gpu_flops=[{figures}]"
    speed = lambda *values, **keys: plan(several, *values, **keys).estimate.speed  # noqa: E731
    assert speed().gpu_flops == 100 * 10**12  # 128 GPUs, and not quite twice the size: nearer than twice the GPUs
    assert speed("resources.nodes=64").gpu_flops == 350 * 10**12
    assert speed("resources.nodes=8").gpu_flops == 400 * 10**12
    assert speed(recipe="llama-70b").gpu_flops == 250 * 10**12
    for recipe in ("llama-1b", "moe-8x7b"):
        assert speed(recipe=recipe).basis == "assumed"
        assert "nothing measured there is of such a model" in str(speed(recipe=recipe))
    assert plan(f"cluster.node.gpu_flops={figure()}", recipe="llama-1b").estimate.speed.basis == "measured"


def test_of_figures_that_are_as_near_the_slower_counts_for_this_training():
    figures = (figure(recompute="yes", gpu_flops="290T"), figure(recompute="no", gpu_flops="360T"))
    speed = lambda value: plan(f"cluster.node.gpu_flops=[{', '.join(figures)}]", value).estimate.speed  # noqa: E731
    assert speed("training.recompute=true").gpu_flops == 360 * 10**12  # 270T with recomputation
    assert speed("training.recompute=false").gpu_flops == 360 * 10**12


@pytest.mark.parametrize(
    ("cluster", "gpu_flops", "model"),
    [
        ("marenostrum5", 336, "6.7B on 512 GPUs with Modalities"),
        ("leonardo", 190, "6.7B on 128 GPUs with Modalities"),
        ("jupiter", 390, "9B on 4 GPUs with Megatron"),
    ],
)
def test_a_hopper_is_not_sized_as_an_a100(cluster, gpu_flops, model):
    speed = plan(cluster=cluster).estimate.speed
    assert (speed.basis, speed.gpu_flops) == ("measured", gpu_flops * 10**12)
    assert model in speed.model
    large = plan(recipe="llama-70b", cluster=cluster).estimate.speed
    assert large.gpu_flops == pytest.approx(0.3 * (312e12 if cluster == "leonardo" else 989e12))


def test_a_figure_of_far_fewer_gpus_is_said_to_flatter():
    def said(cluster):
        (note,) = [note for note in plan(cluster=cluster).notes if "rest on" in note]
        return "mostly reaches less" in note

    assert [said(cluster) for cluster in ("jupiter", "marenostrum5", "leonardo")] == [True, False, False]
    assert any("each of 128 GPUs mostly reaches less than each of 4;" in note for note in plan().notes)


@pytest.mark.parametrize("cluster", ["marenostrum5", "leonardo", "jupiter"])
def test_each_figure_of_a_shipped_profile_is_below_the_peak_and_says_what_it_contains(cluster):
    node = catalog.load_profile(cluster).node
    peak = PEAKS["A100" if cluster == "leonardo" else "H100"]
    for one in node.gpu_flops:
        assert 0.2 * peak < one.gpu_flops < 0.7 * peak
        assert one.recompute != "unknown"
        assert str(one.gpus) in one.model
        assert one.parameters


def test_a_list_of_figures_is_checked_one_by_one():
    with pytest.raises(InputError, match=r"the key node.gpu_flops.0.source is missing"):
        plan("cluster.node.gpu_flops=[{gpu_flops: 3T, model: x, as_of: 2026-01}]")
    with pytest.raises(InputError, match=r"unknown key 'gpu_flop' in node.gpu_flops.0") as caught:
        plan("cluster.node.gpu_flops=[{gpu_flop: 3T}]")
    assert "gpu_flops" in caught.value.hint


def test_estimates_have_three_digits_in_text_and_all_in_json(capsys):
    words = ["plan", "llama-8b", "-c", "jupiter", "--set", MINE[0]]
    app(words, standalone_mode=False)
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    made = plan()
    assert shown["node-hours"] == f"384.00 a job at most, ~{round(made.node_hours, -2):.0f} to the target"
    assert shown["charged"].endswith("000 to the target")
    app([*words, "--json"], standalone_mode=False)
    assert f'"node_hours": {made.node_hours}' in capsys.readouterr().out
