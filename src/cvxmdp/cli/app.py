"""The program itself: its name, its help, what it exits with, and one sentence for whatever goes wrong."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated, Any, NoReturn

import typer

from cvxmdp.cli import ranks
from cvxmdp.names import printable

NAME = "cvxmdp"

DONE, REFUSED, BAD_INPUT, INFEASIBLE, LIMIT = 0, 1, 2, 3, 4
"""Exit codes: all is well; a claim is false or a limit exceeded; bad input; no policy obeys; stopped before a proof."""
INTERRUPTED = 130
"""Exit code of Ctrl-C before there is anything to show, as shells have it."""

app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "Plan in Markov decision processes under convex constraints, with proofs.\n\n"
        "Exit codes: 0 done and proven, 1 a claim is false or a policy exceeds a limit, 2 bad input, "
        "3 no policy obeys, 4 stopped before a proof."
    ),
)


def _version(asked: bool) -> None:
    if asked:
        from cvxmdp import __version__

        typer.echo(f"{NAME} {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
    elif context.invoked_subcommand != "solve" and ranks.world() is not None:
        raise ValueError(
            f"{context.invoked_subcommand} runs in one place; start it without the launcher of MPI, which is for solve"
        )


def main() -> NoReturn:
    """Run the command line: bad input is one sentence on standard error and exit code 2, a warning is one sentence."""
    warnings.showwarning = _warned
    if ranks.launched() > 1:
        ranks.run(_run, BAD_INPUT)
    code, wrong = _run()
    if wrong is not None:
        print(wrong, file=sys.stderr)
    sys.exit(code)


def _run() -> tuple[int, str | None]:
    """Run a command; return what to exit with, and what went wrong."""
    try:
        code = app(prog_name=NAME, standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        return _failed("interrupted", INTERRUPTED)
    except OSError as error:
        where = f": {error.filename}" if error.filename is not None else ""
        return _failed(f"{error.strerror or error}{where}", BAD_INPUT)
    except MemoryError as error:
        return _failed(
            f"there is not enough memory: {error}" if str(error) else "there is not enough memory", BAD_INPUT
        )
    except (ValueError, ImportError) as error:
        return _failed(str(error), BAD_INPUT)
    except Exception as error:
        # A command line that cannot be read.  Which class says so depends on typer's version; they share this method.
        said = getattr(error, "format_message", None)
        if said is None:
            raise
        context = getattr(error, "ctx", None)
        return _failed(f"{said().rstrip('.')}; see {context.command_path if context else NAME} --help", BAD_INPUT)
    if code == INTERRUPTED:  # newer versions of typer take Ctrl-C for an exit
        return _failed("interrupted", INTERRUPTED)
    return (code if isinstance(code, int) else DONE), None


def _warned(message: Warning | str, *_: Any, **__: Any) -> None:
    print(printable(f"{NAME}: warning: {message}"), file=sys.stderr)


def _failed(said: str, code: int) -> tuple[int, str]:
    return code, printable(f"{NAME}: {said}")
