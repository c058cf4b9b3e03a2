"""Before the first step: mismatched options and instances are named, defaults resolved."""

import json
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from clozeworks.model.checkpoint import Checkpoint
from clozeworks.model.config import PretrainConfig
from clozeworks.model.pretraining.data import open_instances, read_split
from clozeworks.model.pretraining.plan import instance_defaults, make_plan, model_defaults
from clozeworks.model.pretraining.setup import set_up
from clozeworks.model.training.device import find_device
from clozeworks.model.training.ranks import Ranks
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.vocabulary.files import read_files

from tests.fixtures.checkpoint_fixture import make_checkpoint
from tests.fixtures.instances_fixture import write_instances
from tests.fixtures.manifest_fixture import editable


def make_setup(instances: str, num_phases: int = 1, **changes: Any):
    config = PretrainConfig(**{"batch_size": 10, "device": "cpu"} | changes)
    return set_up(make_plan(config, [instances] * num_phases), Ranks(0, 1, find_device("cpu")))


@pytest.mark.parametrize(
    ("options", "rate"),
    [
        ({"model": "tiny"}, 2e-3),
        ({"model": "mini", "architecture": "modernbert"}, 1e-3),
        ({"model": "ettin-17m", "architecture": "modernbert"}, 1e-3),
        ({"model": "tiny", "hidden_size": 512, "num_heads": 8}, 5e-4),
        ({"model": "tiny", "hidden_size": 32}, 2e-3),
        ({"model": "base"}, 1e-4),
        ({"model": "tiny", "learning_rate": 1e-4}, 1e-4),
    ],
)
def test_the_default_rate_goes_by_the_width_of_a_new_encoder(options, rate):
    defaults = model_defaults(PretrainConfig(**options), None)
    assert defaults["learning_rate"] == pytest.approx(rate)


def test_a_bert_has_no_size_of_ettin():
    with pytest.raises(UserError, match="`model` is ettin-17m, but that is a size of a ModernBERT"):
        model_defaults(PretrainConfig(model="ettin-17m"), None)


def test_a_model_that_is_trained_on_has_the_papers_rate(tmp_path):
    checkpoint = Checkpoint.open(make_checkpoint(tmp_path / "model"))
    config = PretrainConfig(checkpoint=checkpoint.name)
    assert model_defaults(config, checkpoint)["learning_rate"] == 1e-4
    assert model_defaults(config, checkpoint)["objective"] == "mlm+nsp"


def test_a_left_to_right_model_stays_one(tmp_path):
    folder = make_checkpoint(tmp_path / "model")
    shape = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(shape | {"is_decoder": True}))
    checkpoint = Checkpoint.open(folder)
    config = PretrainConfig(checkpoint=checkpoint.name)
    assert model_defaults(config, checkpoint)["objective"] == "ltr"
    with pytest.raises(UserError, match=r"`mask_rate` .* `objective` ltr uses no masks"):
        model_defaults(replace(config, mask_rate=(0.3,)), checkpoint)


def test_by_default_documents_are_read_40_times_as_in_the_paper(instances, tmp_path):
    # 82 rows hold each document twice.
    assert make_setup(instances).plan.schedule.num_steps == 40 * 41 / 10
    assert make_setup(instances, 2).plan.schedule.num_steps == round(40 * 41 / 9)
    assert make_setup(instances, steps=7).plan.schedule.num_steps == 7
    assert make_setup(instances, hours=1.0).plan.schedule.num_steps is None
    many = replace(open_instances(instances), row_groups=open_instances(instances).row_groups * 700)
    defaults = instance_defaults(PretrainConfig(batch_size=1), "mlm", [many])
    assert defaults["steps"] == 1_000_000


@pytest.mark.parametrize(
    ("duplicates", "options", "expected"),
    [
        (1, {}, "token"),
        (1, {"dynamic_masking": "none"}, "none"),
        (1, {"objective": "ltr"}, "none"),
        (2, {}, "none"),
        (2, {"mask_rate": (0.3,)}, "token"),
        (2, {"dynamic_masking": "whole-word"}, "whole-word"),
    ],
)
def test_masks_are_drawn_where_the_same_would_come_again(tmp_path, duplicates, options, expected):
    instances = write_instances(tmp_path, duplicates=duplicates)
    made = make_setup(str(instances), steps=1, **options).plan
    assert made.config.dynamic_masking == expected
    assert (made.phases[0].masks is None) == (expected == "none")


def test_the_mean_length_is_read_from_the_footers(instances):
    directory = open_instances(instances)
    assert directory.mean_length == read_split(directory).lengths.mean()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"steps": 0}, "`steps` is 0: expected int >= 1"),
        ({"hours": -1.0}, "`hours` is -1"),
        ({"hours": float("inf")}, "`hours` is inf"),
        ({"steps": 5, "hours": 1.0}, "`steps` and `hours` are both given"),
        ({"tokens": 5, "hours": 1.0}, "`tokens` and `hours` are both given"),
        ({"hours": 1.0, "warmup_steps": 9}, "with `hours` the warm-up is a tenth of the time"),
        ({"dynamic_masking": "token", "objective": "ltr"}, "`objective` ltr uses no masks"),
        ({"mask_rate": (0.3,), "objective": "ltr"}, "`mask_rate` is .* `objective` ltr uses no"),
        ({"mask_split": (100, 0, 0), "dynamic_masking": "none"}, "it has no effect with"),
        ({"dynamic_masking": "token", "mask_split": (80, 10, 11)}, "three percentages that sum to"),
    ],
)
def test_options_that_do_not_go_together_are_named(options, reason):
    with pytest.raises(UserError, match=reason):
        PretrainConfig(**options)


