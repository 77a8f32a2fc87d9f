"""The Principal: the command line, and the composition root of a run.

Everything that a user types comes through here: flags become a ``Request``, a run's result becomes the last line, the
one JSON document and the exit code. Imports are made where they are needed, so that ``--help`` and ``status`` do not
pay for a run. What a run does is in ``school.supervisor``; here it is only given its hands: settings, a screen, and
for ``--sync`` the teachers themselves.

Exit: 0 all accepted or unchanged · 1 some not · 2 what was typed or written · 3 what the machine lacks · 4 another
conductor holds the repository · 128+n on signal n. With ``--json`` stdout carries exactly one document, also when it
has to say what went wrong: ``{"error": ..., "exit": ...}``.
"""

from __future__ import annotations

if __name__ == "__main__":
    # By name, so that there is one module object for whoever imports it besides; and here, not to build it twice.
    from conductor import main as main_by_name

    main_by_name()

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from school import masking
from school.errors import SchoolError
from school.status.flags import GOVERNOR, HERMES, PRUNE, VERIFY
from school.status.output import emit, rows_out

if TYPE_CHECKING:
    from pathlib import Path

    from school.settings import Settings
    from school.supervisor.request import Request
    from school.supervisor.result import Result

MACHINE_EXIT: Final = 3
USAGE_EXIT: Final = 2
_F = TypeVar("_F", bound=Callable[..., Any])

EVERY: Final = "Every bead of this repository."


def common(command: _F) -> _F:
    """``--repo`` and ``--json``, which may stand before or after a subcommand's name."""
    command = click.option("--json", "json_", is_flag=True, help="One JSON document on stdout.")(command)
    return click.option("--repo", metavar="DIR", help="The git repository [default: this directory].")(
        command
    )


@click.group(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Without a command: one run over the repository's task file. Exit: 0 all accepted or unchanged, "
    "1 some not, 2 usage, 3 the machine lacks something, 4 another conductor is at work, 128+n on signal n.",
)
@common
@click.option("--tasks", metavar="FILE", help="The task file [default: school-tasks.yaml in the repository].")
@click.option("--task", metavar="TEXT", help="One task in words, in place of a task file.")
@click.option("--loop", is_flag=True, help="Rounds until nothing is ready, not just one.")
@click.option("--rounds", type=int, metavar="N", help="With --loop: at most N rounds.")
@click.option("--leaves", type=int, metavar="K", help="At most K students at once [default: 2].")
@click.option("--role", metavar="R", help="With --task: searcher, executor, coder, reviewer or browser.")
@click.option("--domain", metavar="D", help="With --task: what kind of work it is, for scores.")
@click.option("--difficulty", metavar="D", help="With --task: easy, medium, hard or blocker.")
@click.option("--agent", metavar="NAME", help="Who is to do tasks that name nobody.")
@click.option("--run", metavar="CMD", help="With --task: a command that does it.")
@click.option("--chore", metavar="NAME", help="With --task: a named chore that does it.")
@click.option("--accept", multiple=True, metavar="TEXT", help="With --task: an acceptance criterion.")
@click.option("--check", multiple=True, metavar="CMD", help="With --task: the command that checks it.")
@click.option("--base", metavar="REF", help="The commit to start from [default: HEAD].")
@click.option("--sync", is_flag=True, help="Review in this process, without teacher processes.")
@click.option("--resume", is_flag=True, help="Continue the last run, with its tasks and options.")
@click.option("--handoff-timeout", type=float, metavar="S", help="Longest wait without progress on a review.")
@click.option(
    "--sandbox", type=click.Choice(["auto", "require", "off"]), help="Confine agents [default: auto]."
)
@click.option("--clean-worktrees", is_flag=True, help="Remove what dead runs left; nothing unsaved is lost.")
@click.option("--dry-run", is_flag=True, help="With --clean-worktrees: only say what would be done.")
@click.pass_context
def cli(context: click.Context, /, **flags: Any) -> None:  # noqa: ANN401 - click hands over one value a flag
    """Give a list of tasks on a git repository to students, have two teachers judge, deliver what both pass."""
    if context.invoked_subcommand is None:
        context.exit(clean(flags) if flags["clean_worktrees"] else run(flags))
    given = [name for name, value in flags.items() if value and name not in ("repo", "json_")]
    if given:
        flag = "--" + given[0].replace("_", "-")
        raise click.UsageError(f"{flag} belongs to a run, not to the command {context.invoked_subcommand}")


