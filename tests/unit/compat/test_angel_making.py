"""Model files of `flambeau angel make`."""

import itertools
from inspect import signature

import numpy as np
import pytest
import torch
from torch import Tensor

import flambeau as fb
from flambeau.compat.angel import load, saved, torchscript
from flambeau.compat.angel.making import ALGORITHMS, make
from flambeau.data.batch import Batch
from flambeau.data.jagged import Jagged
from flambeau.embeddings import train_in_process
from flambeau.errors import ConfigError, ModelError

FIELDS, IDS = 3, 4
SIZES = ["--input_dim", str(FIELDS * IDS), "--n_fields", str(FIELDS), "--embedding_dim", "4"]
DEEP = [*SIZES, "--fc_dims", "6", "1"]
WORDS = {
    "lr": SIZES[:2],
    "fm": SIZES,
    "deepfm": DEEP,
    "deepandwide": DEEP,
    "dcn": [*DEEP, "--cross_depth", "2"],
    "pnn": DEEP,
    "xdeepfm": [*DEEP, "--cin_dims", "3", "2"],
    "attention_fm": [*SIZES, "--attention_dim", "3"],
    "attention_net": [*DEEP, "--heads", "2", "--attention_dim", "3"],
}


def batch(rows: int = 48) -> Batch:
    chosen = torch.Generator().manual_seed(0)
    ids = torch.randint(0, IDS, (rows, FIELDS), generator=chosen) + torch.arange(FIELDS) * IDS
    values = 0.5 + torch.rand(rows * FIELDS, generator=chosen)
    label = (ids[:, 0] % 2 == 0) | (ids[:, 1] > 6)
    bags = Jagged(ids.view(-1), torch.arange(rows + 1) * FIELDS, values)
    return Batch({"features": bags, "label": label.float()}, rows)


class InMemory:
    """Rows as a saved table gives them."""

    def __init__(self, table) -> None:
        self.table, self.spec = table, table.spec

    def pull(self, ids: np.ndarray) -> np.ndarray:
        return self.table.pull(ids, training=False)


def test_every_algorithm_is_tested():
    assert WORDS.keys() == ALGORITHMS.keys()


@pytest.mark.parametrize("name", WORDS)
def test_a_made_model_learns_and_is_the_same_in_plain_torch(name, tmp_path):
    path = make([name, *WORDS[name], "-o", str(tmp_path / "model.pt")])
    model, data = load(path), batch()
    tables = train_in_process(model, fb.optim("adam", lr=0.05))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(12):
        loss = model.loss(model(data["features"]), data)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tables.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    rows = {key: InMemory(table) for key, table in tables.tables.tables.items()}
    saved.write_torch(model.dense(), rows, path, tmp_path / "trained.pt")
    plain, bags = torchscript.read(tmp_path / "trained.pt"), data["features"]
    with torch.no_grad():
        expected = model.eval()(bags)
        found = plain(len(bags), bags.rows, bags.ids, bags.values)
    assert found.shape == expected.shape
    assert torch.allclose(found, expected, atol=1e-6)
    assert plain.get_name() == name
    assert load(tmp_path / "trained.pt").begins_trained


MULTIHOT = [name for name in WORDS if "encode" in signature(ALGORITHMS[name]).parameters]


def test_the_models_that_angel_encodes_can_be_multihot():
    assert MULTIHOT == ["deepfm", "deepandwide", "dcn", "xdeepfm"]


@pytest.mark.parametrize("name", MULTIHOT)
def test_multihot_rows_add_the_vectors_of_a_field(name, tmp_path):
    """Rows with one id for each field are the same however they are encoded."""
    models = {}
    for encode in ("onehot", "multihot"):
        words = [name, *WORDS[name], "--encode", encode, "-o", str(tmp_path / f"{encode}.pt")]
        models[encode] = torchscript.read(make(words))
        seeded = torch.Generator().manual_seed(3)
        rows = torch.randn(FIELDS * IDS, 4, generator=seeded)
        models[encode].embedding = torch.nn.Parameter(rows)
        models[encode].weights = torch.nn.Parameter(torch.zeros(FIELDS * IDS, 1))
    assert load(tmp_path / "multihot.pt").contract.takes_fields
    index, feats = torch.tensor([0, 0, 0]), torch.tensor([1, 4, 8])
    one = models["onehot"](1, index, feats, torch.ones(3))
    fields = torch.tensor([2, 0, 1])
    several = models["multihot"](1, index, feats[fields], torch.ones(3), fields)
    assert torch.allclose(one, several)
    # The second field has no id, and the third has two, in the second of two rows.
    index, feats, fields = torch.tensor([0, 1, 1]), torch.tensor([1, 8, 9]), torch.tensor([0, 2, 2])
    flat = models["multihot"].by_field(2, index, fields, models["multihot"].embedding[feats])
    rows = models["multihot"].embedding
    expected = torch.zeros(2, FIELDS, 4)
    expected[0, 0], expected[1, 2] = rows[1], rows[8] + rows[9]
    assert torch.allclose(flat, expected)


def test_a_field_that_the_model_does_not_have_is_an_error(tmp_path):
    path = make(["deepfm", *DEEP, "--encode", "multihot", "-o", str(tmp_path / "m.pt")])
    bags = Jagged(torch.tensor([0, 4]), torch.tensor([0, 2]), torch.ones(2), torch.tensor([1, 3]))
    model = load(path)
    train_in_process(model, fb.optim("adam", lr=0.05))
    with pytest.raises(ModelError, match=r"fields 1 to 3, but .*--n_fields 3, so .* 0 to 2"):
        model(bags)


