"""State behind one lock, loaded again after every model call; one worker, newest wins; old sessions go."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from school.coach import routing
from school.coach.findings import Finding
from school.coach.state import Memory, file_name
from school.coach.worker import Worker
from school.contracts import Answer
from school.settings import Settings
from school.system.clock import SystemClock
from tests.coach.coaching import OK, Model, Session, finding
from tests.support import ROOT

ADD = """
import sys
from pathlib import Path
from school.coach.state import Memory
from school.system.clock import SystemClock
memory = Memory(Path(sys.argv[1]), SystemClock())
for _ in range(50):
    with memory.session("shared") as state:
        state.spent.calls += 1
"""

LEAVE = """
import sys
from pathlib import Path
from school.system import files
left = files.temporary_name(Path(sys.argv[1]))
Path(left).write_text("{")
print(left)
"""


def test_two_processes_and_threads_lose_no_update(tmp_path: Path) -> None:
    memory = Memory(tmp_path, SystemClock())

    def add() -> None:
        for _ in range(50):
            with memory.session("shared") as state:
                state.spent.calls += 1

    with contextlib.ExitStack() as stack:  # whatever goes wrong, nobody is left running
        argv = [sys.executable, "-c", ADD, str(tmp_path)]
        processes = [stack.enter_context(subprocess.Popen(argv, cwd=ROOT)) for _ in range(2)]
        threads = [threading.Thread(target=add) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert [process.wait(60) for process in processes] == [0, 0]
    assert memory.look("shared").spent.calls == 200


def test_a_block_that_fails_saves_nothing(tmp_path: Path) -> None:
    memory = Memory(tmp_path, SystemClock())
    with memory.session("s") as state:
        state.turn = 1

    def fail() -> None:
        with memory.session("s") as state:
            state.turn = 2
            state.turn //= 0

    with pytest.raises(ZeroDivisionError):
        fail()
    assert memory.look("s").turn == 1


def test_a_review_in_flight_overwrites_nothing(school: Settings, repo: Path) -> None:
    """While the model thinks, the next turn spends, holds and notes; all of it is there afterwards."""
    thinking, go_on = threading.Event(), threading.Event()

    def slow(_prompt: str) -> str:
        thinking.set()
        assert go_on.wait(20)
        return finding("From the background")

    model = Model(slow, '{"advice": "a"}')
    session = Session(school, repo, model, {"active_every_turns": 1, "completion_review": False})
    session.begin("First.")
    session.hooks.fire("post_llm_call", session_id="s1", assistant_response="Done.")
    assert thinking.wait(20)
    session.begin("Second.")
    session.coach.tools()[0].handler({"question": "?"}, session_id="s1")
    session.coach.command("note Keep this.")
    go_on.set()
    assert session.coach.idle(20)
    state = session.coach.memory.look("s1")
    assert (state.turn, state.note, state.spent.calls) == (2, "Keep this.", 2)
    assert state.calls == {"consult": 1}
    assert [turn.user for turn in state.turns().turns] == ["First.", "Second."]
    assert [note.turn for note in state.pending] == [1]
    assert "From the background" in session.begin("Third.")
    session.close()


def test_newest_wins_and_one_is_in_flight(school: Settings, repo: Path) -> None:
    thinking, go_on = threading.Event(), threading.Event()

    def slow(_prompt: str) -> str:
        thinking.set()
        assert go_on.wait(20)
        return OK

    model = Model(slow, OK)
    session = Session(school, repo, model, {"active_every_turns": 1, "completion_review": False})
    for number in range(4):
        session.begin(f"Turn {number}.")
        session.hooks.fire("post_llm_call", session_id="s1", assistant_response=f"Answer {number}.")
        assert thinking.wait(20)
    assert len(model.calls) == 1
    go_on.set()
    assert session.coach.idle(20)
    assert len(model.calls) == 2
    assert "Answer 3." in model.calls[1][1]
    session.close()


def test_the_worker_forgets_what_waits_when_it_is_closed() -> None:
    started, go_on = threading.Event(), threading.Event()
    done: list[int] = []

    def work(item: int) -> None:
        started.set()
        assert go_on.wait(20)
        done.append(item)

    worker = Worker(work)
    assert worker.idle(0)
    worker.queue(1)
    assert started.wait(20)
    worker.queue(2)
    worker.queue(3)
    assert not worker.idle(0.01)
    worker.close()
    worker.queue(4)
    go_on.set()
    assert worker.idle(20)
    assert (done, worker.replaced) == ([1], 1)


def test_the_worker_goes_on_after_work_that_raises_where_its_maker_isolates_it(
    school: Settings, repo: Path
) -> None:
    def raising(_prompt: str) -> Answer:
        raise ValueError("a bug")

    session = Session(school, repo, Model(raising, OK), {"active_every_turns": 1, "completion_review": False})
    for _ in range(3):
        session.turn()
    assert session.coach.memory.look("s1").spent.calls >= 2
    session.close()


def test_file_names_are_plain_and_never_shared() -> None:
    names = [
        file_name(name)
        for name in ("a", "A", "../../etc/passwd", "a/b", "a b", "a-b", "", "\udcff", "x" * 500)
    ]
    assert len(set(names)) == len(names)
    for name in names:
        assert "/" not in name
        assert len(name) < 100
        assert name.endswith(".json")


def test_old_and_many_sessions_are_pruned(school: Settings, repo: Path) -> None:
    memory = Memory(school.coach_dir, SystemClock())
    for number in range(6):
        with memory.session(f"s{number}"):
            pass
        os.utime(memory.path(f"s{number}"), (2_000_000_000, 2_000_000_000 + number))
    os.utime(memory.path("s0"), (1_000_000_000, 1_000_000_000))
    dead = subprocess.run(
        [sys.executable, "-c", LEAVE, str(memory.path("s1"))], cwd=ROOT, check=True, capture_output=True
    )
    left = Path(dead.stdout.decode().strip())
    assert left.exists()
    assert memory.prune(most=100, days=30) == 1
    assert not left.exists()
    assert memory.prune(most=3, days=30) == 2
    assert sorted(path.name[:2] for path in (school.coach_dir / "sessions").iterdir()) == ["s3", "s4", "s5"]
    session = Session(school, repo, Model(OK), {"sessions_max": 1})
    session.turn(session_id="now")
    assert len(list((school.coach_dir / "sessions").iterdir())) == 1
    session.close()


def test_nothing_grows_for_ever(school: Settings, repo: Path) -> None:
    session = Session(school, repo, Model(OK), {"completion_review": False})
    memory = session.coach.memory
    with memory.session("s1") as state:
        for number in range(300):
            one = Finding("corrective", f"F {number}", "b" * 600, "e" * 300)
            routing.posted(state, one, turn=number, source="active", at="2030-01-01T00:00:00+00:00")
            routing.pend(state, one, turn=number, source="active", at="2030-01-01T00:00:00+00:00")
            state.held.append(f"turn {number}")
    for number in range(64):
        session.begin(f"{number}" + "u" * 10_000)
        session.tool(command="c" * 10_000)
        session.end("a" * 10_000)
    state = memory.look("s1")
    lengths = [len(rows) for rows in (state.ledger, state.cards, state.advice, state.seen, state.held)]
    assert lengths == [60, 100, 200, 200, 60]
    assert memory.path("s1").stat().st_size < 1_000_000
    session.close()


def test_two_sessions_interleaved_share_nothing(school: Settings, repo: Path) -> None:
    def answer(prompt: str) -> str:
        return finding("For alpha" if "Alpha." in prompt else "For beta")

    session = Session(school, repo, Model(answer), {"active_every_turns": 1, "completion_review": False})
    assert [session.begin("Alpha.", session_id="s1"), session.begin("Beta.", session_id="s2")] == ["", ""]
    session.tool(session_id="s2", command="ls beta")
    session.tool(session_id="s1", command="ls alpha")
    session.end(session_id="s2")
    session.end(session_id="s1")
    contexts = [session.begin("On.", session_id=name) for name in ("s1", "s2")]
    assert ["For alpha" in contexts[0], "For beta" in contexts[0]] == [True, False]
    assert ["For alpha" in contexts[1], "For beta" in contexts[1]] == [False, True]
    states = [session.coach.memory.look(name) for name in ("s1", "s2")]
    assert [next(row["cards"] for row in state.ledger) for state in states] == [
        ["terminal(ls alpha) ok: did it"],
        ["terminal(ls beta) ok: did it"],
    ]
    assert [state.spent.calls for state in states] == [1, 1]
    session.close()
