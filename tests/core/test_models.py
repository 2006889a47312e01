"""Models answer for their own client, in whichever form and order they are kept."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skfedhip.core import (
    DenseModels,
    FactoredModels,
    PersonalModels,
    _blocks,
    affine,
    factors_are_smaller,
    map_client_rows,
    shift_origin,
)

from .clients import offsets_of, random_design, runs

COUNTS = [2, 1, 4, 3, 9, 5]


@pytest.fixture
def base():
    return np.random.default_rng(8).normal(size=(3, 6))


@pytest.fixture(params=[0, 1], ids=["origin", "intercept"])
def lead(request):
    return request.param


def factored(base, counts, seed=0):
    rng = np.random.default_rng(seed)
    n = sum(counts)
    rows, weights = rng.normal(size=(n, base.shape[1])), rng.normal(size=(n, len(base)))
    return FactoredModels(base, rows, weights, offsets_of(counts))


def test_factors_are_corrections_of_the_shared_model(base, lead):
    part = factored(base, [2, 0, 5])
    rows = np.random.default_rng(1).normal(size=(7, 6 - lead))
    assert len(part) == 3
    for slot, own in enumerate(runs(part.offsets)):
        coef = base + np.einsum("nd,np->dp", part.weights[own], part.rows[own])
        assert_allclose(part.coef(slot), coef, rtol=0, atol=1e-13)
        assert_allclose(part.scores(slot, rows, lead), affine(rows, coef, lead), atol=1e-12)
    assert_array_equal(part.coef(1), base)


def test_dense_models_are_their_coefficients(base, lead):
    coefs = np.random.default_rng(0).normal(size=(4, 3, 6))
    part, rows = DenseModels(coefs), np.random.default_rng(1).normal(size=(7, 6 - lead))
    assert len(part) == 4
    assert_array_equal(part.coef(2), coefs[2])
    assert_array_equal(part.scores(2, rows, lead), affine(rows, coefs[2], lead))


def test_affine_takes_the_first_column_as_intercept(base):
    rows = np.random.default_rng(1).normal(size=(7, 5))
    assert_allclose(affine(rows, base, 1), rows @ base[:, 1:].T + base[:, 0], rtol=1e-14)
    assert_allclose(affine(rows, base[:, 1:], 0), rows @ base[:, 1:].T, rtol=1e-14)


def test_a_shifted_model_scores_rows_as_before(base):
    mean = np.arange(1.0, 6.0)
    rows = np.random.default_rng(1).normal(size=(7, 5))
    about_mean = affine(rows - mean, base, 1)
    stacked = shift_origin(np.stack([base, 2 * base]), mean)
    assert_allclose(affine(rows, stacked[0], 1), about_mean, rtol=0, atol=1e-13)
    assert_allclose(affine(rows, stacked[1], 1), 2 * about_mean, rtol=0, atol=1e-13)
    assert shift_origin(base, None) is base


@pytest.mark.parametrize(("n_classes", "width"), [(2, 3), (6, 30), (100, 768)])
def test_factors_are_smaller_where_they_are_fewer_numbers(n_classes, width):
    counts = np.arange(1, 3 * width)
    numbers = np.array([np.empty((n, width)).size + np.empty((n, n_classes)).size for n in counts])
    expected = numbers < np.empty((n_classes, width)).size
    assert_array_equal(factors_are_smaller(counts, n_classes, width), expected)
    assert expected[0] == (n_classes + width < n_classes * width)


def models_by_form(base, design, masks):
    """Models and losses, form by form: client k's model is base + 10 · its id + 100 + its form's
    number, and its loss is its id.
    """

    def solve(form):
        def own(part):
            coefs = [base + 10 * client + 100 + form for client in part.client_ids]
            if form:
                models = DenseModels(np.array(coefs))
                return PersonalModels.from_part(base, part, models), part.client_ids.sum()
            weights = np.concatenate([(c - base)[:, :1] for c in coefs], axis=1).T
            rows = np.ones((len(part.client_ids), base.shape[1]))
            offsets = np.arange(len(coefs) + 1)
            models = FactoredModels(base, rows, weights, offsets)
            return PersonalModels.from_part(base, part, models), part.client_ids.sum()

        return own

    return PersonalModels.by_form(design, [(mask, solve(i)) for i, mask in enumerate(masks)])


@pytest.mark.parametrize("forms", [[0, 1, 2, 0, 1, 2], [2, 2, 1, 1, 0, 0], [1] * 6, [0] * 6])
def test_models_of_several_forms_come_in_the_order_of_the_clients(base, forms):
    design = random_design(COUNTS, 6)
    masks = [np.array(forms) == form for form in range(3)]
    models, losses = models_by_form(base, design, masks)
    assert losses == design.client_ids.sum()
    assert_array_equal(models.client_ids, design.client_ids)
    assert_array_equal(models.seen, design.class_weights > 0)
    expected = [base + 100 * (k + 1) + form for k, form in enumerate(forms)]
    for k, coef in enumerate(expected):
        assert_allclose(models.coef(k), coef, rtol=1e-14)
    assert_allclose(models.coefs(), expected, rtol=1e-14)
    assert len(models.parts) == len(set(forms))


def test_merged_and_taken_models_keep_their_clients(base):
    designs = [random_design([3, 2], 6, seed=1), random_design([1, 4, 2], 6, seed=2)]
    first, second = (
        PersonalModels.from_part(base, design, factored(base, design.counts.tolist(), seed))
        for seed, design in enumerate(designs)
    )
    merged = PersonalModels.merge(iter([first, second]))
    order = [4, 0, 2, 3, 1, 0]
    taken = merged.take(np.array(order))
    both = [*first.coefs(), *second.coefs()]
    ids, seen = ([*getattr(first, a), *getattr(second, a)] for a in ("client_ids", "seen"))
    assert len(taken) == 6
    for k, i in enumerate(order):
        assert_array_equal(taken.coef(k), both[i])
        assert taken.client_ids[k] == ids[i]
        assert_array_equal(taken.seen[k], seen[i])


def test_shared_models_are_the_shared_one_for_everybody(base):
    models = PersonalModels.shared(base, random_design(COUNTS, 6))
    assert_array_equal(models.coefs(), np.broadcast_to(base, (6, 3, 6)))


@pytest.mark.parametrize("order", ["sorted", "shuffled"])
@pytest.mark.parametrize("block_bytes", [None, 1, 3 * 8 * 6])
def test_scores_are_each_rows_by_its_clients_model(base, lead, order, block_bytes, monkeypatch):
    if block_bytes:
        monkeypatch.setattr(_blocks, "BLOCK_BYTES", block_bytes)
    design = random_design(COUNTS, 6)
    models = PersonalModels.from_part(base, design, factored(base, COUNTS))
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(50, 6 - lead)), rng.integers(-1, 6, 50)
    if order == "sorted":
        codes.sort()
    scores = models.scores(X, codes, fit_intercept=bool(lead))
    for x, code, row in zip(X, codes, scores, strict=True):
        coef = base if code < 0 else models.coef(code)
        assert_allclose(row, affine(x[None], coef, lead)[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("max_rows", [1, 3, 1000])
def test_mapped_rows_come_back_in_their_place_as_float64(max_rows, monkeypatch):
    monkeypatch.setattr(_blocks, "BLOCK_BYTES", max_rows * 8 * 2)
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(40, 2)).astype(np.float32), rng.choice([-1, 0, 3, 90], 40)
    calls = []

    def score(client, rows):
        assert rows.dtype == np.float64
        calls.append((client, len(rows)))
        return np.column_stack([np.full(len(rows), client), rows])

    out = map_client_rows(score, X, codes, 3)
    assert_array_equal(out, np.column_stack([codes, X.astype(float)]))
    assert max(n for _, n in calls) <= max_rows
    for client in np.unique(codes):
        assert sum(n for each, n in calls if each == client) == (codes == client).sum()