class Asked(NamedTuple):
    """What every subcommand is told: which repository, whether it was named, whether JSON is wanted, the settings."""

    repo: Path
    named: bool
    json: bool
    settings: Settings


def asked_of(repo: str | None, *, json_: bool | None) -> Asked:
    """What was asked; ConfigError, before anything else is done, names a variable that cannot be."""
    from pathlib import Path

    return Asked(Path(repo or "."), bool(repo), bool(json_), read_settings())


def command(
    name: str, *parameters: Callable[[Any], Any]
) -> Callable[[Callable[..., int | None]], click.Command]:
    """A subcommand: its body gets an ``Asked`` and its own parameters, and returns its exit code or nothing."""

    def make(body: Callable[..., int | None]) -> click.Command:
        @click.pass_context
        def entered(context: click.Context, /, *, repo: str | None, json_: bool, **given: Any) -> None:  # noqa: ANN401
            before = context.find_root().params
            asked = asked_of(repo or before.get("repo"), json_=json_ or before.get("json_"))
            context.exit(body(asked, **given) or 0)

        for parameter in parameters:
            entered = parameter(entered)
        return cli.command(name, help=body.__doc__)(common(entered))

    return make


def main() -> None:
    """The entry point; it always exits."""
    masking.guard_tracebacks()
    sys.exit(entry(sys.argv[1:]))


def entry(argv: Sequence[str]) -> int:  # noqa: PLR0911 - one return a kind of ending
    """Run one command line; every error of the tree becomes a message and its exit code here, and only here."""
    masking.install()
    json_ = "--json" in argv
    try:
        code = cli.main(args=list(argv), prog_name="conductor.py", standalone_mode=False)
    except click.UsageError as error:
        error.show(sys.stderr)
        return refused(error.format_message(), USAGE_EXIT, json_=json_, shown=True)
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return refused("interrupted", 130, json_=json_)
    except BrokenPipeError:
        from school.status.render import quiet_stdout

        return quiet_stdout()
    except SchoolError as error:
        return refused(str(error), error.exit_code, json_=json_)
    except OSError as error:
        return refused(
            f"{error.filename or 'the machine'}: {error.strerror or error}", MACHINE_EXIT, json_=json_
        )
    return code if isinstance(code, int) else 0


def refused(message: str, code: int, *, json_: bool, shown: bool = False) -> int:
    """Say why nothing (more) was done, on stderr, and with ``--json`` in the one document too."""
    if not shown:
        click.echo(masking.text(f"Error: {message}"), err=True)
    if json_:
        emit({"error": message, "exit": code})
    return code


def read_settings() -> Settings:
    """This process' settings; ConfigError names a variable that cannot be."""
    from school import settings

    return settings.current()


# --- a run --------------------------------------------------------------------------------------------------


def run(flags: Mapping[str, Any]) -> int:
    """One run of the conductor."""
    settings = read_settings()
    return conduct(request_of(flags), settings, resume=flags["resume"], json_=flags["json_"])


def request_of(flags: Mapping[str, Any]) -> Request:
    """The flags as data; what only makes sense together is checked here."""
    from school.errors import ConfigError
    from school.supervisor.request import Request

    if flags["dry_run"]:
        raise click.UsageError("--dry-run belongs to --clean-worktrees")
    try:
        return Request.from_flags(flags)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None


def conduct(request: Request, settings: Settings, *, resume: bool, json_: bool) -> int:
    """Plan, run, tell; the exit code."""
    from school.supervisor.request import to_resume
    from school.supervisor.result import nothing_to_resume

    earlier = to_resume(request, settings) if resume else (request, "")
    result = execute(*earlier, settings, json_=json_) if earlier else nothing_to_resume(request.repo)
    tell(result, json_=json_)
    return result.exit


