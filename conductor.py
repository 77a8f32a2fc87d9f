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

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from school.errors import SchoolError

if TYPE_CHECKING:
    from school.settings import Settings
    from school.supervisor.plan import Plan
    from school.supervisor.request import Request
    from school.supervisor.result import Result

MACHINE_EXIT: Final = 3
USAGE_EXIT: Final = 2
SIGNALLED: Final = 128
_F = TypeVar("_F", bound=Callable[..., Any])

COMMAND: Final = "python conductor.py"


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


def shared(context: click.Context, repo: str | None, json_: bool) -> tuple[Path, bool]:
    """The repository and whether JSON is wanted, from before or after the subcommand's name."""
    before = context.find_root().params
    return Path(repo or before.get("repo") or "."), bool(json_ or before.get("json_"))


def main() -> None:
    """The entry point; it always exits."""
    sys.exit(entry(sys.argv[1:]))


def entry(argv: Sequence[str]) -> int:  # noqa: PLR0911 - one return a kind of ending
    """Run one command line; every error of the tree becomes a message and its exit code here, and only here."""
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
        click.echo(f"Error: {message}", err=True)
    if json_:
        emit({"error": message, "exit": code})
    return code


def quiet_stdout() -> int:
    """The reader of our output went away; that is no error, but nothing more can be said either."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def emit(document: object) -> None:
    """The one JSON document, valid UTF-8 whatever is in it."""
    from school.system import files

    sys.stdout.buffer.write(files.dumps(document))
    sys.stdout.buffer.flush()


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
    from school.supervisor.result import nothing

    base_commit = ""
    if resume:
        earlier = to_resume(request, settings)
        if earlier is None:
            return over(
                nothing(request.repo), f"Nothing to resume: no run was begun on {request.repo}.", json_=json_
            )
        request, base_commit = earlier
    plan, result = execute(request, settings, base_commit=base_commit, json_=json_)
    tell(result, plan, json_=json_)
    return result.exit


def execute(
    request: Request, settings: Settings, *, json_: bool, base_commit: str = ""
) -> tuple[Plan, Result]:
    """Check everything, then run."""
    from school import delivery
    from school.supervisor.plan import prepare
    from school.supervisor.run import run_plan
    from school.supervisor.screen import screen
    from school.system import log

    plan = prepare(request, settings, base_commit=base_commit)
    prefix = plan.config.delivery.prefix
    delivery.refuse_branches(plan.repository, plan.tasks, prefix)
    log.configure("conductor", path=settings.logs_dir / "conductor.log", to_stderr=False)
    with screen(json_=json_) as shown:
        result = run_plan(
            plan,
            screen=shown,
            deliver=lambda bag, repository, clone: delivery.deliver(bag, repository, clone, prefix=prefix),
            reviewer=inline_reviewer() if request.sync else None,
        )
    return plan, result


def inline_reviewer() -> Callable[[str, str], str]:
    """Both teachers in this process, for ``--sync``: the same checks, the same records."""
    from school.contracts import TEACHER_ROLES
    from teacher import TeacherWorktree

    teachers: dict[str, TeacherWorktree] = {}

    def review(role: str, bead: str) -> str:
        assert role in TEACHER_ROLES
        if role not in teachers:
            teachers[role] = TeacherWorktree(role)
            teachers[role].boot()
        return teachers[role].review(bead)

    return review


def over(document: Mapping[str, Any], message: str, *, json_: bool) -> int:
    """The end of what did not even begin."""
    from school.supervisor.rounds import last_line

    if json_:
        emit(document)
    else:
        click.echo(message)
        click.echo(last_line(document["counts"]))
    return 0


def tell(result: Result, plan: Plan, *, json_: bool) -> None:
    """The end of a run: one document, or for people what was delivered, how to merge it, and the last line."""
    from school.supervisor.rounds import last_line

    if result.error:
        click.echo(f"Error: {result.error}", err=True)
    if json_:
        emit({**result.document, "error": result.error} if result.error else result.document)
        return
    for row in result.document["tasks"]:
        if row["branch"]:
            tell_delivery(row, plan)
    if result.exit > SIGNALLED or result.error:
        click.echo(f"Continue with: {COMMAND} --resume --repo {shlex.quote(str(plan.repository.path))}")
    click.echo(last_line(result.document["counts"]))


def tell_delivery(row: Mapping[str, Any], plan: Plan) -> None:
    """What a branch holds, and the exact commands to look at it and to merge it."""
    from school import delivery
    from school.supervisor.board import bag_of
    from school.worktrees import clone_for

    bag = bag_of(row["bead"])
    if bag is not None:
        click.echo(f"\n{row['id']} is on branch {row['branch']}:")
        for line in delivery.instructions(bag, plan.repository, clone_for(bag), row):
            click.echo(f"  {line}")


# --- between runs -------------------------------------------------------------------------------------------


def clean(flags: Mapping[str, Any]) -> int:
    """``--clean-worktrees``."""
    from school.supervisor.upkeep import clean_worktrees

    rows = clean_worktrees(Path(flags["repo"] or "."), read_settings(), dry_run=flags["dry_run"])
    rows_out(rows, json_=flags["json_"], nothing="No worktree is left over.")
    return 0


def rows_out(rows: Sequence[Mapping[str, Any]], *, json_: bool, nothing: str) -> None:
    """Rows as one document, or a line each."""
    if json_:
        emit(list(rows))
        return
    from school.supervisor.screen import printable

    for row in rows:
        click.echo("  ".join(printable(str(value)) for value in row.values() if value))
    if not rows:
        click.echo(nothing)


@cli.command()
@common
@click.pass_context
def init(context: click.Context, repo: str | None, json_: bool) -> None:
    """Write school.toml and school-tasks.yaml to begin with."""
    from school.supervisor.starter import init as write_files

    where, json_ = shared(context, repo, json_)
    rows_out(write_files(where), json_=json_, nothing="")


@cli.command()
@common
@click.argument("task")
@click.pass_context
def retry(context: click.Context, repo: str | None, json_: bool, task: str) -> None:
    """Let a task that was rejected, failed or blocked begin its attempts again."""
    from school.supervisor.upkeep import retry as retry_task

    where, json_ = shared(context, repo, json_)
    row = retry_task(task, where, read_settings())
    if json_:
        emit(row)
    else:
        rows_out([row], json_=False, nothing="")


@cli.command()
@common
@click.argument("bead", required=False)
@click.option("--all", "all_", is_flag=True, help="Every bead of this repository.")
@click.pass_context
def recover(context: click.Context, repo: str | None, json_: bool, bead: str | None, all_: bool) -> None:
    """Bring the work of a bead into the repository, and say where it is."""
    from school.supervisor.upkeep import recover as recover_work

    if bool(bead) == all_:
        raise click.UsageError("give a BEAD, or --all")
    where, json_ = shared(context, repo, json_)
    rows_out(
        recover_work([bead] if bead else [], where, read_settings()), json_=json_, nothing="There is no work."
    )


@cli.command()
@common
@click.pass_context
def stop(context: click.Context, repo: str | None, json_: bool) -> None:
    """End the conductor of this repository, and the teachers if nobody else needs them."""
    from school.supervisor.upkeep import stop as stop_processes

    where, json_ = shared(context, repo, json_)
    rows_out(stop_processes(where, read_settings()), json_=json_, nothing="Nothing is running.")


@cli.command()
@common
@click.pass_context
def demo(context: click.Context, repo: str | None, json_: bool) -> None:
    """Run six students on a small repository of their own, and see each end as it should."""
    _, json_ = shared(context, None, json_)
    if repo or context.find_root().params.get("repo"):
        raise click.UsageError("demo makes its own repository")
    from school.demo import demonstrate

    context.exit(
        demonstrate(lambda request, here: execute(request, here, json_=json_)[1], json_=json_, emit=emit)
    )


if __name__ == "__main__":
    from conductor import main

    main()
