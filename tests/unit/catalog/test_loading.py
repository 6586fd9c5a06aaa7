"""Recipes and profiles from YAML: found, extended, overridden; what does not fit is one line with its place."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pretrainctl import catalog
from pretrainctl.catalog.reading import Document, Origin, join
from pretrainctl.errors import InputError


@pytest.fixture
def write(tmp_path):
    def write_file(text: str, name: str = "mine.yaml", folder: Path = tmp_path) -> str:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
        return str(folder / name)

    return write_file


def refused(load, name, settings=()):
    with pytest.raises(InputError) as caught:
        load(name, settings)
    assert "\n" not in str(caught.value)
    return str(caught.value), caught.value.hint


def test_a_shipped_recipe_and_profile_are_found_by_name():
    assert catalog.load_recipe("quickstart").name == "quickstart"
    assert catalog.load_profile("sandbox").name == "sandbox"
    assert "quickstart" in catalog.names("recipes")
    assert (catalog.template_dir() / "job.sbatch.j2").is_file()


@pytest.mark.parametrize("kind", ["recipes", "cluster_profiles"])
def test_every_shipped_file_loads_and_bears_its_own_name(kind):
    load = catalog.load_recipe if kind == "recipes" else catalog.load_profile
    for name, description, path in catalog.describe(kind):
        loaded = load(name)
        assert loaded.name == name == path.stem
        assert description == loaded.description
        assert description


def test_an_unknown_name_brings_the_nearest_one():
    assert refused(catalog.load_recipe, "quikstart") == (
        "there is no recipe 'quikstart'",
        "did you mean quickstart?",
    )
    message, hint = refused(catalog.load_profile, "mars")
    assert message == "there is no cluster profile 'mars'"
    assert "sandbox" in hint
    assert "no recipe file" in refused(catalog.load_recipe, "./nothing.yaml")[0]


def test_a_users_file_wins_and_may_extend_the_shipped_one_of_its_name(write, user_configuration):
    write(
        "extends: sandbox\naccount: {required: true, name: proj01}\nsignals: {lead: 90s}\n",
        "sandbox.yaml",
        user_configuration / "cluster_profiles",
    )
    profile = catalog.load_profile("sandbox")
    assert (profile.account.name, profile.signals.lead) == ("proj01", 90)
    assert profile.tasks.cpus_per_task == 1
    assert catalog.names("cluster_profiles").count("sandbox") == 1


def test_extends_merges_sections_and_replaces_lists(write):
    write("extends: quickstart\nname: base\ntraining: {optimizer: {lr: 1e-4}}\n", "base.yaml")
    blend = "data:\n  sources:\n    - prefix: /a\n    - prefix: /b\n      weight: 3\n"
    top = write(f"extends: base.yaml\n{blend}", "top.yaml")
    recipe = catalog.load_recipe(top)
    assert recipe.name == "base"
    assert recipe.training.optimizer.lr == 1e-4
    assert recipe.training.optimizer.weight_decay == 0.1
    assert [(str(source.prefix), source.weight) for source in recipe.data.sources] == [("/a", 1.0), ("/b", 3.0)]


def test_a_circle_of_extends_is_refused(write):
    write("extends: ./b.yaml\n", "a.yaml")
    b = write("extends: ./a.yaml\n", "b.yaml")
    assert "extends itself" in refused(catalog.load_recipe, b)[0]


@pytest.mark.parametrize(
    ("text", "line", "says", "hint"),
    [
        ("extends: quickstart\nmodle: {}\n", 2, "unknown key 'modle' in the top", "did you mean 'model'?"),
        (
            "extends: quickstart\ntraining:\n  tokens: 5k\n  lr: 3\n",
            4,
            "unknown key 'lr' in training",
            "'training.optimizer.lr'?",
        ),
        (
            "extends: quickstart\ntraining:\n  optimizer:\n    weigth_decay: 0\n",
            4,
            "unknown key 'weigth_decay' in training.optimizer",
            "did you mean 'weight_decay'?",
        ),
        (
            "extends: quickstart\ndata:\n  sources:\n    - prefix: a\n    - prefix: b\n      wieght: 1\n",
            6,
            "unknown key 'wieght' in data.sources.1",
            "did you mean 'weight'?",
        ),
        ("extends: quickstart\nresources:\n  nodes: two\n", 3, "resources.nodes", "Nodes that train"),
        (
            "extends: quickstart\nresources:\n  nodes: '2'\n",
            3,
            'a whole number is expected, not "2"',
            "Nodes that train",
        ),
        ("extends: quickstart\nresources: 3\n", 2, "resources", "Nodes and time"),
        ("extends: quickstart\nresources:\n\n  walltime: 30\n", 4, "30 is not a duration", "Time limit"),
        ("extends: quickstart\ntraining:\n  zero_stage: 4\n", 3, "training.zero_stage", "What ZeRO shards"),
        ("extends: quickstart\nmodel:\n  heads: 3\n", 3, "model: hidden 128 is not a multiple of heads 3", ""),
        ("extends: quickstart\ndata:\n  sequence_length: 512\n", 1, "longer than model.context 256", ""),
        (
            "name: x\n",
            1,
            "the keys framework, model, data, training, checkpoint, resources are missing",
            "Which training framework",
        ),
        ("name: [1\n", 2, "broken YAML", "indentation"),
        ("name: a\nname: b\n", 2, "broken YAML", "indentation"),
        ("- a\n", 1, "a mapping of keys is needed", ""),
        ("", 1, "a mapping of keys is needed", ""),
        ("extends: quickstart\nname: !!python/object:os.system x\n", 2, "tags", ""),
        ("extends: quickstart\n1: x\n", 1, "the key 1 must be text", ""),
        ("extends: [a]\n", 1, "`extends` is one name or path", ""),
    ],
)
def test_what_does_not_fit_is_one_line_with_its_place(write, text, line, says, hint):
    path = write(text)
    message, given_hint = refused(catalog.load_recipe, path)
    assert message.startswith(f"{path}:{line}: ")
    assert says in message
    assert hint in given_hint


def test_the_line_is_that_of_the_file_that_wrote_the_value(write):
    base = write("extends: quickstart\n\n\ntraining:\n  precision: fp64\n", "base.yaml")
    top = write("extends: ./base.yaml\nname: top\n", "top.yaml")
    assert refused(catalog.load_recipe, top)[0].startswith(f"{base}:5: training.precision")


def test_text_that_is_no_utf8_and_a_folder_in_place_of_a_file(tmp_path):
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    assert "not UTF-8" in refused(catalog.load_recipe, str(tmp_path / "latin.yaml"))[0]
    (tmp_path / "folder.yaml").mkdir()
    assert "no recipe file" in refused(catalog.load_recipe, str(tmp_path / "folder.yaml"))[0]


def test_yaml_is_version_1_2(write):
    path = write(
        "extends: quickstart\ntracking: {wandb: off}\nresources: {walltime: 12:00:00}\n"
        "training: {optimizer: {lr: 3e-4}}\n"
    )
    recipe = catalog.load_recipe(path)
    assert recipe.tracking.wandb == "off"
    assert recipe.resources.walltime == 43200
    assert recipe.training.optimizer.lr == 3e-4


def test_set_overrides_by_dotted_key_in_order():
    recipe = catalog.load_recipe(
        "quickstart",
        [
            "training.tokens=1M",
            "training.optimizer.betas=[0.8, 0.9]",
            "data.sources.0.prefix=/elsewhere",
            "training.tokens=2M",
            "recovery.attempts_without_progress=5",
            "name=a = b",
        ],
    )
    assert recipe.training.tokens == 2_000_000
    assert recipe.training.optimizer.betas == (0.8, 0.9)
    assert str(recipe.data.sources[0].prefix) == "/elsewhere"
    assert recipe.recovery.attempts_without_progress == 5
    assert recipe.name == "a = b"


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("training.tokns=5", "--set training.tokns=5: unknown key 'tokns' in training"),
        ("trainin.tokens=5", "--set trainin.tokens=5: unknown key 'trainin' in the top"),
        ("training.tokens=soon", "--set training.tokens=soon: training.tokens: 'soon' is not a count"),
        ("training.tokens", "not of the form key.subkey=value"),
        ("=5", "not of the form key.subkey=value"),
        ("a..b=5", "not of the form key.subkey=value"),
        ("training.tokens=[1", "the value is not YAML"),
        ("name.first=x", "name is 'quickstart', which has no keys"),
        ("data.sources.7.prefix=x", "data.sources is a list of 1"),
        ("data.sources.first.prefix=x", "data.sources is a list of 1"),
        ("data.sources.0.wieght=1", "unknown key 'wieght' in data.sources.0"),
        ("name=\udcff", "the value is not YAML"),
    ],
)
def test_a_setting_that_does_not_fit_is_named(setting, says):
    assert says in refused(catalog.load_recipe, "quickstart", [setting])[0]


@pytest.mark.parametrize(
    ("load", "setting", "hint"),
    [
        (catalog.load_recipe, "nodes=3", "did you mean 'resources.nodes'?"),
        (catalog.load_recipe, "training.walltime=2h", "did you mean 'resources.walltime'?"),
        (catalog.load_recipe, "walltme=2h", "did you mean 'resources.walltime'?"),
        (catalog.load_recipe, "resources.nodse=3", "did you mean 'nodes'?"),
        (catalog.load_recipe, "nmae=x", "did you mean 'name'?"),
        (catalog.load_recipe, "directory=x", "did you mean 'checkpoint.directory'?"),
        (catalog.load_profile, "cpus=4", "did you mean 'cluster.node.cpus'?"),
    ],
)
def test_a_key_in_the_wrong_place_brings_its_whole_path(load, setting, hint):
    with pytest.raises(InputError) as caught:
        load("quickstart" if load is catalog.load_recipe else "sandbox", [setting])
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("node.memory=2048", "2048 is implausibly small, at least 1 GiB"),
        ("node.slurm_memory=514000", "implausibly small"),
        ("node.gpu_memory=64", "implausibly small"),
        ("node.gpu_flops=254", "254 is implausibly small, at least 1G operations a second"),
        ("signals.write_rate=2", "2 is implausibly small, at least 1 MB a second"),
        ("queues.0={name: a, purpose: long, min_nodes: 9, max_nodes: 8, max_walltime: 1h}", "min_nodes 9 is more than"),
        ("python.training=venv/bin/python", "'venv/bin/python' must be an absolute path"),
        ("python.control=~/bin/python", "must be an absolute path"),
        ("container={binary: singularity, image: a.sif}", "'a.sif' must be an absolute path"),
        ("container={binary: singularity, binds: [data]}", "container.binds"),
        ("provenance={source: x, as_of: 2026-13, confidence: guess}", "provenance.as_of"),
        ("rendezvous.port_base=60000", "port_base 60000 and port_span 20000 go beyond 65535"),
        ("slurm_conf=slurm.conf", "must be an absolute path"),
        ("node.gpu_flops={gpu_flops: 3T, model: x, as_of: 2026-01}", "the key node.gpu_flops.source is missing"),
        ("node.gpu_flops=many", "'many' is not a count"),
    ],
)
def test_what_no_cluster_can_be_is_refused(setting, says):
    with pytest.raises(InputError) as caught:
        catalog.load_profile("sandbox", [setting])
    assert says in str(caught.value)
    assert "\n" not in f"{caught.value}{caught.value.hint}"


@pytest.mark.parametrize(
    ("load", "setting", "says", "hint"),
    [
        (catalog.load_profile, "account=ehpc01", 'account: a section is expected, not "ehpc01"', "{name: ehpc01}"),
        (catalog.load_profile, "families=ehpc", 'families: a list is expected, not "ehpc"', "write families: [ehpc]"),
        (catalog.load_profile, "modules=gcc/13", "modules: a list is expected", "write modules: [gcc/13]"),
        (catalog.load_profile, "storage=/x", "storage: a list is expected", "write storage: [{name: /x, ...}]"),
        (catalog.load_profile, "container=/a.sif", "container: a section is expected", "binary, image, options"),
        (catalog.load_profile, "python=/bin/python3", "python: a section is expected", "Keys: control, training"),
        (catalog.load_profile, "environment=X", "environment: a section is expected", "Variables of the training"),
        (catalog.load_profile, "account=[a]", "account: a section is expected", "account: The account rule."),
        (catalog.load_recipe, "tracking=offline", "tracking: a section is expected", "Keys: wandb, project"),
        (catalog.load_recipe, "data.sources=d/web", "sources: a list is expected", "sources: [{prefix: d/web, ...}]"),
        (catalog.load_recipe, "workloads=x", "workloads: a list is expected", "write workloads: [x]"),
    ],
)
def test_one_value_in_place_of_a_section_or_list_brings_its_form(load, setting, says, hint):
    with pytest.raises(InputError) as caught:
        load("quickstart" if load is catalog.load_recipe else "sandbox", [setting])
    assert says in str(caught.value)
    assert hint in caught.value.hint
    assert "object" not in str(caught.value)


def test_the_first_thing_that_one_writes_of_an_account_is_answered_with_its_form(write):
    path = write("extends: marenostrum5\nname: mine\naccount: ehpc01\n")
    message, hint = refused(catalog.load_profile, path)
    assert message == f'{path}:3: account: a section is expected, not "ehpc01"'
    assert hint == "write account: {name: ehpc01}"
    path = write("extends: marenostrum5\nname: mine\naccount: {name: ehpc01}\n")
    assert catalog.load_profile(path).account.name == "ehpc01"


def test_a_mistake_of_the_file_is_not_laid_on_a_setting(write):
    own = write(
        "extends: sandbox\nfamilies: [none]\nqueues:\n"
        "  - {name: a, purpose: debug, min_nodes: 5, max_nodes: 4, max_walltime: 1h}\n",
    )
    for harmless in ([], ["account.name=x"], ["queues.0.partition=p"]):
        said, _ = refused(catalog.load_profile, own, harmless)
        assert said.startswith(f"{own}:4: queues.0: queue 'a' takes no job")
    said, _ = refused(catalog.load_profile, own, ["queues.0.max_nodes=3", "account.name=x"])
    assert said.startswith("--set cluster.queues.0.max_nodes=3: ")
    said, _ = refused(catalog.load_profile, own, ["queues.0.max_nodes=5", "account.name=x"])
    assert said.startswith(f"{own}:"), "families: [none] is the file's"
    assert "no queue is of the family 'none'" in said


def test_a_profile_may_say_unknown_but_not_anything(write):
    path = write(
        "extends: sandbox\nqueues:\n  - name: a\n    purpose: production\n    max_nodes: unknown\n"
        "    max_walltime: many\n"
    )
    message, hint = refused(catalog.load_profile, path)
    assert message.startswith(f"{path}:6: queues.0.max_walltime: 'many' is not a duration")
    assert hint == "max_walltime: Longest time limit of a job."


def test_an_environment_variable_of_a_profile_has_its_reason(write):
    path = write("extends: sandbox\nenvironment:\n  NCCL_X:\n    value: '1'\n    resaon: because\n")
    message, hint = refused(catalog.load_profile, path)
    assert message.startswith(f"{path}:5: unknown key 'resaon' in environment.NCCL_X")
    assert hint == "did you mean 'reason'?"


def test_the_cluster_is_known_by_host_name(write, user_configuration):
    assert catalog.here("tlogin1.example") is None
    write(
        "extends: sandbox\nname: big\nhosts: {login: ['tlogin[0-9]+\\.example'], compute: ['as.*']}\n",
        "big.yaml",
        user_configuration / "cluster_profiles",
    )
    assert catalog.here("tlogin1.example") == "big"
    assert catalog.here("as01") == "big"
    assert catalog.here("xtlogin1.example") is None


def test_a_broken_file_of_the_user_does_not_hide_the_others(write, user_configuration):
    write("name: [", "broken.yaml", user_configuration / "recipes")
    rows = {name: text for name, text, _ in catalog.describe("recipes")}
    assert rows["broken"].startswith("(broken: ")
    assert "quickstart" in rows


def test_a_date_is_text(write):
    path = write("extends: sandbox\nprovenance: {source: x, as_of: 2026-03-01, confidence: guess}\n")
    assert json.loads(catalog.load_profile(path).model_dump_json())["provenance"]["as_of"] == "2026-03-01"


LAUGHS = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
LAUGHS += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
MAPS = ["a0: &a0 {a: 1, b: 2}", *(f"a{n}: &a{n} {{a: *a{n - 1}, b: *a{n - 1}}}" for n in range(1, 18))]
FOLDED = ["a0: &a0 {x: 1}", *(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 5)}]}}" for n in range(1, 18))]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("lines", [LAUGHS, MAPS], ids=["lists", "maps"])
def test_aliases_of_aliases_are_bounded_by_the_values_that_they_stand_for(write, lines):
    begun = time.process_time()
    path = write("\n".join(["extends: quickstart", *lines]) + "\n")
    for load in (catalog.load_recipe, catalog.load_profile):
        message, hint = refused(load, path)
        assert message.startswith(f"{path}:")
        assert "more than 10000 values" in message
        assert "aliases" in hint
    setting = f"model={{{', '.join(lines)}}}"
    assert "more than 10000 values" in refused(catalog.load_recipe, "quickstart", [setting])[0]
    assert time.process_time() - begun < 20


@pytest.mark.timeout(60)
def test_sections_that_are_merged_into_sections_end(write):
    path = write("\n".join(["extends: quickstart", *FOLDED]) + "\n")
    assert "unknown key" in refused(catalog.load_recipe, path)[0]


def test_a_long_text_that_aliases_repeat_is_refused(write):
    path = write(f"extends: quickstart\ndescription: &d '{'x' * 16_385}'\nworkloads: [*d, *d]\n")
    assert refused(catalog.load_recipe, path)[0] == f"{path}:2: a text of 16385 characters, at most 16384 are read"


def test_a_file_that_is_too_large_for_a_recipe_is_refused_and_one_that_is_just_not_is_read(write):
    text = "extends: quickstart\n#"
    path = write(text + "x" * (256 * 1024 - len(text)))
    assert catalog.load_recipe(path).name == "quickstart"
    path = write(text + "x" * (256 * 1024 - len(text) + 1))
    message, hint = refused(catalog.load_recipe, path)
    assert message == f"{path} is larger than 262144 bytes, the most that is read as a recipe or profile"
    assert hint


@pytest.mark.timeout(60)
def test_as_many_values_as_are_read_are_laid_over_others_in_no_time():
    def document(source: str) -> Document:
        values = {f"A{number}": source for number in range(10_000)}
        places = ((), ("environment",), *(("environment", key) for key in values))
        return Document({"environment": values}, {place: Origin(source, 1) for place in places})

    begun = time.process_time()
    both = join("recipes", [(Path("top"), document("top")), (Path("base"), document("base"))])
    assert time.process_time() - begun < 5
    assert set(both.values["environment"].values()) == {"top"}
    assert str(both.origin(("environment", "A7"))) == "top:1"


KEYS = st.sampled_from(["model", "training", "optimizer", "betas", "data", "sources", "0", "name", "extends", "x", ""])
ODD = ["[]", "{}", "null", "1e999", "!x y", "&a [*a]", "- 1", ".nan", "!!float x", "2026-13-45"]
VALUES = st.one_of(st.text(max_size=20), st.sampled_from(ODD))


@settings(deadline=None)
@given(st.lists(KEYS, min_size=1, max_size=4), VALUES)
def test_no_setting_is_anything_but_taken_or_refused(keys, value):
    with contextlib.suppress(InputError):
        catalog.load_recipe("quickstart", [f"{'.'.join(keys)}={value}"])


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(max_size=60), VALUES.map("extends: quickstart\nname: {}".format)))
def test_no_file_is_anything_but_taken_or_refused(text):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        with contextlib.suppress(InputError):
            catalog.load_recipe(file.name)


def test_what_differs_on_a_cluster_is_laid_over_the_rest_and_settings_over_both(write):
    path = write(
        "extends: quickstart\nresources: {nodes: 3}\nclusters:\n"
        "  leonardo: {resources: {nodes: 8}, data: {sequence_length: 128}}\n"
    )
    assert catalog.load_recipe(path).resources.nodes == 3
    big = catalog.load_recipe(path, clusters=["leonardo"])
    assert (big.resources.nodes, big.data.sequence_length) == (8, 128)
    assert big.resources.walltime == catalog.load_recipe("quickstart").resources.walltime
    assert catalog.load_recipe(path, ["resources.nodes=2"], clusters=["leonardo"]).resources.nodes == 2
    assert catalog.load_recipe(path, clusters=["jupiter"]).resources.nodes == 3
    broken = write("extends: quickstart\nclusters:\n  jupiter: {resources: {nodse: 1}}\n")
    for clusters in ([], ["jupiter"], ["leonardo"]):
        with pytest.raises(InputError, match=r"mine\.yaml:3: unknown key 'nodse' in resources"):
            catalog.load_recipe(broken, clusters=clusters)


def test_what_a_file_says_wins_over_the_clusters_of_the_file_that_it_extends(write):
    shipped = catalog.load_recipe("llama-8b", clusters=["leonardo"])
    path = write("extends: llama-8b\nname: mine\nresources: {nodes: 16}\n")
    mine = catalog.load_recipe(path, clusters=["leonardo"])
    assert shipped.resources.nodes != 16
    assert (mine.resources.nodes, mine.resources.walltime) == (16, shipped.resources.walltime)


@pytest.mark.parametrize("text", ["clusters: [a]", "clusters: {a: 3}"])
def test_sections_of_clusters_are_mappings(write, text):
    with pytest.raises(InputError, match="one section of keys by name of a profile"):
        catalog.load_recipe(write(f"extends: quickstart\n{text}\n"))


@pytest.mark.parametrize("cluster", sorted(set(catalog.names("cluster_profiles"))))
@pytest.mark.parametrize("recipe", sorted(set(catalog.names("recipes"))))
def test_every_shipped_recipe_loads_for_every_cluster(recipe, cluster):
    assert catalog.load_recipe(recipe, clusters=[cluster]).name == recipe


def test_the_home_of_nobody_is_refused() -> None:
    with pytest.raises(InputError, match="home folder of nobody"):
        catalog.load_recipe("~nobody-at-all/recipe.yaml")


def test_what_is_no_file_in_the_users_folder_is_said_and_not_offered(user_configuration):
    folder = user_configuration / "recipes"
    (folder / "dir.yaml").mkdir(parents=True)
    (folder / "lost.yaml").symlink_to("nowhere.yaml")
    assert not {"dir", "lost"} & set(catalog.names("recipes"))
    assert [row[0] for row in catalog.describe("recipes")] == list(catalog.names("recipes"))
    assert f"{folder / 'dir.yaml'} is a folder" in refused(catalog.load_recipe, "dir")[0]
    assert f"{folder / 'lost.yaml'} is a link that leads nowhere" in refused(catalog.load_recipe, "lost")[0]
    (folder / "quickstart.yaml").mkdir()
    assert catalog.load_recipe("quickstart").name == "quickstart", "the shipped one is there all the same"


def test_a_misspelt_extends_has_its_place(write):
    path = write("name: x\nextends: quikstart\n")
    message, hint = refused(catalog.load_recipe, path)
    assert message == f"{path}:2: extends: there is no recipe 'quikstart'"
    assert hint == "did you mean quickstart?"


def test_settings_of_a_profile_are_named_as_they_were_typed():
    assert refused(catalog.load_profile, "sandbox", ["foo=1"])[0].startswith("--set cluster.foo=1: unknown key 'foo'")
    assert refused(catalog.load_profile, "sandbox", ["queues.9=1"])[0].startswith("--set cluster.queues.9=1: ")


@pytest.mark.parametrize("value", ["FOO", "END,FOO", "", "END,"])
def test_a_mail_type_is_one_of_slurms(value):
    message, _ = refused(catalog.load_profile, "sandbox", [f"mail={{type: '{value}'}}"])
    assert message.startswith("--set cluster.mail=")
    if value:
        assert "is no mail type of Slurm (NONE, BEGIN, END" in message
    assert catalog.load_profile("sandbox", ["mail={type: 'end,TIME_LIMIT_90'}"]).mail.type == "end,TIME_LIMIT_90"


def test_both_halves_of_an_escaped_character_are_one_and_half_of_it_is_refused(write) -> None:
    settings = ['description="\\ud83e\\udd99"', 'environment={"A": "\\ud83e\\udd99"}']
    assert catalog.load_recipe("quickstart", settings).description == "\N{LLAMA}"
    with pytest.raises(InputError, match=r"is no valid text"):
        catalog.load_recipe(write('extends: quickstart\nname: "\\ud83e"\n'))