def execute(request: Request, base_commit: str, settings: Settings, *, json_: bool) -> Result:
    """Check everything, then run."""
    from school import delivery, inline
    from school.supervisor.plan import prepare
    from school.supervisor.run import run_plan
    from school.supervisor.screen import screen
    from school.system import log

    plan = prepare(request, settings, base_commit=base_commit)
    masking.learn(*plan.config.agents.values())
    prefix = plan.config.delivery.prefix
    log.configure("conductor", path=settings.logs_dir / "conductor.log", to_stderr=False)
    with screen(json_=json_) as shown:
        return run_plan(
            plan,
            screen=shown,
            deliver=lambda bag, repository, clone: delivery.deliver(bag, repository, clone, prefix=prefix),
            reviewer=inline.reviewer() if request.sync else None,
        )


def tell(result: Result, *, json_: bool) -> None:
    """The end of a run: one document, or for people what was delivered, how to merge it, and the last line."""
    from school import delivery
    from school.supervisor.result import for_people

    if result.error:
        click.echo(masking.text(f"Error: {result.error}"), err=True)
    if json_:
        emit({**result.document, "error": result.error} if result.error else result.document)
        return
    for line in for_people(result, delivery.instructions):
        click.echo(masking.text(line))


# --- between runs -------------------------------------------------------------------------------------------


def clean(flags: Mapping[str, Any]) -> int:
    """``--clean-worktrees``."""
    from school.supervisor.upkeep import clean_worktrees

    asked = asked_of(flags["repo"], json_=flags["json_"])
    rows = clean_worktrees(asked.repo, asked.settings, dry_run=flags["dry_run"])
    rows_out(rows, json_=asked.json, nothing="No worktree is left over.")
    return 0


@command("init")
def init(asked: Asked) -> None:
    """Write school.toml and school-tasks.yaml to begin with."""
    from school.supervisor.starter import init as write_files

    rows_out(write_files(asked.repo), json_=asked.json, nothing="")


@command("retry", click.argument("task"))
def retry(asked: Asked, task: str) -> None:
    """Let a task that was rejected, failed or blocked begin its attempts again."""
    from school.supervisor.upkeep import retry as retry_task

    row = retry_task(task, asked.repo, asked.settings)
    if asked.json:
        emit(row)
    else:
        click.echo(
            f"{task}: its attempts begin again"
            + "".join(f"\narchived {bead}" for bead in row["archived"])
            + "".join(f"\n{bead}: the next run tries its delivery again" for bead in row["readmitted"])
        )


@command(
    "recover", click.argument("bead", required=False), click.option("--all", "all_", is_flag=True, help=EVERY)
)
def recover(asked: Asked, bead: str | None, *, all_: bool) -> None:
    """Bring back, as branches, what was saved of a bead, or all that was saved and not delivered."""
    from school.supervisor.recovery import recover as recover_work

    if bool(bead) == all_:
        raise click.UsageError("give a BEAD, or --all")
    rows_out(
        recover_work([bead] if bead else [], asked.repo, asked.settings),
        json_=asked.json,
        nothing="There is no work.",
    )


@command("prune", *PRUNE)
def prune(asked: Asked, *, apply: bool, **limits: Any) -> None:  # noqa: ANN401 - click hands over one value a flag
    """Name what is left of finished beads beyond the limits; with --apply, remove it. Unmerged work is kept."""
    from school.supervisor.retention import Keep
    from school.supervisor.retention import prune as prune_beads

    rows = prune_beads(asked.repo, asked.settings, Keep(**limits), apply=apply)
    rows_out(rows, json_=asked.json, nothing="Nothing is beyond the limits.")


@command("stop")
def stop(asked: Asked) -> None:
    """End the conductor of this repository, and the teachers if nobody else needs them."""
    from school.supervisor.upkeep import stop as stop_processes

    rows_out(stop_processes(asked.repo, asked.settings), json_=asked.json, nothing="Nothing is running.")


