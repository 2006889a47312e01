"""The loop runs the four verbs in order, keeps what clients keep, and counts what travels."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, dataclass, field

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skfedhip.core import ClientBlock, Moments
from skfedhip.protocol import Broadcast, ClientUpdate, Empty, Message, Schema, run_federation

SCHEMA = Schema(n_features=2, classes=np.array(["a", "b", "c"]), dtype=np.dtype(np.float64))


@dataclass(frozen=True)
class Total(ClientUpdate):
    """A sum, and padding that makes some clients' updates larger than others'."""

    value: np.ndarray
    padding: np.ndarray | None = None

    def __add__(self, other):
        return Total(self.value + other.value)


@dataclass(frozen=True)
class Level(Broadcast):
    value: np.ndarray


@dataclass
class Toy:
    """Each round a client sends its row sum times the level and what it has kept of it.

    The server adds them up, and keeps every sum it ever made; ``events`` logs all calls.
    """

    n_rounds: int = 3
    heavy: tuple = ()
    events: list = field(default_factory=list)

    def initialize(self, schema):
        self.events.append(("initialize", schema))
        return Level(np.ones(1))

    def client_update(self, block, broadcast, state):
        kept = state or []
        value = broadcast.value * block.features().sum() + len(kept)
        self.events.append(("update", name(block)))
        padding = np.zeros(100) if (name(block), len(kept)) in self.heavy else None
        return Total(value, padding), [*kept, float(value[0])]

    def aggregate(self, updates, broadcast, server_state):
        sums = list(server_state or [])
        total = 0.0
        for update in updates:
            self.events.append(("receive", float(update.value[0])))
            total = total + update.value
        level = total / 10
        # One more number a round, so that rounds differ in size.
        return Level(np.append(level, np.zeros(len(sums) + 1))[: len(sums) + 2]), [*sums, total]

    def personalize(self, block, broadcast, state):
        self.events.append(("personalize", name(block)))
        return name(block), broadcast, state


class Leveled(Toy):
    """The toy with broadcasts of one number."""

    def aggregate(self, updates, broadcast, server_state):
        level, sums = super().aggregate(updates, broadcast, server_state)
        return Level(level.value[:1]), sums


def name(block):
    return block.client_ids.tolist()[0]


def make_blocks(n_clients=4):
    """One client a block, of different sizes."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, n_clients, 30)
    X, y, ids = rng.normal(size=(30, 2)), rng.integers(0, 3, 30), np.arange(n_clients)
    return ClientBlock.from_arrays(X, y, codes, ids, 3).cut(1)


def threads(function, *iterables):
    with ThreadPoolExecutor(4) as pool:
        yield from pool.map(function, *iterables)


def by_hand(blocks, n_rounds):
    """What the toy's clients keep and the last level, with two plain loops."""
    level, kept = 1.0, [[] for _ in blocks]
    for _ in range(n_rounds):
        for block, own in zip(blocks, kept, strict=True):
            own.append(level * block.features().sum() + len(own))
        level = sum(own[-1] for own in kept) / 10
    return kept, level


@pytest.mark.parametrize("map_blocks", [map, threads])
@pytest.mark.parametrize("n_rounds", [1, 2, 5])
def test_states_are_kept_block_by_block_from_round_to_round(map_blocks, n_rounds):
    blocks = make_blocks()
    result = run_federation(Leveled(n_rounds), blocks, SCHEMA, map_blocks=map_blocks)
    kept, level = by_hand(blocks, n_rounds)
    assert len(result.broadcasts) == n_rounds + 1
    last = result.broadcasts[-1]
    np.testing.assert_allclose(last.value, [level], rtol=1e-13)
    assert [client for client, _, _ in result.models] == [name(block) for block in blocks]
    for (_, broadcast, state), own in zip(result.models, kept, strict=True):
        assert broadcast is last
        np.testing.assert_allclose(state, own, rtol=1e-13)


def test_a_parallel_map_repeats_the_serial_one_to_the_bit():
    blocks = make_blocks(12)
    serial, parallel = (
        run_federation(Leveled(4), blocks, SCHEMA, map_blocks=each) for each in (map, threads)
    )
    for one, other in zip(serial.broadcasts, parallel.broadcasts, strict=True):
        assert_array_equal(one.value, other.value)
    for one, other in zip(serial.models, parallel.models, strict=True):
        assert one[0] == other[0]
        assert one[2] == other[2]


def test_no_rounds_leave_the_first_broadcast():
    result = run_federation(Toy(0), make_blocks(), SCHEMA)
    assert [broadcast.value.tolist() for broadcast in result.broadcasts] == [[1.0]]
    assert all(state is None for _, _, state in result.models)
    assert (result.bytes_up.tolist(), result.bytes_down.tolist()) == ([0] * 4, [8] * 4)