def test_budgets_that_do_not_fit_the_instances_are_named(instances):
    with pytest.raises(UserError, match="`hours` takes one directory"):
        make_plan(PretrainConfig(hours=1.0), [instances, instances])


def test_each_phase_begins_at_its_own_first_row(instances):
    made = make_setup(instances, 2, steps=20).plan
    phases = [
        (made.phases.index(sequence), first) for sequence, first in map(made.first_row, range(20))
    ]
    assert phases == [*((0, 10 * step) for step in range(18)), (1, 0), (1, 10)]


def test_each_phase_has_the_mask_rates_of_its_own_steps(instances):
    changes: dict[str, Any] = {"phase_shares": (0.5, 0.3, 0.2), "batch_size": 10}
    for rates, expected in (
        ((0.2,), [(0.2, 0.2)] * 3),
        ((0.3, 0.1), [(0.3, 0.2), (0.2, 0.14), (0.14, 0.1)]),
        (((0.3,), (0.2, 0.1), (0.05,)), [(0.3, 0.3), (0.2, 0.1), (0.05, 0.05)]),
    ):
        made = make_setup(instances, 3, steps=20, mask_rate=rates, **changes).plan
        for phase, num_steps, ends in zip(made.phases, (10, 6, 4), expected, strict=True):
            assert phase.masks is not None
            found = phase.masks.rates_at(np.array([0, 10 * num_steps]))
            assert found == pytest.approx(ends)
    with pytest.raises(UserError, match="rates for 2 phases, but there are 3 directories"):
        make_setup(instances, 3, steps=20, mask_rate=((0.3,), (0.2,)), **changes)


def test_next_sentences_need_pairs(tmp_path):
    path = write_instances(tmp_path)
    manifest = editable(path / "manifest.json")
    manifest["config"]["pairing"] = "none"
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="none: it has no next sentences; use `objective` mlm"):
        make_plan(PretrainConfig(), [str(path)])
    assert not make_plan(PretrainConfig(objective="mlm"), [str(path)]).directories[0].has_pairs


def test_the_ranks_share_the_rows_of_an_evaluation(instances):
    for rows, sizes in ((10_000, [6, 5, 5]), (7, [3, 2, 2]), (2, [1, 1, 0])):
        config = PretrainConfig(steps=1, objective="mlm", device="cpu")
        made = make_plan(config, [instances])
        ranks = [Ranks(rank, 3, find_device("cpu")) for rank in range(3)]
        setups = [set_up(made, each, rows) for each in ranks]
        assert [
            sum(len(batch.input_ids) for batch in setup.held_out_batches(0)) for setup in setups
        ] == sizes


def test_each_phase_has_micro_batches_of_as_many_tokens(instances, tmp_path):
    longer = str(write_instances(tmp_path, max_length=96))
    for asked, sizes in ((None, [4096 // 24, 4096 // 96]), (7, [7, 7])):
        config = PretrainConfig(micro_batch_size=asked, device="cpu")
        made = make_plan(config, [instances, longer])
        setup = set_up(made, Ranks(0, 1, find_device("cpu")))
        assert setup.tokens_at_once == 4096
        assert [setup.rows_at_once(sequence) for sequence in made.phases] == sizes


def test_the_tokenizer_limits_rows_to_the_trained_positions(instances, tmp_path):
    longer = str(write_instances(tmp_path / "longer", max_length=96))
    published = make_checkpoint(tmp_path / "published", max_position_embeddings=512)
    short = make_checkpoint(tmp_path / "short", max_position_embeddings=512)
    (short / "tokenizer_config.json").write_text('{"model_max_length": 40}')
    for phases, checkpoint, expected in (
        ([instances], None, 24),
        ([instances, longer], None, 96),
        ([instances], short, 40),
        ([longer], short, 96),
        ([instances], published, 512),
    ):
        options = PretrainConfig(device="cpu")
        if checkpoint:  # of another vocabulary
            start = {"checkpoint": str(checkpoint), "vocabulary_from": "instances"}
            options = replace(options, **start)
        files = make_plan(options, phases).tokenizer_files()
        stored = read_files(phases[0])
        config = json.loads(stored.pop("tokenizer_config.json"))
        expected_config = {**config, "model_max_length": expected}
        assert json.loads(files.pop("tokenizer_config.json")) == expected_config
        assert files == stored


def test_the_tokenizer_is_that_of_the_instances(instances, tmp_path):
    directory = shutil.copytree(instances, tmp_path / "instances")
    made = make_plan(PretrainConfig(device="cpu"), [str(directory)])
    config = directory / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "own": "kept"}))
    assert json.loads(made.tokenizer_files()["tokenizer_config.json"])["own"] == "kept"
    config.unlink()
    with pytest.raises(UserError, match=r"tokenizer_config\.json .* Rebuild the instances"):
        made.tokenizer_files()


def test_a_batch_larger_than_an_epoch_is_refused_but_not_the_default(instances):
    (directory,) = make_plan(PretrainConfig(), [instances]).directories
    assert directory.num_rows < PretrainConfig.batch_size
    with pytest.raises(UserError, match=r"^`batch_size` is 257, but .* has 82 rows; lower it.$"):
        make_plan(PretrainConfig(batch_size=257), [instances])