@command("demo")
def demo(asked: Asked) -> int:
    """Run six students on a small repository of their own, and see each end as it should."""
    from school.demo import demonstrate

    if asked.named:
        raise click.UsageError("demo makes its own repository")

    def perform(request: Request, settings: Settings) -> Result:
        return execute(request, "", settings, json_=asked.json)

    return demonstrate(perform, json_=asked.json, emit=emit)


# --- looking ------------------------------------------------------------------------------------------------


def show_document(name: str, document: object, asked: Asked) -> None:
    """One of the documents of ``school.status``, for programs or for people."""
    if asked.json:
        emit(document)
        return
    from school.status.render import show_on

    show_on(sys.stdout, name, document)


@command("status", click.option("--watch", is_flag=True, help="Again whenever it changes, until Ctrl-C."))
def status(asked: Asked, *, watch: bool) -> None:
    """Show who is at work, and what waits."""
    from school.status.documents import status_document

    if not watch:
        show_document("status", status_document(asked.settings, repo=asked.repo), asked)
        return
    if asked.json:
        raise click.UsageError("--watch is for people; ask again for another document")
    from school.status.watching import watch as watch_again

    watch_again(asked.settings, asked.repo)


@command("list", click.option("--all", "all_", is_flag=True, help="The finished ones too."))
def list_(asked: Asked, *, all_: bool) -> None:
    """List the beads; with --repo only those of that repository."""
    from school.status.documents import list_rows

    key = None
    if asked.named:
        from school.worktrees import inspect_repository

        key = inspect_repository(asked.repo).key
    show_document("list", list_rows(asked.settings, archived=all_, repo_key=key), asked)


@command("show", click.argument("bead"))
def show(asked: Asked, bead: str) -> None:
    """Show everything that is known of one bead."""
    from school.status import documents

    show_document("show", documents.show(asked.settings, bead), asked)


@command("leaderboard")
def leaderboard(asked: Asked) -> None:
    """Show how well each agent does, per role and domain."""
    from school.scores import ScoreBook

    show_document("leaderboard", ScoreBook(asked.settings).leaderboard(), asked)


@command("check", click.option("--repair", is_flag=True, help="Put right what can be, losing nothing."))
def check(asked: Asked, *, repair: bool) -> int:
    """Prove the invariants of the state directory; exit 1 naming what fails."""
    from school.status.check import check_document, failed

    if repair:
        from school.supervisor.opening import hold
        from school.worktrees import inspect_repository

        with hold(inspect_repository(asked.repo), asked.settings, "check --repair"):
            rows = check_document(asked.settings, repair=True)
    else:
        rows = check_document(asked.settings)
    show_document("check", rows, asked)
    return int(failed(rows))


@command("doctor")
def doctor(asked: Asked) -> int:
    """Say what this machine has, and whether a run could start; exit 3 when not."""
    from school.status.check import failed
    from school.status.doctor import doctor_document

    rows = doctor_document(asked.settings, repo=asked.repo, explicit=asked.named)
    show_document("doctor", rows, asked)
    return MACHINE_EXIT if failed(rows) else 0


@command("verify", *VERIFY)
def verify(asked: Asked, **wished: Any) -> int:  # noqa: ANN401 - click hands over one value a flag
    """Install, build, test and start a project as its recipe says; exit 1 when that fails."""
    from school.status.verify import Wish, perform

    return perform(Wish.of(asked.repo, wished), asked.settings, emit if asked.json else None)


@command("governor", *GOVERNOR)
def governor(asked: Asked, words: tuple[str, ...]) -> int:
    """Show how the governor sees its sessions or one of them, or a line of its report."""
    from school.status.governor import perform

    return perform(asked.settings, words, emit if asked.json else None)


@command("hermes", *HERMES)
def hermes(asked: Asked, action: str) -> int:
    """Put our plugin into the Hermes home, or say how it is there; exit 1 when it is not in force."""
    from school.status.hermes import install, state

    rows = install(asked.settings) if action == "install" else state(asked.settings)
    show_document("doctor", rows, asked)
    return int(any(row["ok"] is False for row in rows))