def probability(name: str, tmp_path, mats: list[Tensor], words: list[str]) -> float:
    """What a model with two fields and embeddings (1, 2) and (3, 4) gives; weights are 0."""
    sizes = ["--input_dim", "2", "--n_fields", "2", "--embedding_dim", "2"]
    plain = torchscript.read(make([name, *sizes, *words, "-o", str(tmp_path / "m.pt")]))
    plain.weights = torch.nn.Parameter(torch.zeros(2, 1))
    plain.embedding = torch.nn.Parameter(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    if mats:
        assert [mat.shape for mat in plain.mats] == [mat.shape for mat in mats]
        plain.mats = mats
    index = torch.zeros(2, dtype=torch.int64)
    return plain(1, index, torch.arange(2), torch.ones(2)).item()


def logit(value: float) -> float:
    return torch.sigmoid(torch.tensor(value)).item()


def test_fm_adds_the_products_of_pairs(tmp_path):
    assert probability("fm", tmp_path, [], []) == pytest.approx(logit(1 * 3 + 2 * 4))


def test_pnn_reads_vectors_and_products(tmp_path):
    mats = [torch.tensor([[0.1], [0.2], [0.3], [0.4], [-0.5]]), torch.tensor([[1.0]])]
    expected = 0.1 + 0.4 + 0.9 + 1.6 - 0.5 * 11 + 1.0
    found = probability("pnn", tmp_path, mats, ["--fc_dims", "1"])
    assert found == pytest.approx(logit(expected), rel=1e-5)


def test_dcn_crosses_with_its_first_input(tmp_path):
    flat = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    weight, shift = torch.full((4, 1), 0.1), torch.full((1, 4), -0.5)
    last, dense = torch.full((4, 1), 0.05), [torch.zeros(4, 1), torch.zeros(1, 1)]
    crossed = flat * (flat @ weight) + shift + flat
    found = probability(
        "dcn", tmp_path, [weight, shift, last, *dense], ["--fc_dims", "1", "--cross_depth", "1"]
    )
    assert found == pytest.approx(logit((crossed @ last).item()), rel=1e-5)


def test_xdeepfm_weighs_the_products_of_all_fields(tmp_path):
    filters = torch.tensor([[0.1], [0.2], [0.3], [0.4]])
    vectors = [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])]
    products = [one * other for one, other in itertools.product(vectors, vectors)]
    expected = sum(
        weight * product.sum() for weight, product in zip(filters, products, strict=True)
    )
    mats = [filters, torch.tensor([[0.1]]), torch.zeros(4, 1), torch.zeros(1, 1)]
    found = probability("xdeepfm", tmp_path, mats, ["--fc_dims", "1", "--cin_dims", "1"])
    assert found == pytest.approx(logit(0.1 * expected.item()), rel=1e-5)


def test_attention_over_one_pair_is_its_product(tmp_path):
    mats = [torch.ones(2, 1), torch.zeros(1, 1), torch.ones(1, 1), torch.tensor([[0.1], [0.2]])]
    found = probability("attention_fm", tmp_path, mats, ["--attention_dim", "1"])
    assert found == pytest.approx(logit(0.1 * 3 + 0.2 * 8), rel=1e-5)


def test_attention_net_mixes_fields_by_their_likeness(tmp_path):
    vectors = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    query, key, value = (torch.tensor([[a], [0.1]]) for a in (0.1, 0.2, 0.3))
    rest, dense = torch.zeros(2, 1), [torch.full((2, 1), 0.5), torch.zeros(1, 1)]
    shares = torch.softmax((vectors @ query) @ (vectors @ key).T, 1)
    expected = 0.5 * torch.relu(shares @ (vectors @ value)).sum()
    mats = [query, key, value, rest, *dense]
    found = probability("attention_net", tmp_path, mats, ["--fc_dims", "1", "--attention_dim", "1"])
    assert found == pytest.approx(logit(expected.item()), rel=1e-5)


def test_one_seed_makes_one_model(tmp_path):
    files = [make(["deepfm", *DEEP, "-o", str(tmp_path / f"{n}.pt")]) for n in range(2)]
    first, second = (torchscript.read(file).mats for file in files)
    assert all(map(torch.equal, first, second))
    other = make(["deepfm", *DEEP, "--seed", "1", "-o", str(tmp_path / "other.pt")])
    assert not torch.equal(torchscript.read(other).mats[0], first[0])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "unknown algorithm ''; known: attention_fm"),
        (["deepfn"], "did you mean 'deepfm'"),
        (["lr"], "make lr: the following arguments are required: --input_dim"),
        (["lr", "--input_dim", "0"], "'0' is not a whole number of 1 or more"),
        (["lr", "--input_dim", "many"], "'many' is not a whole number"),
        (["lr", "--input_dims", "3"], "required: --input_dim"),
        (["lr", "--input_dim", "3", "--fc_dim", "2"], "make lr: unknown argument --fc_dim"),
        (["deepfm", *SIZES, "--fc_dims", "6", "2"], "the last must be 1"),
        (["deepfm", *DEEP, "--encode", "twohot"], "argument --encode: invalid choice: 'twohot'"),
        (["pnn", *DEEP, "--encode", "onehot"], "make pnn: unknown argument --encode"),
        (["mmoe"], "make mmoe: .*own models 'mmoe' and 'esmm' replace them"),
        (["deepfm", *DEEP, "--embeding_dim", "6"], "did you mean '--embedding_dim'"),
    ],
)
def test_wrong_words_are_explained(words, message):
    with pytest.raises(ConfigError, match=message):
        make(words)
