from __future__ import annotations

import contextlib
import os
import shlex
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from school.verification.phases import environment
from school.verification.recipe import Recipe
from school.verification.service import Readiness, Service, taken
from tests.support import write_tree

SERVER = """
import http.server, socket, sys

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(500 if self.path == "/broken" else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

class Server(http.server.HTTPServer):
    address_family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET

print("here I am", flush=True)
Server((sys.argv[1], int(sys.argv[2])), Answer).serve_forever()
"""
PYTHON = shlex.quote(sys.executable)


def free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])


@contextlib.contextmanager
def listener(port: int = 0) -> Iterator[int]:
    """Something of ours that is at home on a port."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", port))
        held.listen()
        yield held.getsockname()[1]


class Place:
    """A directory with a server in it; ``check`` starts a line there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        write_tree(root, {"server.py": SERVER})

    def check(
        self,
        line: str,
        *,
        port: int | None = None,
        wanted: int | None = None,
        path: str = "/",
        ready_s: float = 60.0,
    ) -> Readiness:
        recipe = Recipe("x", start=line, port=port, readiness_path=path)
        mark = f"verify-test-{os.urandom(6).hex()}"
        output = self.root / "output"
        env = environment(self.root)
        service = Service(recipe, self.root, env, port=wanted, ready_s=ready_s, marker=mark, output=output)
        return service.check(lambda: None)

    def pids(self) -> list[int]:
        return [int(word) for word in (self.root / "pids").read_text().split()]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_service_answers_and_is_ended(place: Place) -> None:
    port = free_port()
    answer = place.check(f"echo $$ > pids; {PYTHON} server.py 127.0.0.1 {port}", port=port)
    assert (answer.ready, answer.status, answer.error) == (True, 200, "")
    assert answer.url == f"http://127.0.0.1:{port}/"
    assert answer.output == "here I am\n" or answer.output.startswith("here I am\n")
    assert answer.pid is not None
    assert not psutil.pid_exists(answer.pid)
    assert not psutil.pid_exists(place.pids()[0])
    assert taken(port) == ""


def test_any_status_is_an_answer(place: Place) -> None:
    port = free_port()
    answer = place.check(f"{PYTHON} server.py 0.0.0.0 {port}", port=port, path="/broken")
    assert (answer.ready, answer.status, answer.url) == (True, 500, f"http://127.0.0.1:{port}/broken")


def test_a_service_that_listens_on_ipv6_only_is_asked_there(place: Place) -> None:
    try:
        with socket.socket(socket.AF_INET6) as tried:
            tried.bind(("::1", 0))
    except OSError as cause:
        pytest.skip(f"this machine has no IPv6: {cause}")
    port = free_port()
    answer = place.check(f"{PYTHON} server.py ::1 {port}", port=port)
    assert (answer.ready, answer.url) == (True, f"http://[::1]:{port}/")


def test_a_port_that_nobody_named_is_found(place: Place) -> None:
    port = free_port()
    answer = place.check(f"{PYTHON} server.py 127.0.0.1 {port}")
    assert (answer.ready, answer.url) == (True, f"http://127.0.0.1:{port}/")


def test_the_port_that_is_wished_for_is_told_to_the_service(place: Place) -> None:
    usual, wanted = free_port(), free_port()
    named = place.check(f"{PYTHON} server.py 127.0.0.1 {usual}", port=usual, wanted=wanted)
    assert (named.ready, named.url) == (True, f"http://127.0.0.1:{wanted}/")
    by_variable = place.check(f"{PYTHON} server.py 127.0.0.1 $PORT", wanted=wanted)
    assert (by_variable.ready, by_variable.url) == (True, f"http://127.0.0.1:{wanted}/")


def test_a_port_that_is_taken_is_refused_and_nothing_started(place: Place) -> None:
    with listener() as port:
        answer = place.check(f"touch started; {PYTHON} server.py 127.0.0.1 {port}", port=port)
    assert not answer.ready
    assert f"port {port} is taken already, by " in answer.error
    assert f"(pid {os.getpid()})" in answer.error
    assert not (place.root / "started").exists()


def test_a_death_at_once_is_told_at_once_with_its_output(place: Place) -> None:
    took = []
    for _ in range(3):
        answer = place.check("date +%s.%N > died; echo no database >&2; exit 3", port=free_port(), ready_s=60)
        assert not answer.ready
        assert "it ended by itself (exit 3) after " in answer.error
        assert answer.output == "no database\n"
        took.append(time.time() - float((place.root / "died").read_text()))
    # From its death to its being told, all of it ended; of three, for a busy machine.
    assert min(took) < 1, took


def test_a_service_that_goes_to_the_background_is_no_service(place: Place) -> None:
    port = free_port()
    answer = place.check(f"{PYTHON} server.py 127.0.0.1 {port} & echo $! > pids", port=port)
    assert "it ended by itself (exit 0)" in answer.error
    assert not psutil.pid_exists(place.pids()[0])


def test_five_megabytes_of_output_block_nothing(place: Place) -> None:
    port = free_port()
    noise = "import os; [os.write(1, b'x' * 1023 + b'\\n') for _ in range(5 * 1024)]"
    answer = place.check(f'{PYTHON} -c "{noise}"; {PYTHON} server.py 127.0.0.1 {port}', port=port)
    assert answer.ready
    assert len(answer.output) <= 2000
    assert "here I am" in answer.output


def test_not_even_a_grandchild_in_a_session_of_its_own_is_left(place: Place) -> None:
    write_tree(
        place.root,
        {
            "family.py": (
                "import os, subprocess, sys, time\n"
                "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(9999)'],\n"
                "                         start_new_session=True, env={})\n"
                "print(child.pid, file=open('pids', 'w'), flush=True)\n"
                "os.execv(sys.executable, [sys.executable, 'server.py', *sys.argv[1:]])\n"
            )
        },
    )
    port = free_port()
    answer = place.check(f"{PYTHON} family.py 127.0.0.1 {port}", port=port)
    assert answer.ready
    assert not psutil.pid_exists(place.pids()[0])


def test_what_answers_must_be_ours(place: Place) -> None:
    """Nobody is on the port before; somebody else takes it while our service dawdles."""
    port = free_port()
    held = threading.Event()

    def take() -> None:
        while not (place.root / "started").exists() and not held.wait(0.05):
            continue
        with listener(port):
            held.wait(60)

    thief = threading.Thread(target=take)
    thief.start()
    try:
        answer = place.check("touch started; sleep 9999", port=port, ready_s=6)
    finally:
        held.set()
        thief.join()
    assert not answer.ready
    assert "no answer within 6 s from what was started; the port is served by " in answer.error


def test_a_service_on_another_port_is_found_out(place: Place) -> None:
    port, other = free_port(), free_port()
    answer = place.check(f"{PYTHON} server.py 127.0.0.1 {other}", port=port, ready_s=10)
    assert answer.error == f"no answer within 10 s: it listens on {other} instead"


def test_what_listens_and_says_nothing_is_not_ready(place: Place) -> None:
    silent = "import socket, time; s = socket.create_server(('127.0.0.1', {})); s.accept()[0].close(); time.sleep(99)"
    port = free_port()
    answer = place.check(f'{PYTHON} -c "{silent.format(port)}"', port=port, ready_s=10)
    assert not answer.ready
    assert f"no answer within 10 s: http://127.0.0.1:{port}/: " in answer.error


def test_nothing_that_listens_is_said(place: Place) -> None:
    answer = place.check("sleep 9999", ready_s=1)
    assert answer.error == "no answer within 1 s: nothing that was started listens on a port"