def test_the_server_reads_one_update_before_the_next_is_made():
    blocks, toy = make_blocks(), Toy(2)
    run_federation(toy, blocks, SCHEMA)
    first, *rest = toy.events
    assert first == ("initialize", SCHEMA)
    clients = [name(block) for block in blocks]
    one_round = [event for client in clients for event in (("update", client), ("receive",))]
    expected = [*one_round, *one_round, *(("personalize", client) for client in clients)]
    shortened = [event[:1] if event[0] == "receive" else event for event in rest]
    assert shortened == expected


def test_updates_arrive_in_the_order_of_the_blocks_from_a_parallel_map_too():
    blocks, toy = make_blocks(12), Toy(1)
    run_federation(toy, blocks, SCHEMA, map_blocks=threads)
    received = [value for kind, value in toy.events if kind == "receive"]
    assert received == [float(block.features().sum()) for block in blocks]


def test_a_client_that_the_server_never_asks_does_no_work_and_keeps_its_state():
    class Choosy(Leveled):
        def aggregate(self, updates, broadcast, server_state):
            chosen = [update for update, _ in zip(updates, range(2), strict=False)]
            return super().aggregate(chosen, broadcast, server_state)

    blocks = make_blocks(5)
    result = run_federation(Choosy(3), blocks, SCHEMA)
    rounds = [len(state or []) for _, _, state in result.models]
    assert rounds[0] == rounds[1] == 3
    assert rounds[3:] == [0, 0]


def test_bytes_are_those_of_each_clients_updates_and_of_all_broadcasts():
    # A broadcast and so an update has one number more each round; client 2 sends 100 more in the
    # second round, client 0 in the last one.
    result = run_federation(Toy(3, heavy=((2, 1), (0, 2))), make_blocks(), SCHEMA)
    assert (result.bytes_up / 8).tolist() == [106, 6, 106, 6]
    assert (result.bytes_down / 8).tolist() == [1 + 2 + 3 + 4] * 4


class Taking(Leveled):
    """The toy, of whose clients two at a time take part."""

    def cohort(self, client_ids, broadcast):
        at = int(self.events[-1][0] == "initialize")
        return np.arange(len(client_ids)) // 2 == at


def test_only_the_cohort_of_a_round_sends_and_hears():
    result = run_federation(Taking(2), make_blocks(), SCHEMA)
    assert (result.bytes_up / 8).tolist() == [1, 1, 1, 1]
    assert (result.bytes_down / 8).tolist() == [2, 2, 2, 2]  # the round's, and the last
    result = run_federation(Taking(1), make_blocks(), SCHEMA)
    assert (result.bytes_up / 8).tolist() == [0, 0, 1, 1]
    assert (result.bytes_down / 8).tolist() == [1, 1, 2, 2]


def test_a_run_that_goes_on_counts_what_came_before():
    blocks, whole = make_blocks(), run_federation(Toy(3), make_blocks(), SCHEMA)
    toy = Toy(2)
    first = run_federation(toy, blocks, SCHEMA)
    toy.n_rounds = 1
    rest = run_federation(toy, blocks, SCHEMA, start=first.state)
    for name in ("bytes_up", "bytes_down"):
        assert_array_equal(getattr(rest, name), getattr(whole, name))
    known = run_federation(Toy(3), blocks, SCHEMA, known=Level(np.ones(1)))
    assert_array_equal(known.bytes_up, first.bytes_up)
    assert_array_equal(known.bytes_down, first.bytes_down - 8)


# Messages.


@dataclass(frozen=True)
class Nested(Message):
    moments: Moments
    scale: float
    missing: np.ndarray | None
    codes: np.ndarray


def nested():
    moments = Moments(np.asarray(3.0), np.zeros(4), np.ones(4, dtype=np.float32))
    return Nested(moments, 2.5, None, np.arange(5, dtype=np.int16))


def test_arrays_are_named_by_their_fields():
    arrays = nested().arrays()
    assert list(arrays) == ["moments.weight", "moments.mean", "moments.squares", "scale", "codes"]
    assert all(isinstance(array, np.ndarray) for array in arrays.values())
    assert arrays["scale"].shape == ()
    assert float(arrays["scale"]) == 2.5
    assert_array_equal(arrays["codes"], np.arange(5))
    assert Empty().arrays() == {}


def test_nbytes_is_the_size_of_all_arrays():
    assert nested().nbytes == 8 + 4 * 8 + 4 * 4 + 8 + 5 * 2
    assert Empty().nbytes == 0


@pytest.mark.parametrize(
    ("message", "attribute"),
    [(Empty(), "value"), (nested(), "scale"), (SCHEMA, "n_features"), (Total(np.ones(1)), "value")],
)
def test_messages_are_frozen(message, attribute):
    with pytest.raises(FrozenInstanceError):
        setattr(message, attribute, 1.0)


def test_an_update_that_does_not_say_how_it_adds_is_refused():
    class Silent(ClientUpdate):
        pass

    with pytest.raises(NotImplementedError):
        Silent() + Silent()


def test_a_schema_counts_its_classes():
    assert SCHEMA.n_classes == 3
