"""The virtual token counter: its fairness bound, and that nobody waits while a slot is free."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.access.fair_queue import FairQueue

LARGEST = 100


@given(
    costs=st.lists(st.lists(st.integers(1, LARGEST), min_size=1, max_size=20), min_size=2, max_size=5),
    weights=st.lists(st.sampled_from([0.5, 1.0, 2.0, 3.0]), min_size=5, max_size=5),
    slots=st.integers(1, 6),
    rounds=st.integers(1, 400),
)  # fmt: skip
def test_clients_that_always_wait_are_served_by_their_weights(
    costs: list[list[int]], weights: list[float], slots: int, rounds: int
) -> None:
    """Theorem 4.4 of the paper: what two backlogged clients are served differs by at most twice the largest service (here,
    of the smallest weight), whatever they send."""
    queue: FairQueue[tuple[int, int]] = FairQueue()
    clients = [queue.client(f"c{n}", 0, weights[n]) for n in range(len(costs))]
    served = [0.0] * len(clients)
    sent = [0] * len(clients)

    def send(n: int) -> None:
        queue.request_arrived(clients[n])
        queue.push(clients[n], (n, sent[n]), costs[n][sent[n] % len(costs[n])])
        sent[n] += 1

    for n in range(len(clients)):
        for _ in range(slots + 1):
            send(n)
    for _ in range(rounds):
        _, (n, number) = queue.pop()
        served[n] += costs[n][number % len(costs[n])] / clients[n].weight
        send(n)
        assert max(served) - min(served) <= 2 * LARGEST / min(c.weight for c in clients)


@given(st.data())
def test_what_was_expected_and_what_was_used_lead_to_the_same_shares(data: st.DataObject) -> None:
    """Costs are corrected when services end, in any order, and up to `running` services later."""
    queue: FairQueue[tuple[int, int]] = FairQueue()
    clients = [queue.client(f"c{n}") for n in range(3)]
    served = [0.0] * 3
    running: list[tuple[int, int]] = []
    number = 0
    for n in range(3):
        for _ in range(200):
            number += 1
            queue.request_arrived(clients[n])
            queue.push(clients[n], (n, number), 10)
    for _ in range(data.draw(st.integers(1, 120))):
        if len(running) == 4 or (running and data.draw(st.booleans())):
            n, _ = running.pop(data.draw(st.integers(0, len(running) - 1)))
            used = data.draw(st.integers(1, LARGEST))
            queue.charge(clients[n], used - 10)
            served[n] += used
        else:
            _, entry = queue.pop()
            running.append(entry)
        # Besides the largest service, what runs is not yet known: at most four services.
        assert max(served) - min(served) <= 2 * LARGEST + 4 * LARGEST


@given(
    st.lists(
        st.tuples(st.sampled_from(["push", "pop", "discard"]), st.integers(0, 4), st.integers(0, 2)),
        max_size=300,
    )
)  # fmt: skip
def test_it_has_what_was_pushed_in_order_of_priority_and_of_arrival(
    steps: list[tuple[str, int, int]],
) -> None:
    queue: FairQueue[int] = FairQueue()
    waiting: dict[int, tuple[int, int]] = {}
    for number, (step, name, priority) in enumerate(steps):
        client = queue.client(str(name), priority)
        if step == "push":
            queue.request_arrived(client)
            queue.push(client, number, 1 + number % 7)
            waiting[number] = (priority, name)
        elif step == "discard" and waiting:
            each = sorted(waiting)[number % len(waiting)]
            owner = queue.client(str(waiting[each][1]), waiting[each][0])
            assert queue.discard(owner, each)
            assert not queue.discard(owner, each)
            del waiting[each]
        elif waiting:
            served, entry = queue.pop()
            priority, name = waiting.pop(entry)
            assert (served.priority, served.name) == (priority, str(name))
            assert all(other >= priority for other, _ in waiting.values())
            same = [each for each, owner in waiting.items() if owner == (priority, name)]
            assert all(each > entry for each in same)
        assert len(queue) == len(waiting)


def test_nobody_saves_up_for_later() -> None:
    """A client that comes late is served as much as the others from then on, and not first what it has not asked for."""
    queue: FairQueue[int] = FairQueue()
    early, late = queue.client("early"), queue.client("late")
    for number in range(1000):
        queue.request_arrived(early)
        queue.push(early, number, 10)
    for _ in range(500):
        queue.pop()
    for number in range(1000, 1100):
        queue.request_arrived(late)
        queue.push(late, number, 10)
    order = [queue.pop()[0].name for _ in range(100)]
    assert 49 <= order.count("late") <= 51


def test_one_that_was_served_while_nobody_waited_owes_nothing() -> None:
    queue: FairQueue[int] = FairQueue()
    busy, new = queue.client("busy"), queue.client("new")
    for _ in range(1000):
        queue.request_arrived(busy)
        queue.serve(busy, 50)
    for number in range(100):
        for client in (busy, new):
            queue.request_arrived(client)
            queue.push(client, number, 10)
    order = [queue.pop()[0].name for _ in range(100)]
    assert 49 <= order.count("new") <= 51


def test_idle_clients_are_forgotten() -> None:
    queue: FairQueue[int] = FairQueue()
    for number in range(10_000):
        client = queue.client(f"name {number}", number % 50)
        queue.request_arrived(client)
        queue.push(client, 1, 5)
        assert queue.pop()[0] is client
    assert len(queue._clients) < 5000
